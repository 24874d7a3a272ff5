/* What several tools measure: links between ranks, and sums over all ranks. */
#ifndef DT_OPS_MEASURE_H
#define DT_OPS_MEASURE_H

#include "dist/allreduce/allreduce.h"
#include "dist/ranks/wire.h"
#include "dist/ranks/world.h"

double dt_measure_median(double *x, int n); /* sorts x; n >= 1 */

/* ---- a link: round trips of messages between two ranks */

#define DT_MEASURE_LARGE ((size_t)1 << 20) /* bytes of a large message; a small one has 8 */

struct dt_measure_link { /* private; stays in place while it is open */
    struct dt_comm *comm;
    struct dt_wire *wire;
    char *bytes;
    int peer, n_left;
    size_t n_bytes;
    struct dt_wire_request in, out;
    bool sending;
    double begin_s, best_s;
};

/* Every rank calls each of the three; agreed. */
enum dt_status dt_measure_link_open(struct dt_world *world, struct dt_measure_link *out);

/* The shortest of 10 n_rounds round trips of a small message and of n_rounds of a large one,
 * between this rank and `peer`, which names this rank in turn; -1: this rank only waits. Pairs run
 * at the same time. The lower rank of a pair has the times, for the others they are infinite.
 * DT_STALLED. */
enum dt_status dt_measure_link(struct dt_measure_link *link, int peer, int n_rounds,
                               double *small_s, double *large_s);

/* `status`: of the last call. After DT_STALLED a message may still arrive: its memory stays. */
void dt_measure_link_close(struct dt_measure_link *link, enum dt_status status);

/* ---- an allreduce, on memory of `backend`, or on the program's if that is NULL */

struct dt_measure_sum {
    struct dt_allreduce *allreduce;
    struct dt_backend *backend;
    float *host; /* with a backend: its input and result here */
};

/* Adds n_elems of every rank. `name`: for time-out messages; must stay in place. */
enum dt_status dt_measure_sum(const struct dt_measure_sum *sum, size_t n_elems, const char *name);

/* Where the input is written, before it is put into the memory of the allreduce. */
float *dt_measure_sum_input(const struct dt_measure_sum *sum);
enum dt_status dt_measure_sum_put(const struct dt_measure_sum *sum, size_t n_elems);

/* Adds the numbers of dt_measure_fill, and to *n_wrong the number of wrong elements. */
enum dt_status dt_measure_sum_check(const struct dt_measure_sum *sum, size_t n_elems,
                                    unsigned round, const char *name, size_t *n_wrong);

/* Fills the input of sum `round`: integers 1 .. 251, so that sums are exact in any order for up to
 * 2^16 ranks. */
void dt_measure_fill(float *x, size_t n_elems, int rank, unsigned round);

/* Counts elements that differ from the sum over ranks 0 .. n_ranks - 1 of these numbers. */
size_t dt_measure_count_wrong(const float *sum, size_t n_elems, int n_ranks, unsigned round);

/* CPU time of this thread, and of all threads of this process, in seconds. */
double dt_measure_thread_s(void);
double dt_measure_process_s(void);

#endif
