#include "ops/measure.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

#define TAG 0x4C4B /* of messages that must not match others */
#define N_VALUES                                                                    \
    251 /* different summands: a prime, so that blocks of power-of-two sizes differ \
         */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double dt_measure_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 == 1 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* ---- links */

enum dt_status dt_measure_link_open(struct dt_world *world, struct dt_measure_link *out)
{
    *out = (struct dt_measure_link){.comm = world->comm};
    DT_TRY(dt_world_alloc(world, 1, DT_MEASURE_LARGE, "a message", (void **)&out->bytes));
    const enum dt_status s = dt_world_agree(world, dt_wire_open_mpi(world->comm, &out->wire));
    if (s != DT_OK) {
        free(out->bytes);
    }
    return s;
}

void dt_measure_link_close(struct dt_measure_link *link, enum dt_status status)
{
    if (status != DT_STALLED) {
        dt_wire_close(link->wire);
        free(link->bytes);
    }
}

/* The lower rank starts each round trip, and times it. */
static bool asks(const struct dt_measure_link *link)
{
    return link->comm->rank < link->peer;
}

static enum dt_status receive(struct dt_measure_link *link)
{
    link->sending = false;
    return dt_wire_receive(link->wire, link->peer, TAG, link->bytes, link->n_bytes, &link->in);
}

static enum dt_status send(struct dt_measure_link *link)
{
    link->sending = true;
    return dt_wire_send(link->wire, link->peer, TAG, link->bytes, link->n_bytes, &link->out);
}

static enum dt_status begin_round(struct dt_measure_link *link)
{
    link->begin_s = dt_clock_s();
    return asks(link) ? send(link) : receive(link);
}

/* A dt_request.progress. */
static enum dt_status progress(struct dt_request *request, bool *done)
{
    struct dt_measure_link *link = request->handle;
    bool arrived;
    *done = link->n_left == 0;
    if (*done) {
        return DT_OK;
    }
    DT_TRY(dt_wire_test(link->wire, link->sending ? &link->out : &link->in, &arrived));
    if (!arrived) {
        return DT_OK;
    }
    if (link->sending == asks(link)) { /* half of the round trip */
        return link->sending ? receive(link) : send(link);
    }
    link->best_s = asks(link) ? fmin(link->best_s, dt_clock_s() - link->begin_s) : INFINITY;
    *done = --link->n_left == 0;
    return *done ? DT_OK : begin_round(link);
}

static enum dt_status time_rounds(struct dt_measure_link *link, size_t n_bytes, int n_rounds,
                                  double *best_s)
{
    struct dt_request request;
    link->n_bytes = n_bytes;
    link->n_left = link->peer >= 0 ? n_rounds : 0;
    link->best_s = INFINITY;
    DT_TRY(link->n_left > 0 ? begin_round(link) : DT_OK);
    dt_comm_request_begin(link->comm, "messages between two ranks", 0, &request);
    request.handle = link;
    request.progress = progress;
    DT_TRY(dt_comm_wait(link->comm, &request));
    *best_s = link->best_s;
    return dt_comm_barrier(link->comm, "barrier between pairs of ranks");
}

enum dt_status dt_measure_link(struct dt_measure_link *link, int peer, int n_rounds,
                               double *small_s, double *large_s)
{
    link->peer = peer;
    DT_TRY(time_rounds(link, 8, 10 * n_rounds, small_s));
    return time_rounds(link, DT_MEASURE_LARGE, n_rounds, large_s);
}

/* ---- sums */

static unsigned value_of(size_t i, int rank, unsigned round)
{
    return 1 + (unsigned)((i + 7 * (size_t)rank + round) % N_VALUES);
}

void dt_measure_fill(float *x, size_t n_elems, int rank, unsigned round)
{
    for (size_t i = 0; i < n_elems; i++) {
        x[i] = (float)value_of(i, rank, round);
    }
}

size_t dt_measure_count_wrong(const float *sum, size_t n_elems, int n_ranks, unsigned round)
{
    size_t n_wrong = 0;
    float expected[N_VALUES];
    for (size_t i = 0; i < N_VALUES; i++) {
        unsigned total = 0;
        for (int rank = 0; rank < n_ranks; rank++) {
            total += value_of(i, rank, round);
        }
        expected[i] = (float)total;
    }
    for (size_t i = 0; i < n_elems; i++) {
        n_wrong += !(sum[i] == expected[i % N_VALUES]); /* NaN is wrong, too */
    }
    return n_wrong;
}

enum dt_status dt_measure_sum(const struct dt_measure_sum *sum, size_t n_elems, const char *name)
{
    struct dt_request request;
    DT_TRY(dt_allreduce_start(sum->allreduce, 0, 0, n_elems, name, &request));
    DT_TRY(dt_comm_wait(sum->allreduce->comm, &request));
    return sum->backend != NULL ? sum->backend->ops->sync(sum->backend) : DT_OK;
}

float *dt_measure_sum_input(const struct dt_measure_sum *sum)
{
    return sum->backend != NULL ? sum->host : sum->allreduce->part;
}

enum dt_status dt_measure_sum_put(const struct dt_measure_sum *sum, size_t n_elems)
{
    struct dt_backend *backend = sum->backend;
    return backend != NULL ? backend->ops->copy_in(backend, sum->allreduce->part, sum->host,
                                                   n_elems * sizeof *sum->host)
                           : DT_OK;
}

enum dt_status dt_measure_sum_check(const struct dt_measure_sum *sum, size_t n_elems,
                                    unsigned round, const char *name, size_t *n_wrong)
{
    const struct dt_comm *comm = sum->allreduce->comm;
    struct dt_backend *backend = sum->backend;
    float *x = dt_measure_sum_input(sum);
    dt_measure_fill(x, n_elems, comm->rank, round);
    DT_TRY(dt_measure_sum_put(sum, n_elems));
    DT_TRY(dt_measure_sum(sum, n_elems, name));
    if (backend != NULL) {
        DT_TRY(backend->ops->copy_out(backend, x, sum->allreduce->total, n_elems * sizeof *x));
    }
    *n_wrong += dt_measure_count_wrong(backend != NULL ? x : sum->allreduce->total, n_elems,
                                       comm->size, round);
    return DT_OK;
}

/* ---- CPU time */

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double dt_measure_thread_s(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

double dt_measure_process_s(void)
{
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}
