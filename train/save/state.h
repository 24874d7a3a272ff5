/* Checkpoints of a trainer. */
#ifndef DT_TRAIN_SAVE_STATE_H
#define DT_TRAIN_SAVE_STATE_H

#include "checkpoint/checkpoint.h"
#include "train/events.h"
#include "train/save/run_dir.h"
#include "train/trainer.h"

/* Rank 0 writes a checkpoint, the newest or `best`; every rank calls it; agreed. `path` is where
 * (rank 0), and stays as it was on failure. */
enum dt_status dt_trainer_save(struct dt_trainer *trainer, const struct dt_run_dir *run, bool best,
                               char path[DT_CHECKPOINT_PATH_SIZE]);

/* Goes on from the checkpoint `path`, or with NULL from the newest valid one of the run, if any
 * (`path_used` is "" if none: a fresh start). Damaged ones are passed over, with a warning to
 * `emitter`. `changes` (rank 0): where the configuration differs from the checkpoint's, or "".
 * Every rank calls it; agreed. Rank 0 reads; the caller broadcasts weights. */
enum dt_status dt_trainer_restore(struct dt_trainer *trainer, const struct dt_run_dir *run,
                                  const struct dt_emitter *emitter, const char *path,
                                  char path_used[DT_CHECKPOINT_PATH_SIZE],
                                  char changes[DT_CHANGES_SIZE]);

/* Takes the initial weights from a file (train/save/saved.h) on rank 0. Every rank calls it;
 * agreed; the caller broadcasts weights.
 */
enum dt_status dt_trainer_take_weights(struct dt_trainer *trainer, const char *path,
                                       char text[DT_FIT_TEXT_SIZE]);

/* The weights of the checkpoint `path`, which rank 0 reads, and their average become every rank's.
 * Every rank calls it; agreed. */
enum dt_status dt_trainer_take_best(struct dt_trainer *trainer, const char *path);

/* ---- whether it can (fits.c) */

/* No sample of the epoch is left: the run ended after its last step, and before the epoch's end. */
bool dt_saved_used_up(const struct dt_trainer *t, const struct dt_checkpoint_state *saved);

/* DT_CONFIG names what differs, and `path`. */
enum dt_status dt_saved_fits(const struct dt_trainer *t, const char *path,
                             const struct dt_checkpoint_file *file);

/* Adds to `changes`, where they differ: ranks, batch, and the rate of the last step and of the next
 * one, unless it follows the same schedule. `t->state` is the one to continue from. */
void dt_saved_tell_changes(const struct dt_trainer *t, const struct dt_config *saved,
                           const struct dt_checkpoint_state *before, char *changes);

#endif
