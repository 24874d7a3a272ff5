/* The path of a training from ready gradients to new weights, over all ranks.
 *
 * The work of Horovod's DistributedOptimizer and broadcast, each part with a switch, to show its
 * purpose:
 *   average    off: each rank steps with its own gradient, and the replicas drift apart
 *   broadcast  off: ranks keep their initial weights, and averaging alone keeps their distance
 * Most strategies have the whole network on every rank and share out the samples; one that splits
 * the network runs a step's passes itself. The list of strategies is at the end.
 *
 * A strategy owns weights, gradients and the optimizer with its state, in memory of its choice: the
 * network borrows it. */
#ifndef DT_DIST_STRATEGY_STRATEGY_H
#define DT_DIST_STRATEGY_STRATEGY_H

#include "dist/allreduce/allreduce.h"
#include "dist/strategy/dist_spec.h"
#include "model/network.h"
#include "model/optimizer.h"

struct dt_strategy_spec {
    struct dt_dist_spec dist;
    const struct dt_codec *codec; /* of what is sent; NULL: none; dt_strategy_open sets it */
    struct dt_optimizer_spec optimizer;
    const struct dt_model *model;     /* borrowed */
    struct dt_comm *comm;             /* borrowed; the world's */
    struct dt_backend *backend;       /* borrowed */
    int capacity;                     /* samples of a batch at most */
    dt_allreduce_open_fn device_open; /* of struct dt_allreduce_spec */
    bool shared_step; /* the ranks of a host may share their steps (host_step.c); one that does not
                         want to is enough */
    int accumulate;   /* micro-batches of a step, which the caller runs */
    bool elementwise; /* an update looks at one element at a time, and so may step a part of the
                         weights; dt_strategy_open sets it */
    bool recorded;    /* a device takes the steps on its own: no message is polled within a pass,
                         which would be part of it */
};

extern const char *const dt_strategy_names[];

struct dt_strategy;
struct dt_strategy_step;

/* The times of the passes so far, for a strategy that runs them, or the forward pass, itself. */
struct dt_pass_times {
    double forward_s, backward_s, waiting_s;
};

/* Told of elements [begin, end) of a summed gradient; `sums` begins at `begin`, and stays until the
 * call returns. */
typedef enum dt_status (*dt_sums_fn)(void *context, size_t begin, size_t end, const float *sums);

/* dt_strategy_share_weights, dt_strategy_collect_state. */
enum dt_shared_arrays { DT_SHARED_WEIGHTS, DT_SHARED_STATE };

/* Mandatory are finish and close. A NULL slot is a no-op. */
struct dt_strategy_ops {
    /* dt_strategy_passes; NULL: the network is whole on every rank. */
    enum dt_status (*passes)(struct dt_strategy_step *step, struct dt_network *network,
                             struct dt_bound_samples *samples, const struct dt_pass *pass);
    /* dt_strategy_forward; NULL: all weights are there. What it waits for them counts as waiting_s.
     */
    enum dt_status (*forward)(struct dt_strategy_step *step, struct dt_network *network,
                              const struct dt_pass *pass);
    void (*start)(struct dt_strategy_step *step);
    enum dt_status (*ready)(struct dt_strategy_step *step, size_t begin, size_t end);
    void (*poll)(struct dt_strategy_step *step);
    enum dt_status (*finish)(struct dt_strategy_step *step);
    enum dt_status (*share)(struct dt_strategy *strategy, enum dt_shared_arrays arrays);
    /* dt_strategy_each_sum. NULL: no rank has the summed gradient. */
    enum dt_status (*each_sum)(struct dt_strategy *strategy, dt_sums_fn fn, void *context);
    void (*close)(struct dt_strategy *strategy);
};

/* The beginning of each strategy's own struct. */
struct dt_strategy {
    const struct dt_strategy_ops *ops;
    struct dt_strategy_spec spec;
    struct dt_network_memory memory; /* weights and gradients, for dt_network_open */
    struct dt_optimizer optimizer;
    struct dt_trace *trace;         /* who watches its waits, or NULL */
    struct dt_allreduce *allreduce; /* by which gradients are averaged; NULL: they are not */
    struct dt_error_feedback
        *feedback; /* around what this rank sends of its gradients; NULL: they are not encoded */
    bool free_running; /* workers do not wait for each other in a step: they want several at once */
    int n_expected; /* free-running: so many steps follow before all ranks agree on anything, set on
                       every rank; the first of them to begin sets it to 0 */
    struct dt_pass_times pass_times;
    float grad_scale; /* of the last step's update */
    double update_s;  /* spent on updates since the open; the rest of dt_strategy_finish's time is
                         waiting */
};

/* After everything that borrows its memory, unless that is not used any more; each rank by itself.
 * NULL is fine. */
void dt_strategy_close(struct dt_strategy *strategy);

/* Weights, optimizer state and step count become rank 0's, on every rank. At the start and after a
 * restore. */
enum dt_status dt_strategy_broadcast(struct dt_strategy *strategy);

/* Between steps: every rank has all weights; rank 0 has the optimizer's state. Every rank calls
 * them, before it evaluates or compares replicas, and before rank 0 saves. */
enum dt_status dt_strategy_share_weights(struct dt_strategy *strategy);
enum dt_status dt_strategy_collect_state(struct dt_strategy *strategy);

/* ---- a step: start, forward, backward, finish */

/* The update that a step makes of the sums: n_global samples over all ranks, n_local of this one. 0
 * samples: gradient zero. Counts the step. */
