/* The folder of a run's checkpoints: lists, names and removes files. Nothing here reads a file. */
#ifndef DT_MODEL_CHECKPOINT_DIR_H
#define DT_MODEL_CHECKPOINT_DIR_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define DT_CHECKPOINT_NAME_SIZE 48
#define DT_CHECKPOINT_PATH_SIZE 1024

#define DT_CHECKPOINT_BEST "best.safetensors"

/* "step-000000000469.safetensors" */
void dt_checkpoint_name(uint64_t step, char name[DT_CHECKPOINT_NAME_SIZE]);
/* The same in `dir`. DT_CANT_CREATE: too long. */
enum dt_status dt_checkpoint_path(const char *dir, uint64_t step,
                                  char path[DT_CHECKPOINT_PATH_SIZE]);
enum dt_status dt_checkpoint_best_path(const char *dir, char path[DT_CHECKPOINT_PATH_SIZE]);

/* Lists the steps of all checkpoint files in `dir`, newest first; *steps from malloc, or NULL if
 * there are none or no such folder. DT_NO_PERMISSION, DT_IO, DT_NO_MEMORY. */
enum dt_status dt_checkpoint_list(const char *dir, uint64_t **steps, size_t *n_steps);

/* Removes checkpoints so that only the last `keep` (>= 1) of those up to `newest` are left. Files
 * of later steps, left by a run that was resumed from an earlier one, are not counted and stay. A
 * file that cannot be removed is no error. */
enum dt_status dt_checkpoint_prune(const char *dir, uint64_t newest, int keep);

/* Removes the temporary files of checkpoints whose writers were killed. */
void dt_checkpoint_sweep(const char *dir);

#endif
