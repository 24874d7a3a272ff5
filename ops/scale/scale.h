/* `dtrain bench scaling`: measured and predicted scaling.
 *   measure.c  training steps of 1, 2, 4, ... ranks, and what a prediction needs
 *   fit.c      from these times to the predictor's costs
 *   predict.c  a step over any number of ranks, without a clock (predict.h)
 *   show.c     table, advice, JSON, CSV
 *   page.c     charts
 *   scale.c    the command */
#ifndef DT_OPS_SCALE_SCALE_H
#define DT_OPS_SCALE_SCALE_H

#include <sched.h>
#include <stdio.h>

#include "cli/args.h"
#include "cli/config/config.h"
#include "dist/ranks/liveness/heartbeat.h"
#include "dist/ranks/world.h"
#include "ops/scale/predict.h"

#define DT_SCALE_ROUNDS 3
#define DT_SCALE_MOST_RANKS 1024
#define DT_SCALE_MAX_GIVEN 24 /* numbers of ranks */
#define DT_SCALE_MAX_ROWS 80
/* An algorithm that gathers is predicted so far: simulating it grows with the cube of the ranks. */
#define DT_SCALE_MOST_GATHERED 64

/* X(constant, name, meaning). The table shows the first two; the others are what a prediction needs
 * beside them. */
#define DT_SCALE_KIND_LIST(X)                                                 \
    X(DT_SCALE_WEAK, "weak", "each rank keeps its batch")                     \
    X(DT_SCALE_STRONG, "strong", "the ranks share one batch")                 \
    X(DT_SCALE_BATCH, "batch", "one rank with a smaller batch")               \
    X(DT_SCALE_AT_ONCE, "at once", "ranks of a host train each on its own")   \
    X(DT_SCALE_ONE_CORE, "one core", "the same on the cores of one rank")     \
    X(DT_SCALE_TOGETHER, "together", "strong, two ranks on the cores of one") \
    X(DT_SCALE_APART, "apart", "strong, with sums after the backward pass")
enum dt_scale_kind { DT_SCALE_KIND_LIST(DT_NAMED_ENUM) DT_N_SCALE_KINDS };
#define DT_N_SHOWN_KINDS 2
extern const char *const dt_scale_names[DT_N_SCALE_KINDS],
    *const dt_scale_meanings[DT_N_SCALE_KINDS];

/* Of rounds, or of what is predicted from each of them: the shortest, the median, the longest. */
enum dt_scale_of { DT_SCALE_LEAST, DT_SCALE_MEDIAN, DT_SCALE_MOST, DT_N_SCALE_OF };

struct dt_scale_row {
    enum dt_scale_kind kind;
    int n_ranks;
    size_t batch;                   /* of all ranks together */
    double rounds[DT_SCALE_ROUNDS]; /* seconds of a step, measured in each or predicted from each */
    double step_s[DT_N_SCALE_OF];   /* of them */
    double wait;                    /* predicted: the share of a step that waits for sums */
    const char *fastest; /* predicted: the algorithm whose step is the shortest; or NULL */
};

struct dt_scale_table {
    int n;
    struct dt_scale_row rows[DT_SCALE_MAX_ROWS];
};

struct dt_scale {
    struct dt_world *world; /* borrowed */
    struct dt_config config;
    bool ranks_given;
    uint64_t wanted[DT_SCALE_MOST_RANKS / 64 + 1]; /* bit n: measure n ranks (ranks_given) */
    int most;                                      /* ranks to predict for */
    bool has_network;
    struct dt_scale_network network; /* between hosts */
    /* measured, by rank 0 */
    struct dt_heartbeat heartbeat; /* of the ranks that measure, for those that wait */
    double beat, beats;            /* its numbers */
    char device[128];
    const char *adds_by;
    enum dt_allreduce_type type;
    size_t n_parameters, n_samples; /* of an epoch */
    cpu_set_t first_cores;          /* rank 0's */
    int n_threads, n_cores;         /* of a rank; of rank 0's host */
    struct dt_scale_table measured, predicted;
    struct dt_costs links;                     /* by ping-pong; gamma too */
    struct dt_scale_job jobs[DT_SCALE_ROUNDS]; /* what each round leads to */
    struct dt_scale_job job;                   /* and their medians */
    bool predicts;                             /* there is a link to predict for */
    char advice[320];
};

static inline size_t dt_scale_rank_batch(const struct dt_config *config)
{
    return (size_t)(config->batch_global > 0 ? config->batch_global : config->batch_per_rank);
}

/* The row of a table, or NULL. */
const struct dt_scale_row *dt_scale_find(const struct dt_scale_table *table,
                                         enum dt_scale_kind kind, int n_ranks);
/* Fills step_s by rounds. */
void dt_scale_sort(struct dt_scale_row *row);
/* Samples a second of step `of`; and T1 / (n Tn) of a shared batch, its like of a batch each: the
 * rate over n times one rank's median. */
double dt_scale_rate(const struct dt_scale_row *row, enum dt_scale_of of);
double dt_scale_efficiency(const struct dt_scale *s, const struct dt_scale_row *row,
                           enum dt_scale_of of);
double dt_scale_epoch_s(const struct dt_scale *s, const struct dt_scale_row *row);

/* Signs of life of ranks that work, for those that wait: they look at s->heartbeat, and finish it.
 * Every rank calls it. */
enum dt_status dt_scale_start_heartbeat(struct dt_scale *s);

/* The configuration's allreduce, as predict.h knows it: MPI's and NCCL's own as a ring. */
struct dt_scale_allreduce dt_scale_allreduce(const struct dt_scale *s);

/* Measures all rows. Every rank calls it; agreed. DT_STOPPED after a signal. */
enum dt_status dt_scale_measure(struct dt_scale *s);

/* "1,199,882 parameters, cpu x86-64-v4, 1 thread, ring"; and of the links. */
void dt_scale_describe(const struct dt_scale *s, char *text, size_t size);
void dt_scale_describe_links(const struct dt_scale *s, char *text, size_t size);

/* Fills job and jobs from what was measured: rank 0's. dt_scale_measure has filled job's buckets.
 * DT_NO_MEMORY. */
enum dt_status dt_scale_fit_jobs(struct dt_scale *s);

/* Rank 0's: the table; "communication is 71 % of a step at 8 ranks: ..." into s->advice; files. */
void dt_scale_print(const struct dt_scale *s);
void dt_scale_advise(struct dt_scale *s);
void dt_scale_put_json(FILE *out, const void *scale); /* a dt_file_put_fn */
void dt_scale_put_csv(FILE *out, const void *scale);  /* a dt_file_put_fn */
enum dt_status dt_scale_write_page(const char *path, const struct dt_scale *s);

#endif
