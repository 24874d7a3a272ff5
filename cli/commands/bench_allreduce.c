/* Sums of floats over all ranks by size, for each way that gradients can travel, in the columns of nccl-tests:
 * https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md has their definitions. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/commands/bench.h"
#include "dist/allreduce/allreduce.h"
#include "dist/allreduce/staged.h"
#include "dist/ranks/stop.h"
#include "train/device.h"
#include "train/ranks.h"

#define MAX_SIZES 32
#define PEAK_MS 20

/* One row of the table. Sent by a rank for one sum, by the one that sends most of each; `counted` where the wire does that. */
struct point {
    size_t n_bytes, n_elems, n_wrong;
    double mean_s;             /* of a sum, on the slowest rank */
    bool counted, as_foretold; /* as_foretold: by the formula, where there is one */
    struct dt_wire_count most;
};

/* A way of adding, in memory of `backend`, or the program's where that is NULL. */
struct way {
    struct dt_allreduce allreduce;
    struct dt_backend *backend;
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
    size_t n_unlike;   /* rows whose messages are not what the formula says */
    cJSON *json;
};

/* The keys that matter here are those of the run: device, distributed.allreduce and timeout_s. The model stands for any. */
static enum dt_status read_config(const struct dt_args *args, struct dt_config *out)
{
    static const char text[] = "{\"data\": {\"format\": \"synthetic\"}, \"model\": {\"input\": [1, 1, 1], \"layers\": ["
                               "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 2}]}}";
    return dt_config_parse("bench allreduce", text, sizeof text - 1, args->sets, args->n_sets, out);
}

/* ---- one way */

static enum dt_status sum_once(struct bench *b, struct way *way, size_t n_elems)
{
    struct dt_request request;
    DT_TRY(dt_allreduce_start(&way->allreduce, 0, 0, n_elems, b->name, &request));
    DT_TRY(dt_comm_wait(way->allreduce.comm, &request));
    return way->backend != NULL ? way->backend->ops->sync(way->backend) : DT_OK;
}

/* A sum that is not timed, of numbers that are known. */
static enum dt_status check_once(struct bench *b, struct way *way, size_t n_elems, size_t *n_wrong)
{
    float *mine = way->backend != NULL ? b->host : way->allreduce.part;
    const float *sum = way->backend != NULL ? b->host : way->allreduce.total;
    dt_bench_fill(mine, n_elems, b->world->rank, ++b->n_rounds);
    if (way->backend != NULL) {
        DT_TRY(way->backend->ops->copy_in(way->backend, way->allreduce.part, mine, n_elems * sizeof *mine));
    }
    DT_TRY(sum_once(b, way, n_elems));
    if (way->backend != NULL) {
        DT_TRY(way->backend->ops->copy_out(way->backend, b->host, way->allreduce.total, n_elems * sizeof *mine));
    }
    *n_wrong += dt_bench_count_wrong(sum, n_elems, b->world->size, b->n_rounds);
    return DT_OK;
}

/* In place, sums grow from one to the next: those that are timed are of zeros. */
static enum dt_status clear(struct bench *b, struct way *way, size_t n_elems)
{
    if (way->backend == NULL) {
        memset(way->allreduce.part, 0, n_elems * sizeof *way->allreduce.part);
        return DT_OK;
    }
    memset(b->host, 0, n_elems * sizeof *b->host);
    return way->backend->ops->copy_in(way->backend, way->allreduce.part, b->host, n_elems * sizeof *b->host);
}

