/* What adding the gradients costs: messages and bytes that a rank sends in a step, predicted by the
 * algorithm and counted on the wire. */
#ifndef DT_DIST_STRATEGY_TRAFFIC_H
#define DT_DIST_STRATEGY_TRAFFIC_H

#include "dist/strategy/grad_sync.h"
#include "dist/strategy/pipeline/placement.h"
#include "dist/strategy/roles.h"

/* By the rank that sends most of each. */
struct dt_step_traffic {
    bool known;   /* nobody counts the messages of MPI and NCCL themselves */
    bool by_each; /* every rank sends as much */
    double messages, bytes;
    int n_hosts;
    double messages_between, bytes_between; /* between hosts, of all ranks together */
};

/* By the algorithm, bucket by bucket. Local. known: false also where shared memory and messages are
 * mixed. */
struct dt_step_traffic dt_traffic_predict(const struct dt_allreduce *allreduce,
                                          const struct dt_grad_sync *sync);

/* The same of messages by an algorithm between all ranks or, with `shared`, between hosts. */
struct dt_step_traffic dt_traffic_of_messages(const struct dt_algorithm *algorithm,
                                              const struct dt_codec *codec,
                                              const struct dt_comm *comm, bool shared,
                                              const struct dt_grad_sync *sync);

/* Where servers hold the weights: a worker sends its gradients once, a server the weights to every
 * worker. */
struct dt_step_traffic dt_traffic_of_servers(const struct dt_comm *comm,
                                             const struct dt_roles *roles,
                                             const struct dt_placement *placement,
                                             const struct dt_codec *codec);

struct dt_planned_traffic {
    struct dt_codec codec;            /* of what is sent */
    enum dt_allreduce_type allreduce; /* auto only where it is not known before a run */
    int n_buckets;                    /* or pieces, with servers */
    struct dt_step_traffic
        step; /* not known but for servers, and the algorithms of dist/allreduce/algorithm.h */
};

/* The same before anything is opened, for these ranks on their hosts; as if those of a host could
 * share memory. DT_INTERNAL. Local.
 */
enum dt_status dt_traffic_plan(const struct dt_dist_spec *dist, const struct dt_model *model,
                               const struct dt_comm *comm, struct dt_planned_traffic *out);

/* Of n_steps steps in which this rank has sent `sent`, NULL: not counted; all ranks'. Every rank
 * calls it. */
enum dt_status dt_traffic_measure(struct dt_comm *comm, const struct dt_wire_sent *sent,
                                  uint64_t n_steps, struct dt_step_traffic *out);

#endif
