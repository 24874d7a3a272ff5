/* Everything one rank needs to train, opened together: data, network, optimizer, and where the run
 * stands.
 *
 *   trainer.c   opens and closes it          step.c   a step, and how many are taken together
 *   drivers/    take steps                   train.c  the epochs, and the events of a run
 *   hook.h      observers (hooks/)           save/    checkpoints and the run's folder
 *   evaluate.c  the test samples             parts.c  lists all parts
 *   weights.c   average, statistics, replicas; the test of a run with validation samples
 *   monitor.c   early stopping, plateaus, the best epoch */
#ifndef DT_TRAIN_TRAINER_H
#define DT_TRAIN_TRAINER_H

#include "checkpoint/run_state.h"
#include "dist/strategy/roles.h"
#include "dist/strategy/strategy.h"
#include "model/device_module.h"
#include "model/lr_schedule.h"
#include "train/config.h"
#include "train/evaluate.h"
#include "train/hook.h"
#include "train/step_clock.h"

/* The device of a run, and how gradients travel between its ranks (train/device.h). */
struct dt_device_choice {
    const struct dt_backend_ops *backend;
    const struct dt_device_module *module; /* NULL: the CPU */
    struct dt_device_info info;            /* with module; else zero */
    dt_allreduce_open_fn
        allreduce_open; /* the module's, where gradients are added between devices; else NULL */
    char why[400];      /* why no GPU, or why not NCCL; else "" */
    bool idle;          /* GPUs of some ranks are, because others have none */
};

struct dt_step_results;

/* A driver takes a trainer's steps: chosen once, when it opens, among the drivers that the program
 * names. */
struct dt_driver_ops {
    bool on_device; /* a device takes the steps, recorded: the host sees nothing within a step */
    /* Whether the driver fits this trainer. Drivers on a device are also asked before the strategy
     * is open. NULL: always. */
    bool (*fits)(const struct dt_trainer *trainer);
    /* Local: the caller agrees. NULL: `own` stays NULL. */
    enum dt_status (*open)(struct dt_trainer *trainer, void **own);
    void (*close)(struct dt_trainer *trainer, void *own); /* with open */
    /* The next n steps of state.epoch, 1 to driver.most; adds them to `state`. Every rank calls
     * it. */
    enum dt_status (*take)(struct dt_trainer *trainer, int n, struct dt_step_results *out);
};

struct dt_driver {
    const struct dt_driver_ops *ops;
    void *own;
    int most;      /* steps that it takes together; the same on every rank */
    char why[400]; /* the device of some rank cannot record steps, so the host takes them; or "" */
};

/* A step at a time, on which the ranks agree while the gradients travel (train/step.c). */
extern const struct dt_driver_ops dt_host_driver;
/* A GPU takes several, recorded once (model/device_module.h): cuda.graph. */
extern const struct dt_driver_ops dt_recorded_driver;
/* Workers that do not wait for each other within steps (struct dt_strategy). */
extern const struct dt_driver_ops dt_free_driver;

/* The parts of a trainer that a program chooses: it links those that it names. */
struct dt_trainer_parts {
    const struct dt_driver_ops *const *drivers; /* the first that fits; ends with NULL */
    /* A dt_device_choose. */
    enum dt_status (*choose_device)(struct dt_world *world, const struct dt_config *config,
                                    struct dt_device_choice *out);
    /* train/parts.h; NULL: memory is not checked before, and no batch that fits is searched. */
    enum dt_status (*check_memory)(const struct dt_trainer *trainer);
    enum dt_status (*advise)(struct dt_trainer *trainer, bool search);
    /* train/parts.h; NULL: the training set's own numbers are not computed. */
    enum dt_status (*normalize)(struct dt_trainer *trainer);
    /* train/parts.h; NULL: an image that cannot be read is an error of its rank. */
    enum dt_status (*open_images)(struct dt_data_spec *spec);
    void (*close_images)(struct dt_data_spec *spec);
};

/* All parts (parts.c); a program that names this links them. */
extern const struct dt_trainer_parts dt_all_parts;

/* The configuration as checkpoints and the run's folder have it. */
struct dt_written_config {
    const struct dt_config_format *format; /* borrowed */
    char *text;
};

/* A moving average of the weights (`train.ema`): after each step it becomes decay * average +
 * (1 - decay) * weights, from the first step's weights on, as PyTorch's AveragedModel with
 * get_ema_multi_avg_fn has it (Polyak and Juditsky 1992). The end of an epoch tests it, and
 * checkpoints have it. Ranks with the same weights have the same average. */
