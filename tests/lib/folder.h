/* A folder of a test's own, and files in it. */
#ifndef DT_TESTS_FOLDER_H
#define DT_TESTS_FOLDER_H

#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/temporary.h"

static char folder[] = "/tmp/dtrain-test-XXXXXX";

static inline void folder_open(void)
{
    CHECK(mkdtemp(folder) != NULL);
}

/* Nothing may be left in it. */
static inline void folder_close(void)
{
    CHECK_INT(rmdir(folder), 0);
}

/* With all that is in it. */
static inline void folder_remove(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_INT(system(command), 0);
}

/* The folder's file of this name, as printf formats it, in temporary memory. */
__attribute__((format(printf, 1, 2))) static inline const char *path_of(const char *format, ...)
{
    enum { SIZE = 1024 };
    char *path = (char *)temporary(SIZE);
    const int n = snprintf(path, SIZE, "%s/", folder);
    va_list args;
    va_start(args, format);
    CHECK(vsnprintf(path + n, (size_t)(SIZE - n), format, args) < SIZE - n);
    va_end(args);
    return path;
}

static inline void put(const char *name, const char *text)
{
    FILE *file = fopen(path_of("%s", name), "w");
    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK_INT(fclose(file), 0);
}

/* The bytes of a file, with a NUL behind them, in temporary memory; none where there is no file. */
static inline char *bytes_of(const char *path, size_t *n_bytes)
{
    struct stat info = {0};
    FILE *file = fopen(path, "r");
    *n_bytes = 0;
    if (file == NULL) {
        return (char *)temporary(1);
    }
    CHECK_INT(fstat(fileno(file), &info), 0);
    char *bytes = (char *)temporary((size_t)info.st_size + 1);
    *n_bytes = fread(bytes, 1, (size_t)info.st_size, file);
    CHECK_INT(*n_bytes, info.st_size);
    CHECK_INT(fclose(file), 0);
    return bytes;
}

static inline char *text_of(const char *path)
{
    size_t n_bytes;
    return bytes_of(path, &n_bytes);
}

#endif
