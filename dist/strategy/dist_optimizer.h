/* The distributed optimizer: an ordinary optimizer that steps with the mean gradient of all ranks.
 *
 * What Horovod's DistributedOptimizer and broadcast did, each part with a switch, to show what it is for:
 *   average    off: each rank steps with its own gradient, and the replicas drift apart
 *   broadcast  off: ranks keep the weights they began with, and averaging alone keeps their distance for ever
 * Gradients are summed where they lie. In host memory: in memory that the ranks of a host share, and between hosts by messages. On
 * a device: by a communicator that can reach it, NCCL's or one that stages. All else travels by host memory. Averaging divides the
 * sum over all samples of all ranks by their number, so a rank with a short batch weighs less. */
#ifndef DT_DIST_STRATEGY_DIST_OPTIMIZER_H
#define DT_DIST_STRATEGY_DIST_OPTIMIZER_H

#include "dist/strategy/grad_sync.h"
#include "dist/strategy/host_step.h"
#include "model/network.h"
#include "model/optimizer.h"

struct dt_dist_spec {
    enum dt_allreduce_type allreduce;
    bool average, broadcast;
    bool overlap;
    size_t bucket_bytes;
    uint64_t check_every; /* steps between replica checks; 0: never */
};

struct dt_dist_optimizer {
    struct dt_dist_spec spec;
    struct dt_comm *comm;           /* borrowed; the world's: for host memory */
    struct dt_network *network;     /* borrowed */
    struct dt_optimizer *optimizer; /* borrowed */
    struct dt_allreduce allreduce;  /* the network's gradients are its part */
    struct dt_grad_sync sync;
    struct dt_host_step step; /* how sums are used in shared memory, if the ranks of the host step together */
    double update_s;          /* in steps of its own */
};

enum dt_status dt_dist_optimizer_open(const struct dt_dist_spec *spec, struct dt_comm *comm, struct dt_network *network,
                                      struct dt_optimizer *optimizer, struct dt_dist_optimizer *out);

/* Opens the way in which gradients are summed; before the first backward pass. `device`: the communicator that reaches the
 * backend's memory, borrowed; NULL: it is the host's. Every rank calls it, and takes the same way. A failed one owes nothing. */
enum dt_status dt_dist_optimizer_share(struct dt_dist_optimizer *opt, struct dt_comm *device);
/* After that, and before the first step: has the ranks of the host step together (dist/strategy/host_step.h) where they are alike
 * and the optimizer allows it. `wanted`: by this rank; one that does not is enough. Every rank calls it. */
enum dt_status dt_dist_optimizer_step_together(struct dt_dist_optimizer *opt, bool wanted);
/* Where each block's gradients end in the arena, front to back; returns how many have some. Buckets end there. */
int dt_dist_grad_ends(const struct dt_model *model, size_t ends[DT_MAX_LAYERS]);
/* Before the optimizer and the network are closed. A zeroed one is fine. */
void dt_dist_optimizer_close(struct dt_dist_optimizer *opt);

/* Weights, optimizer state and step count become rank 0's, on every rank, unless switched off. At the start and after a restore. */
enum dt_status dt_dist_optimizer_broadcast(struct dt_dist_optimizer *opt);

/* ---- a step: next, backward, finish */

/* What the step does with the sums: n_global samples over all ranks, or n_local of this one when averaging is off. 0 samples:
 * gradient zero. Counts the step. */
struct dt_update dt_dist_optimizer_next(struct dt_dist_optimizer *opt, double lr, size_t n_global, size_t n_local);

/* The backward pass of a step's last micro-batch, its gradients on their way as they become final. */
enum dt_status dt_dist_optimizer_backward(struct dt_dist_optimizer *opt, const struct dt_update *update, struct dt_pass *pass);

/* All weights are the new ones when this returns, or on a device when what it has enqueued is done. In host memory each bucket is
 * stepped as soon as its sum is there. `update` NULL, in both calls: the gradients are added, and that is all; DT_INTERNAL where
 * the ranks step together. */
enum dt_status dt_dist_optimizer_finish(struct dt_dist_optimizer *opt, const struct dt_update *update);

/* Spent on updates since the open; the rest of what `finish` takes is waiting. */
double dt_dist_optimizer_update_s(const struct dt_dist_optimizer *opt);

#endif
