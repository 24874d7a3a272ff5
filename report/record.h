/* A run as its folder describes it, finished, under way or killed: for `dtrain report`.
 *
 * The files may be anything. Without a readable config.json it is no run's folder; everything else
 * may be missing or damaged, and what cannot be read is as if it were not there. Numbers are finite
 * and at most 1e30 in size, or NaN: unknown. */
#ifndef DT_REPORT_RECORD_H
#define DT_REPORT_RECORD_H

#include <cjson/cJSON.h>

#include "cli/sinks/fields.h"

/* Row after row; steps grow from row to row. Columns are the fields of a step or an epoch, in their
 * order; a field that is no number is NaN. */
struct dt_record_table {
    size_t n, n_columns;
    int step; /* its column */
    double *cells;
    size_t room; /* private: rows */
};

/* Steps that were done when the run was started again, and the global batch of the start before. */
enum dt_restart { DT_RESTART_STEP, DT_RESTART_BATCH, DT_N_RESTART_COLUMNS };

/* X(constant, word) */
#define DT_RUN_STATE_LIST(X)                                          \
    X(DT_RUN_DONE, "done")                                            \
    X(DT_RUN_STOPPED, "stopped") /* by a signal, with a checkpoint */ \
    X(DT_RUN_FAILED, "failed")   /* it ended with an error */         \
    X(DT_RUN_GOING, "running")   /* a process holds its folder */     \
    X(DT_RUN_KILLED, "killed")   /* no result, and no process holds its folder */
enum dt_run_state { DT_RUN_STATE_LIST(DT_NAMED_ENUM) };

/* A larger file, in a folder that may be anybody's, counts as missing, as a longer line of
 * metrics.jsonl than DT_METRICS_LINE_BYTES counts as no record: cJSON's tree takes 40 times as
 * much memory. */
#define DT_RECORD_FILE_BYTES ((size_t)8 << 20) /* of a file but metrics.jsonl */

struct dt_record {
    char path[DT_PATH_SIZE]; /* without slashes at its end */
    struct dt_config config;
    enum dt_run_state state;
    double noted_step; /* of a run that is under way: its position in run.lock; NaN: unknown */
    cJSON *start;      /* metrics.jsonl's last record of a run, or NULL */
    cJSON *last_epoch; /* its last record of an epoch, or NULL */
    cJSON *summary;    /* summary.json of that run, else status.json, or NULL */
    struct dt_record_table steps, epochs;
    struct dt_record_table restarts; /* enum dt_restart; of all starts but the first */
    size_t n_starts;
    double started;   /* for the first time, since 1970; NaN: unknown */
    size_t n_strange; /* whole lines that are no records */
};

/* DT_NO_INPUT: no such folder, or no run's. DT_BAD_DATA: its config.json is no configuration.
 * DT_NO_PERMISSION, DT_NO_MEMORY. A failed open owes nothing. */
enum dt_status dt_record_open(const char *folder, struct dt_record *out);
void dt_record_close(struct dt_record *record); /* a zeroed one is fine */

/* The JSON of a file of at most `most` bytes in a run's folder, which the caller deletes; NULL: it
 * is not there, or not to be read, which is no error. DT_NO_MEMORY. */
enum dt_status dt_record_read(const char *folder, const char *name, size_t most, cJSON **out);

/* A number of a table. */
static inline double dt_record_cell(const struct dt_record_table *table, size_t row, int column)
{
    return table->cells[row * table->n_columns + (size_t)column];
}
/* The column's number in the last row that has one; NaN: none has. */
double dt_record_last(const struct dt_record_table *table, int column);

/* Members of start, last_epoch or summary: NaN and "" where there is no such number or text.
 * `object` may be NULL. */
double dt_record_number(const cJSON *object, const char *key);
const char *dt_record_text(const cJSON *object, const char *key);

const char *dt_run_state_word(enum dt_run_state state);
const char *dt_record_name(const struct dt_record *record); /* of the configuration */

/* The last result on a set of samples: of the summary, else of the last epoch. */
struct dt_record_result {
    double loss, accuracy, r2;     /* NaN: unknown */
    double n_samples;              /* NaN: unknown */
    double margin;                 /* of the accuracy, 95 %: 1.96 sqrt(p (1 - p) / n), binomial */
    double top5;                   /* NaN but with many classes */
    double ema_loss, ema_accuracy; /* of the average of the weights; NaN without one */
};
struct dt_record_result dt_record_result(const struct dt_record *record);     /* the test set */
struct dt_record_result dt_record_validation(const struct dt_record *record); /* NaN without one */

/* How far it is, over all its starts, whatever their numbers of ranks; NaN: unknown. */
struct dt_record_progress {
    double step, all;
    double per_epoch;          /* steps, at the number of ranks of the last start */
    double epochs, all_epochs; /* recorded; and to be, however few the last start asked for */
    double epoch;              /* the one under way or, of a run that is none, the last; from 1 */
};
struct dt_record_progress dt_record_progress(const struct dt_record *record);

/* Time of all its starts; of a killed one until its last record. NaN: unknown. */
double dt_record_seconds(const struct dt_record *record);

/* The same of a folder, whatever its config.json is. DT_NO_MEMORY. */
enum dt_status dt_record_seconds_of(const char *folder, double *out);

#endif
