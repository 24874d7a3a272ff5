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

/* Their state between events. Zeroed at first but for `command`, `silent` and `reader`; before the
 * folder's event, sinks get nothing but warnings. */
struct dt_sinks {
    const char *command; /* the program's line, for people; set by whoever opens them */
    bool silent;         /* likewise: no output on the terminal */
    const struct dt_run_reader *reader; /* likewise, or NULL */
    double started_s;      /* when the folder was opened, since 1970: tells a run's starts apart */
    double clock_s;        /* likewise, by dt_clock_s */
    double seconds_before; /* that the starts before have taken */
    struct dt_folder_event folder;
    struct dt_progress progress;
    struct dt_metrics_files files;
    FILE *events;       /* open while TensorBoard gets more events */
    bool events_failed; /* some could not be written: reported once, and the run ends with DT_IO */
    double position_s;  /* when the step was written last */
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

/* Tells the row of an event. DT_IO and the like: what is asked of it cannot be done. */
#define DT_SINK_DECLARE(name) \
    enum dt_status dt_##name##_take(struct dt_sinks *sinks, const struct dt_event *event);
DT_SINK_LIST(DT_SINK_DECLARE)
#undef DT_SINK_DECLARE

/* DT_UNAVAILABLE: the configuration asks for one that this build has not got. */
enum dt_status dt_sinks_check(const struct dt_config *config);

/* A resumed run after `step` steps and `n_epochs` whole epochs drops the records of later ones
 * first, also that of the epoch in which it stands: it will be written again. */
void dt_metrics_close(struct dt_metrics_files *files);

/* A dt_emitter.emit; context: the dt_sinks. */
enum dt_status dt_sinks_emit(void *context, struct dt_event *event);
void dt_sinks_close(struct dt_sinks *sinks);

/* The line that stdout ends with: "test accuracy 98.31 % (9831/10000) after 1 epoch". `set`:
 * "test", say; `after` may be "". */
void dt_result_text(const char *set, const struct dt_metrics *metrics, bool classifies,
                    const char *after, char *text, size_t size);

static inline bool
dt_sinks_classify(const struct dt_sinks *sinks) /* whether accuracies mean something */
{
    return sinks->folder.config->model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
}

/* The first lines of a run, with a table of its ranks. */
void dt_banner_print(const struct dt_folder_event *folder, const struct dt_run_event *run);

#endif
