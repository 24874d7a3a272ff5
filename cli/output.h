/* The streams of results and log. A run continues when their reader has gone (`| head`). */
#ifndef DT_CLI_OUTPUT_H
#define DT_CLI_OUTPUT_H

#include <stdbool.h>

#include "base/file.h"
#include "train/save/run_dir.h"

/* Called once, before anything is printed. Under MPICH's mpirun, rank 0 writes directly to the
 * pipes that mpirun writes to: if the reader has gone, forwarding would end mpirun by SIGPIPE, and
 * with it all ranks; a direct write only fails. Every rank on mpirun's host writes directly to a
 * plain file, whose disk may fill up. This is impossible if mpirun labels or splits the output, or
 * runs on another host: then the reader must stay. */
void dt_output_open(void);

/* Prints an error at once, so that the command can go on: after a file that cannot be written it
 * still writes the next file and prints its verdict. Returns whether `s` is an error. */
bool dt_output_failed(enum dt_status s);

/* Writes the file `name` of a run's folder by `put`, whole or not at all. DT_IO. */
enum dt_status dt_output_write(const struct dt_run_dir *dir, const char *name, dt_file_put_fn put,
                               const void *context);

/* Writes a new file of the user. An existing file stays, because it may have been edited:
 * DT_CANT_CREATE, with `cure` after "remove it, or". Errors as dt_file_write. */
enum dt_status dt_output_new(const char *path, const char *text, const char *cure);

/* Flushes stdout. A closed pipe is no error. DT_IO: it could not be written. */
enum dt_status dt_output_check(void);

#endif
