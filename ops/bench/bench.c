#include "ops/bench/bench.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "cli/suggest.h"
#include "cli/terminal.h"
#include "cpu/isa.h"
#include "dist/allreduce/formula.h"
#include "ops/measure.h"

#define LARGEST_BYTES ((size_t)1 << 30)
#define FMA_ROUNDS 100000 /* at a time: about half a millisecond */

/* Parses "ring,tree". */
static enum dt_status read_types(const char *text, uint32_t *types)
{
    *types = 0;
    for (size_t n; *text != '\0'; text += n + (text[n] == ',')) {
        char name[40];
        struct dt_suggestion near = {.word = name};
        int type = DT_ALLREDUCE_AUTO + 1;
        n = strcspn(text, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, text);
        while (type < DT_N_ALLREDUCE_TYPES && strcmp(dt_allreduce_names[type], name) != 0) {
            dt_suggest_offer(&near, dt_allreduce_names[type++]);
        }
        if (type == DT_N_ALLREDUCE_TYPES) {
            return dt_error(DT_USAGE, "--algorithms: there is no '%s' (did you mean '%s'?)", name,
                            near.best != NULL ? near.best : "ring");
        }
        *types |= 1u << type;
    }
    return DT_OK;
}

static enum dt_status read_delay(const struct dt_args *args, struct dt_wire_delay *out)
{
    double latency_us = 0, bandwidth_gbs = HUGE_VAL;
    DT_TRY(dt_args_decimal(args, DT_OPTION_LATENCY, 0, 1e6, &latency_us));
    DT_TRY(dt_args_decimal(args, DT_OPTION_BANDWIDTH, 1e-6, 1e6, &bandwidth_gbs));
    *out = (struct dt_wire_delay){
        .latency_s = latency_us / 1e6, .bandwidth = 1e9 * bandwidth_gbs, .clock_s = dt_clock_s};
    return DT_OK;
}

enum dt_status dt_bench_options_read(const struct dt_args *args, struct dt_bench_options *o)
{
    *o = (struct dt_bench_options){.min_bytes = 8,
                                   .max_bytes = (size_t)32 << 20,
                                   .factor = 2,
                                   .n_iters = 20,
                                   .n_warmup = 5,
                                   .n_checks = 1,
                                   .types = UINT32_MAX,
                                   .delayed = dt_args_has(args, DT_OPTION_LATENCY) ||
                                              dt_args_has(args, DT_OPTION_BANDWIDTH)};
    DT_TRY(dt_args_number(args, DT_OPTION_MIN_BYTES, true, sizeof(float), LARGEST_BYTES,
                          &o->min_bytes));
    DT_TRY(dt_args_number(args, DT_OPTION_MAX_BYTES, true, sizeof(float), LARGEST_BYTES,
                          &o->max_bytes));
    DT_TRY(dt_args_number(args, DT_OPTION_FACTOR, false, 2, 1024, &o->factor));
    DT_TRY(dt_args_number(args, DT_OPTION_ITERS, false, 1, 1000000, &o->n_iters));
    DT_TRY(dt_args_number(args, DT_OPTION_WARMUP, false, 0, 1000000, &o->n_warmup));
    DT_TRY(dt_args_number(args, DT_OPTION_CHECK, false, 0, 1000, &o->n_checks));
    DT_TRY(read_delay(args, &o->delay));
    if (dt_args_has(args, DT_OPTION_ALGORITHMS)) {
        o->chosen = true;
        DT_TRY(read_types(dt_args_text(args, DT_OPTION_ALGORITHMS), &o->types));
    }
    if (o->min_bytes > o->max_bytes) {
        return dt_error(DT_USAGE,
                        "--minbytes %zu is above --maxbytes %zu (swap them, or give both)",
                        o->min_bytes, o->max_bytes);
    }
    return DT_OK;
}

double dt_bench_bus_factor(int n_ranks)
{
    return 2.0 * (n_ranks - 1) / n_ranks;
}

/* Solves the normal equations of 1 = a / time + b * x / time, that is time = a + b * x divided by
 * time. */
