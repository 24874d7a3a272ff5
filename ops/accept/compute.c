/* Speed of each rank's matrix products, all ranks at the same time, on the training's device: a
 * dense layer forward. Cores are timed by the thread's CPU time, so that sharing them does not
 * count against them. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "model/network.h"
#include "ops/accept/rows.h"
#include "ops/doctor/checks.h"

#define LEAST_PRODUCTS 5

/* (rows, n) times (n, n) */
struct product {
    int rows, n;
    struct dt_backend *backend;
    struct dt_model model;
    struct dt_network *network;
    struct dt_bound_samples *bound;
    float *values, *params;
    uint16_t *labels;
    uint32_t *order;
};

static double now_s(const struct dt_backend *backend)
{
    struct timespec t;
    if (!backend->host_memory) {
        return dt_clock_s();
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static enum dt_status alloc_host(struct product *p)
{
    const size_t n_values = (size_t)p->rows * (size_t)p->n;
    p->values = calloc(n_values, sizeof *p->values);
    p->params = calloc(p->model.arena_elems, sizeof *p->params);
    p->labels = calloc((size_t)p->rows, sizeof *p->labels);
    p->order = calloc((size_t)p->rows, sizeof *p->order);
    if (p->values == NULL || p->params == NULL || p->labels == NULL || p->order == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a product of matrices");
    }
    for (size_t i = 0; i < n_values; i++) {
        p->values[i] = (float)(i * 2654435761u % 1024) / 512 - 1;
    }
    for (int i = 0; i < p->rows; i++) {
        p->order[i] = (uint32_t)i;
    }
    dt_model_init(&p->model, 1, p->params);
    return DT_OK;
}

static enum dt_status open_product(const struct dt_acceptance *a, struct product *p)
{
    const struct dt_backend_options options = {.n_threads = 1, .local_rank = a->world->local_rank};
    DT_TRY(a->device.backend->open(&options, &p->backend));
    p->n = p->backend->host_memory ? 1024 : 4096;
    p->rows = p->n / 2;
    const struct dt_model_spec spec = {
        .input = {p->n, 1, 1},
        .n_layers = 2,
        .layers = {{.type = DT_LAYER_FLATTEN}, {.type = DT_LAYER_DENSE, .size = p->n}},
        .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};
    DT_TRY(dt_model_lower(&spec, &p->model));
    DT_TRY(alloc_host(p));
    const struct dt_samples samples = {.n = (size_t)p->rows,
                                       .shape = p->model.spec.input,
                                       .values = p->values,
                                       .scale = 1,
                                       .labels = p->labels,
                                       .n_classes = p->n,
                                       .n_total = (size_t)p->rows,
                                       .id_stride = 1};
    DT_TRY(dt_network_open(&p->model, p->backend, p->rows, NULL, &p->network));
    DT_TRY(p->backend->ops->copy_in(p->backend, p->network->params, p->params,
                                    p->model.arena_elems * sizeof(float)));
    DT_TRY(p->backend->ops->samples_open(p->backend, &samples, &p->bound));
    return dt_network_gather(p->network, p->bound,
                             &(struct dt_batch){.n = p->rows, .rows = p->order, .ids = p->order});
}

static void close_product(struct product *p)
{
    if (p->bound != NULL) {
        p->backend->ops->samples_close(p->backend, p->bound);
    }
    dt_network_close(p->network);
    if (p->backend != NULL) {
        p->backend->ops->close(p->backend);
    }
    free(p->values);
    free(p->params);
    free(p->labels);
    free(p->order);
}

/* GFLOP/s of the fastest. */
static enum dt_status measure(const struct product *p, double measure_s, double *rate)
{
    const struct dt_batch batch = {.n = p->rows, .rows = p->order, .ids = p->order};
    const struct dt_pass pass = {.batch = &batch};
    const double n_flops = 2.0 * p->rows * p->n * p->n, end_s = dt_clock_s() + measure_s;
    double best_s = INFINITY;
    DT_TRY(p->backend->ops->sync(p->backend));
    for (int i = 0; i < LEAST_PRODUCTS || dt_clock_s() < end_s; i++) {
        const double begin_s = now_s(p->backend);
        DT_TRY(dt_network_forward(p->network, &pass));
        DT_TRY(p->backend->ops->sync(p->backend));
        best_s = fmin(best_s, now_s(p->backend) - begin_s);
    }
    *rate = 1e-9 * n_flops / best_s;
    return DT_OK;
}

/* True if ranks share cores: then a slow rank may be its neighbours' fault. */
static bool share_cores(const struct dt_acceptance *a)
{
    return a->device.module == NULL &&
           dt_check_run("cores", a->ranks, a->world->size).verdict == DT_VERDICT_WARNING;
}

enum dt_status dt_accept_compute(struct dt_acceptance *a, struct dt_accept_row *row)
{
    struct product product = {.rows = 0};
    double *rates = NULL, mine = 0;
    enum dt_status s = dt_world_agree(a->world, open_product(a, &product));
    DT_TRY_GOTO(s, s, done);
    DT_TRY_GOTO(
        s,
        dt_world_alloc(a->world, (size_t)a->world->size, sizeof *rates, "rates", (void **)&rates),
        done);
    DT_TRY_GOTO(s, dt_world_agree(a->world, measure(&product, a->measure_s, &mine)), done);
    DT_TRY_GOTO(s,
                dt_comm_allgather(a->world->comm, &mine, rates, sizeof mine,
                                  "exchange of rates of products"),
                done);
    dt_accept_compare(
        a,
        &(struct dt_accept_measured){
            .values = rates, .unit = "GFLOP/s", .figure = "gflops", .by_rank = !share_cores(a)},
        row);
done:
    free(rates);
    close_product(&product);
    return s;
}