struct dt_ema {
    float *average; /* device; as the model's arena; NULL: the run has none */
    bool begun;     /* it has seen weights */
};

struct dt_replicas; /* weights.c */

struct dt_trainer {
    struct dt_world *world;               /* borrowed */
    const struct dt_trainer_parts *parts; /* borrowed */
    struct dt_config config; /* with the number of threads, and the model's shapes in `data` */
    struct dt_written_config written;
    struct dt_roles roles;
    struct dt_model model;
    struct dt_sample_set set; /* to train with */
    struct dt_device_choice device;
    struct dt_backend *backend;
    struct dt_strategy *strategy; /* has weights, gradients and the optimizer */
    struct dt_network *network;
    struct dt_driver driver;
    struct dt_evaluator evaluator;
    struct dt_lr_schedule schedule;
    struct dt_checkpoint_state state; /* where the run stands */
    struct dt_step_clock clock;
    struct dt_ema ema;
    double *class_weights; /* train/class_weights.c; NULL: all classes count alike */
    struct dt_replicas *replicas;
    size_t n_test;         /* with validation samples: those of the test set */
    struct dt_hook *hooks; /* the first, or NULL */
    bool nan_injected;     /* a fault has made gradients NaN: the cause if the training diverges */
};

/* Shape and number of classes or targets, from the model: what differs in a
 * file, or what the format cannot give, is then an error of dt_dataset_count and dt_dataset_open.
 */
void dt_data_spec_fit(struct dt_data_spec *spec, const struct dt_model *model);

/* The share of worker `rank` of `size` in the training samples. DT_CONFIG: the batch does not go
 * with the number of workers or samples. Local; `config->data` must fit the
 * model (dt_data_spec_fit). */
enum dt_status dt_trainer_shard(const struct dt_config *config, int rank, int size,
                                struct dt_shard *out);

/* Opens all of it but starts nothing: initial weights are drawn, not yet broadcast. Every rank
 * calls it; agreed. `config` is copied, `format` and `parts`
 * are borrowed. */
enum dt_status dt_trainer_open(struct dt_world *world, const struct dt_config *config,
                               const struct dt_config_format *format,
                               const struct dt_trainer_parts *parts, struct dt_trainer *out);
void dt_trainer_close(struct dt_trainer *trainer);

/* Samples of a micro-batch at most. */
int dt_trainer_capacity(const struct dt_trainer *trainer);

/* Opens network, evaluator and initial weights, while a capacity that fits is searched. A failed
 * open is closed, too. Local. */
enum dt_status dt_trainer_open_network(struct dt_trainer *trainer, int capacity);
void dt_trainer_close_network(struct dt_trainer *trainer);

/* The result of a step, over all ranks. */
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

#define DT_MAX_STEPS_TOGETHER DT_MAX_RECORDED_STEPS

/* The results of the next steps. */
struct dt_step_results {
    struct dt_step_result steps[DT_MAX_STEPS_TOGETHER];
    int n;     /* >= 1 */
    bool stop; /* some rank was asked to stop */
};

/* The steps left of the whole run. max_steps counts steps really taken; after a change of the
 * number of ranks these differ from the steps that the epochs would have at this number. */
uint64_t dt_steps_left(const struct dt_trainer *trainer);

/* How many steps are taken together: up to the next boundary, where the end of the epoch or of the
 * run, a checkpoint, a comparison of replicas, or the record of a gradient's norm needs the state;
 * and at most what the driver takes at once. >= 1 while a step is left of the epoch and the run. */
int dt_steps_until_boundary(const struct dt_trainer *trainer);

/* Takes the next n steps of state.epoch together, n at most dt_steps_until_boundary; advances
 * `state`. Every rank calls it. DT_NON_FINITE: the training diverged; weights are only fit to be
 * thrown away. */
enum dt_status dt_trainer_steps(struct dt_trainer *trainer, int n, struct dt_step_results *out);

/* The spans of all further steps go to `trace` (borrowed); NULL: to none. Not while a GPU takes
 * steps on its own. */
void dt_trainer_trace(struct dt_trainer *trainer, struct dt_trace *trace);

/* ---- beside the steps: the calls of train.c, on every rank */

/* The weights of the configuration, or balanced ones of the training set. Agreed. DT_CONFIG: as
 * many as the model has classes are needed. */
enum dt_status dt_class_weights_open(struct dt_trainer *trainer);
/* A batch's factors of losses: weights, divided by their mean over the samples that all ranks use
 * in this step (n_global), or without averaging this one. */
