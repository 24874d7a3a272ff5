/* A run's position: what a checkpoint has beside weights, optimizer state and configuration. */
#ifndef DT_CHECKPOINT_RUN_STATE_H
#define DT_CHECKPOINT_RUN_STATE_H

#include <stdint.h>

/* X(field): unsigned 64-bit. */
#define DT_CHECKPOINT_COUNTER_LIST(X)                              \
    X(step)            /* optimizer steps done in the whole run */ \
    X(epoch)           /* epochs finished */                       \
    X(step_in_epoch)   /* steps done of the next epoch */          \
    X(optimizer_steps) /* dt_optimizer.n_steps */                  \
    X(seed)                                                        \
    X(world_size)                                                  \
    X(global_batch)                                                \
    X(n_train)  /* samples of the training set */                  \
    X(data_crc) /* of the training labels: distinguishes data sets where no data_hash does */

#define DT_CHECKPOINT_UNKNOWN UINT64_MAX

/* Counters added later. X(field, value if a file lacks the key). */
#define DT_CHECKPOINT_LATER_LIST(X)                                                           \
    X(bright_borders,                                                                         \
      DT_CHECKPOINT_UNKNOWN) /* of the training images: train/save/border.h; unknown: none */ \
    X(data_hash, DT_CHECKPOINT_UNKNOWN) /* of the training samples: data/dataset.h */         \
    X(shuffle_rounds, 4) /* DT_PERMUTATION_ROUNDS: determines the order of samples */         \
    X(compression_draws,                                                                      \
      0) /* encodings by each worker so far: stochastic rounding continues from there */      \
    X(stop_epoch, 0)       /* epoch of stop_value; 0: none yet, as for the next two */        \
    X(plateau_epoch, 0)    /* epoch of plateau_value */                                       \
    X(best_epoch, 0)       /* epoch of best_value */                                          \
    X(lr_reductions, 0)    /* by the schedule "plateau" */                                    \
    X(lr_reduced_epoch, 0) /* the last of them followed this epoch */

/* Sums of the unfinished epoch, so that its metrics continue too. X(field): double. */
#define DT_CHECKPOINT_SUM_LIST(X) \
    X(loss_sum)                   \
    X(n_correct)                  \
    X(n_samples)

/* The best values so far of a metric of the test samples (train/monitor.c); 0 if unused.
 * X(field): double, added later. */
#define DT_CHECKPOINT_BEST_LIST(X)                  \
    X(stop_value)    /* for early stopping */       \
    X(plateau_value) /* for the plateau schedule */ \
    X(best_value)    /* for the checkpoint kept as the best */

struct dt_checkpoint_state {
#define DT_CHECKPOINT_FIELD(field) uint64_t field;
    DT_CHECKPOINT_COUNTER_LIST(DT_CHECKPOINT_FIELD)
#undef DT_CHECKPOINT_FIELD
#define DT_CHECKPOINT_FIELD(field, absent) uint64_t field;
    DT_CHECKPOINT_LATER_LIST(DT_CHECKPOINT_FIELD)
#undef DT_CHECKPOINT_FIELD
#define DT_CHECKPOINT_FIELD(field) double field;
    DT_CHECKPOINT_SUM_LIST(DT_CHECKPOINT_FIELD)
    DT_CHECKPOINT_BEST_LIST(DT_CHECKPOINT_FIELD)
#undef DT_CHECKPOINT_FIELD
};

#endif
