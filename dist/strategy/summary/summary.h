/* Facts that strategies report about themselves, for people: names, numbers, and the messages and
 * bytes that a step costs, predicted by a formula and counted on the wire. No step needs it; a
 * program that reports nothing links none of it. */
#ifndef DT_DIST_STRATEGY_SUMMARY_SUMMARY_H
#define DT_DIST_STRATEGY_SUMMARY_SUMMARY_H

#include "dist/strategy/strategy.h"

/* By the rank that sends most of each. */
struct dt_step_traffic {
    bool known;   /* nobody counts the messages of MPI and NCCL themselves */
    bool by_each; /* every rank sends as much */
    double messages, bytes;
    int n_hosts;
    double messages_between, bytes_between; /* between hosts, of all ranks together */
};

/* Histogram of staleness: the steps that others took between a worker's reading of the weights and
 * the step with its gradients, counted piece by piece; all zero where workers wait for each other.
 */
#define DT_STALENESS_BINS 256 /* the last one: so many or more */
struct dt_staleness {
    uint64_t counts[DT_STALENESS_BINS];
};

/* A strategy's facts. dt_strategy_summary sets allreduce, n_hosts and codec, and `why` to ""; a
 * strategy leaves at zero the facts that it does not have. */
struct dt_strategy_summary {
    const char *allreduce; /* its name, or the strategy's */
    const char *across;    /* the algorithm between hosts, if that is another; or NULL */
    const char *why;       /* it is this one; or "" */
    int n_buckets, n_hosts;
    int n_servers;                        /* that hold the weights; 0: every rank does */
    uint64_t held_bytes;                  /* of weights, by this rank as a server */
    int n_stages;                         /* of a pipeline; 0: it is none */
    struct dt_step_traffic traffic;       /* predicted */
    const struct dt_codec *codec;         /* of what is sent; NULL: floats */
    bool counted;                         /* messages are */
    struct dt_wire_sent sent;             /* by this rank so far */
    const struct dt_staleness *staleness; /* this rank's so far; or NULL */
};

struct dt_planned_traffic; /* traffic_plan.h */

/* A strategy's: a program names them in its rows (strategy.h). A NULL slot has nothing to say. */
struct dt_summary_entry {
    const struct dt_strategy_entry *strategy;
    void (*facts)(const struct dt_strategy *strategy, struct dt_strategy_summary *out);
    void (*traffic)(const struct dt_strategy *strategy,
                    struct dt_step_traffic *out); /* predicted */
    enum dt_status (*plan)(const struct dt_dist_spec *dist, const struct dt_model *model,
                           const struct dt_comm *comm, struct dt_planned_traffic *out);
};
extern const struct dt_summary_entry dt_deterministic_summary, dt_mirrored_summary,
    dt_priority_summary, dt_server_summary, dt_pipeline_summary;

/* The program's row for a configuration, or one that has nothing to say. */
const struct dt_summary_entry *dt_summary_entry_of(const struct dt_dist_spec *dist);

const char *dt_strategy_adds_by(
    const struct dt_strategy *strategy); /* the name of the allreduce, or of the strategy */
void dt_strategy_summary(const struct dt_strategy *strategy, struct dt_strategy_summary *out);

/* Between steps: whether the gradient of a step is known as a whole; and the L2 norm of the last
 * step's mean gradient, before any clipping. Every rank calls it; all have the same number. */
bool dt_strategy_has_gradient(const struct dt_strategy *strategy);
enum dt_status dt_strategy_grad_norm(struct dt_strategy *strategy, double *out);

/* With such a gradient, between steps: tells `fn` of the last step's sums, piece by piece, in the
 * backend's memory; each rank of its own pieces, which together are the whole, once. Every rank
 * calls it, and begins no step before all have returned. */
enum dt_status dt_strategy_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context);

/* Counted on the wire in n_steps steps, all ranks'. Every rank calls it. */
enum dt_status dt_strategy_traffic(const struct dt_strategy *strategy, uint64_t n_steps,
                                   struct dt_step_traffic *out);

/* So far, of all ranks. Every rank calls it. */
enum dt_status dt_strategy_staleness(const struct dt_strategy *strategy, struct dt_staleness *out);

#endif
