/* Files that are read whole or in pieces, and files that are written, with full disks in mind; with
 * file_open.h the only place that opens, reads or writes data and checkpoints for dtrain. */
#ifndef DT_BASE_FILE_H
#define DT_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/file_open.h"

/* Reads a whole regular file of 1 .. max_bytes bytes into memory from malloc, with a NUL behind it
 * that does not count. Caller frees. Errors as dt_file_open. DT_BAD_DATA: empty, too large, or
 * changed while it was read. DT_IO: a read error. DT_NO_MEMORY. */
enum dt_status dt_file_read(const char *path, size_t max_bytes, uint8_t **bytes, size_t *n_bytes);

/* Up to n_wanted bytes of a file that is open; fewer only at its end. DT_IO. */
enum dt_status dt_file_read_piece(int fd, const char *path, uint8_t *bytes, size_t n_wanted,
                                  size_t *n_read);

/* What a file is by its first bytes, for the error of what cannot read it: "a PNG image", for
 * "looks like"; NULL: unknown. Blanks before the first bytes do not count. */
const char *dt_file_kind(const uint8_t *bytes, size_t n_bytes);

struct dt_file_part {
    const void *bytes;
    size_t n_bytes;
};

/* Writes a file so that at any moment, also after a crash or a power cut, `dir/name` is the old
 * content or the new one, whole: temporary file (O_EXCL, O_NOFOLLOW, mode 0600), space reserved,
 * written, given the old file's mode and owner or else the umask's mode, fsync, rename, fsync of
 * the folder; as far as the file system has that (dt_file_lacks). No link is followed. DT_IO with
 * nothing left behind, and the old content in place unless it is only the folder's fsync that
 * failed. A process killed on the way leaves a file whose name begins with DT_FILE_TEMPORARY. */
#define DT_FILE_TEMPORARY ".tmp-"
#define DT_FILE_NAME_SHOWN 64 /* bytes of its name in that of its temporary file, at most */
enum dt_status dt_file_write_atomic(const char *dir, const char *name,
                                    const struct dt_file_part *parts, size_t n_parts);
/* The same in a folder that must not be a symbolic link: somebody may swap it while a run writes.
 */
enum dt_status dt_file_write_atomic_real(const char *dir, const char *name,
                                         const struct dt_file_part *parts, size_t n_parts);
int dt_dir_open_real(const char *dir); /* its descriptor, or -1 */

/* Removes the temporary file of the write under way, if there is one: the last that a process does
 * before a signal ends it. Safe in a signal handler. */
void dt_file_abandon(void);

/* For a process that is about to end, from any thread of it: the same for a small file, without an
 * allocation or an error's text. With `first`, a file of this name stays as it is. Whether there is
 * one now. */
bool dt_file_leave(const char *dir, const char *name, const char *text, size_t n, bool first);

/* Writes the result whose place a user names; NULL: to no place. A regular file, or none yet, is
 * written as above; for a symbolic link that is its target, and the link stays. A device, a pipe,
 * or what is standard output or error is written into as it is. DT_IO; DT_USAGE and DT_CANT_CREATE
 * as dt_file_try. */
enum dt_status dt_file_write(const char *path, const struct dt_file_part *parts, size_t n_parts);

/* Whether dt_file_write can begin, as far as only trying shows: asked before the work whose result
 * is to be written. `replaces`, unless NULL: whether there is a file whose content it would
 * replace. DT_USAGE: no name of a file. DT_CANT_CREATE: no such folder, a folder or file that may
 * not be written, a folder, socket or disk in place of a file. */
enum dt_status dt_file_try(const char *path, bool *replaces);

/* The same for what `put` prints: as text from malloc, which the caller frees, or written to `path`
 * (NULL: not even printed). DT_NO_MEMORY, also where `put` had none for a part and said so
 * (dt_error); and as dt_file_write. */
typedef void (*dt_file_put_fn)(FILE *out, const void *context);
enum dt_status dt_file_collect(const char *path, dt_file_put_fn put, const void *context,
                               char **text, size_t *n);
enum dt_status dt_file_print(const char *path, dt_file_put_fn put, const void *context);

/* ---- processes, which are named in temporary files and locks */

/* When a process of this host started, in the kernel's clock ticks since the host did: with its
 * number the name of a process, as numbers are used again. 0: there is none, or it is a zombie.
 * DT_PROCESS_START_UNKNOWN: there is one, and /proc does not show when it started. */
#define DT_PROCESS_START_UNKNOWN UINT64_MAX
uint64_t dt_process_start(long pid);

/* ---- folders */

/* Creates a folder and its parents. DT_CANT_CREATE. */
enum dt_status dt_dir_create(const char *path);

/* Whether a file can be created in it and made durable: permission bits do not know of quotas,
 * read-only mounts and file servers. What such a file system lacks is noted (dt_file_lacks).
 * DT_CANT_CREATE. */
enum dt_status dt_dir_try(const char *dir);
#define DT_FILE_TRIED "try" /* the name of what only shows that a file can be created */

/* Removes the temporary files that writers left who were killed, of names that are `ours`. Nobody
 * else may be writing those. */
void dt_dir_sweep(const char *dir, bool (*ours)(const char *name));

#endif
