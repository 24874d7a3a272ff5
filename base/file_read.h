/* Files that are read, with hostile input in mind. Tests make the k-th system call fail, fall short
 * or be the last (tests/unit/base/file_calls.h). */
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

#endif
