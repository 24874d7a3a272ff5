/* What came of all checks, and how it is told: on the terminal, in files, and beside an earlier run. Rank 0's alone. */
#ifndef DT_CLI_COMMANDS_ACCEPT_OUTCOME_H
#define DT_CLI_COMMANDS_ACCEPT_OUTCOME_H

#include "cli/commands/accept/rows.h"

#define DT_ACCEPT_ONE(name, meaning) +1
enum { DT_N_ACCEPT = 0 DT_ACCEPT_LIST(DT_ACCEPT_ONE) };
#undef DT_ACCEPT_ONE

extern const char *const dt_accept_names[DT_N_ACCEPT], *const dt_accept_meanings[DT_N_ACCEPT];

struct dt_accept_outcome {
    struct dt_accept_row rows[DT_N_ACCEPT];
    double seconds[DT_N_ACCEPT];
    int n_done, n_failed;
    struct dt_accept_cell *cells; /* of check i on rank r: [i * ranks + r] */
};

/* How many ranks are on the host of this one. */
int dt_accept_ranks_on_host(const struct dt_acceptance *a, int rank);

/* ---- an earlier run as the baseline */

#define DT_ACCEPT_BASELINE 0.9 /* of what it measured is wanted, as of nccl-tests' NCCL_TESTS_MIN_BW */

struct dt_accept_baseline {
    double values[DT_N_ACCEPT][DT_ACCEPT_FIGURES]; /* NaN: not measured then */
};

/* What dt_accept_write_json left. Errors of dt_file_read; DT_BAD_DATA: it is something else, has no figures, or is of another
 * device or number of ranks on a host. */
enum dt_status dt_accept_baseline_read(const struct dt_acceptance *a, const char *path, struct dt_accept_baseline *out);
/* The row of check i fails where one of its figures is worse than the baseline allows; the text then begins with which. */
void dt_accept_baseline_apply(const struct dt_accept_baseline *baseline, int i, struct dt_accept_row *row);

/* ---- files: DT_CANT_CREATE, DT_IO, DT_NO_MEMORY */

enum dt_status dt_accept_write_junit(const char *path, const struct dt_accept_outcome *outcome);
enum dt_status dt_accept_write_json(const char *path, const struct dt_acceptance *a, const struct dt_accept_outcome *outcome);
enum dt_status dt_accept_write_page(const char *path, const struct dt_acceptance *a, const struct dt_accept_outcome *outcome);

#endif
