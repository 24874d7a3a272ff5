/* Files, with hostile input and full disks in mind: the only place that opens, reads or writes them for dtrain.
 *
 * Every system call goes through a small table, so that tests can make the k-th call fail, fall short or be the last. */
#ifndef DT_BASE_FILE_H
#define DT_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/* Reads a whole regular file of 1 .. max_bytes bytes into memory from malloc, with a NUL behind it that does not count. Caller
 * frees. Error texts begin with the path. DT_NO_INPUT: missing, directory, not a regular file. DT_NO_PERMISSION. DT_BAD_DATA: empty
 * or too large. DT_IO: a read error. */
enum dt_status dt_file_read(const char *path, size_t max_bytes, uint8_t **bytes, size_t *n_bytes);

/* Writes a file so that at any moment, also after a crash or a power cut, `dir/name` is the old content or the new one, whole:
 * temporary file (O_EXCL, O_NOFOLLOW, mode 0600 and then the umask's), space reserved, written, fsync, rename, fsync of the folder.
 * DT_IO with nothing left behind. */
struct dt_file_part {
    const void *bytes;
    size_t n_bytes;
};
enum dt_status dt_file_write_atomic(const char *dir, const char *name, const struct dt_file_part *parts, size_t n_parts);

/* Creates a folder and its parents. DT_CANT_CREATE. */
enum dt_status dt_dir_create(const char *path);

#endif