/* What the wire counts of one sum: the rank that sends most, and whether all ranks together send what the formula says. */
static enum dt_status count_messages(struct bench *b, struct way *way, struct point *p)
{
    const struct dt_algorithm *algorithm = dt_allreduce_algorithm(way->allreduce.type);
    struct dt_wire_count before, after;
    p->counted = dt_allreduce_sent(&way->allreduce, &before);
    DT_TRY(sum_once(b, way, p->n_elems));
    (void)dt_allreduce_sent(&way->allreduce, &after);
    double most[] = {(double)(after.messages - before.messages), (double)(after.bytes - before.bytes)}, all[] = {most[0], most[1]};
    DT_TRY(dt_comm_allreduce(b->world->comm, most, 2, DT_TYPE_F64, DT_REDUCE_MAX, "exchange of what was sent"));
    DT_TRY(dt_comm_allreduce(b->world->comm, all, 2, DT_TYPE_F64, DT_REDUCE_SUM, "sum of what was sent"));
    p->most = (struct dt_wire_count){.messages = (uint64_t)most[0], .bytes = (uint64_t)most[1]};
    if (algorithm != NULL && way->allreduce.shared.part == NULL) {
        const struct dt_traffic expected = dt_algorithm_formula(algorithm, b->world->size, p->n_elems);
        p->as_foretold = all[0] == (double)expected.messages && all[1] == (double)(expected.elements * sizeof(float));
        b->n_unlike += !p->as_foretold;
    }
    return DT_OK;
}

static enum dt_status time_sums(struct bench *b, struct way *way, struct point *p)
{
    DT_TRY(clear(b, way, p->n_elems));
    DT_TRY(count_messages(b, way, p));
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
    printf("# %s: %s\n# %d rank%s on %d host%s; mean of %zu allreduces; slowest rank%s\n", dt_allreduce_names[way->allreduce.type],
           dt_allreduce_meaning(way->allreduce.type), n, n == 1 ? "" : "s", n_hosts, n_hosts == 1 ? "" : "s", b->options.n_iters,
           b->world->local_size > sysconf(_SC_NPROCESSORS_ONLN) ? "; ranks share cores" : "");
    printf("# bandwidths in GB/s; msgs and sent: one allreduce, rank that sends most\n");
    printf("#%9s %9s %5s %5s %9s %7s %7s %6s %4s %9s\n", "size(B)", "count", "type", "redop", "time(us)", "algbw", "busbw",
           "#wrong", "msgs", "sent(B)");
}

static void print_point(const struct bench *b, const struct point *p)
{
    char n_wrong[24] = "N/A", n_messages[24] = "-", n_sent[24] = "-";
    if (b->options.n_checks > 0) {
        snprintf(n_wrong, sizeof n_wrong, "%zu", p->n_wrong);
    }
    if (p->counted) {
        snprintf(n_messages, sizeof n_messages, "%llu", (unsigned long long)p->most.messages);
        snprintf(n_sent, sizeof n_sent, "%llu%s", (unsigned long long)p->most.bytes, p->as_foretold ? "" : " FAIL");
    }
    printf(" %9zu %9zu %5s %5s %9.1f %7.3f %7.3f %6s %4s %9s\n", p->n_bytes, p->n_elems, "float", "sum", 1e6 * p->mean_s,
           1e-9 * (double)p->n_bytes / p->mean_s, 1e-9 * bus_bandwidth(b, p), n_wrong, n_messages, n_sent);
    fflush(stdout);
}

