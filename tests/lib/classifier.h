/* A small classifier, its 64 samples, and how ranks train it in uneven parts: for tests of the
 * distributed optimizer. */
#ifndef DT_TESTS_CLASSIFIER_H
#define DT_TESTS_CLASSIFIER_H

#include "tests/lib/rig.h"

#include "dist/strategy/replica_check.h"

enum { N_SAMPLES = 64, N_INPUTS = 6, N_CLASSES = 5, N_STEPS = 10 };
static float values[N_SAMPLES * N_INPUTS], targets[N_SAMPLES];
static uint16_t labels[N_SAMPLES];
static const struct dt_samples samples = {.n = N_SAMPLES,
                                          .shape = {N_INPUTS, 1, 1},
                                          .values = values,
                                          .labels = labels,
                                          .n_classes = N_CLASSES,
                                          .n_total = N_SAMPLES};

static inline struct rig_spec classifier_on(const struct dt_backend_ops *backend)
{
    return (struct rig_spec){
        .backend = backend,
        .n_inputs = N_INPUTS,
        .units = {17, 9, N_CLASSES},
        .activation = DT_ACTIVATION_TANH,
        .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY,
        .optimizer = {.type = DT_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
        .dist = {.average = true, .broadcast = true, .overlap = true}};
}

static inline void make_samples(void)
{
    for (int i = 0; i < N_SAMPLES; i++) {
        for (int j = 0; j < N_INPUTS; j++) {
            values[i * N_INPUTS + j] = (float)((i * 5 + j * 11 + i * j) % 9 - 4);
        }
        targets[i] = (float)(i * 7 % 10);
        labels[i] = (uint16_t)(i * 3 % N_CLASSES);
    }
}

/* Rank r's part of a global batch: uneven on purpose, and nothing for the last rank in every third
 * step. */
static inline int part_of(const struct dt_comm *comm, int step, uint32_t *rows)
{
    const int n_ranks = step % 3 == 2 && comm->size > 1 ? comm->size - 1 : comm->size;
    int n = 0;
    for (int i = 0; i < N_SAMPLES - step; i++) {
        if ((i * i + step) % n_ranks == comm->rank) {
            rows[n++] = (uint32_t)i;
        }
    }
    return n;
}

static inline void init(struct rig *rig, uint64_t seed)
{
    dt_model_init(&rig->model, seed, rig->network->params);
}

/* Replicas are compared after every step; by priority, where it keeps weights from being late,
 * after every third. */
static inline void train(struct rig *rig, struct dt_comm *comm, int n_steps,
                         struct dt_replica_check *check)
{
    uint32_t rows[N_SAMPLES];
    const int every = rig->strategy->spec.dist.order == DT_ORDER_PRIORITY ? 3 : 1;
    for (int step = 0; step < n_steps; step++) {
        const int n = part_of(comm, step, rows);
        rig_step(rig, rows, n, N_SAMPLES - step, 0.01);
        if (check != NULL && (step + 1) % every == 0) {
            CHECK_OK(dt_strategy_share_weights(rig->strategy));
            CHECK_OK(dt_replica_check_run(check, rig->network));
        }
    }
    CHECK_OK(dt_strategy_share_weights(rig->strategy));
}

#endif
