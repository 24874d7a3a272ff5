/* Everything one rank needs to train, opened together: data, network, optimizer, and where the run
 * stands.
 *
 *   trainer.c  opens and closes it      step.c       takes a step, and times its parts
 *   steps.c    takes steps one way or   gpu_steps.c  has a GPU take several on its own
 *              the other, and compares  watcher.c    who looks on
 *              the replicas             train.c      the epochs, and what people see of them
 *   save/state.c  saves and restores it */
#ifndef DT_TRAIN_TRAINER_H
#define DT_TRAIN_TRAINER_H

#include "dist/strategy/replica_check.h"
#include "dist/strategy/roles.h"
#include "dist/strategy/strategies.h"
#include "model/checkpoint.h"
#include "train/device.h"
#include "train/evaluate.h"
#include "train/events.h"
#include "train/watcher.h"

struct dt_trainer {
    struct dt_world *world; /* borrowed */
    struct dt_roles roles;
    struct dt_config config;
    struct dt_model model;
    int n_threads;
    const struct dt_config_format *format;
    char *config_text; /* in that format */

    struct dt_dataset data;
    struct dt_loader loader;
    uint64_t steps_per_epoch;
    int micro_capacity; /* samples of a micro-batch at most */

    struct dt_device_choice device;
    struct dt_backend *backend;
    struct dt_strategy *strategy; /* has weights, gradients and the optimizer */
    struct dt_step_graph *graph;  /* the GPU takes steps on its own; NULL: it does not */
    uint64_t n_at_once;           /* with graph: steps that it is given together next */
    struct dt_bound_samples *samples;
    struct dt_network *network;
    struct dt_replica_check check;
    struct dt_evaluator evaluator;
    struct dt_schedule schedule;

    struct dt_checkpoint_state state; /* where the run stands */
    struct dt_phase_times times;      /* of this rank, since the start of the process */
    uint64_t n_timed_steps;
    struct dt_trace *trace; /* dt_trainer_watch */
    struct dt_watchers watchers;
};

/* How the training samples are shared out among `size` workers, seen from number `rank`. DT_CONFIG:
 * the batch does not go with the number of workers or samples. Local; `config->data` must fit the
 * model (train/data_spec.h). */
enum dt_status dt_trainer_shard(const struct dt_config *config, int rank, int size,
                                struct dt_shard *out);

/* Opens all of it but starts nothing: initial weights are drawn, not yet broadcast. Every rank
 * calls it; agreed. `config` is copied, `format` borrowed. */
enum dt_status dt_trainer_open(struct dt_world *world, const struct dt_config *config,
                               const struct dt_config_format *format, struct dt_trainer *out);
void dt_trainer_close(struct dt_trainer *trainer);

/* What a step gave, over all ranks. */
struct dt_step_result {
    uint64_t step; /* taken in all, with this one */
    struct dt_metrics train;
    double lr;
    double grad_norm; /* of the mean gradient, before clipping; NAN but for some of the recorded
                         steps */
};

/* Steps from one recorded step to the next, near step number `step` of all steps of all epochs.
 * Grows with both, so that the first 63 steps are all recorded, a run of any length has some
 * hundreds of records up to about a thousand, and one that ends early has enough. A power of two,
 * and a function of these numbers alone: a resumed run has the records of one that was not
 * interrupted. */
uint64_t dt_record_interval(uint64_t step, uint64_t all);
/* Whether the configuration has this step recorded. */
bool dt_trainer_records(const struct dt_trainer *trainer, uint64_t step);

/* What the next steps gave. */
struct dt_step_results {
    struct dt_step_result steps[DT_MAX_RECORDED_STEPS];
    int n;          /* >= 1 */
    bool stop;      /* some rank was asked to stop */
    double seconds; /* that they took here */
};

/* The next step of state.epoch, or where a GPU takes them on its own the next few, up to `limit` >=
 * 1; advances `state`. Every rank calls it. DT_NON_FINITE: the training diverged; weights are only
 * fit to be thrown away. */
enum dt_status dt_trainer_steps(struct dt_trainer *trainer, uint64_t limit,
                                struct dt_step_results *out);

/* From the next step on, `trace` (borrowed) is told of what is done; NULL: nobody is. Not while a
 * GPU takes steps on its own. */
void dt_trainer_watch(struct dt_trainer *trainer, struct dt_trace *trace);

/* The training has diverged, DT_NON_FINITE, if the mean loss is not a number, or a billion times
 * what it costs to answer 0 every time (with classes: a billion). No run that learns comes near:
 * Adam at lr 1, a thousand times too much, throws configs/mnist.json to 2e6 in its second step. No
 * earlier loss is asked, so a resumed run is judged as any other. `m`: sums over all ranks; every
 * rank calls it; agreed. */
#define DT_DIVERGED_FACTOR 1e9
enum dt_status dt_trainer_check_loss(const struct dt_trainer *trainer, const char *what,
                                     const struct dt_metrics *m, uint64_t step);

/* Shared by step.c, gpu_steps.c and steps.c. Gather, forward and backward of all micro-batches,
 * gradients on their way. `last`: where the time of the phases is counted from; NULL: it is not
 * taken. */
enum dt_status dt_trainer_passes(struct dt_trainer *trainer, const struct dt_batch *batch,
                                 struct dt_strategy_step *step, double *last);
/* Counts the step that gave this. */
enum dt_status dt_trainer_advance(struct dt_trainer *trainer, const struct dt_metrics *train,
                                  struct dt_step_result *out);
enum dt_status dt_trainer_step(struct dt_trainer *trainer, struct dt_step_results *out);
/* A step of this epoch that the ranks do not agree on: `local` is what came of this rank's own
 * samples. */
enum dt_status dt_trainer_local_step(struct dt_trainer *trainer, uint64_t step_in_epoch,
                                     struct dt_metrics *local);
enum dt_status dt_trainer_many_steps(struct dt_trainer *trainer, uint64_t limit,
                                     struct dt_step_results *out);
enum dt_status dt_trainer_gpu_run(struct dt_trainer *trainer, int n_steps,
                                  struct dt_metrics *local);
/* A dt_step_fn, its context the trainer. */
enum dt_status dt_trainer_gpu_step(void *context, const struct dt_batch *batch,
                                   const struct dt_update *update);

/* Rank 0 writes a checkpoint, the newest or `best`; every rank calls it; agreed. `path` is where
 * (rank 0), and stays as it was on failure. */
enum dt_status dt_trainer_save(struct dt_trainer *trainer, const struct dt_run_dir *run, bool best,
                               char path[DT_CHECKPOINT_PATH_SIZE]);

/* Goes on from the checkpoint `path`, or with NULL from the newest valid one of the run, if any
 * (`path_used` is "" if none: a fresh start). Damaged ones are passed over; `emitter` is told.
 * Every rank calls it; agreed. Rank 0 reads; the caller broadcasts weights. */
enum dt_status dt_trainer_restore(struct dt_trainer *trainer, const struct dt_run_dir *run,
                                  const struct dt_emitter *emitter, const char *path,
                                  char path_used[DT_CHECKPOINT_PATH_SIZE]);

/* Takes the initial weights from a file (train/save/saved.h) on rank 0. Every rank calls it;
 * agreed; the caller broadcasts weights.
 */
enum dt_status dt_trainer_take_weights(struct dt_trainer *trainer, const char *path);

#endif
