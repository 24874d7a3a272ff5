/* The receivers of a training's events, one row each. Adding one is a row and a function. */
#ifndef DT_CLI_SINKS_SINKS_H
#define DT_CLI_SINKS_SINKS_H

#include "cli/sinks/event_file.h"
#include "train/events.h"

/* metrics.jsonl and metrics.csv; NULL: not open. */
struct dt_metrics_files {
    FILE *jsonl, *csv;
    bool failed; /* a record was not written: warned once, training continues, the run ends with
                    DT_IO */
};

/* One line that says how far the run is: redrawn in place on a terminal, in its width, else printed
 * once an interval. */
struct dt_progress {
    const struct dt_config *config;
    bool terminal;             /* stderr is one */
    bool shown;                /* the line stands on the terminal */
    double interval_s, last_s; /* interval_s 0: no line */
    uint64_t steps_per_epoch;
};
void dt_progress_clear(struct dt_progress *progress); /* before printing anything else */

/* Lines of metrics.jsonl that are longer are no records: a run's folder may be anybody's. */
#define DT_METRICS_LINE_BYTES ((size_t)1 << 20)

struct dt_sinks;

/* Reads runs back (report/record.h), which cli/ does not know. */
struct dt_run_reader {
    /* The seconds that the starts of the run in a folder have taken; NaN: unknown. */
    enum dt_status (*seconds)(const char *folder, double *out);
    /* The last sink: writes the run's page from the files of the sinks before it. */
    enum dt_status (*take)(struct dt_sinks *sinks, const struct dt_event *event);
};

/* The sinks' state between events. The caller sets `command`, `silent` and `reader`, and zeroes the
 * rest. Before the folder's event, sinks get warnings alone. */
struct dt_sinks {
    const char *command;                /* the program's line, for people */
    bool silent;                        /* no output on the terminal */
    const struct dt_run_reader *reader; /* or NULL */
    double started_s;      /* since 1970, when the folder was opened: names this start of the run */
    double clock_s;        /* the same moment, by dt_clock_s */
    double seconds_before; /* of earlier starts */
    struct dt_folder_event folder;
    struct dt_progress progress;
    struct dt_metrics_files files;
    FILE *events;         /* open while TensorBoard gets more events */
    bool events_failed;   /* some were not written: reported once, and the run ends with DT_IO */
    double position_s;    /* when the step was written last */
    bool timeline_failed; /* trace.json was not written: said once, and the run ends with DT_IO
                           */
};

/* X(name), in the order in which they get an event: each sees in event->status whether one before
 * it has failed. */
#define DT_SINK_LIST(X)                                                          \
    X(metrics_jsonl) /* metrics.jsonl: cli/sinks/metrics.c */                    \
    X(metrics_csv)   /* metrics.csv */                                           \
    X(position)      /* run.lock: the step, once a second */                     \
    X(tensorboard)   /* tensorboard/: cli/sinks/tensorboard.c */                 \
    X(timeline)      /* trace.json: cli/sinks/timeline.c */                      \
    X(terminal)      /* stderr, and the result on stdout: cli/sinks/console.c */ \
    X(summary)       /* summary.json, likewise */

/* Gives an event to the sink. DT_IO and others: the sink could not do its work. */
#define DT_SINK_DECLARE(name) \
    enum dt_status dt_##name##_take(struct dt_sinks *sinks, const struct dt_event *event);
DT_SINK_LIST(DT_SINK_DECLARE)
#undef DT_SINK_DECLARE

/* DT_UNAVAILABLE: this build lacks a sink that the configuration asks for. */
enum dt_status dt_sinks_check(const struct dt_config *config);

void dt_metrics_close(struct dt_metrics_files *files);

/* A dt_emitter.emit; context: the dt_sinks. */
enum dt_status dt_sinks_emit(void *context, struct dt_event *event);
void dt_sinks_close(struct dt_sinks *sinks);

/* The line that stdout ends with: "test accuracy 98.31 % (9831/10000) after 1 epoch". `set`:
 * "test", say; `after` may be "". */
void dt_result_text(const char *set, const struct dt_metrics *metrics,
                    const struct dt_config *config, const char *after, char *text, size_t size);

static inline bool
dt_sinks_classify(const struct dt_sinks *sinks) /* whether accuracies mean something */
{
    return sinks->folder.config->model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
}

/* Whether there is R2 in place of accuracies: of targets that are normalized. */
static inline bool dt_config_has_r2(const struct dt_config *config)
{
    return config->model.loss != DT_LOSS_SOFTMAX_CROSS_ENTROPY &&
           config->data.format != DT_DATA_LINEAR;
}

/* The first lines of a run, with a table of its ranks. */
void dt_banner_print(const struct dt_folder_event *folder, const struct dt_run_event *run);

#endif
