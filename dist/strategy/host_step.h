/* One optimizer step for all ranks of a host, in place of one for each.
 *
 * Ranks whose weights and optimizer state are alike do the same arithmetic on the same numbers, and each goes through all of its
 * memory for it. Here every piece of the arena is stepped by one rank: the one that has just added the piece's gradients
 * (dist/allreduce/host_sum.h), which are then still in its nearest cache. The optimizer's state is there once for the host, as
 * ZeRO's first stage has it once for all GPUs (Rajbhandari et al. 2020, arXiv 1910.02054). Weights stay whole and apart in each
 * rank; the stepping rank writes its new ones into all of them. That is sound because a piece is added only when all ranks have its
 * gradients, and a block whose gradients are final does not read its weights again before the next step.
 *
 * The rule is element by element, so the bits are those of a step for each. Nothing that needs the whole gradient first fits in:
 * no clipping by its norm. */
#ifndef DT_DIST_STRATEGY_HOST_STEP_H
#define DT_DIST_STRATEGY_HOST_STEP_H

#include "dist/allreduce/host_sum.h"
#include "model/network.h"
#include "model/optimizer.h"

struct dt_host_step {
    struct dt_host_memory memory; /* bytes NULL: each rank steps by itself */
    struct dt_comm *comm;         /* borrowed, and so are the next two, which use the memory */
    struct dt_network *network;
    struct dt_optimizer *optimizer;
    struct dt_update update; /* the step's, set before its first sum is begun */
    double seconds;          /* that this rank has spent on it, since the open */
};

/* Every rank of the one host calls it, with `sum` open, the weights drawn and no step taken. Moves the weights and the state to the
 * shared memory, and has `sum` step. Where there is none to be had nothing changes. `out` stays where it is. */
enum dt_status dt_host_step_open(struct dt_comm *comm, struct dt_network *network, struct dt_optimizer *optimizer,
                                 struct dt_host_sum *sum, struct dt_host_step *out);
/* Before optimizer and network are closed. A zeroed one is fine. */
void dt_host_step_close(struct dt_host_step *step);

#endif
