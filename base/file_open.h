/* Files to be read, opened with hostile input in mind. Tests make the k-th system call fail, fall
 * short or be the last (tests/unit/base/file_calls.h). */
#ifndef DT_BASE_FILE_OPEN_H
#define DT_BASE_FILE_OPEN_H

#include <stdbool.h>
#include <stddef.h>
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

/* ---- what a file system lacks */

/* Calls that a file system or its mount may not have, and what that means for a run; NULL: nothing,
 * there is another way. */
#define DT_FILE_CALL_LIST(X)                                                      \
    X(DT_CALL_LOCK, "no locks (run.lock names the process that uses the folder)") \
    X(DT_CALL_MODE, "no chmod (files have the permissions of the mount)")         \
    X(DT_CALL_SYNC, "no fsync (a power cut may take what was written last)")      \
    X(DT_CALL_RESERVE, NULL)                                                      \
    X(DT_CALL_LINK, NULL)
#define DT_FILE_CALL_CONSTANT(constant, loss) constant,
enum dt_file_call { DT_FILE_CALL_LIST(DT_FILE_CALL_CONSTANT) };

/* Of a call that failed: whether its errno says that the file system does not have it, so that work
 * goes on without it. Noted for dt_file_lacking. */
bool dt_file_lacks(enum dt_file_call call);

/* What this process has missed so far, in one line. Whether there is anything. */
bool dt_file_lacking(char *text, size_t size);

#endif
