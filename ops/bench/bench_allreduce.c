/* Allreduces of floats by size, for each available implementation. nccl-tests defines algbw and
 * busbw: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/config/config.h"
#include "cli/output.h"
#include "cli/result.h"
#include "cli/terminal.h"
#include "dist/allreduce/formula.h"
#include "dist/launch/job.h"
#include "dist/launch/stop.h"
#include "dist/strategy/strategy.h"
#include "ops/bench/bench.h"
#include "ops/measure.h"
#include "train/device.h"
#include "train/rank_checks.h"

#define PEAK_MS 20
#define MAX_SIZES 32

/* Allreduces of one size. Counts are of one allreduce, for the rank that sends most; only if
 * `counted` by the wire. */
struct point {
    size_t n_bytes, n_elems, n_wrong;
    double mean_s;                 /* of an allreduce, on the slowest rank */
    double min_s, median_s, max_s; /* of single ones: the shortest and the longest on any rank; the
                                      slowest rank's median */
    bool counted, as_predicted;    /* as_predicted: messages match the formula, or there is none */
    struct dt_traffic most, between_hosts; /* between_hosts: of all ranks together */
};

/* An implementation, and its results. */
struct row {
    int n_points; /* 0: not measured */
    struct point points[MAX_SIZES];
    struct dt_bench_fit fit;
    char why_not[192]; /* it was asked for, and is not available; or "" */
};

struct impl {
    struct dt_measure_sum sum;
    struct row *row; /* borrowed */
};

struct bench {
    struct dt_world *world;
    struct dt_bench_options options;
    struct dt_config config;
    struct dt_device_choice device;
    struct dt_finding load;
    struct row rows[DT_N_ALLREDUCE_TYPES];
    double *times_s; /* of the n_iters allreduces of a size */
    float *host;     /* max_bytes: source and destination of device copies */
    char name[80];
    unsigned n_rounds;                /* number of checks */
    size_t n_wrong;                   /* in all */
    size_t n_unlike;                  /* rows whose messages do not match the formula */
    enum dt_allreduce_type chosen[2]; /* by `auto`: in host memory, in that of GPUs */
    double peak_flops;
};

/* Only these keys of the configuration matter: device, distributed.allreduce and timeout_s. The
 * model is a placeholder. */
static enum dt_status read_config(const struct dt_args *args, struct dt_config *out)
{
    static const char text[] =
        "{\"data\": {\"format\": \"synthetic\"}, \"model\": {\"input\": [1, 1, 1], \"layers\": ["
        "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 2}]}}";
    return dt_config_parse("bench allreduce", text, sizeof text - 1,
                           args->values[DT_OPTION_SET].texts, args->values[DT_OPTION_SET].n, out);
}

/* ---- one implementation */

/* Timed sums add zeros: in place, other numbers would grow from one sum to the next. */
static enum dt_status clear(const struct dt_measure_sum *sum, size_t n_elems)
{
    memset(dt_measure_sum_input(sum), 0, n_elems * sizeof *sum->host);
    return dt_measure_sum_put(sum, n_elems);
}

/* Counts the messages of one sum: the rank that sends most, and whether all ranks together send
 * what the formula predicts. */
static enum dt_status count_messages(struct bench *b, struct impl *impl, struct point *p)
{
    struct dt_wire_sent before, after;
    p->counted = dt_allreduce_sent(impl->sum.allreduce, &before);
    DT_TRY(dt_measure_sum(&impl->sum, p->n_elems, b->name));
    (void)dt_allreduce_sent(impl->sum.allreduce, &after);
    double most[] = {(double)(after.all.messages - before.all.messages),
                     (double)(after.all.bytes - before.all.bytes)};
    double all[] = {most[0], most[1],
                    (double)(after.between_hosts.messages - before.between_hosts.messages),
                    (double)(after.between_hosts.bytes - before.between_hosts.bytes)};
    DT_TRY(dt_comm_allreduce(b->world->comm, most, 2, DT_TYPE_F64, DT_REDUCE_MAX,
                             "exchange of what was sent"));
    DT_TRY(dt_comm_allreduce(b->world->comm, all, 4, DT_TYPE_F64, DT_REDUCE_SUM,
                             "sum of what was sent"));
    p->most = (struct dt_traffic){.messages = (uint64_t)most[0], .bytes = (uint64_t)most[1]};
    p->between_hosts = (struct dt_traffic){.messages = (uint64_t)all[2], .bytes = (uint64_t)all[3]};
    if (impl->sum.allreduce->algorithm != NULL) {
        const struct dt_traffic expected = dt_allreduce_formula(impl->sum.allreduce, p->n_elems);
        p->as_predicted = all[0] == (double)expected.messages && all[1] == (double)expected.bytes;
        b->n_unlike += !p->as_predicted;
    }
    return DT_OK;
}

