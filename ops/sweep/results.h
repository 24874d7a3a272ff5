/* The results of a sweep's runs, from their folders. */
#ifndef DT_OPS_SWEEP_RESULTS_H
#define DT_OPS_SWEEP_RESULTS_H

#include "ops/sweep/grid.h"
#include "report/record.h"

/* The folder of run `run` within the sweep's: DIR/03, with as many digits as the last run's
 * number. */
void dt_sweep_folder(const char *dir, const struct dt_sweep_grid *grid, int run,
                     char path[DT_PATH_SIZE]);

/* One run, read from its folder. */
struct dt_sweep_row {
    int run;
    bool known; /* it has a folder */
    bool diverged;
    const char *verdict; /* static: the run's state, or "diverged", "not begun" */
    struct dt_record_result result, validation; /* validation: NaN without such samples */
    double steps, seconds;                      /* NaN: unknown */
};
/* `ended`: the run has been tried, so without a folder it failed. DT_NO_MEMORY. */
enum dt_status dt_sweep_row_read(const char *dir, const struct dt_sweep_grid *grid, int run,
                                 bool ended, struct dt_sweep_row *out);

/* The resolved configuration in the run's folder, as JSON that the caller frees; NULL: none.
 * DT_BAD_DATA and other errors of reading it. */
enum dt_status dt_sweep_config_read(const char *dir, const struct dt_sweep_grid *grid, int run,
                                    char **out);

/* Prints a line to stderr about a run that has ended, the n_done-th. */
void dt_sweep_row_print(const struct dt_sweep_grid *grid, const struct dt_sweep_row *row,
                        int n_done);

/* Creates the folder of the results, and removes temporary files of killed writers. DT_CANT_CREATE:
 * it cannot be written, or a result file's name is taken by something else. */
enum dt_status dt_sweep_results_try(const char *dir);

/* Prints the table to stdout, best first, and writes DIR/sweep.csv, in the order of the runs, and
 * DIR/report.html about the best; `ended`: 1 for each run that has been tried. DT_IO,
 * DT_NO_MEMORY. */
enum dt_status dt_sweep_results(const char *dir, const struct dt_sweep_grid *grid,
                                const double *ended);

#endif