struct dt_update dt_strategy_next_update(struct dt_strategy *strategy, double lr, size_t n_global,
                                         size_t n_local);

/* A step between start and finish. */
struct dt_strategy_step {
    struct dt_strategy *strategy;
    struct dt_update update;
};
struct dt_strategy_step dt_strategy_start(struct dt_strategy *strategy,
                                          const struct dt_update *update);

/* The forward pass of a micro-batch. Each block waits for its weights, if they are still on their
 * way. */
enum dt_status dt_strategy_forward(struct dt_strategy_step *step, struct dt_network *network,
                                   const struct dt_pass *pass);

/* The backward pass of the step's last micro-batch, its gradients on their way as they become
 * final. */
enum dt_status dt_strategy_backward(struct dt_strategy_step *step, struct dt_network *network,
                                    const struct dt_pass *pass);

/* Whether the network is split over the ranks: opened by stages, and a step's passes are the
 * strategy's. */
bool dt_strategy_splits(const struct dt_strategy *strategy);

/* The passes of such a step, instead of the two above: gather, forward, loss and backward over this
 * rank's part of the network. The batch is the same on every rank. */
enum dt_status dt_strategy_passes(struct dt_strategy_step *step, struct dt_network *network,
                                  struct dt_bound_samples *samples, const struct dt_pass *pass);

/* Updates the weights as the sums of the gradients arrive: all weights are the new ones when this
 * returns, or on a device when what it has enqueued is done. With the order "priority" they are on
 * their way: each is there when the next dt_strategy_forward comes to it, all of them after
 * dt_strategy_share_weights, without which no rank may end. */
enum dt_status dt_strategy_finish(struct dt_strategy_step *step);

/* ---- for strategies */

/* Steps elements [begin, end); `grads` begins at `begin`. Its time counts as update. */
enum dt_status dt_strategy_step_range(struct dt_strategy_step *step, size_t begin, size_t end,
                                      const float *grads);

/* ---- the strategies
 *
 * A program passes them as rows with the other rows of dist/ that it links:
 *
 *   pipeline/pipeline.c         each rank has some of the blocks: `pipeline`
 *   deterministic.c             adds gradients as integers: the same bits at any number of ranks
 *   alone.c                     each rank steps with its own gradients (`distributed.average` off)
 *   priority.c                  mirrored weights in the order "priority"
 *   mirrored.c                  averages gradients over all ranks; every rank takes the same step:
 *                               mirrored weights
 *   servers/parameter_server.c  servers hold the weights: `parameter_server`, `central`
 *
 * all_entries.c has the rows of a program that links all of them. */

struct dt_mirrored;
struct dt_summary_entry;
struct dt_codec_ops;
struct dt_roles;

struct dt_strategy_entry {
    bool (*serves)(const struct dt_dist_spec *dist);
    /* dt_strategy_check. NULL: it can always serve. */
    enum dt_status (*check)(const struct dt_strategy_spec *spec, const char **key);
    /* The strategy steps parts of the weights by themselves, so that no rank has the norm of the
     * whole gradient: how the error ends if the update needs it. NULL: every update will do. */
    const char *needs_elementwise;
    /* Sets n_workers, n_servers, first_server and whole. NULL: every rank is a worker. */
    void (*roles)(const struct dt_dist_spec *dist, int size, struct dt_roles *out);
    enum dt_status (*open)(const struct dt_strategy_spec *spec, struct dt_strategy **out);
};

/* Compression, for a program that links it (compression.h). */
struct dt_compression_ops {
    /* Checks that the allreduce can add encoded gradients: dt_strategy_check of mirrored weights.
     */
    enum dt_status (*check)(const struct dt_strategy_spec *spec, const char **key);
    /* The caller frees its codec. Every rank calls it; `all`: every rank has one. */
    enum dt_status (*open)(const struct dt_strategy_spec *spec, const struct dt_codec **out,
                           bool *all);
    /* Zeros between the parameters in elements [begin, end) of an arena. */
    enum dt_status (*clear_gaps)(const struct dt_strategy_spec *spec, float *arena, size_t begin,
                                 size_t end);
};

/* The rows that a program links. */
struct dt_dist_entries {
    const struct dt_strategy_entry *const
        *strategies; /* NULL ends them; the first that serves opens */
    struct dt_allreduce_entries allreduce;
    const struct dt_codec_ops *const *codecs;     /* of dt_codec_open */
    const struct dt_compression_ops *compression; /* NULL: it sends floats as they are */
    const struct dt_summary_entry *const *facts;  /* NULL: it reports nothing; NULL ends them */
    /* dt_host_step_open (mirrored.h); NULL: every rank takes its own steps. Every rank calls it,
     * with its allreduce open. */
    enum dt_status (*host_step_open)(struct dt_mirrored *mirrored);
};

extern const struct dt_dist_entries dt_all_entries;

/* The first of the program's rows that serves; NULL: none does. */
const struct dt_strategy_entry *dt_strategy_entry_of(const struct dt_dist_spec *dist);

/* Local. DT_CONFIG: the strategy cannot serve. A spec without a backend is a configuration alone,
 * of which *key becomes the key that is wrong. dt_strategy_open has checked the rest. */
enum dt_status dt_strategy_check(const struct dt_strategy_spec *spec, const char **key);

/* Every rank calls it. The weights are zeros. A failed open owes nothing. DT_STALLED, or what this
 * rank alone may have: the caller has ranks agree (dt_world_agree); *out NULL with DT_OK: another
 * rank has failed. */
enum dt_status dt_strategy_open(const struct dt_strategy_spec *spec, struct dt_strategy **out);

#endif
