/* Checks that are alive in every build, print both values, and let a NaN fail. The first failure
 * ends the test with exit code 1. */
#ifndef DT_TESTS_CHECK_H
#define DT_TESTS_CHECK_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define CHECK_SKIP_CODE 77

/* The step of a loop over cases: under the sanitizers, which make it slow and which look for wrong
 * addresses and not for wrong numbers, and under an emulator, every n-th; otherwise all. */
#if defined(__SANITIZE_ADDRESS__) || defined(DT_EMULATED)
#define EVERY(n) (n)
#else
#define EVERY(n) 1
#endif

#define CHECK_FAIL(...)                                 \
    do {                                                \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
        fprintf(stderr, __VA_ARGS__);                   \
        fprintf(stderr, "\n");                          \
        exit(1);                                        \
    } while (0)

#define CHECK(condition)                            \
    do {                                            \
        if (!(condition)) {                         \
            CHECK_FAIL("not true: %s", #condition); \
        }                                           \
    } while (0)

/* With a text of one's own. */
#define CHECK_MESSAGE(condition, ...) \
    do {                              \
        if (!(condition)) {           \
            CHECK_FAIL(__VA_ARGS__);  \
        }                             \
    } while (0)

#define CHECK_INT(actual, expected)                                                             \
    do {                                                                                        \
        const long long check_a = (long long)(actual), check_e = (long long)(expected);         \
        if (check_a != check_e) {                                                               \
            CHECK_FAIL("%s is %lld, expected %s = %lld", #actual, check_a, #expected, check_e); \
        }                                                                                       \
    } while (0)

#define CHECK_NEAR(actual, expected, tolerance)                                          \
    do {                                                                                 \
        const double check_a = (double)(actual), check_e = (double)(expected);           \
        if (!(fabs(check_a - check_e) <= (double)(tolerance))) {                         \
            CHECK_FAIL("%s is %.9g, expected %.9g within %g", #actual, check_a, check_e, \
                       (double)(tolerance));                                             \
        }                                                                                \
    } while (0)

#define CHECK_TEXT(actual, expected)                                                \
    do {                                                                            \
        const char *check_a = (actual), *check_e = (expected);                      \
        if (strcmp(check_a, check_e) != 0) {                                        \
            CHECK_FAIL("%s is \"%s\", expected \"%s\"", #actual, check_a, check_e); \
        }                                                                           \
    } while (0)

/* `haystack` holds `needle`. */
#define CHECK_HAS(haystack, needle)                                         \
    do {                                                                    \
        const char *check_h = (haystack), *check_n = (needle);              \
        if (strstr(check_h, check_n) == NULL) {                             \
            CHECK_FAIL("\"%s\" does not contain \"%s\"", check_h, check_n); \
        }                                                                   \
    } while (0)

/* A call that returns an enum dt_status has to work. */
#define CHECK_OK(call)                                                              \
    do {                                                                            \
        const enum dt_status check_s = (call);                                      \
        if (check_s != DT_OK) {                                                     \
            CHECK_FAIL("%s returned %d: %s", #call, (int)check_s, dt_error_text()); \
        }                                                                           \
    } while (0)

/* A call has to fail with this status and this text in its error, which remains. */
#define CHECK_FAILS(call, status, needle)                                            \
    do {                                                                             \
        dt_error_clear();                                                            \
        const enum dt_status check_s = (call);                                       \
        if (check_s != (status) || strstr(dt_error_text(), needle) == NULL) {        \
            CHECK_FAIL("%s returned %d (%s), expected %s (%s)", #call, (int)check_s, \
                       dt_error_text(), #status, needle);                            \
        }                                                                            \
    } while (0)

#endif
