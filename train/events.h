/* A training's events, as plain structs: the trainer fills them in and hands them to one `emit`;
 * sinks (cli/sinks/sinks.h) read nothing else of it. Rank 0 alone emits, sums over all ranks.
 * Memory behind pointers stays until the call returns; `config` and `dir` of the folder, until its
 * end. */
#ifndef DT_TRAIN_EVENTS_H
#define DT_TRAIN_EVENTS_H

#include "dist/strategy/strategy.h"
#include "dist/strategy/summary/summary.h"
#include "train/config.h"
#include "train/rank_checks.h"
#include "train/step_clock.h"

struct dt_run_dir;        /* train/save/run_dir.h */
struct dt_faults;         /* train/hooks/: inject.h */
struct dt_learned;        /* learned.h */
struct dt_inspection;     /* inspect.h */
struct dt_timeline_event; /* timeline_hook.h */
struct dt_audit_event;    /* audit.h */

/* The run has a folder, and can start: from here on the files of an earlier start may change. */
struct dt_folder_event {
    const struct dt_config *config;
    const struct dt_run_dir *dir;
    int world_size;
    uint64_t step, n_epochs; /* done */
    bool resumes;            /* it is to go on from a checkpoint, if there is one */
};

/* The first step is next. */
struct dt_run_event {
    const struct dt_rank_info *ranks;
    size_t n_parameters, gradient_bytes, global_batch;
    int n_workers;                        /* ranks that compute gradients */
    size_t n_train, n_test, n_validation; /* samples of the sets; n_validation 0: there is none */
    double lr, lr_scale;                  /* the largest rate, and by how much it was scaled */
    uint64_t steps_per_epoch;
    uint64_t step, n_epochs;            /* done */
    uint64_t last_step;                 /* after which it ends, unless something stops it before */
    const char *resumed_from, *weights; /* files; "" and NULL: none */
    const char *changes;                /* of the configuration since that checkpoint, or "" */
    bool gpu, graph;                    /* graph: the GPU takes steps on its own */
    const char *device_why;             /* why no GPU, or why the GPU does not take them; or "" */
    struct dt_strategy_summary averaging;
    const struct dt_faults *faults; /* that were put in; NULL: none */
};

struct dt_step_event {
    uint64_t step, epoch; /* from 1 */
    bool recorded;        /* belongs into the records: log.every_steps */
    struct dt_metrics train;
    double lr;
    double grad_norm; /* L2, of the mean gradient, before clipping; NAN: not measured at this step,
                         or nobody knows it */
    /* where the run stands */
    uint64_t step_in_epoch;        /* steps done */
    struct dt_metrics epoch_train; /* sums of the epoch so far */
    double images_per_s;
    double eta_s; /* to the end of the run */
};

/* The state of the metric that a run is controlled by (train/monitor.c). */
struct dt_monitored {
    enum dt_test_metric metric; /* DT_TEST_NONE: it does not */
    double best;
    uint64_t epoch;   /* of the best, from 1; 0: none yet */
    uint64_t n_since; /* epochs since then */
};

struct dt_epoch_event {
    uint64_t step, epoch; /* from 1 */
    struct dt_metrics train, test,
        validation; /* with a validation set test is of no samples, else validation is */
    struct dt_metrics averaged;       /* of the weights' average on the same samples, or of none */
    const struct dt_learned *learned; /* that was tested, or NULL */
    double lr, images_per_s;     /* images_per_s is NAN if this process took no step of the epoch */
    double seconds;              /* of its steps */
    struct dt_phase_times rank0; /* of all steps of this process */
    uint64_t n_timed_steps;
    double reduced_lr; /* a plateau reduces the rate to this, from the next step on; 0: none does */
    const char *allreduce;          /* its name */
    struct dt_step_traffic traffic; /* counted, of a step of this process; else not known */
    struct dt_staleness staleness;  /* so far, of this process */
    double step_samples;            /* of the last step, of all ranks; 0: this process took none */
    const struct dt_inspection *inside; /* NULL: the configuration does not ask */
};

/* A checkpoint. */
struct dt_save_event {
    const char *path;
    const char *error; /* it could not be written, and training continues; or NULL */
};