static enum dt_status time_sums(struct bench *b, struct impl *impl, struct point *p)
{
    DT_TRY(clear(&impl->sum, p->n_elems));
    DT_TRY(count_messages(b, impl, p));
    for (size_t i = 0; i < b->options.n_warmup; i++) {
        DT_TRY(dt_measure_sum(&impl->sum, p->n_elems, b->name));
    }
    DT_TRY(dt_comm_barrier(b->world->comm, "barrier before sums are timed"));
    const double begin_s = dt_clock_s();
    double last_s = begin_s;
    for (size_t i = 0; i < b->options.n_iters; i++) {
        DT_TRY(dt_measure_sum(&impl->sum, p->n_elems, b->name));
        const double now_s = dt_clock_s();
        b->times_s[i] = now_s - last_s;
        last_s = now_s;
    }
    p->mean_s = (last_s - begin_s) / (double)b->options.n_iters;
    return DT_OK;
}

/* Combines all ranks' results of a size: the slowest's time, the wrong elements of all, and whether
 * one got a signal to stop. */
static enum dt_status combine(struct bench *b, struct point *p)
{
    const int n = (int)b->options.n_iters;
    const double median_s = dt_measure_median(b->times_s, n);
    double worst[] = {p->mean_s, median_s, b->times_s[n - 1], -b->times_s[0],
                      dt_stop_requested() ? 1 : 0};
    double n_wrong = (double)p->n_wrong;
    DT_TRY(dt_comm_allreduce(b->world->comm, worst, 5, DT_TYPE_F64, DT_REDUCE_MAX,
                             "exchange of times"));
    DT_TRY(dt_comm_allreduce(b->world->comm, &n_wrong, 1, DT_TYPE_F64, DT_REDUCE_SUM,
                             "sum of wrong elements"));
    p->mean_s = worst[0];
    p->median_s = worst[1];
    p->max_s = worst[2];
    p->min_s = -worst[3];
    p->n_wrong = (size_t)n_wrong;
    b->n_wrong += p->n_wrong;
    return worst[4] > 0 ? dt_bench_stopped(b->world) : DT_OK;
}

static enum dt_status measure_sizes(struct bench *b, struct impl *impl)
{
    double n_bytes[MAX_SIZES], seconds[MAX_SIZES];
    struct row *row = impl->row;
    for (size_t size = b->options.min_bytes; size <= b->options.max_bytes;
         size *= b->options.factor) {
        struct point *p = &row->points[row->n_points];
        p->n_elems = size / sizeof(float);
        p->n_bytes = p->n_elems * sizeof(float);
        p->as_predicted = true;
        snprintf(b->name, sizeof b->name, "allreduce of %zu bytes (%s)", p->n_bytes,
                 dt_allreduce_names[impl->sum.allreduce->type]);
        dt_comm_phase(b->world->comm, "bench allreduce");
        if (b->world->rank == 0) {
            dt_terminal_live("%s", b->name);
        }
        for (size_t i = 0; i < b->options.n_checks; i++) {
            DT_TRY(
                dt_measure_sum_check(&impl->sum, p->n_elems, ++b->n_rounds, b->name, &p->n_wrong));
        }
        DT_TRY(time_sums(b, impl, p));
        DT_TRY(combine(b, p));
        n_bytes[row->n_points] = (double)p->n_bytes;
        seconds[row->n_points++] = p->mean_s;
    }
    row->fit = dt_bench_fit(n_bytes, seconds, row->n_points, b->world->size);
    return DT_OK;
}

/* ---- the implementations of this build on this machine */

static struct dt_wire_delay delay;

/* Messages that algorithms send are delayed. */
static enum dt_status slow_down(struct dt_wire **wire)
{
    return dt_wire_open_delay(*wire, &delay, wire);
}