static enum dt_status measure_sizes(struct bench *b, struct way *way)
{
    double n_bytes[MAX_SIZES], seconds[MAX_SIZES];
    for (size_t size = b->options.min_bytes; size <= b->options.max_bytes; size *= b->options.factor) {
        struct point *p = &way->points[way->n_points];
        p->n_elems = size / sizeof(float);
        p->n_bytes = p->n_elems * sizeof(float);
        p->as_foretold = true;
        snprintf(b->name, sizeof b->name, "allreduce of %zu bytes (%s)", p->n_bytes, dt_allreduce_names[way->allreduce.type]);
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
    cJSON_AddStringToObject(json, "name", dt_allreduce_names[way->allreduce.type]);
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
        if (p->counted) {
            cJSON_AddNumberToObject(point, "messages", (double)p->most.messages);
            cJSON_AddNumberToObject(point, "bytes_sent", (double)p->most.bytes);
        }
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

/* In `memory`, of the backend if there is one. `device`: the communicator that reaches it. */
static enum dt_status by_type(struct bench *b, enum dt_allreduce_type type, struct dt_backend *backend, struct dt_comm *device,
                              float *memory)
{
    struct way way = {.backend = backend};
    const struct dt_allreduce_spec spec = {
        .type = type, .comm = b->world->comm, .device = device, .memory = memory, .n_elems = largest_elems(b), .n_slots = 1};
    DT_TRY(dt_allreduce_open(&spec, &way.allreduce));
    enum dt_status s = DT_OK;
    if (way.allreduce.type == type) {
        s = measure(b, &way);
    } else if (b->world->rank == 0) {
        printf("# %s: not here, because %s\n\n", dt_allreduce_names[type], way.allreduce.why);
    }
    if (s != DT_STALLED) { /* others may still be at work in it */
        dt_allreduce_close(&way.allreduce);
    }
    return s;
}

/* nccl or staged. */
static enum dt_status by_device(struct bench *b, enum dt_allreduce_type type, struct dt_backend *backend, struct dt_comm *device)
{
    void *memory = NULL;
    DT_TRY(dt_world_agree(b->world, backend->ops->alloc(backend, b->options.max_bytes, &memory)));
    const enum dt_status s = by_type(b, type, backend, device, memory);
    backend->ops->free(backend, memory);
    return s;
}

static enum dt_status by_nccl(struct bench *b, struct dt_backend *backend)
{
    struct dt_comm *comm = NULL;
    enum dt_status s = b->device.module->comm_open(b->world->comm, backend, &comm);
    s = s == DT_OK || s == DT_STALLED ? s : dt_error_agreed(s);
    s = s == DT_OK ? by_device(b, DT_ALLREDUCE_NCCL, backend, comm) : s;
    dt_comm_close(comm);
    return s;
}

static enum dt_status by_staging(struct bench *b, struct dt_backend *backend)
{
    struct dt_comm *comm = NULL;
    DT_TRY(dt_comm_open_staged(b->world->comm, backend, largest_elems(b), &comm));
    const enum dt_status s = by_device(b, DT_ALLREDUCE_STAGED, backend, comm);
    dt_comm_close(comm);
    return s;
}

static bool is_asked_for(const struct bench *b, enum dt_allreduce_type type)
{
    return b->options.types >> type & 1;
}

static enum dt_status by_gpus(struct bench *b)
{
    const struct dt_backend_options options = {.n_threads = 1, .local_rank = b->world->local_rank};
    struct dt_backend *backend = NULL;
    DT_TRY(dt_world_agree(b->world, b->device.backend->open(&options, &backend)));
    enum dt_status s = b->device.nccl && is_asked_for(b, DT_ALLREDUCE_NCCL) ? by_nccl(b, backend) : DT_OK;
    if (s == DT_OK && is_asked_for(b, DT_ALLREDUCE_STAGED) && b->world->size > 1) {
        s = by_staging(b, backend);
    }
    backend->ops->close(backend);
    return s;
}

/* In host memory, and then in that of GPUs. One rank has nothing to add: one way stands for all. */
static enum dt_status by_all_ways(struct bench *b)
{
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES; type++) {
        const bool worth = b->world->size > 1 || type == DT_ALLREDUCE_MPI;
        if (type != DT_ALLREDUCE_AUTO && worth && is_asked_for(b, type) && !dt_allreduce_is_for_gpus(type)) {
            DT_TRY(by_type(b, type, NULL, NULL, b->host));
        }
    }
    return b->device.module != NULL ? by_gpus(b) : DT_OK;
}

/* ---- the command */

static enum dt_status prepare(struct bench *b, const struct dt_args *args)
{
    DT_TRY(dt_bench_options_read(args, &b->options));
    DT_TRY(read_config(args, &b->config));
    if (b->config.dist.allreduce != DT_ALLREDUCE_AUTO) {
        b->options.types = 1u << b->config.dist.allreduce;
    }
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
             o->n_checks, (int)o->types, (int)b->config.device);
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
    if (b->n_unlike > 0) {
        return dt_error_agreed(
            dt_error(DT_FAILED, "%zu allreduces did not send what their formula says (see FAIL in the table)", b->n_unlike));
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
