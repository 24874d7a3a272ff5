/* Files to be read, opened with hostile input in mind. Tests make the k-th system call fail, fall
 * short or be the last (tests/unit/base/file_calls.h). */
#ifndef DT_BASE_FILE_OPEN_H
#define DT_BASE_FILE_OPEN_H

#include <stdbool.h>
#include <sys/stat.h>

#include "base/status.h"

#define DT_PATH_SIZE 1024 /* room for a path that someone gives */

/* Whether something has this name, whatever it is. DT_NO_PERMISSION when a folder on the way cannot
 * be searched. */
enum dt_status dt_file_exists(const char *path, bool *exists);

/* Opens a regular file for reading, for the caller to close. Error texts begin with the path.
 * DT_NO_INPUT: missing, directory, not a regular file. DT_NO_PERMISSION. DT_IO. */
enum dt_status dt_file_open(const char *path, int *fd, struct stat *info);
/* Whether an open file is as it was when `before` was noted. DT_BAD_DATA, DT_IO. */
enum dt_status dt_file_check_unchanged(int fd, const char *path, const struct stat *before);

#endif