/* On the backend's memory, if there is one. */
static enum dt_status by_type(struct bench *b, enum dt_allreduce_type type,
                              struct dt_backend *backend)
{
    struct impl impl = {.sum = {.backend = backend, .host = b->host}, .row = &b->rows[type]};
    const struct dt_allreduce_spec spec = {
        .rows = dt_all_entries.allreduce,
        .type = type,
        .across = b->config.dist.across,
        .comm = b->world->comm,
        .backend = backend != NULL ? backend : &dt_program_memory,
        .device_open = type == DT_ALLREDUCE_NCCL ? b->device.module->allreduce_open : NULL,
        .n_elems = b->options.max_bytes / sizeof(float),
        .n_slots = 1};
    DT_TRY(dt_world_agree(b->world, dt_allreduce_open(&spec, &impl.sum.allreduce)));
    const char *why_not = impl.sum.allreduce->type != type ? impl.sum.allreduce->why
                          : b->options.delayed && impl.sum.allreduce->algorithm == NULL
                              ? "dtrain can slow down its own messages alone"
                              : "";
    snprintf(impl.row->why_not, sizeof impl.row->why_not, "%s", why_not);
    const enum dt_status s = why_not[0] == '\0' ? measure_sizes(b, &impl) : DT_OK;
    if (s != DT_STALLED) { /* other ranks may still use it */
        dt_allreduce_close(impl.sum.allreduce);
    }
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
    enum dt_status s = DT_OK;
    if (b->device.allreduce_open == NULL) {
        strcpy(b->rows[DT_ALLREDUCE_NCCL].why_not, "it needs a GPU for each rank");
    } else if (is_asked_for(b, DT_ALLREDUCE_NCCL)) {
        s = by_type(b, DT_ALLREDUCE_NCCL, backend);
    }
    if (s == DT_OK && is_asked_for(b, DT_ALLREDUCE_STAGED) && b->world->size > 1) {
        s = by_type(b, DT_ALLREDUCE_STAGED, backend);
    }
    backend->ops->close(backend);
    return s;
}

/* DT_UNAVAILABLE: what was asked for is not available here. */
static enum dt_status check_measured(const struct bench *b)
{
    int missing = -1;
    for (int type = DT_N_ALLREDUCE_TYPES - 1; type > DT_ALLREDUCE_AUTO; type--) {
        if (b->rows[type].n_points > 0) {
            return DT_OK;
        }
        missing = is_asked_for(b, type) ? type : missing;
    }
    return dt_error_agreed(dt_error(DT_UNAVAILABLE,
                                    "%s is not available here: %s (name others, or "
                                    "none, to measure what is)",
                                    dt_allreduce_names[missing], b->rows[missing].why_not));
}

/* In host memory, and then in that of GPUs. With one rank there is nothing to add: one
 * implementation stands for all. */
static enum dt_status measure_all(struct bench *b)
{
    for (int type = DT_ALLREDUCE_AUTO + 1; type < DT_N_ALLREDUCE_TYPES; type++) {
        const bool on_gpus = dt_allreduce_is_for_gpus(type);
        if (!is_asked_for(b, type)) {
            continue;
        }
        if (b->world->size == 1 && type != DT_ALLREDUCE_MPI && type != DT_ALLREDUCE_NCCL) {
            strcpy(b->rows[type].why_not, "one rank adds nothing");
        } else if (!on_gpus) {
            DT_TRY(by_type(b, type, NULL));
        } else if (b->device.module == NULL) {
            strcpy(b->rows[type].why_not,
                   b->config.device == DT_DEVICE_AUTO ? "no GPU" : "device is not cuda");
        }
    }
    DT_TRY(b->device.module != NULL ? by_gpus(b) : DT_OK);
    return check_measured(b);
}

/* Asks `auto` for its choice in host memory. */
static enum dt_status find_auto(struct bench *b, enum dt_allreduce_type *out)
{
    struct dt_allreduce *a;
    const struct dt_allreduce_spec spec = {.rows = dt_all_entries.allreduce,
                                           .type = DT_ALLREDUCE_AUTO,
                                           .comm = b->world->comm,
                                           .backend = &dt_program_memory,
                                           .n_elems = 1,
                                           .n_slots = 1};
    DT_TRY(dt_world_agree(b->world, dt_allreduce_open(&spec, &a)));
    *out = a->type;
    dt_allreduce_close(a);
    return DT_OK;
}

/* ---- the document */

