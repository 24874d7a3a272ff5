/* "did you mean ...?": the valid word nearest to a mistyped one. */
#ifndef DT_CLI_SUGGEST_H
#define DT_CLI_SUGGEST_H

#include <stddef.h>

/* Begin with { .word = "confg" }, offer every valid word, then read `best`. */
struct dt_suggestion {
    const char *word;
    const char *best; /* the nearest offered word; NULL: no word is near enough */
    size_t distance;
};

/* Distance: insertions, deletions, replacements and swaps of neighbours; letters that differ in
 * case only are equal. Near enough is a third of the longer word, and at least 1. */
void dt_suggest_offer(struct dt_suggestion *suggestion, const char *candidate);

#endif
