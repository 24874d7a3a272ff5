/* Separates what the accuracies of compressed gradients show from chance. */
#include <math.h>
#include <stdio.h>

#include "lab/compression.h"

/* Variance of the share, by the normal approximation. */
static double variance(double share)
{
    return share * (1 - share) / DT_COMPRESSION_N_TEST;
}

double dt_compression_margin(double share)
{
    return 1.96 * sqrt(variance(share));
}

int dt_compression_relation(double share, double other)
{
    const double chance = 1.96 * sqrt(variance(share) + variance(other));
    return share > other + chance ? 1 : share < other - chance ? -1 : 0;
}

/* " fp16, bf16": the types with this relation to none; "" if there are none. */
static void list_types(const struct dt_compression_lesson *l, int feedback, int relation,
                       char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (int type = DT_COMPRESSION_NONE + 1; type < DT_N_COMPRESSION_TYPES && n < size; type++) {
        const double none = l->ways[DT_COMPRESSION_NONE].outcomes[0].accuracy;
        if (dt_compression_relation(l->ways[type].outcomes[feedback].accuracy, none) == relation) {
            n += (size_t)snprintf(text + n, size - n, "%s %s", n > 0 ? "," : "",
                                  dt_compression_names[type]);
        }
    }
}

void dt_compression_print_claims(FILE *out, const struct dt_compression_lesson *l)
{
    static const char *const words[] = {"worse:", "no difference to be seen:", "better:"};
    char types[80];
    for (int feedback = 0; feedback < 2; feedback++) {
        for (int relation = -1; relation <= 1; relation++) {
            list_types(l, feedback, relation, types, sizeof types);
            if (types[0] != '\0') {
                fprintf(out, "  %s error feedback, %s%s\n", feedback == 1 ? "with" : "without",
                        words[relation + 1], types);
            }
        }
    }
}
