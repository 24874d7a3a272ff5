/* What a run measured, for programs: metrics.jsonl, one JSON object a line, and metrics.csv with a
 * row per epoch. Rank 0 only.
 *
 * {"type":"run", ...}    once per start: when and by which command, configuration name, world size
 * and the ranks, batch, samples, steps_per_epoch, lr and lr_scale, parameters, version, commit,
 * allreduce and what it sends
 * {"type":"step", ...}   of the steps that log.every_steps asks for: step, epoch, loss, accuracy,
 * lr, grad_norm, images_per_s; grad_norm: L2, of the mean gradient before clipping; null where
 * nobody has it (servers that do not wait, ranks that do not average) or has it no longer (a GPU
 * that takes several steps on its own, but for the last of these)
 * {"type":"epoch", ...}  epoch, step, train_loss, train_accuracy, test_loss, test_accuracy,
 * images_per_s, lr, world_size, allreduce, messages, bytes_sent, messages_between_hosts,
 * bytes_between_hosts, rank0_ms_per_step allreduce is the name of how gradients are added; messages
 * and bytes_sent are what that takes in a step, of the rank that sends most, and between hosts of
 * all ranks together: in a run's record foretold by the algorithm, in an epoch's counted since the
 * start of the program; null where nobody counts. What has no value, such as the accuracy of a
 * regression, is null, and in the table nan. Losses and accuracies come from counts summed over all
 * ranks. A resumed run first takes out what came after its checkpoint. */
#ifndef DT_CLI_SINKS_METRICS_H
#define DT_CLI_SINKS_METRICS_H

#include <stdio.h>

#include "train/events.h"

struct dt_metrics_files {
    FILE *jsonl, *csv; /* NULL: not open */
    bool failed; /* a record could not be written: said once, training goes on, and the run ends
                    with DT_IO */
};

/* A run that goes on after `step` steps and `n_epochs` whole epochs drops the records of later ones
 * first, also that of the epoch in which it stands: it will be written again. cli/sinks/sinks.h has
 * what fills the files. */
void dt_metrics_close(struct dt_metrics_files *files);

double dt_metrics_loss(const struct dt_metrics *m);     /* mean; NaN of nothing */
double dt_metrics_accuracy(const struct dt_metrics *m); /* share of 1 */

#endif
