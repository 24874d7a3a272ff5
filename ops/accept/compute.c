/* Speed of each rank's matrix products, all ranks at the same time, on the training's device: a
 * dense layer forward. Cores are timed by the thread's CPU time, so that sharing them does not
 * count against them. */
#include <math.h>
#include <time.h>

#include "base/clock.h"
#include "ops/accept/rows.h"
#include "ops/doctor/checks.h"

#define LEAST_PRODUCTS 5

static double now_s(const struct dt_backend *backend)
{
    struct timespec t;
    if (!backend->host_memory) {
        return dt_clock_s();
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* (n / 2, n) times (n, n) */
static int size_of(const struct dt_backend *backend)
{
    return backend->host_memory ? 1024 : 4096;
}

static enum dt_status open_product(const struct dt_acceptance *a, struct dt_accept_network *p)
{
    DT_TRY(dt_accept_backend_open(a, &p->backend));
    const int n = size_of(p->backend);
    const struct dt_model_spec spec = {
        .input = {n, 1, 1},
        .n_layers = 2,
        .layers = {{.type = DT_LAYER_FLATTEN}, {.type = DT_LAYER_DENSE, .size = n}},
        .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};
    return dt_accept_network_open(p, &spec, n / 2);
}

/* GFLOP/s of the fastest. */
static enum dt_status measure(const struct dt_accept_network *p, double measure_s, double *rate)
{
    const struct dt_pass pass = {.batch = &p->batch};
    const double n = size_of(p->backend), end_s = dt_clock_s() + measure_s;
    double best_s = INFINITY;
    DT_TRY(p->backend->ops->sync(p->backend));
    for (int i = 0; i < LEAST_PRODUCTS || dt_clock_s() < end_s; i++) {
        const double begin_s = now_s(p->backend);
        DT_TRY(dt_network_forward(p->network, &pass));
        DT_TRY(p->backend->ops->sync(p->backend));
        best_s = fmin(best_s, now_s(p->backend) - begin_s);
    }
    *rate = 1e-9 * n * n * n / best_s; /* two operations for each product of numbers */
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
    struct dt_accept_network product = {.backend = NULL};
    double *rates, mine = 0;
    enum dt_status s = dt_world_agree(a->world, open_product(a, &product));
    s = s == DT_OK ? dt_world_agree(a->world, measure(&product, a->measure_s, &mine)) : s;
    dt_accept_network_close(&product);
    DT_TRY(s);
    DT_TRY(dt_accept_gather(a, &mine, sizeof mine, "rates of products", (void **)&rates));
    dt_accept_compare(
        a,
        &(struct dt_accept_measured){
            .values = rates, .unit = "GFLOP/s", .figure = "gflops", .by_rank = !share_cores(a)},
        row);
    return DT_OK;
}