/* Implementations on the same memory. */
static bool is_in(const struct bench *b, int type, bool on_gpus)
{
    return b->rows[type].n_points > 0 && dt_allreduce_is_for_gpus(type) == on_gpus;
}

/* Whether none on the same memory adds size i in less time. */
static bool is_fastest(const struct bench *b, int type, int i)
{
    bool fastest = true;
    for (int other = 0; other < DT_N_ALLREDUCE_TYPES; other++) {
        fastest = fastest && !(is_in(b, other, dt_allreduce_is_for_gpus(type)) &&
                               b->rows[other].points[i].mean_s < b->rows[type].points[i].mean_s);
    }
    return fastest;
}

static double algbw(const struct point *p)
{
    return 1e-9 * (double)p->n_bytes / p->mean_s;
}

static void add_row(const struct bench *b, struct dt_part *table, int type, const struct point *p)
{
    const double none = (double)NAN;
    dt_doc_row(table, dt_n((double)p->n_bytes), dt_t(dt_allreduce_names[type]),
               dt_n(1e6 * p->mean_s), dt_n(algbw(p)),
               dt_n(algbw(p) * dt_bench_bus_factor(b->world->size)),
               dt_n(b->options.n_checks > 0 ? (double)p->n_wrong : none),
               dt_n(p->counted ? (double)p->most.messages : none),
               dt_n(p->counted ? (double)p->most.bytes : none), dt_n((double)p->n_elems),
               dt_t("float"), dt_t("sum"), dt_n(1e6 * p->min_s), dt_n(1e6 * p->median_s),
               dt_n(1e6 * p->max_s), dt_n(p->counted ? (double)p->between_hosts.messages : none),
               dt_n(p->counted ? (double)p->between_hosts.bytes : none));
    if (p->n_wrong > 0 || !p->as_predicted) {
        dt_doc_judge(table, DT_VERDICT_FAIL, "%s",
                     p->n_wrong > 0 ? "" : "the formula predicts other messages");
    }
}

/* By size, so that implementations stand beside each other; in nccl-tests' words. */
static void add_rows(const struct bench *b, struct dt_doc *doc)
{
    struct dt_part *p = dt_doc_table(
        doc, "Allreduces",
        "size:B:+|algorithm|time:us:1|algbw:GB/s:3|busbw:GB/s:3|#wrong::+|messages::+|sent:B:+|"
        "count::+|type|redop|shortest:us:1|median:us:1|longest:us:1|messages between hosts::+|"
        "sent between hosts:B:+");
    dt_doc_caption(p,
                   "time: the mean of %zu on the slowest rank. messages, sent: of the rank that "
                   "sends most. marked: the fastest of its size%s.",
                   b->options.n_iters,
                   b->device.module != NULL ? ", in host memory and in that of GPUs" : "");
    for (int i = 0; i < MAX_SIZES; i++) {
        for (int k = 0; k < 2 * DT_N_ALLREDUCE_TYPES; k++) { /* GPUs last */
            const int type = k % DT_N_ALLREDUCE_TYPES;
            if (is_in(b, type, k >= DT_N_ALLREDUCE_TYPES) && i < b->rows[type].n_points) {
                add_row(b, p, type, &b->rows[type].points[i]);
                if (is_fastest(b, type, i)) {
                    dt_doc_emphasize(p);
                }
            }
        }
    }
    dt_doc_main(p);
}

static double average_busbw(const struct bench *b, const struct row *row)
{
    double sum = 0;
    for (int i = 0; i < row->n_points; i++) {
        sum += algbw(&row->points[i]);
    }
    return sum / row->n_points * dt_bench_bus_factor(b->world->size);
}

static void add_implementations(const struct bench *b, struct dt_doc *doc)
{
    struct dt_part *p = dt_doc_table(doc, "Algorithms",
                                     "algorithm|avg bus bandwidth:GB/s:3|latency:us:2|"
                                     "bandwidth:GB/s:3|largest error::%");
    dt_doc_caption(p,
                   "The latency and bandwidth of best fit: time = latency + 2 (n - 1) / n size "
                   "/ bandwidth, n = %d.",
                   b->world->size);
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES; type++) {
        const struct row *row = &b->rows[type];
        const struct dt_bench_fit *fit = &row->fit;
        const bool skipped = row->why_not[0] != '\0' && b->options.chosen;
        if (row->n_points == 0 && !skipped) {
            continue;
        }
        dt_doc_row(p, dt_t(dt_allreduce_names[type]), dt_n(average_busbw(b, row)),
                   dt_n(fit->found ? 1e6 * fit->latency_s : (double)NAN),
                   dt_n(fit->found ? 1e-9 * fit->bandwidth : (double)NAN),
                   dt_n(fit->found ? fit->worst : (double)NAN));
        if (row->n_points == 0) {
            dt_doc_judge(p, DT_VERDICT_SKIPPED, "%s", row->why_not);
        }
    }
}

