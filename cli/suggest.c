#include "cli/suggest.h"

#include <ctype.h>
#include <string.h>

#include "base/arithmetic.h"

#define LONGEST 63

static int same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Damerau-Levenshtein distance in the "optimal string alignment" form, row by row. */
static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t rows[3][LONGEST + 1];
    for (size_t j = 0; j <= n_b; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        size_t *now = rows[i % 3];
        const size_t *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            now[j] = dt_min_size(dt_min_size(last[j], now[j - 1]) + 1,
                                 last[j - 1] + !same(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
                now[j] = dt_min_size(now[j], before[j - 2] + 1);
            }
        }
    }
    return rows[n_a % 3][n_b];
}

void dt_suggest_offer(struct dt_suggestion *suggestion, const char *candidate)
{
    const size_t n_word = strlen(suggestion->word), n_candidate = strlen(candidate);
    const size_t longer = n_word > n_candidate ? n_word : n_candidate;
    if (longer > LONGEST || n_word == 0) {
        return;
    }
    const size_t d = distance(suggestion->word, n_word, candidate, n_candidate);
    const size_t limit = longer < 6 ? 1 + (longer > 3) : longer / 3;
    if (d <= limit && (suggestion->best == NULL || d < suggestion->distance)) {
        suggestion->best = candidate;
        suggestion->distance = d;
    }
}
