/* The parts of a report about a run: of its page, of a terminal's screen, as text. What draws into
 * `out` writes nothing where the run's files do not say. */
#ifndef DT_REPORT_RUN_H
#define DT_REPORT_RUN_H

#include <stdio.h>

#include "cli/sinks/sinks.h"
#include "cli/terminal.h"
#include "report/record.h"
#include "train/watch/learned.h"

#define DT_RUN_PAGE "report.html"
#define DT_REPORT_MAX_RUNS 8 /* beside each other */

/* ---- the page (run_page.c): one file, which asks for nothing else */

/* As `path`, or, where that is NULL, as DT_RUN_PAGE in the folder `dir`. `learned`: of the only
 * run, or NULL: it does not say. Errors as of writing (report/page/page.h); DT_CANT_CREATE: that is
 * no regular file. */
enum dt_status dt_run_page_write(const char *path, const char *dir, const struct dt_record *records,
                                 int n, const struct dt_learned *learned);

/* For the sinks of a training: writes the page of a run at its end. */
extern const struct dt_run_reader dt_run_reader;

/* ---- its sections, each in a file of its name */

/* Cards of curves; `names` are those of the runs, where there are several. At most
 * DT_CURVE_MAX_SERIES runs. */
void dt_run_curves_draw(FILE *out, const struct dt_record *records, const char *const *names,
                        int n);
/* Where the time of the steps went, rank by rank, and what ranks sent. */
void dt_run_time_draw(FILE *out, const struct dt_record *record);
/* Lanes: what the ranks did when, in the steps of trace.json, and a summary of it. No memory: an
 * error, and then the page is not written. */
void dt_run_timeline_draw(FILE *out, const struct dt_record *record);
/* The ranks' last steps side by side, of a run that ended badly; where the folder has them. No
 * memory: an error. */
void dt_run_flight_print(FILE *out, const struct dt_record *record); /* as text */
void dt_run_flight_draw(FILE *out, const struct dt_record *record);
/* Tests the model of a run, from the checkpoint that its test result is of, with the test data.
 * `data`: folder of the data in place of the configuration's, or NULL. Without checkpoint, data, or
 * classes `out` says so, and a line on stderr; only data that somebody named must be there. Data of
 * another user's run are read only if they are named, and generated ones up to a limit. The caller
 * closes `out`, also of a failure.
 */
enum dt_status dt_learned_find(const struct dt_record *record, const char *data,
                               struct dt_learned *out);
void dt_run_learned_draw(FILE *out, const struct dt_learned *learned);
void dt_run_model_draw(FILE *out, const struct dt_record *record);
/* Every key, with its default where that is another. */
void dt_run_config_draw(FILE *out, const struct dt_record *record);

/* ---- several runs side by side: results, and where their configurations differ: every key whose
 * value is not the same in all. Layers are compared key by key ("model.layers.1.units") as long as
 * their types are alike. */

/* "A night": the letter of run number i of n, and its folder without what all have in front. */
#define DT_RUN_NAME_SIZE 48
void dt_run_name(const struct dt_record *records, int n, int i, char out[DT_RUN_NAME_SIZE]);

void dt_run_compare_print(const struct dt_record *records, int n); /* on stdout */
void dt_run_compare_draw(FILE *out, const struct dt_record *records, int n);

/* ---- a run's main facts, name by name */

/* X(constant, name) */
#define DT_FACT_LIST(X)                  \
    X(DT_FACT_VERDICT, "verdict")        \
    X(DT_FACT_ACCURACY, "test accuracy") \
    X(DT_FACT_LOSS, "test loss")         \
    X(DT_FACT_VALIDATION, "validation")  \
    X(DT_FACT_AVERAGE, "EMA")            \
    X(DT_FACT_PROGRESS, "progress")      \
    X(DT_FACT_SPEED, "speed")            \
    X(DT_FACT_TIME, "time")              \
    X(DT_FACT_RANKS, "ranks")            \
    X(DT_FACT_DEVICE, "device")          \
    X(DT_FACT_BATCH, "batch")            \
    X(DT_FACT_LR, "learning rate")       \
    X(DT_FACT_ADDING, "gradients")       \
    X(DT_FACT_MEMORY, "memory")          \
    X(DT_FACT_FAULTS, "injected")        \
    X(DT_FACT_STARTED, "started")        \
    X(DT_FACT_COMMAND, "command")        \
    X(DT_FACT_RESUMED, "resumed from")   \
    X(DT_FACT_CHECKPOINT, "checkpoint")  \
    X(DT_FACT_BEST, "best")              \
    X(DT_FACT_PROGRAM, "program")        \
    X(DT_FACT_NOTE, "note")
enum dt_fact { DT_FACT_LIST(DT_NAMED_ENUM) DT_N_FACTS };
extern const char *const dt_fact_names[DT_N_FACTS];

#define DT_FACT_SIZE 1024
struct dt_facts {
    char texts[DT_N_FACTS][DT_FACT_SIZE]; /* as in the files, not escaped; "": unknown, or none */
};
void dt_facts_find(const struct dt_record *record, struct dt_facts *out);

/* ---- the runs of a folder (runs.c): folders with a config.json, at most three below it, as
 * runs/<config>/<time> and a sweep's are; the folder itself may be one */

#define DT_RUNS_FOLDER "runs"

/* The newest of DT_RUNS_FOLDER. DT_NO_INPUT: none. DT_NO_MEMORY. */
enum dt_status dt_runs_newest(char path[DT_PATH_SIZE]);

/* ---- in a terminal */

/* A run under way: at most `height` lines of less than `width` columns, without any codes for a
 * terminal; of many ranks the first. */
void dt_run_screen_draw(FILE *out, const struct dt_record *record, struct dt_screen screen);

struct dt_args;
/* Redraws the terminal until the run is over, a signal comes, or q is typed; the last screen stays.
 * Where stdout is no terminal, or the run is over, it prints one screen and ends. What
 * dt_record_open says; DT_IO. */
enum dt_status dt_watch(const struct dt_args *args);

#endif
