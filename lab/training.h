/* Small networks for lessons: on the CPU backend, with a strategy, whose gradients and weights the
 * lesson reads; and softmax regression on generated images (data format "synthetic"),
 * several ranks in one process. Such a rank corresponds to the trainer's micro-batch: its batch's
 * gradients are added to the others'. */
#ifndef DT_LAB_TRAINING_H
#define DT_LAB_TRAINING_H

#include "data/dataset.h"
#include "data/shard.h"
#include "dist/ranks/world.h"
#include "dist/strategy/strategies.h"
#include "model/schedule.h"
#include "model/spec.h"

struct dt_lab_network_spec {
    const struct dt_model_spec *model;
    const struct dt_samples *samples; /* borrowed */
    struct dt_comm *comm;             /* borrowed */
    bool average;                     /* false: each rank steps with its own gradient */
    const struct dt_dist_spec
        *dist;    /* all of the strategy's settings; NULL: an allreduce, or none, by `average` */
    int capacity; /* the largest batch */
    struct dt_optimizer_spec optimizer; /* zeroed: plain SGD */
};

struct dt_lab_network {
    struct dt_model model;
    struct dt_backend *backend;
    struct dt_network *network;
    struct dt_strategy *strategy; /* weights start at zero */
    struct dt_bound_samples *bound;
};

/* Every rank of the communicator calls it, and passes its status through dt_world_agree. A failed
 * open owes nothing. */
enum dt_status dt_lab_network_open(const struct dt_lab_network_spec *spec,
                                   struct dt_lab_network *out);
void dt_lab_network_close(struct dt_lab_network *network); /* a zeroed one is fine */

/* DT_CONFIG on every rank unless there are `n`; the text tells how to start the lesson with
 * mpirun. */
enum dt_status dt_lab_need_ranks(const struct dt_world *world, const char *lesson, int n);

float *dt_lab_param(struct dt_lab_network *network, const char *name); /* a tensor's elements */
const float *dt_lab_grad(const struct dt_lab_network *network,
                         const char *name); /* summed over the ranks if they average */

/* Forward, loss and backward of a batch; `accumulate`: adds the gradients to those of the batch
 * before. With `step`, which other ranks call too, the gradients are exchanged, and the weights are
 * new after dt_strategy_wait. */
enum dt_status dt_lab_pass(struct dt_lab_network *network, const struct dt_batch *batch,
                           bool accumulate, struct dt_strategy_step *step);

/* Sums over all samples of a set. */
enum dt_status dt_lab_evaluate(struct dt_lab_network *network, const struct dt_samples *samples,
                               struct dt_metrics *out);

/* ---- images */

#define DT_LAB_N_TRAIN 2003 /* a prime: no number of ranks divides it */
#define DT_LAB_N_TEST 500
#define DT_LAB_CLASSES 10
#define DT_LAB_MAX_RANKS 8

extern const struct dt_model_spec dt_lab_softmax_regression; /* of the images */

struct dt_lab_images {
    struct dt_dataset train, test;
    struct dt_samples
        sorted; /* the training set's samples in another order; points to `pixels` and `labels` */
    uint8_t *pixels; /* of the sorted set; owned, as are the labels */
    uint16_t *labels;
};

/* Another seed, from 1 on, has other images. */
enum dt_status dt_lab_images_open(int n_test, uint64_t seed, struct dt_lab_images *out);
void dt_lab_images_close(struct dt_lab_images *images); /* a zeroed one is fine */

/* Fills `sorted`: its sample i is the training set's sample order[i]. */
void dt_lab_images_sort(struct dt_lab_images *images, const uint32_t *order);
/* The samples' numbers sorted by label, DT_LAB_N_TRAIN of them. */
void dt_lab_images_by_label(const struct dt_lab_images *images, uint32_t *out);

struct dt_lab_training {
    const struct dt_samples *samples;
    struct dt_shard shard;       /* of rank 0; n_total as in `samples` */
    int only;                    /* the one rank that trains, on its own batches; -1: all ranks */
    struct dt_schedule schedule; /* of the learning rate */
};

/* An open training, with weights zero, and the loaders of all its ranks. */
struct dt_lab_run {
    struct dt_comm *self;
    struct dt_lab_network net;
    struct dt_loader loaders[DT_LAB_MAX_RANKS];
    struct dt_lab_training training;
};

enum dt_status dt_lab_run_open(const struct dt_lab_training *training, struct dt_lab_run *out);
void dt_lab_run_close(struct dt_lab_run *run); /* a zeroed one is fine */

/* Takes a step of all ranks, or of the one, by step number of the epoch; *n_samples: samples
 * used. */
enum dt_status dt_lab_run_step(struct dt_lab_run *run, uint32_t epoch, uint64_t step,
                               size_t *n_samples);

/* How the ranks of a training use its samples in an epoch. */
struct dt_lab_uses {
    int least, most; /* uses of a sample, by all ranks together */
    int n_labels;    /* the most labels that a rank sees */
};

void dt_lab_run_uses(struct dt_lab_run *run, struct dt_lab_uses *out);

/* The share of `samples` that it classifies correctly. */
enum dt_status dt_lab_run_accuracy(struct dt_lab_run *run, const struct dt_samples *samples,
                                   double *out);

/* ---- several seeds */

#define DT_LAB_MOST_SEEDS 10

/* The mean of n results, 2 to DT_LAB_MOST_SEEDS, each from a seed of its own, and its 95 %
 * confidence interval, mean +- margin, by Student's t. */
struct dt_lab_mean {
    double mean, margin;
};
struct dt_lab_mean dt_lab_mean(int n, const double *results);

/* Whether results a are larger than b, seed by seed: 1, or smaller: -1; 0: the interval of their
 * differences includes 0, so that these seeds do not tell. */
int dt_lab_compare(int n, const double *a, const double *b);

/* ---- points of a line */

/* The points of the lessons that fit a line: 64 around y = 2 x + 2.4, of the data format "linear".
 * The seed is chosen so that the first and the second 32 points give 9.88 as in `dtrain lab lr`,
 * and so that points with even and with odd numbers fit different lines. */
#define DT_LAB_N_POINTS 64

extern const struct dt_model_spec
    dt_lab_line_model; /* one dense layer, fc1: y = weight * x + bias, squared error */

enum dt_status dt_lab_points_open(struct dt_owned owned, struct dt_dataset *out);

/* Mean squared error of the line y = slope * x + intercept. */
double dt_lab_points_loss(const struct dt_samples *points, double slope, double intercept);

#endif
