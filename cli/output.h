/* Where results and log go, and what becomes of a run when their reader has gone (`| head`).
 */
#ifndef DT_CLI_OUTPUT_H
#define DT_CLI_OUTPUT_H

#include <stdbool.h>

#include "base/file.h"
#include "train/save/run_dir.h"

/* Once, before anything is printed. Under MPICH's mpirun, rank 0 takes hold of the pipes that
 * mpirun itself writes to, where there are any: forwarding to a reader that is gone would end
 * mpirun by SIGPIPE, and with it all ranks; a write of ours only fails. Every rank on mpirun's host
 * does so with a plain file, on a disk that may fill up. Not where mpirun was asked
 * to label or split the output, nor from another host than its own: there only a reader that stays
 * helps. */
void dt_output_open(void);

/* Tells an error now, because more comes after it: a file that cannot be written neither keeps the
 * next from being written, nor hides the verdict on what was measured. Returns whether `s` is one.
 */
bool dt_output_failed(enum dt_status s);

/* Writes the file `name` of a run's folder by `put`, whole or not at all. DT_IO. */
enum dt_status dt_output_write(const struct dt_run_dir *dir, const char *name, dt_file_put_fn put,
                               const void *context);

/* Writes a new file of the user. One that is there may have been edited and stays: DT_CANT_CREATE,
 * with `cure` after "remove it, or". Errors as dt_file_write. */
enum dt_status dt_output_new(const char *path, const char *text, const char *cure);

/* Flushes stdout. A closed pipe is no error. DT_IO: it could not be written. */
enum dt_status dt_output_check(void);

#endif
