#include "data/bad_images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CURE_SIZE 160
#define N_FIELDS 5

enum dt_status dt_bad_add(struct dt_bad_images *bad, const char *lines, size_t n_bytes)
{
    char *grown = realloc(bad->lines, bad->n_bytes + n_bytes + 1);
    if (grown == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the names of images that cannot be read");
    }
    memcpy(grown + bad->n_bytes, lines, n_bytes);
    bad->n_bytes += n_bytes;
    grown[bad->n_bytes] = '\0';
    bad->lines = grown;
    return DT_OK;
}

/* The text without the brackets at its end, which say how to mend it: a name may have others. */
static size_t length_without_cure(const char *text)
{
    const size_t n = strlen(text);
    size_t at = n > 0 && text[n - 1] == ')' ? n : 0;
    while (at > 0 && strncmp(text + at, " (", 2) != 0) {
        at--;
    }
    DT_ASSERT(at <= n);
    return at > 0 ? at : n;
}

/* Appends a field; its control characters, which separate fields and lines, become question marks.
 */
static char *put_field(char *at, const char *text, size_t n, char separator)
{
    for (size_t i = 0; i < n; i++) {
        *at++ = (char)((unsigned char)text[i] < ' ' ? '?' : text[i]);
    }
    *at++ = separator;
    return at;
}

/* A line: fault, name, folder, split and number, cure, so that sorted lines of one fault follow one
 * another. */
enum dt_status dt_bad_note(struct dt_bad_images *bad, enum dt_split split, size_t id,
                           const char *folder, const char *name)
{
    const char *text = dt_error_text();
    char line[2 * DT_ERROR_TEXT_SIZE + 2 * DT_PATH_SIZE], number[32], *at = line;
    const size_t n_folder = strlen(folder), n_name = strlen(name), n = length_without_cure(text);
    const bool named = strncmp(text, folder, n_folder) == 0 && text[n_folder] == '/' &&
                       strncmp(text + n_folder + 1, name, n_name) == 0 &&
                       strncmp(text + n_folder + 1 + n_name, ": ", 2) == 0;
    const size_t from = named ? n_folder + n_name + 3 : 0;
    const char *cure = text[n] == '\0' ? " (mend it, or move it away)" : text + n;
    DT_ASSERT(text[0] != '\0' && (split == DT_SPLIT_TRAIN || split == DT_SPLIT_TEST));
    DT_ASSERT(n_folder < DT_PATH_SIZE && n_name < DT_PATH_SIZE);
    snprintf(number, sizeof number, "%d %zu", (int)split, id);
    at = put_field(at, text + from, n - from, '\t');
    at = put_field(at, name, n_name, '\t');
    at = put_field(at, folder, n_folder, '\t');
    at = put_field(at, number, strlen(number), '\t');
    at = put_field(at, cure, strlen(cure), '\n');
    DT_ASSERT(at <= line + sizeof line);
    dt_error_clear();
    return dt_bad_add(bad, line, (size_t)(at - line));
}

/* Of cures "(this; or that)" the first one, if they have it in common. */
static void join_cures(const char *other, char cure[CURE_SIZE])
{
    size_t n = 0;
    while (cure[n] != '\0' && cure[n] == other[n]) {
        n++;
    }
    const bool fits = cure[n] == other[n] || (cure[n] == ')' && other[n] == ';');
    while (n > 0 && cure[n] != ';') {
        n--;
    }
    if (!fits) {
        snprintf(n > 0 ? cure + n : cure, n > 0 ? 2 : CURE_SIZE,
                 n > 0 ? ")" : " (mend each of them)");
    }
}

struct line {
    char *fields[N_FIELDS]; /* fault, name, folder, split and number, cure */
};

static int by_fault(const void *a, const void *b)
{
    const struct line *one = a, *two = b;
    for (int f = 0; f < N_FIELDS; f++) {
        const int order = strcmp(one->fields[f], two->fields[f]);
        if (order != 0) {
            return order;
        }
    }
    return 0;
}

/* The lines, each once, sorted; *out is freed. */
static enum dt_status parse(struct dt_bad_images *bad, struct line **out, size_t *n)
{
    size_t n_lines = 0;
    *n = 0;
    for (const char *c = bad->lines; *c != '\0'; c++) {
        n_lines += *c == '\n';
    }
    *out = calloc(n_lines + 1, sizeof **out);
    if (*out == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for %zu images that cannot be read", n_lines);
    }
    char *rest = bad->lines;
    for (size_t i = 0; i < n_lines; i++) {
        char *text = strsep(&rest, "\n");
        for (int f = 0; f < N_FIELDS; f++) {
            (*out)[i].fields[f] = text != NULL ? strsep(&text, "\t") : (char *)"";
        }
    }
    qsort(*out, n_lines, sizeof **out, by_fault);
    for (size_t i = 0; i < n_lines; i++) {
        if (*n == 0 || by_fault(&(*out)[*n - 1], &(*out)[i]) != 0) {
            (*out)[(*n)++] = (*out)[i];
        }
    }
    return DT_OK;
}

