/* `dtrain bench`: the cost of a training step and of an allreduce on this machine.
 *   blocks.c     each block of a model, timed inside real training steps
 *   allreduce.c  sums over the ranks by size, for each available implementation
 *   ping.c       round trips of messages between two ranks
 *   bench.c      shared code */
#ifndef DT_OPS_BENCH_BENCH_H
#define DT_OPS_BENCH_BENCH_H

#include "cli/args.h"
#include "cli/config/config.h"
#include "dist/allreduce/allreduce.h"
#include "dist/ranks/wire.h"
#include "dist/ranks/wire_delay.h"
#include "dist/ranks/world.h"
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

/* Fills the input of sum `round`: integers 1 .. 251, so that sums are exact in any order for up to
 * 2^16 ranks. */
void dt_bench_fill(float *x, size_t n_elems, int rank, unsigned round);
/* Counts elements that differ from the sum over ranks 0 .. n_ranks - 1 of dt_bench_fill's
 * numbers. */
size_t dt_bench_count_wrong(const float *sum, size_t n_elems, int n_ranks, unsigned round);

/* An allreduce on memory of `backend`, or on the program's if that is NULL (sum.c). */
struct dt_bench_sum {
    struct dt_allreduce *allreduce;
    struct dt_backend *backend;
    float *host; /* with a backend: its input and result here */
};

/* Adds n_elems of every rank. `name`: for time-out messages; must stay in place. */
enum dt_status dt_bench_sum(const struct dt_bench_sum *sum, size_t n_elems, const char *name);
/* Where the input is written, before it is put into the memory of the allreduce. */
float *dt_bench_sum_input(const struct dt_bench_sum *sum);
enum dt_status dt_bench_sum_put(const struct dt_bench_sum *sum, size_t n_elems);
/* Adds the numbers of dt_bench_fill, and to *n_wrong the number of wrong elements. */
enum dt_status dt_bench_sum_check(const struct dt_bench_sum *sum, size_t n_elems, unsigned round,
                                  const char *name, size_t *n_wrong);

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

/* Round trips of messages between two ranks, seen from one of them. The caller sets the first four,
 * and keeps it in place. */
struct dt_bench_ping {
    struct dt_wire *wire; /* with MPI below: dt_wire_open_mpi */
    int peer;             /* -1: this rank has none, and only waits */
    bool asks;            /* starts each round trip, and times it: one of the two */
    char *bytes;          /* room for a message */
    int n_left;           /* private, with all that follows */
    size_t n_bytes;
    struct dt_wire_request in, out;
    bool sending;
    double begin_s, best_s;
};
/* n_rounds round trips of n_bytes; *best_s: the shortest, for the rank that asks. Every rank of
 * comm calls it; pairs run at the same time. DT_STALLED. */
enum dt_status dt_bench_ping(struct dt_comm *comm, struct dt_bench_ping *ping, size_t n_bytes,
                             int n_rounds, double *best_s);

double dt_bench_median(double *x, int n); /* sorts x; n >= 1 */

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