enum dt_status dt_class_weights_of(struct dt_trainer *trainer, size_t n_global,
                                   struct dt_batch *batch);

/* After hooks, before a checkpoint is read: the average, the replicas, and whether batch_norm has
 * enough samples and the test set's files are good. Agreed. */
enum dt_status dt_trainer_open_run(struct dt_trainer *trainer);
void dt_trainer_close_run(struct dt_trainer *trainer);

/* After a step: moves the average on, if there is one. Counts as update. No driver takes several
 * steps together where there is one. */
enum dt_status dt_ema_update(struct dt_trainer *trainer);
/* Evaluates the average in place of the weights; of no samples where there is none. */
enum dt_status dt_ema_evaluate(struct dt_trainer *trainer, struct dt_evaluator *evaluator,
                               struct dt_metrics *out);
/* After a restore: the average of every rank becomes rank 0's. */
enum dt_status dt_ema_broadcast(struct dt_trainer *trainer);

/* Rank 0's running statistics (model/layers/layers.h) become everybody's. Agreed. */
enum dt_status dt_statistics_share(struct dt_trainer *trainer);
/* The same after the last step before the test samples come. */
enum dt_status dt_statistics_after_step(struct dt_trainer *trainer);

/* Compares the replicas (dist/strategy/replica_check.h), whose weights are shared. DT_INTERNAL. */
enum dt_status dt_replicas_compare(struct dt_trainer *trainer);
/* The same every `distributed.check_every` steps. Counts as communication. */
enum dt_status dt_replicas_after_step(struct dt_trainer *trainer);
/* At the end. `hash`: of the weights; where replicas may differ it stays, and the error of
 * DT_INTERNAL names a difference. */
enum dt_status dt_replicas_finish(struct dt_trainer *trainer, const char **hash);

/* Evaluates the test set of a run with validation samples: the weights, and their average. */
enum dt_status dt_trainer_test(struct dt_trainer *trainer, struct dt_metrics *test,
                               struct dt_metrics *averaged);

struct dt_emitter;
struct dt_end_event;

/* The monitor controls a run by a metric of the validation samples, or without any of the test
 * samples, epoch after epoch: it ends the run when the metric no longer improves
 * (train.early_stopping), or continues at a lower rate (train.schedule, "plateau"), and names the
 * best epoch (checkpoint.best). Patience and min_delta mean what they mean in Keras's EarlyStopping
 * and ReduceLROnPlateau. The metric is the mean of sums over all ranks, the same bits on each, so
 * all decide alike. The monitor's memory is in the trainer's state, which checkpoints have: a
 * resumed run decides as it would have. Only whole epochs count.
 *
 * At the start, with a checkpoint's state; warns of a metric of the test samples. */
void dt_monitor_begin(struct dt_trainer *trainer, const struct dt_emitter *emitter);
/* After an epoch. Returns the rate of the next step where a plateau reduces it; else 0. */
double dt_monitor_epoch(struct dt_trainer *trainer, const struct dt_metrics *evaluated,
                        const struct dt_metrics *averaged);
/* Whether the epochs so far are enough. Between epochs. */
bool dt_monitor_stops(const struct dt_trainer *trainer);
void dt_monitor_end(const struct dt_trainer *trainer, struct dt_end_event *end);
/* Removes metrics from a state that `before` used and the configuration `now` does not. */
void dt_monitor_forget(const struct dt_config *before, const struct dt_config *now,
                       struct dt_checkpoint_state *state);

/* The training has diverged, DT_NON_FINITE, if the mean loss is not a number, or a billion times
 * what it costs to answer 0 every time (with classes: a billion). No run that learns comes near:
 * Adam at lr 1, a thousand times too much, throws configs/mnist.json to 2e6 in its second step. No
 * earlier loss is asked, so a resumed run is judged as any other. `m`: sums over all ranks; every
 * rank calls it; agreed. */
#define DT_DIVERGED_FACTOR 1e9
enum dt_status dt_trainer_check_loss(const struct dt_trainer *trainer, const char *what,
                                     const struct dt_metrics *m, uint64_t step);

/* The factor of the learning rate, and the rates of all steps, with that many ranks that compute
 * gradients. */
double dt_trainer_lr_scale(const struct dt_config *config, uint64_t n_workers);
struct dt_lr_schedule dt_trainer_schedule(const struct dt_config *config, uint64_t n_workers,
                                          uint64_t steps_per_epoch);

#endif