struct dt_bench_fit dt_bench_fit(const double *n_bytes, const double *seconds, int n, int n_ranks)
{
    double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
    for (int i = 0; i < n; i++) {
        const double u = 1 / seconds[i], v = dt_bench_bus_factor(n_ranks) * n_bytes[i] / seconds[i];
        aa += u * u;
        ab += u * v;
        bb += v * v;
        a1 += u;
        b1 += v;
    }
    struct dt_bench_fit fit = {.found = false};
    const double determinant = aa * bb - ab * ab;
    const double slope = (aa * b1 - ab * a1) / determinant;
    if (n < 2 || n_ranks < 2 || !(determinant > 1e-12 * aa * bb) || !(slope > 0)) {
        return fit;
    }
    fit = (struct dt_bench_fit){
        .found = true, .latency_s = (a1 * bb - b1 * ab) / determinant, .bandwidth = 1 / slope};
    for (int i = 0; i < n; i++) {
        const double modelled = fit.latency_s + slope * dt_bench_bus_factor(n_ranks) * n_bytes[i];
        fit.worst = fmax(fit.worst, fabs(modelled / seconds[i] - 1));
    }
    return fit;
}

double dt_bench_peak(unsigned n_ms)
{
    const struct dt_cpu_kernels *kernels;
    float out[2 * DT_MAX_VECTOR];
    if (dt_cpu_isa_choose(&kernels) != DT_OK) {
        dt_error_clear();
        return 0;
    }
    const double n_flops = 2.0 * FMA_ROUNDS * DT_FMA_CHAINS * kernels->vector,
                 end_s = dt_measure_thread_s() + 1e-3 * n_ms;
    double peak = 0;
    for (double start_s = dt_measure_thread_s(); start_s < end_s;) {
        for (int i = 0; i < 2 * DT_MAX_VECTOR; i++) {
            out[i] = i < kernels->vector ? 0.999f
                                         : 0.001f; /* x = x * 0.999 + 0.001 stays a normal number */
        }
        kernels->fma_loop(FMA_ROUNDS, out);
        const double now_s = dt_measure_thread_s();
        peak = n_flops / (now_s - start_s) > peak ? n_flops / (now_s - start_s) : peak;
        start_s = now_s;
    }
    return peak;
}

/* Available to this process. */
static int n_cores(void)
{
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

enum dt_status dt_bench_find_load(struct dt_world *world, struct dt_finding *out)
{
    struct dt_rank_probe *ranks;
    DT_TRY(dt_probe_gather(world, NULL, &ranks));
    *out = dt_check_run(DT_CHECK_load, ranks, world->size);
    free(ranks);
    return DT_OK;
}

enum dt_status dt_bench_stopped(const struct dt_world *world)
{
    if (world->rank == 0) {
        dt_terminal_live(NULL);
        fprintf(stderr, "stopped by a signal; nothing is written\n");
    }
    return dt_error_agreed(DT_STOPPED);
}

enum dt_status dt_bench_take_step(struct dt_trainer *t, const char *what)
{
    struct dt_step_results result;
    if (t->state.step_in_epoch > 0 && t->state.step_in_epoch + 1 >= t->schedule.steps_per_epoch) {
        t->state.epoch++;
        t->state.step_in_epoch = 0;
    }
    dt_comm_phase(t->world->comm, what);
    DT_TRY(dt_trainer_steps(t, 1, &result));
    return result.stop ? dt_bench_stopped(t->world) : DT_OK;
}

void dt_bench_describe(struct dt_part *p, const struct dt_world *world,
                       const struct dt_finding *load, double peak_flops)
{
    char cpu[128];
    dt_probe_cpu(cpu, sizeof cpu);
    if (load->verdict == DT_VERDICT_WARN) {
        dt_doc_fact(p, "load", "%s", load->text);
        dt_doc_judge(p, DT_VERDICT_WARN, "%s", load->hint);
    }
    dt_doc_fact(p, "dtrain", "%s", dt_version);
    dt_doc_figure(p, "ranks::+", dt_n(world->size));
    dt_doc_figure(p, "hosts::+", dt_n(world->comm->n_hosts));
    dt_doc_fact(p, "host", "%s", world->host);
    dt_doc_fact(p, "CPU", "%s", cpu);
    dt_doc_figure(p, "cores::+", dt_n(n_cores()));
    if (world->local_size > sysconf(_SC_NPROCESSORS_ONLN)) {
        dt_doc_judge(p, DT_VERDICT_WARN, "%d ranks share them", world->local_size);
    }
    dt_doc_fact(p, "instruction set", "%s", dt_cpu_isa());
    dt_doc_figure(p, "peak of a core:GFLOP/s:1",
                  dt_n(peak_flops > 0 ? 1e-9 * peak_flops : (double)NAN));
}
