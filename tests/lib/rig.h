/* A whole training set-up in a few lines, for tests of what is distributed: a model of dense layers
 * on a backend, its samples in memory, an optimizer, and the distributed optimizer around it. */
#ifndef DT_TESTS_RIG_H
#define DT_TESTS_RIG_H

#include "dist/ranks/world.h"
#include "dist/strategy/strategy.h"
#include "tests/lib/check.h"
#include "tests/lib/layers.h"

#define RIG_MAX_BATCH 64

/* This rank's text about rank `late` when it gives up waiting: its name on the same host; elsewhere
 * nothing (""), because that is left to those who know, unless nobody is there. */
static inline void rig_word_on_late(struct dt_comm *comm, int late, char *text, size_t n_text)
{
    int32_t roots[16], n_there = 0;
    const int32_t mine = comm->host_root;
    CHECK(comm->size <= 16);
    CHECK_OK(dt_comm_allgather(comm, &mine, roots, sizeof mine, "which host each rank is on"));
    for (int rank = 0; rank < comm->size; rank++) {
        n_there += roots[rank] == roots[late];
    }
    text[0] = '\0';
    if (mine == roots[late]) {
        snprintf(text, n_text, "rank %d has not arrived; it was last seen ", late);
    } else if (n_there == 1) {
        snprintf(text, n_text, "on another host");
    }
}

struct rig_spec {
    const struct dt_backend_ops *backend;
    int n_inputs;
    int units[4];                  /* of the dense layers; 0 ends the list */
    enum dt_activation activation; /* of all but the last */
    enum dt_loss loss;
    struct dt_optimizer_spec optimizer;
    struct dt_dist_spec dist;
    bool shared_step; /* the ranks of a host share steps if they can */
};

struct rig {
    struct dt_model model;
    struct dt_backend *backend;
    struct dt_network *network;
    struct dt_strategy *strategy;
    struct dt_bound_samples *bound;
    double loss_sum;        /* of the last step's batch */
    struct dt_trace *trace; /* who watches passes; NULL: nobody does */
};

static inline void rig_open(struct rig *rig, const struct rig_spec *spec, struct dt_comm *comm,
                            const struct dt_samples *samples)
{
    struct dt_model_spec model = {.input = {spec->n_inputs, 1, 1}, .loss = spec->loss};
    for (int i = 0; i < 4 && spec->units[i] > 0; i++) {
        const bool last = i == 3 || spec->units[i + 1] == 0;
        model.layers[model.n_layers++] =
            (struct dt_layer_spec)LAYER(DENSE, .size = spec->units[i],
                                        .activation = last ? DT_ACTIVATION_NONE : spec->activation);
    }
    *rig = (struct rig){.bound = NULL};
    CHECK_OK(dt_model_lower(&model, &rig->model));
    CHECK_OK(spec->backend->open(&(struct dt_backend_options){.n_threads = 1}, &rig->backend));
    struct dt_strategy_spec strategy = {.dist = spec->dist,
                                        .optimizer = spec->optimizer,
                                        .model = &rig->model,
                                        .comm = comm,
                                        .backend = rig->backend,
                                        .shared_step = spec->shared_step};
    strategy.dist.rows = &dt_all_entries;
    CHECK_OK(dt_strategy_open(&strategy, &rig->strategy));
    CHECK_OK(dt_network_open(&rig->model, rig->backend, RIG_MAX_BATCH, &rig->strategy->memory,
                             false, &rig->network));
    CHECK_OK(rig->backend->ops->samples_open(rig->backend, samples, &rig->bound));
}

static inline void rig_close(struct rig *rig)
{
    rig->backend->ops->samples_close(rig->backend, rig->bound);
    dt_network_close(rig->network);
    dt_strategy_close(rig->strategy);
    rig->backend->ops->close(rig->backend);
}

/* The last rank comes late to a request of the others on `comm`. */
struct rig_late {
    struct dt_comm *comm, *second; /* on the second the others meet before */
    const char *phase;             /* what the late rank does meanwhile */
    char who[64];                  /* rig_word_on_late */
};

/* The late rank returns when the others have met without it. */
static inline struct rig_late rig_late_begin(struct dt_comm *comm, const char *phase)
{
    struct rig_late late = {.comm = comm, .phase = phase};
    const int last = comm->size - 1;
    CHECK_OK(dt_comm_open_hosts(&late.second));
    rig_word_on_late(comm, last, late.who, sizeof late.who);
    dt_comm_phase(comm, comm->rank == last ? phase : "step");
    CHECK_OK(dt_comm_barrier(late.second, "all know who is late"));
    if (comm->rank == last) {
        CHECK_OK(dt_comm_barrier(late.second, "meeting without the late rank"));
    }
    return late;
}

/* The others give up waiting for the request, with what they know of the late rank in the error,
 * and wait again once it has come. */
static inline void rig_late_end(struct rig_late *late, struct dt_request *request)
{
    struct dt_comm *comm = late->comm;
    char doing[80];
    snprintf(doing, sizeof doing, "in '%.25s", late->phase);
    if (comm->rank != comm->size - 1) {
        if (late->who[0] != '\0') {
            const double usual_timeout_s = dt_comm_set_timeout(comm, 0.5);
            CHECK_FAILS(dt_comm_wait(comm, request), DT_STALLED,
                        "allreduce of the test stalled for ");
            CHECK_HAS(dt_error_text(), late->who);
            CHECK_HAS(dt_error_text(), late->who[0] == 'r' ? doing : "");
            dt_comm_set_timeout(comm, usual_timeout_s);
        }
        CHECK_OK(dt_comm_barrier(late->second, "meeting without the late rank"));
    }
    CHECK_OK(dt_comm_wait(comm, request)); /* a stall is only an opinion: now it goes through */
    dt_comm_close(late->second);
}

/* The parameter's elements, in the backend's (here: the host's) memory. */
static inline float *rig_param(struct rig *rig, const char *name)
{
    for (int i = 0; i < rig->model.n_params; i++) {
        if (strcmp(rig->model.params[i].name, name) == 0) {
            return rig->network->params + rig->model.params[i].offset;
        }
    }
    CHECK_FAIL("no parameter '%s'", name);
}

/* Forward, loss and backward of these rows, gradients summed over all ranks where averaging is on,
 * and the step. */
static inline void rig_pass(struct rig *rig, const struct dt_update *update, const uint32_t *rows,
                            int n)
{
    const struct dt_batch batch = {.n = n, .rows = rows, .ids = rows};
    struct dt_pass pass = {.batch = &batch, .training = true, .seed = 1, .trace = rig->trace};
    struct dt_metrics metrics;
    CHECK_OK(dt_network_gather(rig->network, rig->bound, &batch));
    struct dt_strategy_step step = dt_strategy_start(rig->strategy, update);
    CHECK_OK(dt_strategy_forward(&step, rig->network, &pass));
    CHECK_OK(dt_network_loss(rig->network, rig->bound, &pass));
    CHECK_OK(dt_strategy_backward(&step, rig->network, &pass));
    CHECK_OK(dt_strategy_finish(&step));
    CHECK_OK(rig->backend->ops->metrics_take(rig->backend, &metrics));
    rig->loss_sum = metrics.loss_sum;
}

static inline void rig_step(struct rig *rig, const uint32_t *rows, int n, int n_global, double lr)
{
    const struct dt_update update =
        dt_strategy_next_update(rig->strategy, lr, (size_t)n_global, (size_t)n);
    rig_pass(rig, &update, rows, n);
}

#endif
