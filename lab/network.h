/* A network as a lesson trains it: a small model on the CPU backend, with a strategy; the lesson
 * reads its gradients and weights. */
#ifndef DT_LAB_NETWORK_H
#define DT_LAB_NETWORK_H

#include "dist/ranks/world.h"
#include "dist/strategy/strategies.h"

struct dt_lab_network_spec {
    const struct dt_model_spec *model;
    const struct dt_samples *samples; /* borrowed */
    struct dt_comm *comm;             /* borrowed */
    bool average;                     /* false: each rank steps with its own gradient */
    const struct dt_dist_spec
        *dist;    /* all of the strategy's settings; NULL: an allreduce, or none, by `average` */
    int capacity; /* the largest batch */
    struct dt_optimizer_spec optimizer; /* zeroed: plain SGD */
};

struct dt_lab_network {
    struct dt_model model;
    struct dt_backend *backend;
    struct dt_network *network;
    struct dt_strategy *strategy; /* weights start at zero */
    struct dt_bound_samples *bound;
};

/* Every rank of the communicator calls it, and passes its status through dt_world_agree. A failed
 * open owes nothing. */
enum dt_status dt_lab_network_open(const struct dt_lab_network_spec *spec,
                                   struct dt_lab_network *out);
void dt_lab_network_close(struct dt_lab_network *network); /* a zeroed one is fine */

/* DT_CONFIG on every rank unless there are `n`; the text tells how to start the lesson with
 * mpirun. */
enum dt_status dt_lab_need_ranks(const struct dt_world *world, const char *lesson, int n);

float *dt_lab_param(struct dt_lab_network *network, const char *name); /* a tensor's elements */
const float *dt_lab_grad(const struct dt_lab_network *network,
                         const char *name); /* summed over the ranks if they average */

/* Forward, loss and backward of a batch; `accumulate`: adds the gradients to those of the batch
 * before. With `step`, which other ranks call too, the gradients are exchanged, and the weights are
 * new after dt_strategy_wait. */
enum dt_status dt_lab_pass(struct dt_lab_network *network, const struct dt_batch *batch,
                           bool accumulate, struct dt_strategy_step *step);

/* Sums over all samples of a set. */
enum dt_status dt_lab_evaluate(struct dt_lab_network *network, const struct dt_samples *samples,
                               struct dt_metrics *out);

#endif
