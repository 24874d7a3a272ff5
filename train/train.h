/* `dtrain train`: the epochs of a run. */
#ifndef DT_TRAIN_TRAIN_H
#define DT_TRAIN_TRAIN_H

#include "train/saver.h"

struct dt_trainer;
struct dt_trainer_parts;

struct dt_train_options {
    const struct dt_config_format *format;
    const struct dt_trainer_parts *parts;
    struct dt_saver *saver; /* NULL: nothing is kept */
    struct {
        /* Adds the watchers (train/watcher.h) of a trainer that is open. NULL: there are none.
         * Every rank calls it; agreed. */
        enum dt_status (*open)(const void *context, struct dt_trainer *trainer,
                               const struct dt_emitter *emitter);
        const void *context;
    } watch;
};

/* `emitter`: who is told, on rank 0. Every rank calls it; the status is agreed where
 * dt_error_is_agreed; a rank may fail alone inside a step. DT_STOPPED after a signal. */
enum dt_status dt_train(struct dt_world *world, const struct dt_config *config,
                        const struct dt_train_options *options, const struct dt_emitter *emitter);

#endif
