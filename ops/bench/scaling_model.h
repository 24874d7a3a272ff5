/* Predicts a training step over any number of ranks. Pure: no clock and no messages; the same
 * arguments give the same result to the bit.
 *
 * A step of a rank is its computation, and sums of buckets of gradients. A bucket can be sent when
 * the backward pass has made it final; buckets take turns on the links, in that order; the step
 * ends when the computation and the last sum have. The time of a sum is that of the algorithm's own
 * schedule on a virtual clock (dist/allreduce/simulate.h: alpha + beta * bytes a message). docs/
 * scaling.md has the formulas, and what they were compared with.
 *
 * Sources: Sergeev and Del Balso 2018, arXiv 1802.05799 (buckets, efficiency); Hockney 1994,
 * doi:10.1016/S0167-8191(06)80021-9 (alpha and beta); Amdahl's and Gustafson's strong and weak
 * scaling as usual. Owner of all structs: the caller. Nothing is allocated beyond a call. */
#ifndef DT_OPS_BENCH_SCALING_MODEL_H
#define DT_OPS_BENCH_SCALING_MODEL_H

#include "dist/allreduce/allreduce.h"
#include "dist/allreduce/simulate.h"

#define DT_SCALE_MAX_BUCKETS DT_ALLREDUCE_MAX_SLOTS
#define DT_SCALE_MAX_BATCHES 8

struct dt_scale_bucket {
    size_t n_elems; /* floats */
    double ready;   /* the share of a step's computation after which they are final, 0 to 1 */
};

/* The allreduce of gradients. */
struct dt_scale_allreduce {
    const struct dt_algorithm *algorithm; /* with in_memory: of the hosts */
    bool in_memory;                       /* ranks of a host add in memory that they share */
};

struct dt_scale_job {
    /* Steps of one rank alone, by samples: measured, with ascending samples; n_batches >= 1. */
    int n_batches;
    struct {
        double samples, seconds;
    } batches[DT_SCALE_MAX_BATCHES];
    int n_buckets;
    struct dt_scale_bucket buckets[DT_SCALE_MAX_BUCKETS]; /* in the order in which they are sent */
    double overlap;   /* the share of what could be sent during the backward pass that is */
    double n_at_once; /* ranks of a host that compute at the same time: cores / threads, > 0 */
    double crowding;  /* of a rank by another one on the same core, beside the turns; 1: none */
    double slowdown;  /* of a rank by another one's use of the host's memory; 1: none */
    struct dt_costs costs; /* ranks_per_host; links, by round trips; gamma */
    /* How many times as long messages inside a host, and additions, take in a training step: where
     * each rank has a core of its own; beside the turns, where two share one. 1: as round trips. */
    double message, message_shared;
};

struct dt_scale_step {
    double compute_s, sum_s; /* of all buckets, one after the other */
    double wait_s;           /* for sums, beyond the computation */
    double step_s;           /* compute_s + wait_s */
};

/* Seconds of a step of one rank alone, without others on its host: a line between measured
 * batches, which extends beyond the largest; below the smallest the part that does not depend on
 * the samples, by the line, is between nothing and all of that batch. */
double dt_scale_compute_s(const struct dt_scale_job *job, double samples);

/* How many times as long a rank computes where n ranks run: its host's ranks share cores and
 * memory. turns (1 + shared (crowding - 1)) (1 + (slowdown - 1) (at_once - 1)), where turns =
 * max(1, m / n_at_once), shared = min(turns - 1, 1), at_once = min(m, n_at_once), for m ranks on a
 * host */
double dt_scale_share(const struct dt_scale_job *job, int n_ranks);

/* Seconds of each bucket's sum over n ranks, alone: seconds[n_buckets]. Messages inside a host, and
 * additions, are work of its cores: alpha, beta and gamma times
 *   turns (message + shared (message_shared - message)).
 * In shared memory the ranks of a host read every part, as many at a time as compute at a time:
 * (alpha + beta * bytes) times the same. DT_NO_MEMORY; DT_INTERNAL: the schedule is wrong. */
enum dt_status dt_scale_sums(const struct dt_scale_job *job,
                             const struct dt_scale_allreduce *allreduce, int n_ranks,
                             double *seconds);

/* A step in which every rank has so many samples, and sums take so long. Ranks that share cores
 * hide nothing: overlap times 1 - shared. */
struct dt_scale_step dt_scale_step(const struct dt_scale_job *job, const double *seconds,
                                   int n_ranks, double samples);

/* Solves for what two ranks reveal, each with so many samples and a core: the `message` with which
 * a step without overlap waits apart_s for sums, and the overlap with which one with it waits
 * wait_s. Both are in job then. */
enum dt_status dt_scale_fit(struct dt_scale_job *job, const struct dt_scale_allreduce *allreduce,
                            double samples, double apart_s, double wait_s);

/* X(name, alpha in us, GB/s, source). GB/s is what one host sends while it receives as much.
 * Sources in full: docs/scaling.md. */
#define DT_SCALE_NETWORK_LIST(X)                                                      \
    X("10gbe", 14.0, 1.25 * 1448 / 1538, "10 Gbit/s Ethernet, frames of 1500 bytes")  \
    X("25gbe", 14.0, 3.125 * 1448 / 1538, "25 Gbit/s Ethernet, frames of 1500 bytes") \
    X("hdr", 1.0, 25.0, "HDR InfiniBand, 200 Gbit/s")                                 \
    X("nvlink", 3.4, 240.0, "NVLink 3, 12 links of 20 GB/s")

struct dt_scale_network {
    char name[16];
    struct dt_link_cost cost;
};
/* A name of the list, or "ALPHA,BETA": microseconds a message and GB/s. DT_USAGE: neither. */
enum dt_status dt_scale_network_find(const char *text, struct dt_scale_network *out);

#endif
