/* Sums of floats over all ranks by size, for each way that gradients can travel, in the columns of nccl-tests:
 * https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md has their definitions. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/device.h"
#include "cli/ranks.h"
#include "dist/comm_staged.h"
#include "dist/host_sum.h"
#include "dist/stop.h"

#define MAX_SIZES 32
#define PEAK_MS 20

/* One row of the table. */
struct point {
    size_t n_bytes, n_elems, n_wrong;
    double mean_s; /* of a sum, on the slowest rank */
};

/* A way that sums can travel. `buffer` is what is summed, `result` where the sum is then; in `backend`'s memory, or the program's
 * where that is NULL. */
struct way {
    const char *name, *meaning;
    struct dt_backend *backend;
    struct dt_comm *comm;   /* in place, over `buffer`; NULL: the world's, or `sum` */
    struct dt_host_sum sum; /* part NULL: not this way */
    float *buffer;
    const float *result;
    int n_points;
    struct point points[MAX_SIZES];
    struct dt_bench_fit fit;
};

struct bench {
    struct dt_world *world;
    struct dt_bench_options options;
    struct dt_config config;
    struct dt_device_choice device;
    float *host; /* max_bytes: what is copied to a device and back */
    char name[80];
    unsigned n_rounds; /* of checks */
    size_t n_wrong;    /* in all */
    cJSON *json;
};

/* The keys that matter here are those of the run: comm, device, distributed.timeout_s. The model stands for any. */
static enum dt_status read_config(const struct dt_args *args, struct dt_config *out)
{
    static const char text[] = "{\"data\": {\"format\": \"synthetic\"}, \"model\": {\"input\": [1, 1, 1], \"layers\": ["
                               "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 2}]}}";
    return dt_config_parse("bench allreduce", text, sizeof text - 1, args->sets, args->n_sets, out);
}

/* ---- one way */

static enum dt_status start(struct bench *b, struct way *way, size_t n_elems, struct dt_request *request)
{
    if (way->sum.part != NULL) {
        dt_host_sum_start(&way->sum, 0, 0, n_elems, b->name, request);
        return DT_OK;
    }
    return dt_comm_allreduce_start(way->comm, way->buffer, n_elems, DT_TYPE_F32, DT_REDUCE_SUM, b->name, request);
}

static enum dt_status sum_once(struct bench *b, struct way *way, size_t n_elems)
{
    struct dt_request request;
    DT_TRY(start(b, way, n_elems, &request));
    DT_TRY(dt_comm_wait(way->comm, &request));
    return way->backend != NULL ? way->backend->ops->sync(way->backend) : DT_OK;
}

/* A sum that is not timed, of numbers that are known. */
static enum dt_status check_once(struct bench *b, struct way *way, size_t n_elems, size_t *n_wrong)
{
    float *mine = way->backend != NULL ? b->host : way->buffer;
    const float *sum = way->backend != NULL ? b->host : way->result;
    dt_bench_fill(mine, n_elems, b->world->rank, ++b->n_rounds);
    if (way->backend != NULL) {
        DT_TRY(way->backend->ops->copy_in(way->backend, way->buffer, mine, n_elems * sizeof *mine));
    }
    DT_TRY(sum_once(b, way, n_elems));
    if (way->backend != NULL) {
        DT_TRY(way->backend->ops->copy_out(way->backend, b->host, way->result, n_elems * sizeof *mine));
    }
    *n_wrong += dt_bench_count_wrong(sum, n_elems, b->world->size, b->n_rounds);
    return DT_OK;
}

/* In place, sums grow from one to the next: those that are timed are of zeros. */
static enum dt_status clear(struct bench *b, struct way *way, size_t n_elems)
{
    if (way->backend == NULL) {
        memset(way->buffer, 0, n_elems * sizeof *way->buffer);
        return DT_OK;
    }
    memset(b->host, 0, n_elems * sizeof *b->host);
    return way->backend->ops->copy_in(way->backend, way->buffer, b->host, n_elems * sizeof *b->host);
}