static void add_chart(const struct bench *b, struct dt_doc *doc)
{
    struct dt_part *p = dt_doc_series(doc, "Bus bandwidth", "size, bytes", "busbw, GB/s");
    double x[MAX_SIZES], y[MAX_SIZES];
    dt_doc_axes(p, DT_LOG_X | DT_FROM_ZERO);
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES; type++) {
        const struct row *row = &b->rows[type];
        for (int i = 0; i < row->n_points; i++) {
            x[i] = (double)row->points[i].n_bytes;
            y[i] = algbw(&row->points[i]) * dt_bench_bus_factor(b->world->size);
        }
        if (row->n_points > 0) {
            dt_doc_plot(p, dt_allreduce_names[type], DT_LINE_AND_DOTS, (size_t)row->n_points, x, y);
        }
    }
}

static void add_setup(const struct bench *b, struct dt_doc *doc)
{
    const struct dt_bench_options *o = &b->options;
    struct dt_part *p = dt_doc_figures(doc, "Setup");
    dt_bench_describe(p, b->world, &b->load, b->peak_flops);
    dt_doc_figure(p, "allreduces of a size::+", dt_n((double)o->n_iters));
    dt_doc_figure(p, "checks of a size::+", dt_n((double)o->n_checks));
    if (o->delayed) {
        dt_doc_figure(p, "simulated latency:us:g", dt_n(1e6 * o->delay.latency_s));
        dt_doc_figure(p, "simulated bandwidth:GB/s:g", dt_n(1e-9 * o->delay.bandwidth));
    }
    dt_doc_fact(p, "auto takes", "%s", dt_allreduce_names[b->chosen[b->device.module != NULL]]);
}

static enum dt_status show(const struct bench *b, const struct dt_args *args)
{
    struct dt_doc *doc = dt_doc_open("bench allreduce", "Allreduces over %d rank%s", b->world->size,
                                     b->world->size == 1 ? "" : "s");
    add_setup(b, doc);
    add_rows(b, doc);
    add_implementations(b, doc);
    add_chart(b, doc);
    const enum dt_status s = dt_result_show(args, doc);
    dt_doc_close(doc);
    return s;
}

/* ---- the command */

static enum dt_status prepare(struct bench *b, const struct dt_args *args)
{
    DT_TRY(dt_bench_options_read(args, &b->options));
    DT_TRY(read_config(args, &b->config));
    if (b->config.dist.compression.type != DT_COMPRESSION_NONE) {
        return dt_error(DT_USAGE, "--set: distributed.compression: bench allreduce adds numbers as "
                                  "they are (leave it out)");
    }
    if (b->config.dist.allreduce != DT_ALLREDUCE_AUTO) {
        b->options.types = 1u << b->config.dist.allreduce;
        b->options.chosen = true;
    }
    if (b->options.delayed && b->world->size > 1) {
        delay = b->options.delay;
        dt_comm_wrap_wires(b->world->comm, slow_down);
    }
    b->host = aligned_alloc(64, (b->options.max_bytes + 63) / 64 * 64);
    b->times_s = calloc(b->options.n_iters, sizeof *b->times_s);
    return b->host != NULL && b->times_s != NULL
               ? DT_OK
               : dt_error(DT_NO_MEMORY, "no memory for sums of %zu bytes", b->options.max_bytes);
}

/* Ranks with different sizes would wait for each other forever. */
static enum dt_status compare_options(const struct bench *b)
{
    char text[256];
    const struct dt_bench_options *o = &b->options;
    snprintf(text, sizeof text, "%zu %zu %zu %zu %zu %zu %d %d %d %g %g", o->min_bytes,
             o->max_bytes, o->factor, o->n_iters, o->n_warmup, o->n_checks, (int)o->types,
             (int)b->config.device, b->config.dist.across, o->delay.latency_s, o->delay.bandwidth);
    return dt_ranks_same(b->world, "options", text);
}

