/* `dtrain bench`: the cost of a training step and of an allreduce on this machine.
 *   blocks.c     each block of a model, timed inside real training steps
 *   allreduce.c  sums over the ranks by size, for each available implementation
 *   bench.c      shared code */
#ifndef DT_OPS_BENCH_BENCH_H
#define DT_OPS_BENCH_BENCH_H

#include "cli/args.h"
#include "cli/config/config.h"
#include "dist/allreduce/types.h"
#include "dist/ranks/wire_delay.h"
#include "dist/ranks/world.h"
#include "ops/measure.h"
#include "train/trainer.h"
#include "view/json_write.h"

/* Options of `bench allreduce`: sizes from min_bytes, times factor, up to max_bytes; sums of each
 * size. */
struct dt_bench_options {
    size_t min_bytes, max_bytes, factor, n_iters, n_warmup, n_checks;
    uint32_t types;             /* bit t: enum dt_allreduce_type t is selected */
    bool delayed;               /* messages are delayed by this wire: */
    struct dt_wire_delay delay; /* clock_s: the program's */
};
/* DT_USAGE: a value is not a number, or out of range. */
enum dt_status dt_bench_options_read(const struct dt_args *args, struct dt_bench_options *out);

/* 2 (n - 1) / n: the least that each rank sends for a sum, relative to its size. */
double dt_bench_bus_factor(int n_ranks);

/* Fits the time of a sum of S bytes over n ranks as latency + 2 (n - 1) / n * S / bandwidth, by
 * least squares of relative errors (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002). */
struct dt_bench_fit {
    bool found; /* needs at least two sizes, two ranks, and a time that grows with the size */
    double latency_s;
    double bandwidth; /* bytes/s */
    double worst;     /* largest relative error: |fit / time - 1| */
};
struct dt_bench_fit dt_bench_fit(const double *n_bytes, const double *seconds, int n, int n_ranks);

/* Takes the next step with a whole batch: an epoch's last may be short, and is skipped. Every rank
 * calls it; agreed. `what`: the phase's name for other ranks. DT_STOPPED after a signal. */
enum dt_status dt_bench_take_step(struct dt_trainer *trainer, const char *what);

/* Measures float operations per second of one core: independent multiply-adds on the widest vectors
 * that the cpu backend would use, for about n_ms of this thread's CPU time; 0 without such a kernel
 * (DTRAIN_ISA). */
double dt_bench_peak(unsigned n_ms);

/* If other programs use a host's CPUs, as `dtrain doctor` detects it, rank 0 prints a comment to
 * stdout. Every rank calls it, before it measures. */
enum dt_status dt_bench_print_load(struct dt_world *world);

/* Call it on every rank after one got a signal to stop: reports it, and returns DT_STOPPED,
 * agreed. */
enum dt_status dt_bench_stopped(const struct dt_world *world);

/* Begins a JSON file: kind, version, ranks, and this machine. Its members and dt_json_end follow.
 */
struct dt_json dt_bench_json(FILE *out, const char *kind, const struct dt_world *world,
                             double peak_flops);

#endif
