/* The output of the result: to the terminal, to files, and compared with an earlier
 * run. On rank 0 alone. */
#ifndef DT_OPS_ACCEPT_OUTCOME_H
#define DT_OPS_ACCEPT_OUTCOME_H

#include "base/version.h"
#include "cli/sinks/fields.h"
#include "ops/accept/rows.h"

extern const struct dt_accept_check {
    const char *name, *meaning;
    enum dt_status (*run)(struct dt_acceptance *a, struct dt_accept_row *row);
} dt_accept_checks[DT_N_ACCEPT];

struct dt_accept_verdict_name {
    const char *word, *mark, *ascii, *colour;
};
extern const struct dt_accept_verdict_name dt_accept_verdicts[DT_N_ACCEPT_VERDICTS];

/* Verdict of check i on this rank's host: in a row that fails, the hosts that did not cause it
 * pass. */
enum dt_accept_verdict dt_accept_host_verdict(const struct dt_acceptance *a, int i, int rank);

/* "8 of 11 passed, 3 measured": leaves out verdicts that no row has. */
void dt_accept_sum_text(const struct dt_acceptance *a, char *text, size_t size);

/* The doctor's next warning and its cure, from its check *i on; moves *i past it; false: no
 * more. */
#define DT_ACCEPT_WARNING_SIZE 560
bool dt_accept_next_warning(const struct dt_acceptance *a, int *i,
                            char text[DT_ACCEPT_WARNING_SIZE]);

/* The head of a record, in every file: X(key, text), with `a` for the acceptance. Its hosts and the
 * doctor's warnings follow. */
#define DT_ACCEPT_RECORD_LIST(X)      \
    X(date, a->date)                  \
    X(command, a->args->line)         \
    X(version, dt_version)            \
    X(commit, dt_commit)              \
    X(mpi, a->ranks[0].mpi)           \
    X(launcher, a->ranks[0].launcher) \
    X(device, a->device.backend->name)

/* Calls put(out, key, text) for each entry of the list, and as "host" for each host. */
void dt_accept_record_put(const struct dt_acceptance *a, FILE *out,
                          void (*put)(FILE *out, const char *key, const char *text));

/* ---- an earlier run as the baseline */

#define DT_ACCEPT_BASELINE                                                 \
    0.9 /* required share of its figures, as nccl-tests' NCCL_TESTS_MIN_BW \
         */

struct dt_accept_baseline {
    double values[DT_N_ACCEPT][DT_ACCEPT_FIGURES]; /* NaN: not measured then */
};

/* Reads a file that dt_accept_write_json wrote. Errors of dt_file_read; DT_BAD_DATA: another kind
 * of file, no figures, or another device or number of ranks per host. */
enum dt_status dt_accept_baseline_read(const struct dt_acceptance *a, const char *path,
                                       struct dt_accept_baseline *out);
/* Passes or fails the row of check i by its figures, if the baseline has them; a failed one's text
 * begins with the figure's name. */
void dt_accept_baseline_apply(const struct dt_accept_baseline *baseline, int i,
                              struct dt_accept_row *row);

/* ---- files: DT_CANT_CREATE, DT_IO, DT_NO_MEMORY */

enum dt_status dt_accept_write_junit(const char *path, const struct dt_acceptance *a);
enum dt_status dt_accept_write_json(const char *path, const struct dt_acceptance *a);
enum dt_status dt_accept_write_page(const char *path, const struct dt_acceptance *a);

/* ---- on the terminal (show.c) */

/* Prints the rows to stdout. On a terminal each row appears when its check starts, and is completed
 * when it ends, with a mark for each host, in colours unless NO_COLOR is set, and wrapped to the
 * terminal's width; elsewhere each is one line. */
void dt_accept_show_begin(const struct dt_acceptance *a);
void dt_accept_show_running(const struct dt_acceptance *a, int check);
void dt_accept_show_row(const struct dt_acceptance *a, int check);
void dt_accept_show_break(void); /* an error ends the output */
void dt_accept_show_end(const struct dt_acceptance *a);

/* Prints text in lines of at most `width` characters; the first continues at `column`, where all
 * others begin. */
void dt_accept_wrap(FILE *out, const char *text, int column, int width);

#endif