static enum dt_status time_sums(struct bench *b, struct way *way, struct point *p)
{
    DT_TRY(clear(b, way, p->n_elems));
    for (size_t i = 0; i < b->options.n_warmup; i++) {
        DT_TRY(sum_once(b, way, p->n_elems));
    }
    DT_TRY(dt_comm_barrier(b->world->comm, "barrier before sums are timed"));
    const double begin_s = dt_clock_s();
    for (size_t i = 0; i < b->options.n_iters; i++) {
        DT_TRY(sum_once(b, way, p->n_elems));
    }
    p->mean_s = (dt_clock_s() - begin_s) / (double)b->options.n_iters;
    return DT_OK;
}

/* All ranks' view of a size: the time of the slowest, the wrong elements of all, and whether one was asked to stop. */
static enum dt_status combine(struct bench *b, struct point *p)
{
    double worst[] = {p->mean_s, dt_stop_requested() ? 1 : 0}, n_wrong = (double)p->n_wrong;
    DT_TRY(dt_comm_allreduce(b->world->comm, worst, 2, DT_TYPE_F64, DT_REDUCE_MAX, "exchange of times"));
    DT_TRY(dt_comm_allreduce(b->world->comm, &n_wrong, 1, DT_TYPE_F64, DT_REDUCE_SUM, "sum of wrong elements"));
    p->mean_s = worst[0];
    p->n_wrong = (size_t)n_wrong;
    b->n_wrong += p->n_wrong;
    return worst[1] > 0 ? dt_bench_stopped(b->world) : DT_OK;
}

static double bus_bandwidth(const struct bench *b, const struct point *p)
{
    return (double)p->n_bytes / p->mean_s * dt_bench_bus_factor(b->world->size);
}

static void print_head(const struct bench *b, const struct way *way)
{
    const int n = b->world->size, n_hosts = b->world->comm->n_hosts;
    printf("# %s: %s\n# %d rank%s on %d host%s; mean of %zu allreduces; slowest rank%s\n", way->name, way->meaning, n,
           n == 1 ? "" : "s", n_hosts, n_hosts == 1 ? "" : "s", b->options.n_iters,
           b->world->local_size > sysconf(_SC_NPROCESSORS_ONLN) ? "; ranks share cores" : "");
    printf("#%10s %10s %6s %6s %10s %11s %11s %6s\n", "size(B)", "count", "type", "redop", "time(us)", "algbw(GB/s)", "busbw(GB/s)",
           "#wrong");
}

static void print_point(const struct bench *b, const struct point *p)
{
    char n_wrong[24] = "N/A";
    if (b->options.n_checks > 0) {
        snprintf(n_wrong, sizeof n_wrong, "%zu", p->n_wrong);
    }
    printf(" %10zu %10zu %6s %6s %10.2f %11.3f %11.3f %6s\n", p->n_bytes, p->n_elems, "float", "sum", 1e6 * p->mean_s,
           1e-9 * (double)p->n_bytes / p->mean_s, 1e-9 * bus_bandwidth(b, p), n_wrong);
    fflush(stdout);
}

static enum dt_status measure_sizes(struct bench *b, struct way *way)
{
    double n_bytes[MAX_SIZES], seconds[MAX_SIZES];
    for (size_t size = b->options.min_bytes; size <= b->options.max_bytes; size *= b->options.factor) {
        struct point *p = &way->points[way->n_points];
        p->n_elems = size / sizeof(float);
        p->n_bytes = p->n_elems * sizeof(float);
        snprintf(b->name, sizeof b->name, "allreduce of %zu bytes (%s)", p->n_bytes, way->name);
        dt_comm_phase(b->world->comm, "bench allreduce");
        for (size_t i = 0; i < b->options.n_checks; i++) {
            DT_TRY(check_once(b, way, p->n_elems, &p->n_wrong));
        }
        DT_TRY(time_sums(b, way, p));
        DT_TRY(combine(b, p));
        if (b->world->rank == 0) {
            print_point(b, p);
        }
        n_bytes[way->n_points] = (double)p->n_bytes;
        seconds[way->n_points++] = p->mean_s;
    }
    way->fit = dt_bench_fit(n_bytes, seconds, way->n_points, b->world->size);
    return DT_OK;
}

