/* Whether a training can continue from a checkpoint as if nothing had happened: with the same seed,
 * samples, order of them, model and rules. */
#ifndef DT_TRAIN_SAVE_FITS_H
#define DT_TRAIN_SAVE_FITS_H

#include "model/checkpoint.h"
#include "train/trainer.h"

/* No sample of the epoch is left: the run ended after its last step, and before the epoch's end. */
bool dt_saved_used_up(const struct dt_trainer *t, const struct dt_checkpoint_state *saved);

/* DT_CONFIG names what differs, and `path`. */
enum dt_status dt_saved_fits(const struct dt_trainer *t, const char *path,
                             const struct dt_checkpoint_file *file);

#endif
