/* JSON that can be read in C: with backticks for quotes. */
#ifndef DT_TESTS_QUOTED_H
#define DT_TESTS_QUOTED_H

#include "tests/lib/check.h"

/* With quotes in the place of backticks. It stays until the program ends. */
static inline const char *quoted(const char *text)
{
    static struct kept {
        struct kept *before;
        char text[];
    } * last;
    struct kept *one = malloc(sizeof *one + strlen(text) + 1);
    CHECK(one != NULL);
    one->before = last;
    last = one;
    strcpy(one->text, text);
    for (char *at = one->text; (at = strchr(at, '`')) != NULL;) {
        *at = '"';
    }
    return one->text;
}

#endif
