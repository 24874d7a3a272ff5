/* A training over the ranks that mpirun has started, by any strategy: softmax regression on the
 * lessons' images, with the bytes that each rank sends counted on the wire. */
#ifndef DT_LAB_DISTRIBUTED_H
#define DT_LAB_DISTRIBUTED_H

#include "lab/images.h"
#include "train/watch/inject.h"

#define DT_LAB_RANKS 4
#define DT_LAB_GLOBAL_BATCH 48
#define DT_LAB_N_EPOCHS 3
#define DT_LAB_MAX_SPANS 32
#define DT_LAB_SEED 1

struct dt_lab_distributed {
    struct dt_dist_spec dist; /* of a strategy that counts what it sends; one bucket, average,
                                 broadcast and overlap are on */
    struct dt_optimizer_spec optimizer;
    double rate;
    int n_steps;                    /* 0: DT_LAB_N_EPOCHS epochs */
    const struct dt_faults *faults; /* those that delay a worker; NULL: none */
};

/* A step of a rank, in seconds by its own clock: a worker computes until `ready`, delays included,
 * and waits until `end`. Each counts from before all ranks have met to begin, so that none has
 * begun its first step earlier than 0 on any clock. */
struct dt_lab_span {
    double begin, ready, end;
};

/* Every rank has it. */
struct dt_lab_outcome {
    int n_workers;
    struct dt_compression_spec compression; /* with the matrices of the model */
    size_t n_gradients, n_floats;  /* n_floats: with the zeros that align them, as they are sent */
    double sent[DT_LAB_RANKS];     /* bytes a step, by each rank */
    uint64_t hashes[DT_LAB_RANKS]; /* of each rank's weights in the end */
    double accuracy;               /* on the test set */
    struct dt_staleness staleness;
    struct dt_lab_span spans[DT_LAB_RANKS][DT_LAB_MAX_SPANS]; /* of the first steps */
};

/* Every one of the DT_LAB_RANKS ranks calls it. */
enum dt_status dt_lab_distributed_run(struct dt_world *world, const struct dt_lab_images *images,
                                      const struct dt_lab_distributed *training,
                                      struct dt_lab_outcome *out);

#endif
