/* `dtrain train`: the epochs of a run. */
#ifndef DT_TRAIN_TRAIN_H
#define DT_TRAIN_TRAIN_H

#include "train/events.h"

struct dt_trainer;
struct dt_trainer_parts;

struct dt_train_options {
    const struct dt_config_format *format;
    const struct dt_trainer_parts *parts;
    const char *run_dir; /* NULL: choose one */
    bool resume;
    const char *checkpoint; /* with resume: this one; NULL: the newest of run_dir */
    const char *weights;    /* the file of the initial ones, where there is nothing to resume; NULL:
                               they are drawn */
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
