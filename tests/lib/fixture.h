/* Reads what scripts/make-fixtures.py wrote, and computes the same inputs as it does. */
#ifndef DT_TESTS_FIXTURE_H
#define DT_TESTS_FIXTURE_H

#include <stdint.h>
#include <stdio.h>

#include "tests/lib/check.h"

#define FIXTURE_LINE_SIZE 16384

/* Sixteenths from -15/16 to 15/16: `number` of the script. */
static inline float fixture_number(uint32_t stream, uint32_t i)
{
    uint32_t h = i * 2654435761u + stream * 40503u + 12345u;
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    return (float)((int)((h >> 16) % 31) - 15) / 16;
}

static inline FILE *fixture_open(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", DT_TEST_FIXTURES, name);
    FILE *file = fopen(path, "r");
    CHECK_MESSAGE(file != NULL, "cannot open %s", path);
    return file;
}

/* Goes to the next line "name: value ..." with that name, or with any name when it is "", and reads
 * its n values; the name found is left in `found`. Returns 0 at the end of the file. */
static inline int fixture_next(FILE *file, const char *name, char found[64], float *values, int n)
{
    static char line[FIXTURE_LINE_SIZE];
    while (fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (line[0] == '#' || colon == NULL) {
            continue;
        }
        *colon = '\0';
        if (name[0] != '\0' && strcmp(line, name) != 0) {
            continue;
        }
        snprintf(found, 64, "%.63s", line);
        char *at = colon + 1;
        for (int i = 0; i < n; i++) {
            char *end = at;
            values[i] = strtof(at, &end);
            CHECK_MESSAGE(end != at, "line %s: %d values, expected %d", found, i, n);
            at = end;
        }
        return 1;
    }
    return 0;
}

/* Distance allowed between a float32 computation and its exact answer. */
static inline void fixture_check(const char *what, const float *actual, const float *expected,
                                 int n, double tolerance)
{
    for (int i = 0; i < n; i++) {
        CHECK_MESSAGE(
            fabs((double)actual[i] - expected[i]) <= tolerance * (1 + fabs((double)expected[i])),
            "%s[%d] is %.9g, PyTorch says %.9g", what, i, (double)actual[i], (double)expected[i]);
    }
}

#endif
