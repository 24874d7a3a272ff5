/* Parts that a program may link into its trainer (struct dt_trainer_parts). */
#ifndef DT_TRAIN_PARTS_H
#define DT_TRAIN_PARTS_H

#include "train/trainer.h"

/* A check_memory: refuses what cannot fit before the machine starts to swap, as the ranks of a host
 * share its memory. A device's own memory does not swap. Local. DT_CONFIG. */
enum dt_status dt_fit_check(const struct dt_trainer *trainer);

/* An advise: a device has too little memory, which the pending error says; adds the hint. `search`:
 * for the network, whose largest batch is then found by trying, without a guess at what the
 * device's libraries take. Local. Returns DT_NO_MEMORY. */
enum dt_status dt_fit_advise(struct dt_trainer *trainer, bool search);

/* A normalize: where the configuration wants it, finds mean and standard deviation of each channel
 * over the training images of all ranks, whole numbers that are added exactly and so the same at
 * any number of ranks; they take the place of "dataset" in the configuration, also as it is
 * written, and the training set is seen by them. So do the scales of numbers, and what a table's
 * columns and classes are. Every rank calls it; agreed. */
enum dt_status dt_trainer_normalize(struct dt_trainer *trainer);

/* An open_images, and its close_images: sets `bad` and `settle` of a spec of images. A spec that is
 * copied shares them. DT_NO_MEMORY. */
enum dt_status dt_bad_images_open(struct dt_data_spec *spec);
void dt_bad_images_close(struct dt_data_spec *spec);

/* A settle: after a split was opened with spec->bad: all ranks tell each other which images cannot
 * be read. `again`: they are left out from now on, and the split has to be opened again. Every rank
 * calls it; agreed. DT_BAD_DATA: more than data.skip_bad; the text names those of all ranks. */
enum dt_status dt_bad_images_agree(struct dt_world *world, const struct dt_data_spec *spec,
                                   bool *again);

#endif
