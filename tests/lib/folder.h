/* A folder of a test's own, and files in it. */
#ifndef DT_TESTS_FOLDER_H
#define DT_TESTS_FOLDER_H

#include <dirent.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/temporary.h"

#define FOLDER_NAME "/tmp/dtrain-test-XXXXXX"
static char folder[sizeof FOLDER_NAME];

static inline void folder_open(void)
{
    strcpy(folder, FOLDER_NAME);
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

static inline void put_bytes(const char *name, const void *bytes, size_t n_bytes)
{
    FILE *file = fopen(path_of("%s", name), "w");
    CHECK(file != NULL);
    CHECK_INT(fwrite(bytes, 1, n_bytes, file), n_bytes);
    CHECK_INT(fclose(file), 0);
}

static inline void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static inline bool exists(const char *name)
{
    return access(path_of("%s", name), F_OK) == 0;
}

static inline int count_entries(void)
{
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    int n = 0;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(dir);
    return n;
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
