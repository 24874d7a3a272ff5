/* One optimizer step for all ranks of a host, in place of one for each.
 *
 * Ranks whose weights and optimizer state are alike do the same arithmetic on the same numbers, and
 * each goes through all of its memory for it. Here every piece of the arena is stepped by one rank:
 * the one that has just added the piece's gradients (dist/allreduce/host_sum.h), which are then
 * still in its nearest cache. The optimizer's state is there once for the host, as ZeRO's first
 * stage has it once for all GPUs (Rajbhandari et al. 2020, arXiv 1910.02054). Weights stay whole
 * and apart in each rank; the stepping rank writes its new ones into all of them. That is sound
 * because a piece is added only when all ranks have its gradients, and a block whose gradients are
 * final does not read its weights again before the next step.
 *
 * The rule is element by element, so the bits are those of a step for each. Nothing that needs the
 * whole gradient first fits in: no clipping by its norm. */
#ifndef DT_DIST_STRATEGY_HOST_STEP_H
#define DT_DIST_STRATEGY_HOST_STEP_H

#include "dist/ranks/host_memory.h"
#include "model/optimizer.h"

#define DT_HOST_STEP_PIECE ((size_t)1 << 13)

struct dt_host_sum;

struct dt_host_step {
    struct dt_host_memory memory; /* bytes NULL: each rank steps by itself */
    float *params;                /* in it: this rank's weights */
    float *states[2];             /* and the optimizer's state, the host's */
    struct dt_update update;      /* the step's, set before its first sum is begun */
    double seconds;               /* that this rank has spent on it, since the open */
    /* private */
    struct dt_comm *comm;           /* borrowed */
    struct dt_optimizer *optimizer; /* borrowed; opened with these states before the first step */
    size_t n_elems;
};

/* A program that links this names it in its rows (strategies.h). */
struct dt_host_step_ops {
    /* Every rank of the one host calls it, with `sum` open. Has `sum` step, with weights and states
     * in memory that the host's ranks share. Where there is none to be had nothing changes. `out`
     * and `optimizer` stay where they are. */
    enum dt_status (*open)(struct dt_comm *comm, struct dt_optimizer *optimizer, int n_states,
                           size_t n_elems, struct dt_host_sum *sum, struct dt_host_step *out);
    /* dt_host_sum_again, of DT_HOST_STEP_PIECE elements at most. */
    const float *(*sums)(const struct dt_host_sum *sum, size_t begin, size_t end);
    void (*close)(struct dt_host_step *step); /* a zeroed one is fine */
};
extern const struct dt_host_step_ops dt_host_step;

#endif
