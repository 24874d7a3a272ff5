/* The results of a sweep's runs, from their folders. */
#ifndef DT_CLI_COMMANDS_SWEEP_RESULTS_H
#define DT_CLI_COMMANDS_SWEEP_RESULTS_H

#include "cli/commands/sweep/grid.h"
#include "cli/report/record.h"

/* The folder of run `run` within that of the sweep: DIR/03, with as many digits as the last one needs. */
void dt_sweep_folder(const char *dir, const struct dt_grid *grid, int run, char path[DT_PATH_SIZE]);

/* One run, as its folder has it. */
struct dt_sweep_row {
    int run;
    bool known; /* it has a folder */
    enum dt_run_state state;
    struct dt_record_result result;
    double steps, seconds; /* NaN: unknown */
};
void dt_sweep_row_read(const char *dir, const struct dt_grid *grid, int run, struct dt_sweep_row *out);

/* A line on stderr about a run that has ended; `n_done` of them have. */
void dt_sweep_row_tell(const struct dt_grid *grid, const struct dt_sweep_row *row, int n_done);

/* The table on stdout, best first; DIR/sweep.csv, in the order of the runs; DIR/report.html of the best. DT_IO, DT_NO_MEMORY. */
enum dt_status dt_sweep_results(const char *dir, const struct dt_grid *grid);

#endif
