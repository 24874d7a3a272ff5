/* `dtrain bench`: what a training step and a sum over the ranks cost on this machine.
 *
 *   bench_blocks.c     each block of a model, timed inside real training steps
 *   bench_scaling.c    training steps of 1, 2, 4, ... ranks
 *   bench_allreduce.c  sums over the ranks by size, for each way that they can travel
 *   bench.c            what they share */
#ifndef DT_OPS_BENCH_BENCH_H
#define DT_OPS_BENCH_BENCH_H

#include <cjson/cJSON.h>

#include "cli/args.h"
#include "cli/config/config.h"
#include "dist/ranks/wire_delay.h"
#include "dist/ranks/world.h"
#include "train/trainer.h"

/* Trains for some steps, so that zeros are where training puts them, then times further ones; rank
 * 0 prints a table to stdout, and writes the file `json` unless that is NULL. Errors of the
 * training; DT_STOPPED after a signal. Every rank calls it; agreed. */
enum dt_status dt_bench_blocks(struct dt_world *world, const struct dt_config *config,
                               const char *json);

/* Training steps of 1, 2, 4, ... and all of the ranks, where each keeps its batch (weak scaling)
 * and where they share one (strong scaling): rank 0 prints a table, and writes the files `json` and
 * `html` unless they are NULL. As above. */
enum dt_status dt_bench_scaling(struct dt_world *world, const struct dt_config *config,
                                const char *json, const char *html);

/* Sums by size, for each way that gradients can travel here, or those that --algorithms names.
 * Errors of dt_bench_options_read, of the configuration and the device; DT_INTERNAL: a sum was
 * wrong; otherwise as above. */
enum dt_status dt_bench_allreduce(struct dt_world *world, const struct dt_args *args);

/* ---- parts of these, on their own for the tests */

/* Of `bench allreduce`: sizes from min_bytes, times factor, up to max_bytes; sums of each size. */
struct dt_bench_options {
    size_t min_bytes, max_bytes, factor, n_iters, n_warmup, n_checks;
    uint32_t types;             /* bit t: enum dt_allreduce_type t is wanted */
    bool delayed;               /* messages go over a wire as slow as this: */
    struct dt_wire_delay delay; /* clock_s: the program's */
};
/* DT_USAGE: one is no number, or out of range. */
enum dt_status dt_bench_options_read(const struct dt_args *args, struct dt_bench_options *out);

/* What sum `round` adds up: whole numbers 1 .. 251, so that sums are exact in any order for up to
 * 2^16 ranks. */
void dt_bench_fill(float *x, size_t n_elems, int rank, unsigned round);
/* Elements that are not the sum over ranks 0 .. n_ranks - 1 of what dt_bench_fill gives. */
size_t dt_bench_count_wrong(const float *sum, size_t n_elems, int n_ranks, unsigned round);

/* 2 (n - 1) / n: what each rank sends of a sum at least, by its size. */
double dt_bench_bus_factor(int n_ranks);

/* The time of a sum of S bytes over n ranks as latency + 2 (n - 1) / n * S / bandwidth, by the
 * least squares of relative errors (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002). */
struct dt_bench_fit {
    bool found; /* needs two sizes at least, two ranks, and a time that grows with the size */
    double latency_s;
    double bandwidth; /* bytes/s */
    double worst;     /* largest relative error: |fit / time - 1| */
};
struct dt_bench_fit dt_bench_fit(const double *n_bytes, const double *seconds, int n, int n_ranks);

double dt_bench_median(double *x, int n); /* sorts x; n >= 1 */
int dt_bench_n_cores(void);               /* that this process may use */

/* The next step of a whole batch: an epoch's last may be short, and is left out. Every rank calls
 * it; agreed. `what` is the phase that others see it in. DT_STOPPED after a signal. */
enum dt_status dt_bench_take_step(struct dt_trainer *trainer, const char *what);

/* float operations per second of one core: independent multiply-adds on the widest vectors that the
 * cpu backend would use, for about n_ms of this thread's CPU time; 0 where there is no such kernel
 * to choose (DTRAIN_ISA). */
double dt_bench_peak(unsigned n_ms);

/* Where other programs use the CPUs of a host, as `dtrain doctor` finds it: rank 0 prints a comment
 * about it to stdout. Every rank calls it, before it measures. */
enum dt_status dt_bench_say_load(struct dt_world *world);

/* Every rank calls it when one was asked to stop: says so, and returns DT_STOPPED, agreed. */
enum dt_status dt_bench_stopped(const struct dt_world *world);

/* The JSON that all begin with: kind, version, ranks, and this machine. NULL: out of memory. */
cJSON *dt_bench_json(const char *kind, const struct dt_world *world, double peak_flops);
/* Writes it, unless `path` is NULL. DT_CANT_CREATE, DT_IO, DT_NO_MEMORY. */
enum dt_status dt_bench_write(const char *path, const cJSON *json);

#endif