static enum dt_status run(struct bench *b, const struct dt_args *args)
{
    DT_TRY(dt_world_agree(b->world, prepare(b, args)));
    DT_TRY(dt_world_set_timeout(b->world, b->config.timeout_s));
    DT_TRY(compare_options(b));
    DT_TRY(dt_device_choose(b->world, &b->config, &b->device));
    DT_TRY(dt_bench_find_load(b->world, &b->load));
    b->peak_flops = dt_bench_peak(PEAK_MS);
    DT_TRY(measure_all(b));
    DT_TRY(find_auto(b, &b->chosen[0]));
    b->chosen[1] = b->device.allreduce_open != NULL ? DT_ALLREDUCE_NCCL : DT_ALLREDUCE_STAGED;
    dt_terminal_live(NULL);
    enum dt_status s = b->world->rank == 0 ? show(b, args) : DT_OK;
    if (b->n_wrong + b->n_unlike > 0 && dt_output_failed(s)) {
        s = DT_OK;
    }
    DT_TRY(dt_world_agree(b->world, s));
    if (b->n_wrong > 0) {
        return dt_error_agreed(dt_error(
            DT_INTERNAL, "%zu elements of sums were wrong (see #wrong in the table)", b->n_wrong));
    }
    if (b->n_unlike > 0) {
        return dt_error_agreed(
            dt_error(DT_FAILED,
                     "%zu allreduces did not send what their formula says (see FAIL in the table)",
                     b->n_unlike));
    }
    return DT_OK;
}

/* Measures sums by size, for each available implementation or the ones named by --algorithms.
 * DT_INTERNAL: a sum was wrong. Agreed. */
static enum dt_status bench_allreduce(struct dt_world *world, const struct dt_args *args)
{
    struct bench *b;
    DT_TRY(dt_world_alloc(world, 1, sizeof *b, "what is measured", (void **)&b));
    b->world = world;
    const enum dt_status s = run(b, args);
    dt_terminal_live(NULL);
    if (s != DT_STALLED) {
        free(b->host); /* messages may still be on their way */
        free(b->times_s);
    }
    free(b);
    return s;
}

const struct dt_command dt_command_bench_allreduce = {
    .word = "bench allreduce",
    .meaning = "time allreduces, in nccl-tests' columns",
    .usage = "mpirun -np 4 dtrain bench allreduce [-b BYTES] [-e BYTES] [-f N] [-n N]\n"
             "      [-w N] [-c N] [--algorithms ring,tree] [--latency US] [--bandwidth GBS]\n"
             "      [--set KEY.PATH=VALUE]..." DT_RESULT_USAGE,
    .examples = "  mpirun -np 2 dtrain bench allreduce\n",
    .more = "Times allreduces of floats by size, for each implementation that "
            "`distributed.allreduce` names and that is available here. The columns messages and "
            "sent are those of the busiest rank in one allreduce. If all ranks together do not "
            "send what the algorithm's formula predicts, the row has FAIL and the program ends "
            "with status 1. busbw is algbw times 2 (n - 1) / n, the share of its size that each "
            "of n ranks has to send. #wrong counts elements with a wrong value; if there is any, "
            "the program ends with status 70. Two tables follow: the average bus bandwidth of "
            "each implementation with the latency and bandwidth that fit it best, and for each "
            "size the fastest implementation beside the choice of `auto`.",
    .options = {[DT_OPTION_SET] = {DT_TAKEN,
                                   "set a key of distributed, or threads; may be given many times"},
                DT_RESULT_OPTIONS,
                [DT_OPTION_ALGORITHMS] = {DT_TAKEN},
                [DT_OPTION_MIN_BYTES] = {DT_TAKEN},
                [DT_OPTION_MAX_BYTES] = {DT_TAKEN},
                [DT_OPTION_FACTOR] = {DT_TAKEN},
                [DT_OPTION_ITERS] = {DT_TAKEN},
                [DT_OPTION_WARMUP] = {DT_TAKEN},
                [DT_OPTION_CHECK] = {DT_TAKEN},
                [DT_OPTION_LATENCY] = {DT_TAKEN},
                [DT_OPTION_BANDWIDTH] = {DT_TAKEN}},
    .ending = DT_AGREES_WITH_OTHERS,
    .together = bench_allreduce,
};
