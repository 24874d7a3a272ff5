#include <math.h>

#include "base/clock.h"
#include "ops/bench/bench.h"

#define TAG 0x4C4B /* of messages that must not match others */

static enum dt_status receive(struct dt_bench_ping *p)
{
    p->sending = false;
    return dt_wire_receive(p->wire, p->peer, TAG, p->bytes, p->n_bytes, &p->in);
}

static enum dt_status send(struct dt_bench_ping *p)
{
    p->sending = true;
    return dt_wire_send(p->wire, p->peer, TAG, p->bytes, p->n_bytes, &p->out);
}

static enum dt_status begin_round(struct dt_bench_ping *p)
{
    p->begin_s = dt_clock_s();
    return p->asks ? send(p) : receive(p);
}

/* A dt_request.progress. */
static enum dt_status progress(struct dt_request *request, bool *done)
{
    struct dt_bench_ping *p = request->handle;
    bool arrived;
    *done = p->n_left == 0;
    if (*done) {
        return DT_OK;
    }
    DT_TRY(dt_wire_test(p->wire, p->sending ? &p->out : &p->in, &arrived));
    if (!arrived) {
        return DT_OK;
    }
    if (p->sending == p->asks) { /* half of the round trip */
        return p->asks ? receive(p) : send(p);
    }
    p->best_s = fmin(p->best_s, dt_clock_s() - p->begin_s);
    *done = --p->n_left == 0;
    return *done ? DT_OK : begin_round(p);
}

enum dt_status dt_bench_ping(struct dt_comm *comm, struct dt_bench_ping *p, size_t n_bytes,
                             int n_rounds, double *best_s)
{
    struct dt_request request;
    p->n_bytes = n_bytes;
    p->n_left = p->peer >= 0 ? n_rounds : 0;
    p->best_s = INFINITY;
    DT_TRY(p->n_left > 0 ? begin_round(p) : DT_OK);
    dt_comm_request_begin(comm, "messages between two ranks", 0, &request);
    request.handle = p;
    request.progress = progress;
    DT_TRY(dt_comm_wait(comm, &request));
    *best_s = p->best_s;
    return dt_comm_barrier(comm, "barrier between pairs of ranks");
}
