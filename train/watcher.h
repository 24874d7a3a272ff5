/* Watchers look at a training from outside. The list is the same on every rank. train/watch/ has
 * the watchers. */
#ifndef DT_TRAIN_WATCHER_H
#define DT_TRAIN_WATCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct dt_trainer;
struct dt_run_event;
struct dt_epoch_event;
struct dt_end_event;
struct dt_watcher;

/* NULL in a slot: nothing to do there. Steps count from 1, over the whole run. Every rank calls
 * them alike, but for run_end after an error. */
struct dt_watcher_ops {
    /* The first step is next; `start` is emitted then. */
    enum dt_status (*run_begin)(struct dt_watcher *watcher, struct dt_trainer *trainer,
                                struct dt_run_event *start);
    /* It is emitted: an earlier start's files are this one's now. */
    enum dt_status (*run_begun)(struct dt_watcher *watcher, struct dt_trainer *trainer);
    /* Before steps first to last, which this rank takes together: one, or on a device several. */
    enum dt_status (*step_begin)(struct dt_watcher *watcher, struct dt_trainer *trainer,
                                 uint64_t first, uint64_t last);
    /* Between the loss and the backward pass of each micro-batch; not on a device that takes steps
     * on its own. */
    enum dt_status (*after_loss)(struct dt_watcher *watcher, struct dt_trainer *trainer);
    /* After steps first to last. */
    enum dt_status (*step_end)(struct dt_watcher *watcher, struct dt_trainer *trainer,
                               uint64_t first, uint64_t last);
    /* The epoch, or what there was of it, is evaluated; `epoch` is emitted then. */
    enum dt_status (*epoch_end)(struct dt_watcher *watcher, struct dt_trainer *trainer,
                                struct dt_epoch_event *epoch);
    /* The run ends with `status`; `end` is emitted then. After an error a rank is alone. */
    enum dt_status (*run_end)(struct dt_watcher *watcher, struct dt_trainer *trainer,
                              enum dt_status status, struct dt_end_event *end);
    void (*close)(struct dt_watcher *watcher); /* frees it; NULL: it has nothing else to free */
};

/* The beginning of each watcher's own struct. */
struct dt_watcher {
    const struct dt_watcher_ops *ops;
    struct dt_watcher *next;
};

struct dt_watchers {
    struct dt_watcher *first;
    bool enough; /* one of them asks for no further epoch */
};

/* A zeroed struct of n_bytes, which begins with a struct dt_watcher, becomes the trainer's last
 * watcher. Every rank calls it; dt_world_alloc. */
enum dt_status dt_watcher_open(struct dt_trainer *trainer, const struct dt_watcher_ops *ops,
                               size_t n_bytes, const char *what, void **out);
/* The trainer's last watcher, which the trainer closes. */
void dt_watcher_add(struct dt_trainer *trainer, struct dt_watcher *watcher);
void dt_watchers_close(struct dt_watchers *watchers);

/* ---- of all watchers, in the order in which they were added */

enum dt_status dt_watchers_run_begin(struct dt_trainer *trainer, struct dt_run_event *start);
enum dt_status dt_watchers_run_begun(struct dt_trainer *trainer);
enum dt_status dt_watchers_step_begin(struct dt_trainer *trainer, uint64_t first, uint64_t last);
enum dt_status dt_watchers_after_loss(struct dt_trainer *trainer);
enum dt_status dt_watchers_step_end(struct dt_trainer *trainer, uint64_t first, uint64_t last);
enum dt_status dt_watchers_epoch_end(struct dt_trainer *trainer, struct dt_epoch_event *epoch);
enum dt_status dt_watchers_run_end(struct dt_trainer *trainer, enum dt_status status,
                                   struct dt_end_event *end);

#endif
