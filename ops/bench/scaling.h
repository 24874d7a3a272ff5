/* `dtrain bench scaling`: measured and predicted scaling, in three layers.
 *   scaling_model.c    a step over any number of ranks, without a clock (scaling_model.h)
 *   scaling_measure.c  steps of 1, 2, 4, ... ranks, and the model's numbers from them
 *   scaling.c          the command: predictions, advice, the document */
#ifndef DT_OPS_BENCH_SCALING_H
#define DT_OPS_BENCH_SCALING_H

#include <sched.h>

#include "cli/config/config.h"
#include "dist/liveness/heartbeat.h"
#include "dist/ranks/world.h"
#include "ops/bench/scaling_model.h"

#define DT_SCALE_ROUNDS 3
#define DT_SCALE_MEDIAN DT_SCALE_ROUNDS /* the place of what follows from medians of rounds */
#define DT_SCALE_RESULTS (DT_SCALE_ROUNDS + 1)
#define DT_SCALE_MOST_RANKS 1024
#define DT_SCALE_MAX_ROWS 80

/* X(constant, name, meaning). Tables show the first two; a prediction needs the others, too. */
#define DT_SCALE_KIND_LIST(X)                                                     \
    X(DT_SCALE_WEAK, "weak", "each rank keeps its batch")                         \
    X(DT_SCALE_STRONG, "strong", "the ranks share one batch")                     \
    X(DT_SCALE_BATCH, "batch", "one rank with a smaller batch")                   \
    X(DT_SCALE_AT_ONCE, "at once", "two ranks of a host, each trains on its own") \
    X(DT_SCALE_ONE_CORE, "one core", "the same on the cores of one rank")         \
    X(DT_SCALE_TOGETHER, "together", "strong, two ranks on the cores of one")     \
    X(DT_SCALE_APART, "apart", "strong, with allreduces after the backward pass")
enum dt_scale_kind { DT_SCALE_KIND_LIST(DT_NAMED_ENUM) DT_N_SCALE_KINDS };
#define DT_N_SHOWN_KINDS 2
extern const char *const dt_scale_names[DT_N_SCALE_KINDS],
    *const dt_scale_meanings[DT_N_SCALE_KINDS];

struct dt_scale_row {
    enum dt_scale_kind kind;
    int n_ranks;
    size_t batch;                    /* of all ranks together */
    double step_s[DT_SCALE_RESULTS]; /* measured in each round, or predicted from each */
    double shortest_s, longest_s;    /* of the rounds */
    double wait;                     /* predicted: the share of a step that waits for allreduces */
    const char *fastest; /* predicted: the algorithm whose step is the shortest; or NULL */
};

struct dt_scale_table {
    int n;
    struct dt_scale_row rows[DT_SCALE_MAX_ROWS];
};

/* What rank 0 measures. The caller sets world, config, n_threads and what to measure. */
struct dt_scale {
    struct dt_world *world; /* borrowed */
    struct dt_config config;
    int n_threads; /* of a rank */
    bool ranks_given;
    uint64_t wanted[DT_SCALE_MOST_RANKS / 64 + 1]; /* bit n: measure n ranks (ranks_given) */
    struct dt_heartbeat heartbeat; /* ranks that wait look at it while others measure */
    double beat, beats;            /* its numbers */
    char device[128];
    const char *adds_by;
    size_t n_parameters, n_samples; /* of an epoch */
    cpu_set_t first_cores;          /* rank 0's */
    int n_cores;                    /* of rank 0's host */
    struct dt_scale_table measured;
    struct dt_costs links;                      /* by round trips; gamma too */
    struct dt_scale_job jobs[DT_SCALE_RESULTS]; /* what each round leads to */
    /* Of two ranks: the measured step over the job's. It multiplies every prediction of its kind,
     * so that the predictions for two ranks are what was measured. */
    double rests[DT_N_SHOWN_KINDS][DT_SCALE_RESULTS];
};

static inline size_t dt_scale_rank_batch(const struct dt_config *config)
{
    return (size_t)(config->batch_global > 0 ? config->batch_global : config->batch_per_rank);
}

/* The row of a table, or NULL. */
const struct dt_scale_row *dt_scale_find(const struct dt_scale_table *table,
                                         enum dt_scale_kind kind, int n_ranks);

/* Fills the median, the shortest and the longest by the rounds. */
void dt_scale_sort(struct dt_scale_row *row);

/* Starts the heartbeat s->heartbeat: ranks that work look at it between steps, and ranks that wait
 * finish it. Every rank calls it. */
enum dt_status dt_scale_start_heartbeat(struct dt_scale *s);

/* Measures all rows. Every rank calls it; agreed. DT_STOPPED after a signal. */
enum dt_status dt_scale_measure(struct dt_scale *s);

/* The configuration's allreduce, as the model knows it: MPI's and NCCL's own as a ring. */
struct dt_scale_allreduce dt_scale_allreduce(const struct dt_scale *s);

/* Fills jobs and rests from what was measured: rank 0's. DT_NO_MEMORY. */
enum dt_status dt_scale_fit_jobs(struct dt_scale *s);

#endif
