/* `dtrain train`: the epochs of a run. */
#ifndef DT_TRAIN_TRAIN_H
#define DT_TRAIN_TRAIN_H

#include "train/events.h"

struct dt_trainer;
struct dt_trainer_parts;

struct dt_saver;

/* A saver keeps a run: its start, and its checkpoints. A program that wants none links none; there
 * is one in train/save/. All slots are mandatory. */
struct dt_saver_ops {
    /* Finds the run's place, and the state and weights to begin with, if there are some. The caller
     * broadcasts where the configuration says so. Every rank calls it; agreed. */
    enum dt_status (*open)(struct dt_saver *saver, struct dt_trainer *trainer,
                           const struct dt_emitter *emitter);
    /* Nothing refuses the start any more: what earlier starts have left may change. As open. */
    enum dt_status (*begin)(struct dt_saver *saver, struct dt_trainer *trainer,
                            const struct dt_emitter *emitter);
    /* Rank 0 writes a checkpoint, the newest or `best`. Every rank calls it; agreed. DT_IO: the
     * ones before are still there. */
    enum dt_status (*save)(struct dt_saver *saver, struct dt_trainer *trainer, bool best);
    /* Where there is a best checkpoint, its weights and their average become every rank's. As open.
     */
    enum dt_status (*take_best)(struct dt_saver *saver, struct dt_trainer *trainer, bool *taken);
    void (*close)(struct dt_saver *saver); /* also of a failed open */
};

/* The beginning of each saver's own struct. */
struct dt_saver {
    const struct dt_saver_ops *ops;
    const char *resumed_from;      /* after open: the checkpoint, or "" */
    const char *changes;           /* on rank 0: of the configuration since then, or "" */
    const char *weights_from;      /* the file of the initial weights, or NULL */
    const char *checkpoint, *best; /* on rank 0: the last one saved, the best one, or "" */
};

struct dt_train_options {
    const struct dt_config_format *format;
    const struct dt_trainer_parts *parts;
    struct dt_saver *saver; /* NULL: nothing is kept */
    struct {
        /* Adds the hooks (train/hook.h) of a trainer that is open. NULL: there are none.
         * Every rank calls it; agreed. */
        enum dt_status (*open)(const void *context, struct dt_trainer *trainer,
                               const struct dt_emitter *emitter);
        const void *context;
    } hooks;
};

/* `emitter`: gets the events, on rank 0. Every rank calls it; the status is agreed where
 * dt_error_is_agreed; a rank may fail alone inside a step. DT_STOPPED after a signal. */
enum dt_status dt_train(struct dt_world *world, const struct dt_config *config,
                        const struct dt_train_options *options, const struct dt_emitter *emitter);

#endif
