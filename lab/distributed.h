/* A training over the ranks that mpirun has started, by any strategy: softmax regression on the
 * lessons' images; the wire counts the bytes that each rank sends. */
#ifndef DT_LAB_DISTRIBUTED_H
#define DT_LAB_DISTRIBUTED_H

#include "dist/compression/codec.h"
#include "dist/strategy/summary/summary.h"
#include "lab/training.h"
#include "train/hooks/inject.h"
#include "view/document.h"

#define DT_LAB_RANKS 4
#define DT_LAB_GLOBAL_BATCH 48
#define DT_LAB_N_EPOCHS 3
#define DT_LAB_MAX_SPANS 32
#define DT_LAB_SEED 1

struct dt_lab_distributed {
    const char *strategy;     /* its name; NULL: allreduce */
    struct dt_dist_spec dist; /* of a strategy that counts its messages; one bucket; average,
                                 broadcast and overlap are on */
    struct dt_optimizer_spec optimizer;
    double rate;
    int n_steps;                    /* 0: DT_LAB_N_EPOCHS epochs */
    uint64_t seed;                  /* of order and first weights; 0: DT_LAB_SEED */
    const struct dt_faults *faults; /* delays of workers only; NULL: none */
};

/* A rank's step, in seconds by its own clock: a worker computes until `ready`, delays included, and
 * waits until `end`. Each clock starts before all ranks have met to begin, so that no first step
 * begins before 0 on any clock. */
struct dt_lab_span {
    double begin, ready, end;
};

/* The result; every rank has it. */
struct dt_lab_outcome {
    int n_workers;
    struct dt_codec codec;         /* of what is sent */
    size_t n_gradients, n_floats;  /* n_floats: with alignment gaps, as sent */
    double sent[DT_LAB_RANKS];     /* bytes per step, by each rank */
    uint64_t hashes[DT_LAB_RANKS]; /* of each rank's final weights */
    double accuracy;               /* on the test set */
    struct dt_staleness staleness;
    struct dt_lab_span spans[DT_LAB_RANKS][DT_LAB_MAX_SPANS]; /* of the first steps */
};

/* Every one of the DT_LAB_RANKS ranks calls it. */
enum dt_status dt_lab_distributed_run(struct dt_world *world, const struct dt_lab_images *images,
                                      const struct dt_lab_distributed *training,
                                      struct dt_lab_outcome *out);

/* Rank 0's live line (dt_terminal_live), of a lesson that takes more than two seconds. */
#define dt_lab_live(world, ...) ((world)->rank == 0 ? dt_terminal_live(__VA_ARGS__) : (void)0)

/* The histogram of an asynchronous server's staleness, as a part of a document. */
void dt_lab_staleness(struct dt_doc *doc, const struct dt_staleness *staleness);

#endif
