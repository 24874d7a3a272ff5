/* The folder of a run: chosen, created and locked by rank 0.
 *
 *   config.json            resolved configuration
 *   metrics.jsonl, .csv    see docs/files.md
 *   checkpoints/           see checkpoint/checkpoint.h
 *   summary.json           how the run ended
 *   status.json, flight-<rank>.json   see train/hooks/guard.h
 *   report.html            a page about all of it
 *   trace.json             see cli/sinks/timeline.c
 *   tensorboard/           see cli/sinks/event_file.h
 *   run.lock               held while a process uses the folder; names it, and its steps so far */
#ifndef DT_TRAIN_SAVE_RUN_DIR_H
#define DT_TRAIN_SAVE_RUN_DIR_H

#include "base/file.h"
#include "dist/ranks/world.h"

struct dt_run_dir {
    char path[DT_PATH_SIZE];        /* the same on every rank */
    char checkpoints[DT_PATH_SIZE]; /* path/checkpoints */
    int lock;                       /* rank 0: file descriptor; elsewhere -1 */
    off_t lock_size;                /* of its first line: the process */
    size_t n_made; /* private, rank 0: bytes in the name of the first folder on the way to
                      `checkpoints` that this start has made and may still remove; 0: none */
};

/* Makes runs/<config_name>/<UTC time>, or <UTC time>-2 and so on: a folder that nobody else has
 * made. DT_CANT_CREATE. */
enum dt_status dt_run_dir_default(const char *config_name, char path[DT_PATH_SIZE]);

/* Locks the folder, and writes nothing else into it: until dt_run_dir_begin the start may be
 * refused. `wanted` is --run, or NULL for dt_run_dir_default. Every rank calls it; agreed.
 * DT_CANT_CREATE: cannot be created, in use by another process (named), without room for
 * checkpoints, or, unless `resume`, already the folder of a run; or one of the files above is a
 * link or no regular file, or checkpoints a link, so that writing would go elsewhere. */
enum dt_status dt_run_dir_open(struct dt_world *world, const char *wanted, const char *config_name,
                               bool resume, struct dt_run_dir *out);

/* Rank 0: the start is certain. Sweeps what killed writers left; the folder stays. */
void dt_run_dir_begin(struct dt_run_dir *run);

/* Without dt_run_dir_begin, the folders that dt_run_dir_open has made go again. */
void dt_run_dir_close(struct dt_run_dir *run);

/* Rank 0 removes a folder that it has made itself, with all that is in it. */
void dt_run_dir_remove(const struct dt_run_dir *run);

/* Checks `wanted` before all else. DT_USAGE: longer than DT_RUN_DIR_MOST; DT_CANT_CREATE: it is the
 * root of the file system. NULL is fine. */
#define DT_RUN_DIR_MOST (DT_PATH_SIZE - 80)
enum dt_status dt_run_dir_check(const char *wanted);

/* DT_CANT_CREATE unless `dir/name` is a regular file with no other name, or nothing: writing it
 * would go elsewhere. */
enum dt_status dt_run_dir_check_file(const char *dir, const char *name);

/* Rank 0 opens one of the files above with open's `flags`, and creates it if need be, but follows
 * no link. DT_CANT_CREATE. */
enum dt_status dt_run_dir_open_file(const struct dt_run_dir *run, const char *name, int flags,
                                    int *out);

/* Rank 0 writes into run.lock that so many steps are done, for `report --follow`. A failure is not
 * reported. */
void dt_run_dir_note_step(const struct dt_run_dir *run, uint64_t step);

/* Rank 0 writes a whole small file into the folder. DT_IO. */
enum dt_status dt_run_dir_write(const struct dt_run_dir *run, const char *name, const char *text);

#endif
