/* Small networks for lessons, on the CPU backend, with a strategy: a lesson reads their gradients
 * and weights. And softmax regression on generated images (data format "synthetic"), with several
 * ranks in one process: such a rank is what the trainer calls a micro-batch, because the gradients
 * of all ranks are added before the step. */
#ifndef DT_LAB_TRAINING_H
#define DT_LAB_TRAINING_H

#include "data/dataset.h"
#include "data/shard.h"
#include "dist/ranks/world.h"
#include "dist/strategy/strategy.h"
#include "model/lr_schedule.h"
#include "model/spec.h"
#include "view/document.h"

struct dt_lab_network_spec {
    const struct dt_model_spec *model;
    const struct dt_samples *samples; /* borrowed */
    struct dt_comm *comm;             /* borrowed */
    bool average;                     /* false: each rank steps with its own gradient */
    const struct dt_dist_spec
        *dist;    /* the strategy's settings; NULL: an allreduce, and `average` */
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

/* Every rank of the communicator calls it, and passes its status to dt_world_agree. After a failed
 * open there is nothing to close. */
enum dt_status dt_lab_network_open(const struct dt_lab_network_spec *spec,
                                   struct dt_lab_network *out);
void dt_lab_network_close(struct dt_lab_network *network); /* a zeroed one is fine */

/* DT_CONFIG on every rank unless there are `n` ranks; the error says how mpirun starts the lesson.
 */
enum dt_status dt_lab_need_ranks(const struct dt_world *world, const char *lesson, int n);

/* The elements of the tensor `name`, and of its gradient: summed over the ranks if they average. */
float *dt_lab_param(struct dt_lab_network *network, const char *name);
const float *dt_lab_grad(const struct dt_lab_network *network, const char *name);

/* Computes forward pass, loss and backward pass of a batch; `accumulate`: adds the gradients to
 * those of the last batch. With `step`, which all ranks pass, it exchanges the gradients, and
 * dt_strategy_finish updates the weights. */
enum dt_status dt_lab_pass(struct dt_lab_network *network, const struct dt_batch *batch,
                           bool accumulate, struct dt_strategy_step *step);
/* The same for a loss that is the sum of all outputs: its gradient does not depend on the weights.
 */
enum dt_status dt_lab_pass_sum(struct dt_lab_network *network, const struct dt_batch *batch,
                               struct dt_strategy_step *step);

/* Writes sums over all samples of a set. */
enum dt_status dt_lab_evaluate(struct dt_lab_network *network, const struct dt_samples *samples,
                               struct dt_metrics *out);

/* ---- images */

#define DT_LAB_N_TRAIN 2003 /* a prime: no number of ranks divides it */
#define DT_LAB_N_TEST 500
#define DT_LAB_N_PIXELS 784 /* of an image */
#define DT_LAB_CLASSES 10
#define DT_LAB_MAX_RANKS 8

extern const struct dt_model_spec dt_lab_softmax_regression; /* of the images */

struct dt_lab_images {
    struct dt_dataset train, test;
};

/* Generates the images of `seed`, which is 1 or more. */
enum dt_status dt_lab_images_open(int n_test, uint64_t seed, struct dt_lab_images *out);
void dt_lab_images_close(struct dt_lab_images *images); /* a zeroed one is fine */

struct dt_lab_training {
    const struct dt_samples *samples;
    struct dt_shard shard; /* of rank 0; n_total is that of `samples` */
    int only;              /* the one rank that trains, on its own batches; -1: all ranks */
    struct dt_lr_schedule schedule; /* of the learning rate */
};

/* A training, whose weights start at zero, and the loaders of all its ranks. */
struct dt_lab_run {
    struct dt_comm *self;
    struct dt_lab_network net;
    struct dt_loader loaders[DT_LAB_MAX_RANKS];
    struct dt_lab_training training;
};

enum dt_status dt_lab_run_open(const struct dt_lab_training *training, struct dt_lab_run *out);
void dt_lab_run_close(struct dt_lab_run *run); /* a zeroed one is fine */

/* Takes step `step` of an epoch, of all ranks or of `only`; *n_samples: samples used. */
enum dt_status dt_lab_run_step(struct dt_lab_run *run, uint32_t epoch, uint64_t step,
                               size_t *n_samples);

/* How often the ranks of a training use its samples in an epoch. */
struct dt_lab_uses {
    int least, most; /* uses of a sample, by all ranks together */
    int n_labels;    /* the most labels that a rank sees */
};

void dt_lab_run_uses(struct dt_lab_run *run, struct dt_lab_uses *out);

/* Writes the share of `samples` that the network classifies correctly. */
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

/* Compares results seed by seed. 1: a is larger; -1: a is smaller; 0: these seeds show no
 * difference, because the interval of a - b includes 0. */
int dt_lab_compare(int n, const double *a, const double *b);

/* Draws n means over x, with their intervals. */
void dt_lab_plot(struct dt_part *series, const char *name, int n, const double *x,
                 const struct dt_lab_mean *means);

/* ---- points of a line */

/* The lessons that fit a line have 64 points around y = 2 x + 2.4, of the data format "linear". The
 * seed was chosen so that the first and the second 32 points give the 9.88 of `dtrain lab lr`, and
 * so that points with even and with odd numbers fit different lines. */
#define DT_LAB_N_POINTS 64

/* One dense layer, fc1: y = weight * x + bias, with squared error. */
extern const struct dt_model_spec dt_lab_line_model;

enum dt_status dt_lab_points_open(struct dt_owned owned, struct dt_dataset *out);

/* Opens all points and a network of dt_lab_line_model in this process, runs `use` on them, and
 * closes both. Weights start at zero. Returns the status of `use`, or that of the failed open. */
enum dt_status dt_lab_line_run(enum dt_status (*use)(struct dt_lab_network *network,
                                                     const struct dt_samples *points,
                                                     void *context),
                               void *context);

#endif
