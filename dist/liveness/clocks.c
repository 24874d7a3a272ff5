#include "dist/liveness/clocks.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "dist/ranks/wire.h"

#define N_TRIES 32
#define TAG 0x434C /* of messages that meet no others */

/* The messages between rank 0 and another one, seen from either. */
struct line {
    struct dt_wire_request in, out;
    double question, answer; /* the question says nothing */
    int n_tries;             /* done */
};

struct comparison {
    struct dt_wire *wire;
    struct line *lines; /* of rank 0, to each; of another rank, lines[0] */
    double asked_s;
    struct dt_clock_offset best;
};

/* ---- rank 0 answers */

static enum dt_status answer(struct comparison *c, int peer, bool *done)
{
    struct line *line = &c->lines[peer];
    bool sent, came = false;
    DT_TRY(dt_wire_test(c->wire, &line->out, &sent));
    if (sent && line->n_tries < N_TRIES) {
        DT_TRY(dt_wire_test(c->wire, &line->in, &came));
    }
    if (came) {
        line->answer = dt_clock_s();
        DT_TRY(dt_wire_send(c->wire, peer, TAG, &line->answer, sizeof line->answer, &line->out));
        line->n_tries++;
        if (line->n_tries < N_TRIES) {
            DT_TRY(dt_wire_receive(c->wire, peer, TAG, &line->question, sizeof line->question,
                                   &line->in));
        }
    }
    *done = *done && sent && !came && line->n_tries == N_TRIES;
    return DT_OK;
}

/* A dt_request.progress. */
static enum dt_status answer_all(struct dt_request *request, bool *done)
{
    struct comparison *c = request->handle;
    *done = true;
    for (int peer = 1; peer < c->wire->size; peer++) {
        DT_TRY(answer(c, peer, done));
    }
    return DT_OK;
}

/* ---- the others ask */

static enum dt_status ask(struct comparison *c)
{
    struct line *line = &c->lines[0];
    DT_TRY(dt_wire_receive(c->wire, 0, TAG, &line->answer, sizeof line->answer, &line->in));
    c->asked_s = dt_clock_s();
    return dt_wire_send(c->wire, 0, TAG, &line->question, sizeof line->question, &line->out);
}

static void take_answer(struct comparison *c)
{
    const double now_s = dt_clock_s(), error_s = (now_s - c->asked_s) / 2;
    if (error_s < c->best.error_s) {
        c->best = (struct dt_clock_offset){.offset_s = c->lines[0].answer - (c->asked_s + error_s),
                                           .error_s = error_s};
    }
}

/* A dt_request.progress. */
static enum dt_status ask_all(struct dt_request *request, bool *done)
{
    struct comparison *c = request->handle;
    struct line *line = &c->lines[0];
    bool sent, came;
    DT_TRY(dt_wire_test(c->wire, &line->in, &came));
    DT_TRY(dt_wire_test(c->wire, &line->out, &sent));
    *done = false;
    if (came && sent) {
        take_answer(c);
        *done = ++line->n_tries == N_TRIES;
        return *done ? DT_OK : ask(c);
    }
    return DT_OK;
}

static enum dt_status begin(struct comparison *c)
{
    if (c->wire->rank != 0) {
        return ask(c);
    }
    for (int peer = 1; peer < c->wire->size; peer++) {
        struct line *line = &c->lines[peer];
        DT_TRY(
            dt_wire_receive(c->wire, peer, TAG, &line->question, sizeof line->question, &line->in));
    }
    return DT_OK;
}

static enum dt_status run(struct dt_comm *comm, struct comparison *c)
{
    struct dt_request request;
    DT_TRY(begin(c));
    dt_comm_request_begin(comm, "comparison of the clocks", 0, &request);
    request.handle = c;
    request.progress = comm->rank == 0 ? answer_all : ask_all;
    return dt_comm_wait(comm, &request);
}

enum dt_status dt_clocks_compare(struct dt_comm *comm, struct dt_clock_offset *out)
{
    *out = (struct dt_clock_offset){0};
    if (comm->size == 1) {
        return DT_OK;
    }
    struct comparison c = {.lines = calloc((size_t)comm->size, sizeof *c.lines),
                           .best.error_s = INFINITY};
    enum dt_status s = c.lines != NULL ? dt_wire_open_mpi(comm, &c.wire)
                                       : dt_error(DT_NO_MEMORY, "no memory to compare the clocks");
    if (s == DT_OK) {
        s = run(comm, &c);
        *out = comm->rank == 0 ? *out : c.best;
        dt_wire_close(c.wire);
    }
    free(c.lines);
    return s;
}
