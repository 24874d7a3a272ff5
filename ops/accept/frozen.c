/* On each host one rank freezes for a while: it does nothing and gives no sign of life. The host's
 * first rank waits for it with a limit of a second, and must name it by then. Then the frozen rank
 * continues. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "dist/ranks/wire.h"
#include "ops/accept/accept.h"

#define LIMIT_S 1.0
#define LATE_S 3.0         /* seconds over the limit that count as too late */
#define FREEZE_MOST_S 30.0 /* then it thaws by itself */
#define TAG 0x4652

/* A rank's result, sent to the others. */
struct witness {
    bool asked; /* it had to name a rank of its host */
    int frozen; /* the frozen rank */
    bool named; /* it named that one */
    double waited_s;
    char text[200]; /* the error text */
};

struct freeze {
    struct dt_comm *comm;
    struct dt_wire *wire;
    int first, last; /* ranks of this host: the one that names, and the frozen one */
};

/* The message's; static because it may arrive when no rank waits for it any more. */
static char thaw_byte;

/* Sleeps until thawed, or long enough for the others to notice. It does not use a request of the
 * communicator: those show signs of life. */
static enum dt_status freeze(struct freeze *f)
{
    struct dt_wire_request thaw;
    bool arrived = false;
    const double end_s = dt_clock_s() + FREEZE_MOST_S;
    DT_TRY(dt_wire_receive(f->wire, f->first, TAG, &thaw_byte, 1, &thaw));
    while (!arrived && dt_clock_s() < end_s) {
        dt_sleep_ms(5);
        DT_TRY(dt_wire_test(f->wire, &thaw, &arrived));
    }
    return DT_OK;
}

/* Lets the short limit pass, then continues the wait with the usual one. */
static enum dt_status watch(struct freeze *f, struct dt_request *request, struct witness *out)
{
    char name[32];
    const double usual_s = f->comm->timeout_s, begin_s = dt_clock_s();
    f->comm->timeout_s = LIMIT_S;
    const enum dt_status s = dt_comm_wait(f->comm, request);
    f->comm->timeout_s = usual_s;
    out->waited_s = dt_clock_s() - begin_s;
    if (s != DT_OK && s != DT_STALLED) {
        return s;
    }
    snprintf(name, sizeof name, ": rank %d ", f->last);
    snprintf(out->text, sizeof out->text, "%s",
             s == DT_OK ? "it noticed nothing" : dt_error_text());
    out->named = s == DT_STALLED && strstr(out->text, name) != NULL;
    dt_error_clear();
    return DT_OK;
}

static enum dt_status thaw(struct freeze *f)
{
    struct dt_wire_request sent;
    bool done = false;
    DT_TRY(dt_wire_send(f->wire, f->last, TAG, &thaw_byte, 1, &sent));
    for (const double end_s = dt_clock_s() + FREEZE_MOST_S; !done && dt_clock_s() < end_s;) {
        DT_TRY(dt_wire_test(f->wire, &sent, &done));
    }
    return DT_OK;
}

static enum dt_status take_part(struct freeze *f, struct witness *out)
{
    struct dt_request request;
    int32_t nothing = 0;
    const int rank = f->comm->rank;
    const bool alone = f->first == f->last;
    dt_comm_phase(f->comm, "doing nothing, to be named");
    DT_TRY(rank == f->last && !alone ? freeze(f) : DT_OK);
    DT_TRY(dt_comm_allreduce_start(f->comm, &nothing, 1, DT_TYPE_I32, DT_REDUCE_SUM,
                                   "wait for a frozen rank", &request));
    if (rank == f->first && !alone) {
        *out = (struct witness){.asked = true, .frozen = f->last};
        DT_TRY(watch(f, &request, out));
        DT_TRY(thaw(f));
    }
    return dt_comm_wait(f->comm, &request);
}

static void judge(struct dt_acceptance *a, const struct witness *all, struct dt_finding *row)
{
    double most_s = 0;
    int n = 0;
    for (int r = 0; r < a->world->size; r++) {
        const struct witness *w = &all[r];
        n += w->asked;
        most_s = w->asked ? fmax(most_s, w->waited_s) : most_s;
        if (w->asked && (!w->named || w->waited_s > LIMIT_S + LATE_S)) {
            dt_accept_fail(a, row, r, false,
                           "rank %d (%s) did not name rank %d within %.0f s; after %.1f s: %s", r,
                           a->ranks[r].host, w->frozen, LIMIT_S, w->waited_s, w->text);
        }
    }
    if (row->verdict != DT_VERDICT_FAIL && n > 0) {
        *row = dt_find(DT_VERDICT_PASS, NULL, "frozen rank identified within %.1f s on %d host%s",
                       most_s, n, n == 1 ? "" : "s");
    } else if (row->verdict != DT_VERDICT_FAIL) {
        *row = dt_find(DT_VERDICT_SKIPPED, NULL,
                       "not tried: no host has two ranks, one of which could watch the other");
    }
}

/* The last rank of this host. */
static int last_of_host(const struct dt_comm *comm)
{
    int last = comm->rank;
    for (int r = last + 1; r < comm->size && comm->host_roots != NULL; r++) {
        last = comm->host_roots[r] == comm->host_root ? r : last;
    }
    return last;
}

/* Freezes a rank in a world of more than one. */
static enum dt_status try_freeze(struct dt_acceptance *a, struct witness *out)
{
    struct dt_comm *comm = a->world->comm;
    struct freeze f = {.comm = comm, .first = comm->host_root, .last = last_of_host(comm)};
    DT_TRY(dt_world_agree(a->world, dt_wire_open_mpi(comm, &f.wire)));
    const enum dt_status s = take_part(&f, out);
    if (s != DT_STALLED) { /* a message may still be on its way */
        dt_wire_close(f.wire);
    }
    return s;
}

enum dt_status dt_accept_frozen(struct dt_acceptance *a, struct dt_finding *row)
{
    struct witness *all, mine;
    memset(&mine, 0, sizeof mine);
    DT_TRY(a->world->size > 1 ? try_freeze(a, &mine) : DT_OK);
    DT_TRY(dt_accept_gather(a, &mine, sizeof mine, "what ranks noticed", (void **)&all));
    judge(a, all, row);
    return DT_OK;
}