struct dt_stop_event {
    int signal;
    uint64_t step;
    const char *checkpoint;
};

/* The line that a rank has learned (train/hooks/line.c). */
struct dt_fit {
    float slope, intercept;
};

/* Bytes, each of the rank where it is tightest. Those of a GPU are 0 without one. */
struct dt_memory_use {
    double host_peak; /* resident, at most so far; of what several ranks use, a part */
    double gpu_peak;  /* that dtrain has had allocated at most so far */
    double gpu_free;  /* now: CUDA's libraries and other processes take some too */
    double gpu_all;
};

/* The end of a run, well or not. */
struct dt_end_event {
    struct dt_metrics test, validation, averaged,
        averaged_validation; /* averaged: of the weights' average on the test samples */
    uint64_t tested_epoch;   /* whose weights these are of: the best, from 1; 0: the last ones */
    double validation_top5;  /* validation samples that are among the top five; of many classes */
    const struct dt_learned *learned; /* of the test; NULL also if the run was stopped or failed */
    uint64_t steps, epochs;
    bool within_epoch; /* the last epoch is not whole */
    int signal;        /* stopped by it, or 0 */
    double seconds;
    const char *weights; /* hash of the last ones; NULL: the run failed, or replicas may differ */
    const char *checkpoint;      /* the last one saved, or "" */
    const char *best_checkpoint; /* or "" */
    struct dt_monitored best,
        stopping; /* by which that is the best; by which a run is stopped early */
    bool stopped_early;
    const char *allreduce;       /* its name */
    const struct dt_fit *lines;  /* of the ranks, at the end of a line's fit; else NULL */
    struct dt_phase_times rank0; /* of all steps of this process */
    const struct dt_phase_times
        *ranks; /* of each rank; this and what follows only at an end, of a fault NULL */
    uint64_t n_timed_steps;
    struct dt_step_traffic traffic, predicted; /* traffic: counted */
    struct dt_staleness staleness;
    struct dt_memory_use memory;
    const char *idle_gpus; /* why there are some, which the run did not use; NULL: there are none */
};

/* X(constant, member, type) */
#define DT_EVENT_LIST(X)                                                                           \
    X(DT_EVENT_FOLDER, folder, struct dt_folder_event)                                             \
    X(DT_EVENT_RUN, run, struct dt_run_event)                                                      \
    X(DT_EVENT_STEP, step, struct dt_step_event)                                                   \
    X(DT_EVENT_EPOCH, epoch, struct dt_epoch_event)                                                \
    X(DT_EVENT_WARNING, warning, char) /* of what was passed over or changed: the run continues */ \
    X(DT_EVENT_SAVE, save, struct dt_save_event)                                                   \
    X(DT_EVENT_TIMELINE, timeline, struct dt_timeline_event)                                       \
    X(DT_EVENT_AUDIT, audit, struct dt_audit_event)                                                \
    X(DT_EVENT_STOP, stop, struct dt_stop_event) /* somebody asked to stop, and it was saved */    \
    X(DT_EVENT_DIFFERENCE, difference, char) /* the difference of replicas that were made to */    \
    X(DT_EVENT_END, end, struct dt_end_event)                                                      \
    X(DT_EVENT_FAULT, fault, struct dt_end_event)   /* the run failed */                           \
    X(DT_EVENT_RESULT, result, struct dt_end_event) /* the last of all */

#define DT_EVENT_CONSTANT(constant, member, type) constant,
#define DT_EVENT_MEMBER(constant, member, type) const type *member;
enum dt_event_kind { DT_EVENT_LIST(DT_EVENT_CONSTANT) };
struct dt_event {
    enum dt_event_kind kind;
    enum dt_status status; /* of the run's end, or of a fault; then the first
                              failure of a sink */
    union {
        DT_EVENT_LIST(DT_EVENT_MEMBER)
    };
};

/* The receiver of events. emit returns the first sink's error. Between RUN and END sinks that
 * cannot write warn once, and report it at END. */
struct dt_emitter {
    enum dt_status (*emit)(void *context, struct dt_event *event);
    void *context;
};

#endif
