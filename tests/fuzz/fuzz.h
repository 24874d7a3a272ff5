/* What the fuzzers share. */
#ifndef DT_TESTS_FUZZ_H
#define DT_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static inline void require(int condition)
{
    if (!condition) {
        abort();
    }
}

/* A copy of exactly these bytes, from malloc, so that a read past its end is found. */
static inline uint8_t *copy_of(const void *bytes, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes + (n_bytes == 0));
    require(copy != NULL);
    if (n_bytes > 0) { /* libFuzzer's first input is NULL */
        memcpy(copy, bytes, n_bytes);
    }
    return copy;
}

/* The path of a file of these bytes, in memory; the next call writes it anew. */
static inline const char *path_of(const uint8_t *bytes, size_t n_bytes)
{
    static int fd = -1;
    static char path[64];
    fd = fd < 0 ? memfd_create("fuzz", MFD_CLOEXEC) : fd;
    require(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, n_bytes, 0) == (ssize_t)n_bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

#endif
