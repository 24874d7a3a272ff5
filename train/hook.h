/* Hooks observe a training: they decide nothing, and change neither the trainer nor its weights.
 * Those that count or note something add it to the events. The faults of --inject are the
 * exception, which is what they are for. The list is the same on every rank. train/hooks/ has the
 * hooks. */
#ifndef DT_TRAIN_HOOK_H
#define DT_TRAIN_HOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct dt_trainer;
struct dt_run_event;
struct dt_epoch_event;
struct dt_end_event;
struct dt_hook;

/* NULL in a slot: nothing to do there. Steps count from 1, over the whole run. Every rank calls
 * them alike, but for run_end after an error. */
struct dt_hook_ops {
    /* The first step is next; `start` is emitted then. */
    enum dt_status (*run_begin)(struct dt_hook *hook, struct dt_trainer *trainer,
                                struct dt_run_event *start);
    /* It is emitted: an earlier start's files are this one's now. */
    enum dt_status (*run_begun)(struct dt_hook *hook, struct dt_trainer *trainer);
    /* Before steps first to last, which this rank takes together: one, or on a device several. */
    enum dt_status (*step_begin)(struct dt_hook *hook, struct dt_trainer *trainer, uint64_t first,
                                 uint64_t last);
    /* Between the loss and the backward pass of each micro-batch; not on a device that takes steps
     * on its own. */
    enum dt_status (*after_loss)(struct dt_hook *hook, struct dt_trainer *trainer);
    /* After steps first to last. */
    enum dt_status (*step_end)(struct dt_hook *hook, struct dt_trainer *trainer, uint64_t first,
                               uint64_t last);
    /* The epoch, or what there was of it, is evaluated; `epoch` is emitted then. */
    enum dt_status (*epoch_end)(struct dt_hook *hook, struct dt_trainer *trainer,
                                struct dt_epoch_event *epoch);
    /* The run ends with `status`, and the last weights are still there; `end` is emitted later.
     * After an error a rank is alone. */
    enum dt_status (*run_end)(struct dt_hook *hook, struct dt_trainer *trainer,
                              enum dt_status status, struct dt_end_event *end);
    void (*close)(struct dt_hook *hook); /* frees it; NULL: it has nothing else to free */
};

/* The beginning of each hook's own struct. */
struct dt_hook {
    const struct dt_hook_ops *ops;
    struct dt_hook *next;
};

/* A zeroed struct of n_bytes, which begins with a struct dt_hook, becomes the trainer's last
 * hook. Every rank calls it; dt_world_alloc. */
enum dt_status dt_hook_open(struct dt_trainer *trainer, const struct dt_hook_ops *ops,
                            size_t n_bytes, const char *what, void **out);
/* The trainer's last hook, which the trainer closes. */
void dt_hook_add(struct dt_trainer *trainer, struct dt_hook *hook);
void dt_hooks_close(struct dt_trainer *trainer);

/* ---- of all hooks, in the order in which they were added */

enum dt_status dt_hooks_run_begin(struct dt_trainer *trainer, struct dt_run_event *start);
enum dt_status dt_hooks_run_begun(struct dt_trainer *trainer);
enum dt_status dt_hooks_step_begin(struct dt_trainer *trainer, uint64_t first, uint64_t last);
enum dt_status dt_hooks_after_loss(struct dt_trainer *trainer);
enum dt_status dt_hooks_step_end(struct dt_trainer *trainer, uint64_t first, uint64_t last);
enum dt_status dt_hooks_epoch_end(struct dt_trainer *trainer, struct dt_epoch_event *epoch);
enum dt_status dt_hooks_run_end(struct dt_trainer *trainer, enum dt_status status,
                                struct dt_end_event *end);

#endif
