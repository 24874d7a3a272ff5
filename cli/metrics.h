/* What a run measured, for programs: metrics.jsonl, one JSON object a line, and metrics.csv with a row per epoch. Rank 0 only.
 *
 * {"type":"run", ...}    once per start: configuration name, world size, batch, parameters, version
 * {"type":"step", ...}   every log.every_steps steps: step, epoch, loss, accuracy, lr, images_per_s
 * {"type":"epoch", ...}  epoch, step, train_loss, train_accuracy, test_loss, test_accuracy, images_per_s, lr, world_size
 * What has no value, such as the accuracy of a regression, is null, and in the table nan.
 * Losses and accuracies come from counts summed over all ranks. A resumed run first takes out what came after its checkpoint. */
#ifndef DT_CLI_METRICS_H
#define DT_CLI_METRICS_H

#include "cli/run_dir.h"

struct dt_metrics_files {
    FILE *jsonl, *csv; /* NULL on ranks other than 0 */
    bool failed;       /* a record could not be written: said once, training goes on, and the run ends with DT_IO */
};

struct dt_step_record {
    uint64_t step, epoch; /* from 1 */
    struct dt_metrics train;
    double lr, images_per_s;
};

struct dt_epoch_record {
    uint64_t step, epoch; /* from 1 */
    struct dt_metrics train, test;
    double lr, images_per_s; /* images_per_s is NAN if this process took no step of the epoch */
    int world_size;
    bool classifies; /* accuracies mean something */
};

/* Rank 0 opens both files of a run that stands after `step` steps and `n_epochs` whole epochs. Records of later steps and epochs
 * are dropped first, also that of the epoch in which the run stands: it will be written again. DT_IO, DT_CANT_CREATE. */
enum dt_status dt_metrics_open(const struct dt_run_dir *run, uint64_t step, uint64_t n_epochs, struct dt_metrics_files *out);
void dt_metrics_close(struct dt_metrics_files *files);

void dt_metrics_run(struct dt_metrics_files *files, const struct dt_config *config, const struct dt_model *model, int world_size,
                    uint64_t step, size_t global_batch);
void dt_metrics_step(struct dt_metrics_files *files, const struct dt_step_record *record);
void dt_metrics_epoch(struct dt_metrics_files *files, const struct dt_epoch_record *record);

double dt_metrics_loss(const struct dt_metrics *m);     /* mean; NaN of nothing */
double dt_metrics_accuracy(const struct dt_metrics *m); /* share of 1 */

#endif
