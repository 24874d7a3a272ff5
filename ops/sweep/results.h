/* The results of a sweep's runs, from their folders. */
#ifndef DT_OPS_SWEEP_RESULTS_H
#define DT_OPS_SWEEP_RESULTS_H

#include "cli/sinks/record.h"
#include "ops/sweep/grid.h"

/* The folder of run `run` within that of the sweep: DIR/03, with as many digits as the last one
 * needs. */
void dt_sweep_folder(const char *dir, const struct dt_grid *grid, int run, char path[DT_PATH_SIZE]);

/* One run, as its folder has it. */
struct dt_sweep_row {
    int run;
    bool known; /* it has a folder */
    bool diverged;
    const char *verdict; /* static: how it stands with the run, or "diverged", "not begun" */
    struct dt_record_result result;
    double steps, seconds; /* NaN: unknown */
};
/* `ended`: it has been tried, so that without a folder it failed. DT_NO_MEMORY. */
enum dt_status dt_sweep_row_read(const char *dir, const struct dt_grid *grid, int run, bool ended,
                                 struct dt_sweep_row *out);

/* The configuration that the run's folder has, resolved, as JSON that the caller frees; NULL: it
 * has none. DT_BAD_DATA and other errors of reading it. */
enum dt_status dt_sweep_config_read(const char *dir, const struct dt_grid *grid, int run,
                                    char **out);

/* A line on stderr about a run that has ended; `n_done` of them have. */
void dt_sweep_row_tell(const struct dt_grid *grid, const struct dt_sweep_row *row, int n_done);

/* Creates the folder of the results, and removes what writers left there that were killed.
 * DT_CANT_CREATE: it takes no files, or has something in the place of one. */
enum dt_status dt_sweep_results_try(const char *dir);

/* The table on stdout, best first; DIR/sweep.csv, in the order of the runs; DIR/report.html of the
 * best; `ended`: 1 for each run that has been tried. DT_IO, DT_NO_MEMORY. */
enum dt_status dt_sweep_results(const char *dir, const struct dt_grid *grid, const double *ended);

#endif
