/* The system calls on files that a program makes, for it to replace: it is linked with
 * dt_file_calls (tests/CMakeLists.txt), includes this in one source, and changes `calls`. */
#ifndef DT_TESTS_FILE_CALLS_H
#define DT_TESTS_FILE_CALLS_H

#include <sys/stat.h>
#include <sys/types.h>

/* X(type, name, letter, parameters, arguments) */
#define FILE_CALLS(X)                                                                         \
    X(int, openat, 'o', (int at, const char *path, int flags, mode_t mode),                   \
      (at, path, flags, mode))                                                                \
    X(int, fstat, 'i', (int fd, struct stat *info), (fd, info))                               \
    X(ssize_t, read, 'r', (int fd, void *bytes, size_t n_bytes), (fd, bytes, n_bytes))        \
    X(ssize_t, write, 'w', (int fd, const void *bytes, size_t n_bytes), (fd, bytes, n_bytes)) \
    X(int, fallocate, 'a', (int fd, int mode, off_t offset, off_t n_bytes),                   \
      (fd, mode, offset, n_bytes))                                                            \
    X(int, fchmod, 'm', (int fd, mode_t mode), (fd, mode))                                    \
    X(int, fsync, 's', (int fd), (fd))                                                        \
    X(int, close, 'c', (int fd), (fd))                                                        \
    X(int, renameat, 'n', (int from_at, const char *from, int to_at, const char *to),         \
      (from_at, from, to_at, to))                                                             \
    X(int, unlinkat, 'u', (int at, const char *path, int flags), (at, path, flags))           \
    X(int, mkdir, 'd', (const char *path, mode_t mode), (path, mode))

#define FILE_CALL_DECLARE(type, name, letter, parameters, arguments) \
    type __real_##name parameters;                                   \
    type __wrap_##name parameters;
FILE_CALLS(FILE_CALL_DECLARE)

#define FILE_CALL_FIELD(type, name, letter, parameters, arguments) type(*name) parameters;
#define FILE_CALL_REAL(type, name, letter, parameters, arguments) .name = __real_##name,
static struct file_calls {
    FILE_CALLS(FILE_CALL_FIELD)
} calls = {FILE_CALLS(FILE_CALL_REAL)};
static const struct file_calls real = {FILE_CALLS(FILE_CALL_REAL)};

#define FILE_CALL_WRAP(type, name, letter, parameters, arguments) \
    type __wrap_##name parameters                                 \
    {                                                             \
        return calls.name arguments;                              \
    }
FILE_CALLS(FILE_CALL_WRAP)

#endif
