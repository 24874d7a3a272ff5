/* A checkpoint taken at its word: the configuration it carries, the model of that, and whether all
 * else in it agrees.
 *
 * Checksums that fit prove nothing: whoever changes a file can mend them. So every counter has
 * bounds, which follow from the configuration and from the counters before it, and the tensors are
 * compared with the model before anything is built for them. */
#ifndef DT_TRAIN_SAVE_SAVED_H
#define DT_TRAIN_SAVE_SAVED_H

#include "checkpoint/checkpoint.h"
#include "train/config.h"

/* `path`, or if that is the folder of a run, its best checkpoint where one is kept and `best` asks
 * for it, else its newest; "RUN:best" and "RUN:last" say which. A folder without checkpoints stays
 * as it is: no file. DT_NO_INPUT: RUN:best of a run that keeps none. */
enum dt_status dt_saved_find(const char *path, bool best, char out[DT_CHECKPOINT_PATH_SIZE]);

/* `format`: of the configuration in it. `path` is for messages. DT_BAD_DATA: the configuration is
 * no valid one, or tensors or counters do not fit it. DT_NO_MEMORY. */
enum dt_status dt_saved_check(const struct dt_config_format *format, const char *path,
                              const struct dt_checkpoint_file *file, struct dt_config *config,
                              struct dt_model *model);

/* Of the start that saved it; 0: its numbers of ranks or samples are out of bounds. */
uint64_t dt_saved_steps_per_epoch(const struct dt_config *config,
                                  const struct dt_checkpoint_state *state);

/* Compares the names of classes that a checkpoint has with those of data; NULL: not known. `path`
 * is for the message, which shows both. DT_BAD_DATA: they are others, or in another order. */
enum dt_status dt_saved_same_classes(const char *path, const char *saved, const char *now);

/* Opens weights for a model (--weights FILE); the caller closes. DT_BAD_DATA: names or shapes are
 * not the model's. Other errors as those of dt_weights_open. */
enum dt_status dt_saved_weights(const char *path, const struct dt_model *model,
                                struct dt_checkpoint_file *out);

#endif
