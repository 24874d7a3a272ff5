/* Memory that tests need not free, JSON that can be read in C, and what a function prints. */
#ifndef DT_TESTS_TEMPORARY_H
#define DT_TESTS_TEMPORARY_H

#include <stddef.h>

#include "tests/lib/check.h"

static struct temporary {
    struct temporary *before;
    max_align_t memory[];
} * newest_temporary;

/* Zeros, which stay until temporaries_end, or until the program ends. */
static inline void *temporary(size_t n_bytes)
{
    struct temporary *one = (struct temporary *)calloc(1, sizeof *one + n_bytes);
    CHECK(one != NULL);
    one->before = newest_temporary;
    newest_temporary = one;
    return one->memory;
}

static inline void temporaries_end(void)
{
    while (newest_temporary != NULL) {
        struct temporary *before = newest_temporary->before;
        free(newest_temporary);
        newest_temporary = before;
    }
}

/* The text with quotes in the place of backticks, in temporary memory. */
static inline const char *quoted(const char *text)
{
    char *copy = (char *)temporary(strlen(text) + 1);
    strcpy(copy, text);
    for (char *at = copy; (at = strchr(at, '`')) != NULL;) {
        *at = '"';
    }
    return copy;
}

static struct {
    FILE *out;
    char *text;
    size_t n_bytes;
} print;

/* A stream for what print_end returns. */
static inline FILE *print_begin(void)
{
    free(print.text);
    print.out = open_memstream(&print.text, &print.n_bytes);
    CHECK(print.out != NULL);
    return print.out;
}

/* Stays until the next print_begin. */
static inline char *print_end(void)
{
    CHECK_INT(fclose(print.out), 0);
    return print.text;
}

#endif
