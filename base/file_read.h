/* Files that are read, with hostile input in mind.
 *
 * Every system call goes through a small table, so that tests can make the k-th call fail, fall
 * short or be the last. */
#ifndef DT_BASE_FILE_READ_H
#define DT_BASE_FILE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/status.h"

#define DT_PATH_SIZE 1024 /* room for a path that someone gives */

/* Reads a whole regular file of 1 .. max_bytes bytes into memory from malloc, with a NUL behind it
 * that does not count. Caller frees. Error texts begin with the path. DT_NO_INPUT: missing,
 * directory, not a regular file. DT_NO_PERMISSION. DT_BAD_DATA: empty, too large, or changed while
 * it was read. DT_IO: a read error. DT_NO_MEMORY. */
enum dt_status dt_file_read(const char *path, size_t max_bytes, uint8_t **bytes, size_t *n_bytes);

/* Whether something has this name, whatever it is. DT_NO_PERMISSION when a folder on the way cannot
 * be searched. */
enum dt_status dt_file_exists(const char *path, bool *exists);

/* A regular file in pieces: open for reading, for the caller to close, and up to n_wanted bytes;
 * fewer only at its end. Errors as above. */
enum dt_status dt_file_open(const char *path, int *fd, struct stat *info);
enum dt_status dt_file_read_piece(int fd, const char *path, uint8_t *bytes, size_t n_wanted,
                                  size_t *n_read);
/* Whether an open file is as it was when `before` was noted. DT_BAD_DATA, DT_IO. */
enum dt_status dt_file_check_unchanged(int fd, const char *path, const struct stat *before);

/* The system calls of base/, for reading and writing files, with their usual meaning. Only tests
 * replace them. */
struct dt_file_calls {
    int (*openat)(int folder, const char *path, int flags, mode_t mode);
    int (*fstat)(int fd, struct stat *info);
    ssize_t (*read)(int fd, void *bytes, size_t n_bytes);
    ssize_t (*write)(int fd, const void *bytes, size_t n_bytes);
    int (*fallocate)(int fd, int mode, off_t offset, off_t n_bytes);
    int (*fchmod)(int fd, mode_t mode);
    int (*fsync)(int fd);
    int (*close)(int fd);
    int (*renameat)(int from_folder, const char *from, int to_folder, const char *to);
    int (*unlinkat)(int folder, const char *path, int flags);
    int (*mkdir)(const char *path, mode_t mode);
};
extern struct dt_file_calls dt_file_calls;

#endif
