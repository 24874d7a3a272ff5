/* The configuration of a run, checked and complete; cli/config/ reads it from JSON. */
#ifndef DT_TRAIN_CONFIG_H
#define DT_TRAIN_CONFIG_H

#include "base/status.h"
#include "data/dataset.h"
#include "dist/strategy/dist_spec.h"
#include "model/lr_schedule.h"
#include "model/optimizer.h"

#define DT_DEVICE_LIST(X)     \
    X(DT_DEVICE_AUTO, "auto") \
    X(DT_DEVICE_CPU, "cpu")   \
    X(DT_DEVICE_REF, "ref")   \
    X(DT_DEVICE_CUDA, "cuda")
enum dt_device { DT_DEVICE_LIST(DT_NAMED_ENUM) };

/* The metrics of an evaluation; of the average: of the weights (`ema`). X(constant, config name,
 * name) */
#define DT_TEST_METRIC_LIST(X)                                                         \
    X(DT_TEST_NONE, "none", "")                                                        \
    X(DT_TEST_LOSS, "test_loss", "test loss")                                          \
    X(DT_TEST_ACCURACY, "test_accuracy", "test accuracy")                              \
    X(DT_VALIDATION_LOSS, "validation_loss", "validation loss")                        \
    X(DT_VALIDATION_ACCURACY, "validation_accuracy", "validation accuracy")            \
    X(DT_EMA_TEST_LOSS, "ema_test_loss", "test loss of the average")                   \
    X(DT_EMA_TEST_ACCURACY, "ema_test_accuracy", "test accuracy of the average")       \
    X(DT_EMA_VALIDATION_LOSS, "ema_validation_loss", "validation loss of the average") \
    X(DT_EMA_VALIDATION_ACCURACY, "ema_validation_accuracy", "validation accuracy of the average")
enum dt_test_metric { DT_TEST_METRIC_LIST(DT_NAMED_ENUM) };

static inline bool dt_metric_is_loss(enum dt_test_metric metric)
{
    return metric == DT_TEST_LOSS || metric == DT_VALIDATION_LOSS || metric == DT_EMA_TEST_LOSS ||
           metric == DT_EMA_VALIDATION_LOSS;
}

static inline bool dt_metric_is_of_test(enum dt_test_metric metric)
{
    return metric == DT_TEST_LOSS || metric == DT_TEST_ACCURACY || metric == DT_EMA_TEST_LOSS ||
           metric == DT_EMA_TEST_ACCURACY;
}

/* Of the average of the weights: the last ones of the list. */
static inline bool dt_metric_is_of_average(enum dt_test_metric metric)
{
    return metric >= DT_EMA_TEST_LOSS;
}

/* When the test set is evaluated; validation samples are after each epoch. */
#define DT_EVALUATE_LIST(X)         \
    X(DT_EVALUATE_EPOCHS, "epochs") \
    X(DT_EVALUATE_END, "end")
enum dt_evaluate { DT_EVALUATE_LIST(DT_NAMED_ENUM) };

/* When something follows from a metric (train/monitor.c). */
struct dt_monitor_spec {
    enum dt_test_metric metric; /* DT_TEST_NONE: never */
    int64_t patience;           /* after so many epochs without improvement */
    double min_delta;           /* by more than this, or it is none */
};

#define DT_AUTO (-1) /* of a number that the program may choose */

#define DT_MOST_WEIGHTS 1024
struct dt_class_weights {
    int n; /* 0: none; DT_AUTO: balanced, samples / (classes * samples of the class) */
    double of[DT_MOST_WEIGHTS];
};

struct dt_config {
    char name[64]; /* the file's name without folder and ".json"; default run folder */

    struct dt_data_spec data; /* shape, n_classes and n_targets are filled in from the model */
    enum dt_sharding sharding;
    bool shuffle;

    struct dt_model_spec model;

    int64_t epochs;
    int64_t max_steps; /* stop after so many steps in all; 0: no limit */
    int64_t seed;
    int64_t batch_per_rank, batch_global; /* exactly one is > 0 */
    int64_t accumulate;                   /* micro-batches per step: the batch is the sum of all */
    struct dt_class_weights class_weights;
    struct dt_texts freeze; /* layers whose weights stay; the model's layers say so too */
    struct dt_optimizer_spec optimizer;
    enum dt_lr_scaling lr_scaling;
    double warmup_epochs, ema; /* ema: decay of the weights' average, or 0 */
    double warmup_from;        /* < 0: the unscaled rate */
    enum dt_lr_schedule_type schedule;
    double schedule_step_epochs, schedule_gamma, schedule_factor, schedule_min_lr;
    struct dt_milestones schedule_milestones;
    double schedule_peak, schedule_from, schedule_to; /* one_cycle */
    enum dt_evaluate evaluate;
    struct dt_monitor_spec plateau; /* of the schedule of that name: when the rate goes down */
    struct dt_monitor_spec early_stopping;

    struct dt_dist_spec dist;
    double bucket_mb;   /* as configured; dist.bucket_bytes follows from it */
    bool init_per_rank; /* each rank draws initial weights of its own: shows what the broadcast is
                           for */
    double timeout_s;

    int64_t checkpoint_every_epochs, checkpoint_every_steps; /* 0: off */
    int64_t checkpoint_keep;
    enum dt_test_metric
        checkpoint_best;     /* by which one checkpoint more is kept; DT_TEST_NONE: it is not */
    double log_every_s;      /* seconds between progress lines where stderr is no terminal */
    int64_t log_every_steps; /* between recorded ones; 0: none; DT_AUTO: dt_record_interval says */
    bool log_audit;          /* which samples each step uses is recorded (train/hooks/audit.h) */
    char trace_steps[48];    /* "10:30", as configured; "": none */
    uint64_t trace_first, trace_last; /* these */

    enum dt_device device;
    enum dt_precision precision;
    bool cuda_graph;
    bool cuda_deterministic; /* engines are not chosen by time */
    bool tensorboard;        /* epochs show the inside of the network, for the sink that draws it */
    bool report;             /* a page about the run is written at its end */
    int64_t threads;         /* 0: cores / local ranks */
};

/* The text format of a configuration in checkpoints and in the run's folder. Training only hands
 * such texts on; its caller chooses the format (cli/config/config.h). */
struct dt_config_format {
    char *(*write)(
        const struct dt_config *config); /* every key; the caller frees; NULL: out of memory */
    /* Reads what `write` of this version or an earlier one wrote. DT_CONFIG, with `name` in the
     * text. */
    enum dt_status (*read)(const char *name, const char *text, struct dt_config *out);
    /* Looks below the key `path` ("train.optimizer"; "": everywhere) of two written ones. `text` is
     * "" when nothing differs, else it says each such key and both values, as far as they fit:
     * "train.epochs was 2, now it is 3; train.ema was 0, now it is 0.99". DT_NO_MEMORY. */
    enum dt_status (*compare)(const char *before, const char *now, const char *path, char *text,
                              size_t size);
};

#define DT_CHANGES_NUMBERS 192 /* of them, for ranks, batch and rate */
#define DT_CHANGES_SIZE 704    /* of `text` about two whole configurations */

#endif
