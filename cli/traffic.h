/* What adding the gradients costs: messages and bytes that a rank sends in a step, foretold by the algorithm and counted on the
 * wire. */
#ifndef DT_CLI_TRAFFIC_H
#define DT_CLI_TRAFFIC_H

#include "cli/trainer.h"

/* Of one step; by the rank that sends most of each. */
struct dt_step_traffic {
    bool known;   /* nobody counts the messages of MPI and NCCL themselves */
    bool by_each; /* every rank sends as much */
    double messages, bytes;
};

/* By the algorithm, bucket by bucket. Local. known: false also where shared memory and messages are mixed. */
struct dt_step_traffic dt_traffic_foretell(const struct dt_trainer *trainer);

/* Of the steps that this process has taken, all ranks'. Every rank calls it. */
enum dt_status dt_traffic_measure(struct dt_trainer *trainer, struct dt_step_traffic *out);

/* "12 messages and 7.20 MB sent by each rank" */
void dt_traffic_text(const struct dt_step_traffic *traffic, char *text, size_t n_text);

#endif
