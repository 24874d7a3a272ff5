/* Allocations that fail when a test wants it: the linker puts these in the place of the C library's
 * (-Wl,--wrap). */
#ifndef DT_TESTS_FAILING_H
#define DT_TESTS_FAILING_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static long n_calls, failing_call; /* counted from 1; 0: none fails */

static bool fails(void)
{
    if (failing_call == 0 || ++n_calls != failing_call) {
        return false;
    }
    errno = ENOMEM;
    return true;
}

#define FAILING(type, name, parameters, arguments)                  \
    type __real_##name parameters; /* NOLINT: the linker's names */ \
    type __wrap_##name parameters; /* NOLINT */                     \
    type __wrap_##name parameters  /* NOLINT */                     \
    {                                                               \
        return fails() ? NULL : __real_##name arguments;            \
    }
FAILING(void *, malloc, (size_t n), (n))
FAILING(void *, calloc, (size_t n, size_t size), (n, size))
FAILING(void *, realloc, (void *memory, size_t n), (memory, n))
FAILING(FILE *, open_memstream, (char **text, size_t *n), (text, n))

/* For cJSON. */
static inline void *json_malloc(size_t n)
{
    return malloc(n);
}

#endif