/* "a.png, b.png: truncated; c.png: empty file", as far as there is room; the last ones are counted.
 */
static void write_names(const struct line *lines, size_t n, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        const char *fault = lines[i].fields[0];
        const bool last = i + 1 == n || strcmp(fault, lines[i + 1].fields[0]) != 0;
        const size_t needed = strlen(lines[i].fields[1]) + strlen(fault) + 24;
        if (size - used < needed) {
            snprintf(text + used, size - used, "and %zu more", n - i);
            return;
        }
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s%s%s", lines[i].fields[1],
                             last ? ": " : ", ", last ? fault : "", last && i + 1 < n ? "; " : "");
    }
}

static enum dt_status refuse(const struct line *lines, size_t n, size_t most)
{
    char names[DT_ERROR_TEXT_SIZE - 560], cure[CURE_SIZE], more[48] = "";
    snprintf(cure, sizeof cure, "%s", lines[0].fields[4]);
    for (size_t i = 1; i < n; i++) {
        join_cures(lines[i].fields[4], cure);
    }
    write_names(lines, n, names, sizeof names);
    if (most > 0) {
        snprintf(more, sizeof more, ", data.skip_bad is %zu", most);
    }
    return dt_error(DT_BAD_DATA, "%.255s: %zu bad image%s%s: %s%s", lines[0].fields[2], n,
                    n == 1 ? "" : "s", more, names, cure);
}

static int by_number(const void *a, const void *b)
{
    const uint32_t one = *(const uint32_t *)a, two = *(const uint32_t *)b;
    return (one > two) - (one < two);
}

static enum dt_status skip(struct dt_bad_images *bad, const struct line *lines, size_t n)
{
    const size_t before = bad->told != NULL ? strlen(bad->told) + 2 : 0;
    char *told = realloc(bad->told, before + bad->n_bytes + 64 * n + 64);
    if (told == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the names of %zu images", n);
    }
    bad->told = told;
    memcpy(told + (before > 0 ? before - 2 : 0), "; ", before > 0 ? 3 : 0);
    write_names(lines, n, told + before, bad->n_bytes + 64 * n + 64);
    for (size_t i = 0; i < n; i++) {
        char *end;
        const size_t split = strtoul(lines[i].fields[3], &end, 10) == DT_SPLIT_TEST;
        const size_t n_before = bad->n_skipped[split];
        uint32_t *grown = realloc(bad->skipped[split], (n_before + 1) * sizeof *grown);
        if (grown == NULL) {
            return dt_error(DT_NO_MEMORY, "no memory for the numbers of %zu images", n);
        }
        grown[n_before] = (uint32_t)strtoul(end, NULL, 10);
        bad->skipped[split] = grown;
        bad->n_skipped[split]++;
    }
    for (int split = 0; split < 2; split++) {
        if (bad->n_skipped[split] > 1) {
            qsort(bad->skipped[split], bad->n_skipped[split], sizeof(uint32_t), by_number);
        }
    }
    return DT_OK;
}

enum dt_status dt_bad_decide(struct dt_bad_images *bad, size_t most)
{
    struct line *lines;
    size_t n;
    if (bad->lines == NULL) {
        return DT_OK;
    }
    DT_TRY(parse(bad, &lines, &n));
    const enum dt_status s = bad->n_skipped[0] + bad->n_skipped[1] + n > most
                                 ? refuse(lines, n, most)
                                 : skip(bad, lines, n);
    free(lines);
    free(bad->lines);
    bad->lines = NULL;
    bad->n_bytes = 0;
    return s;
}

size_t dt_bad_pass(const struct dt_bad_images *bad, enum dt_split split, size_t i)
{
    for (size_t k = 0; k < bad->n_skipped[split] && bad->skipped[split][k] <= i; k++) {
        i++;
    }
    return i;
}

void dt_bad_close(struct dt_bad_images *bad)
{
    free(bad->lines);
    free(bad->skipped[0]);
    free(bad->skipped[1]);
    free(bad->told);
    *bad = (struct dt_bad_images){0};
}
