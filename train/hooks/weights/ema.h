/* A moving average of the weights, kept beside them (`train.ema`): after each step it becomes decay
 * * average + (1 - decay) * weights, from the first step's weights on, as PyTorch's AveragedModel
 * with get_ema_multi_avg_fn has it (Polyak and Juditsky 1992). The end of an epoch tests it, and
 * checkpoints have it. Ranks with the same weights have the same average. */
#ifndef DT_TRAIN_HOOKS_WEIGHTS_EMA_H
#define DT_TRAIN_HOOKS_WEIGHTS_EMA_H

#include "train/trainer.h"

struct dt_ema {
    struct dt_hook hook; /* first */
    struct dt_backend *backend;
    float *average;         /* device; as the model's arena */
    bool begun;             /* it has seen weights */
    struct dt_metrics last; /* its result of the last epoch */
};

/* A hook, where `train.ema` asks for it. Every rank calls it; agreed. */
enum dt_status dt_ema_open(struct dt_trainer *trainer);

/* The trainer's, or NULL. */
struct dt_ema *dt_ema_of(const struct dt_trainer *trainer);

/* Evaluates the average in place of the weights; of no samples where there is none. Every rank
 * calls it. */
enum dt_status dt_ema_evaluate(struct dt_trainer *trainer, struct dt_evaluator *evaluator,
                               struct dt_metrics *out);

/* After a restore: the average of every rank becomes rank 0's. Every rank calls it. */
enum dt_status dt_ema_broadcast(struct dt_trainer *trainer);

#endif
