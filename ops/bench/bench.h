/* `dtrain bench`: the cost of a training step and of an allreduce on this machine, and their
 * scaling.
 *   model.c      each block of a model, timed inside real training steps
 *   allreduce.c  allreduces by size, for each available implementation
 *   scaling.h    steps over more and more ranks
 *   bench.c      shared code */
#ifndef DT_OPS_BENCH_BENCH_H
#define DT_OPS_BENCH_BENCH_H

#include "cli/args.h"
#include "dist/ranks/wire_delay.h"
#include "dist/ranks/world.h"
#include "ops/doctor/doctor.h"
#include "train/trainer.h"
#include "view/document.h"

/* Options of `bench allreduce`: sizes from min_bytes, times factor, up to max_bytes; allreduces of
 * each size. */
struct dt_bench_options {
    size_t min_bytes, max_bytes, factor, n_iters, n_warmup, n_checks;
    bool chosen;                /* --algorithms or distributed.allreduce names what is measured */
    uint32_t types;             /* bit t: enum dt_allreduce_type t is selected */
    bool delayed;               /* messages are delayed by this wire: */
    struct dt_wire_delay delay; /* clock_s: the program's */
};
/* DT_USAGE: a value is not a number, or out of range. */
enum dt_status dt_bench_options_read(const struct dt_args *args, struct dt_bench_options *out);

/* 2 (n - 1) / n: the least that each rank sends for an allreduce, relative to its size. */
double dt_bench_bus_factor(int n_ranks);

/* Fits the time of an allreduce of S bytes over n ranks as latency + 2 (n - 1) / n * S / bandwidth,
 * by least squares of relative errors (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002). */
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

/* Whether other programs use a host's CPUs, as `dtrain doctor` detects it: DT_VERDICT_WARN. Every
 * rank calls it, before it measures. */
enum dt_status dt_bench_find_load(struct dt_world *world, struct dt_finding *out);

/* Adds this program and machine (rank 0's) to a document's figures. */
void dt_bench_describe(struct dt_part *figures, const struct dt_world *world,
                       const struct dt_finding *load, double peak_flops);

/* Call it on every rank after one got a signal to stop: reports it, and returns DT_STOPPED,
 * agreed. */
enum dt_status dt_bench_stopped(const struct dt_world *world);

#endif
