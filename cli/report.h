/* What people read of a run: banner, roster, epochs, where the time went, the result. Rank 0 prints; log on stderr, result on
 * stdout. */
#ifndef DT_CLI_REPORT_H
#define DT_CLI_REPORT_H

#include "cli/line.h"
#include "cli/metrics.h"
#include "cli/traffic.h"

/* Before the first step: model, roster, and the arithmetic of batch and learning rate. Every rank calls it.
 * `weights`: the file that the initial ones are from, or NULL. */
enum dt_status dt_report_start(struct dt_trainer *trainer, const struct dt_run_dir *run, const char *resumed_from,
                               const char *weights);

void dt_report_epoch(const struct dt_trainer *trainer, const struct dt_epoch_record *record, double seconds);

/* Bytes, each of the rank where it is tightest. Those of a GPU are 0 without one. */
struct dt_memory_use {
    double host_peak; /* resident, at most so far; of what several ranks use, a part */
    double gpu_peak;  /* that dtrain has had allocated at most so far */
    double gpu_free;  /* now: CUDA's libraries and other processes take some too */
    double gpu_all;
};

/* How a run ended. */
struct dt_outcome {
    struct dt_metrics test;
    uint64_t steps, epochs;
    int signal; /* stopped by it, or 0 */
    double seconds;
    struct dt_memory_use memory;              /* zeros if it was not measured */
    struct dt_step_traffic traffic;           /* not known if it was not measured */
    struct dt_line *lines;                    /* of the ranks, from calloc, at the end of a line's fit; else NULL */
    char checkpoint[DT_CHECKPOINT_PATH_SIZE]; /* the last one saved, or "" */
};

/* The split of a step's time, averaged over all ranks. Every rank calls it. */
enum dt_status dt_report_times(struct dt_trainer *trainer);

/* What the run took. Every rank calls it, after the last step. */
enum dt_status dt_report_memory(struct dt_trainer *trainer, struct dt_memory_use *out);

/* What adding gradients took on the wire, where that is counted. Every rank calls it, after the last step. */
enum dt_status dt_report_traffic(struct dt_trainer *trainer, struct dt_step_traffic *out);

/* summary.json: how the run ended, whatever the status. Rank 0. DT_IO: it is not written. */
enum dt_status dt_report_summary(const struct dt_trainer *trainer, const struct dt_run_dir *run, const struct dt_outcome *outcome,
                                 enum dt_status status);

/* The line that stdout ends with: "test accuracy 98.31 % (9831/10000) after 1 epoch". `after` may be "". */
void dt_report_result(const struct dt_metrics *test, bool classifies, const char *after);

#endif