static void print_fit(const struct bench *b, const struct way *way)
{
    const struct dt_bench_fit *fit = &way->fit;
    if (fit->found) {
        printf("# fit: latency %.2f us, bandwidth %.3f GB/s, max error %.0f %%\n"
               "# of time = latency + 2 (n - 1) / n * size / bandwidth, n = %d\n\n",
               1e6 * fit->latency_s, 1e-9 * fit->bandwidth, 100 * fit->worst, b->world->size);
    } else {
        printf("# fit: -\n\n");
    }
}

static void describe(const struct bench *b, const struct way *way)
{
    cJSON *ways = cJSON_GetObjectItemCaseSensitive(b->json, "ways");
    cJSON *json = cJSON_CreateObject(), *points = cJSON_CreateArray();
    cJSON_AddItemToArray(ways, json);
    cJSON_AddStringToObject(json, "name", way->name);
    cJSON_AddItemToObject(json, "points", points);
    for (int i = 0; i < way->n_points; i++) {
        const struct point *p = &way->points[i];
        cJSON *point = cJSON_CreateObject();
        cJSON_AddItemToArray(points, point);
        cJSON_AddNumberToObject(point, "bytes", (double)p->n_bytes);
        cJSON_AddNumberToObject(point, "count", (double)p->n_elems);
        cJSON_AddNumberToObject(point, "us", 1e6 * p->mean_s);
        cJSON_AddNumberToObject(point, "algbw_gbs", 1e-9 * (double)p->n_bytes / p->mean_s);
        cJSON_AddNumberToObject(point, "busbw_gbs", 1e-9 * bus_bandwidth(b, p));
        cJSON_AddNumberToObject(point, "wrong", (double)p->n_wrong);
    }
    if (!way->fit.found) {
        cJSON_AddNullToObject(json, "fit");
        return;
    }
    cJSON *fit = cJSON_AddObjectToObject(json, "fit");
    cJSON_AddNumberToObject(fit, "latency_us", 1e6 * way->fit.latency_s);
    cJSON_AddNumberToObject(fit, "bandwidth_gbs", 1e-9 * way->fit.bandwidth);
    cJSON_AddNumberToObject(fit, "worst", way->fit.worst);
}

/* Whose buffer and result are in place. */
static enum dt_status measure(struct bench *b, struct way *way)
{
    if (b->world->rank == 0) {
        print_head(b, way);
    }
    DT_TRY(measure_sizes(b, way));
    if (b->world->rank == 0) {
        print_fit(b, way);
        describe(b, way);
    }
    return DT_OK;
}

/* ---- the ways that this build and this machine have */

static size_t largest_elems(const struct bench *b)
{
    return b->options.max_bytes / sizeof(float);
}

static enum dt_status by_shared_memory(struct bench *b)
{
    struct way way = {
        .name = "shared", .meaning = "in memory that the ranks of a host share, by MPI between hosts", .comm = b->world->comm};
    DT_TRY(dt_host_sum_open(b->world->comm, largest_elems(b), &way.sum));
    way.buffer = way.sum.part;
    way.result = way.sum.total;
    if (way.buffer == NULL && b->world->rank == 0) {
        printf("# shared: no memory that ranks share\n\n");
    }
    const enum dt_status s = way.buffer != NULL ? measure(b, &way) : DT_OK;
    if (s != DT_STALLED) { /* others may still be at work in it */
        dt_host_sum_close(&way.sum);
    }
    return s;
}

static enum dt_status by_messages(struct bench *b)
{
    struct way way = {.name = "mpi", .meaning = "by messages of MPI", .comm = b->world->comm, .buffer = b->host, .result = b->host};
    return measure(b, &way);
}

static enum dt_status by_device(struct bench *b, struct way *way)
{
    void *memory = NULL;
    const struct dt_backend_ops *ops = way->backend->ops;
    DT_TRY(dt_world_agree(b->world, ops->alloc(way->backend, b->options.max_bytes, &memory)));
    way->result = way->buffer = memory;
    const enum dt_status s = measure(b, way);
    ops->free(way->backend, memory);
    return s;
}

static enum dt_status by_nccl(struct bench *b, struct dt_backend *backend)
{
    struct way way = {.name = "nccl", .meaning = "between GPUs by NCCL", .backend = backend};
    enum dt_status s = b->device.cuda->comm_open(b->world->comm, backend, &way.comm);
    s = s == DT_OK || s == DT_STALLED ? s : dt_error_agreed(s);
    s = s == DT_OK ? by_device(b, &way) : s;
    dt_comm_close(way.comm);
    return s;
}

static enum dt_status by_staging(struct bench *b, struct dt_backend *backend)
{
    struct way way = {.name = "staged", .meaning = "between GPUs by way of host memory", .backend = backend};
    DT_TRY(dt_comm_open_staged(b->world->comm, backend, largest_elems(b), &way.comm));
    const enum dt_status s = by_device(b, &way);
    dt_comm_close(way.comm);
    return s;
}

static enum dt_status by_gpus(struct bench *b)
{
    const struct dt_backend_options options = {.n_threads = 1, .local_rank = b->world->local_rank};
    struct dt_backend *backend = NULL;
    DT_TRY(dt_world_agree(b->world, b->device.backend->open(&options, &backend)));
    enum dt_status s = b->device.nccl ? by_nccl(b, backend) : DT_OK;
    if (s == DT_OK && b->config.dist.comm == DT_COMM_AUTO && b->world->size > 1) {
        s = by_staging(b, backend);
    }
    backend->ops->close(backend);
    return s;
}

static enum dt_status by_all_ways(struct bench *b)
{
    const enum dt_comm_type comm = b->config.dist.comm;
    if (comm == DT_COMM_AUTO) {
        DT_TRY(by_shared_memory(b));
    }
    if (comm != DT_COMM_NCCL) {
        DT_TRY(by_messages(b));
    }
    return b->device.cuda != NULL && comm != DT_COMM_MPI ? by_gpus(b) : DT_OK;
}

/* ---- the command */

static enum dt_status prepare(struct bench *b, const struct dt_args *args)
{
    DT_TRY(dt_bench_options_read(args, &b->options));
    DT_TRY(read_config(args, &b->config));
    b->world->comm->timeout_s = b->config.timeout_s;
    DT_TRY(dt_comm_timeout_from_env(&b->world->comm->timeout_s));
    b->host = aligned_alloc(64, (b->options.max_bytes + 63) / 64 * 64);
    return b->host != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "no memory for sums of %zu bytes", b->options.max_bytes);
}

static void begin_json(struct bench *b)
{
    b->json = dt_bench_json("allreduce", b->world, dt_bench_peak(PEAK_MS));
    cJSON_AddNumberToObject(b->json, "hosts", b->world->comm->n_hosts);
    cJSON_AddNumberToObject(b->json, "iters", (double)b->options.n_iters);
    cJSON_AddNumberToObject(b->json, "checks", (double)b->options.n_checks);
    cJSON_AddArrayToObject(b->json, "ways");
}

/* Ranks with other sizes would wait for each other for ever. */
static enum dt_status compare_options(const struct bench *b)
{
    char text[256];
    const struct dt_bench_options *o = &b->options;
    snprintf(text, sizeof text, "%zu %zu %zu %zu %zu %zu %d %d", o->min_bytes, o->max_bytes, o->factor, o->n_iters, o->n_warmup,
             o->n_checks, (int)b->config.dist.comm, (int)b->config.device);
    return dt_ranks_same(b->world, "options", text);
}

static enum dt_status run(struct bench *b, const struct dt_args *args)
{
    DT_TRY(dt_world_agree(b->world, prepare(b, args)));
    DT_TRY(compare_options(b));
    DT_TRY(dt_device_choose(b->world, &b->config, &b->device));
    begin_json(b);
    DT_TRY(by_all_ways(b));
    enum dt_status s = b->world->rank == 0 ? dt_bench_write(args->json, b->json) : DT_OK;
    DT_TRY(dt_world_agree(b->world, s));
    if (b->n_wrong > 0) {
        return dt_error_agreed(dt_error(DT_INTERNAL, "%zu elements of sums were wrong (see #wrong in the table)", b->n_wrong));
    }
    return DT_OK;
}

enum dt_status dt_bench_allreduce(struct dt_world *world, const struct dt_args *args)
{
    struct bench *b = calloc(1, sizeof *b);
    DT_TRY(dt_world_agree(world, b != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "out of memory")));
    b->world = world;
    const enum dt_status s = run(b, args);
    cJSON_Delete(b->json);
    if (s != DT_STALLED) {
        free(b->host); /* messages may still be on their way */
    }
    free(b);
    return s;
}
