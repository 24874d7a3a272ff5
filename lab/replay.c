#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dist/allreduce/executor.h"
#include "lab/lesson_allreduce.h"

/* The ranks while they run. */
struct run {
    struct dt_replay *replay;
    struct dt_wire **wires;
    struct dt_executor *executors;
    struct dt_move *moves; /* of one rank's round */
    float *after;          /* n_pieces: one rank's values between two moves */
    int n_transfers, n_wires;
};

static int moves_of(const struct run *run, int rank, int round)
{
    const struct dt_replay *p = run->replay;
    return p->algorithm->round(rank, p->size, p->n_elems, round, run->moves);
}

static bool receives(const struct dt_move *move)
{
    return move->kind != DT_SEND && move->kind != DT_SEND_INPUT;
}

/* ---- the pieces */

static int by_size(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Counts the receiving moves of all ranks in all rounds, and writes where each begins and ends,
 * unless `ends` is NULL. */
static size_t gather_ends(const struct run *run, size_t *ends)
{
    const struct dt_replay *p = run->replay;
    size_t n = 0;
    for (int i = 0; i < p->size * p->n_rounds; i++) {
        const int n_moves = moves_of(run, i % p->size, i / p->size);
        for (int k = 0; k < n_moves; k++) {
            if (receives(&run->moves[k])) {
                if (ends != NULL) {
                    ends[2 * n] = run->moves[k].begin;
                    ends[2 * n + 1] = run->moves[k].end;
                }
                n++;
            }
        }
    }
    return n;
}

static int index_of(const struct dt_replay *p, size_t cut)
{
    const size_t *found = bsearch(&cut, p->cuts, (size_t)p->n_pieces + 1, sizeof cut, by_size);
    return found != NULL ? (int)(found - p->cuts) : 0;
}

/* Cuts the vector where a move begins or ends, and allocates memory for all transfers. */
static bool cut(struct run *run)
{
    struct dt_replay *p = run->replay;
    const size_t n = gather_ends(run, NULL);
    p->transfers = calloc(n + 1, sizeof *p->transfers);
    p->cuts = calloc(2 * n + 2, sizeof *p->cuts);
    if (p->transfers == NULL || p->cuts == NULL) {
        return false;
    }
    gather_ends(run, p->cuts);
    p->cuts[2 * n + 1] = p->n_elems; /* cuts start with 0 */
    qsort(p->cuts, 2 * n + 2, sizeof *p->cuts, by_size);
    for (size_t i = 1; i < 2 * n + 2; i++) {
        if (p->cuts[i] != p->cuts[p->n_pieces]) {
            p->cuts[++p->n_pieces] = p->cuts[i];
        }
    }
    return true;
}

/* ---- the record of a round */

float *dt_replay_state(const struct dt_replay *p, int n_rounds, int rank)
{
    return p->states + ((size_t)n_rounds * (size_t)p->size + (size_t)rank) * (size_t)p->n_pieces;
}

static void record_state(const struct dt_replay *p, int n_rounds, int rank)
{
    float *state = dt_replay_state(p, n_rounds, rank);
    for (int i = 0; i < p->n_pieces; i++) {
        state[i] = p->data[rank][p->cuts[i]];
    }
}

/* Returns the value that a move received: NAN if its pieces have different ones. `after`: the
 * rank's pieces after the move, from which this removes the move. */
static float take_back(const struct run *run, int rank, const struct dt_move *move,
                       const struct dt_transfer *t, float *after)
{
    const float *incoming = dt_executor_incoming(&run->executors[rank], move->peer);
    float value = NAN;
    for (int i = t->begin; i < t->end; i++) {
        const float came = t->adds ? incoming[run->replay->cuts[i]] : after[i];
        after[i] -= t->adds ? came : 0;
        value = i == t->begin || came == value ? came : NAN;
    }
    return value;
}

/* Records what `rank` received in its own round `own`, which ended in round `round` of all: from
 * the last move to the first. */
static void record_transfers(struct run *run, int rank, int own, int round)
{
    struct dt_replay *p = run->replay;
    record_state(p, round + 1, rank);
    memcpy(run->after, dt_replay_state(p, round + 1, rank),
           (size_t)p->n_pieces * sizeof *run->after);
    for (int i = moves_of(run, rank, own) - 1; i >= 0; i--) {
        const struct dt_move *move = &run->moves[i];
        if (receives(move)) {
            struct dt_transfer *t = &p->transfers[run->n_transfers++];
            *t = (struct dt_transfer){
                .from = move->peer, .to = rank, .adds = move->kind != DT_REPLACE};
            if (move->begin < move->end) {
                t->begin = index_of(p, move->begin);
                t->end = index_of(p, move->end);
            }
            t->value = take_back(run, rank, move, t, run->after);
        }
    }
}

static int by_sender(const void *a, const void *b)
{
    const struct dt_transfer *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->to > y->to) - (x->to < y->to);
}

/* ---- all ranks, round by round */

/* Advances each rank that has not passed this round; *moved: one of them advanced. */
static enum dt_status sweep(struct run *run, int round, bool *moved)
{
    *moved = false;
    for (int rank = 0; rank < run->replay->size; rank++) {
        const int own = run->executors[rank].slots[0].round;
        bool ended = false;
        if (own <= round) {
            DT_TRY(dt_executor_step(&run->executors[rank], 0, &ended));
        }
        if (ended) {
            record_transfers(run, rank, own, round);
        }
        *moved = *moved || ended;
    }
    return DT_OK;
}

static enum dt_status run_round(struct run *run, int round)
{
    struct dt_replay *p = run->replay;
    const int first = run->n_transfers;
    bool moved = true;
    memcpy(dt_replay_state(p, round + 1, 0), dt_replay_state(p, round, 0),
           (size_t)p->size * (size_t)p->n_pieces * sizeof *p->states);
    while (moved) {
        DT_TRY(sweep(run, round, &moved));
    }
    qsort(p->transfers + first, (size_t)(run->n_transfers - first), sizeof *p->transfers,
          by_sender);
    p->ends[round] = run->n_transfers;
    return DT_OK;
}

static enum dt_status run_all(struct run *run)
{
    struct dt_replay *p = run->replay;
    for (int rank = 0; rank < p->size; rank++) {
        record_state(p, 0, rank);
        DT_TRY(dt_executor_start(&run->executors[rank], 0, 0, 0, p->n_elems));
    }
    for (int round = 0; round < p->n_rounds; round++) {
        DT_TRY(run_round(run, round));
    }
    for (int rank = 0; rank < p->size; rank++) {
        const struct dt_traffic sent = dt_wire_sent(run->wires[rank]).all;
        if (run->executors[rank].slots[0].round < p->n_rounds) {
            return dt_error(DT_INTERNAL, "%s over %d ranks: rank %d waits forever",
                            p->algorithm->name, p->size, rank);
        }
        dt_traffic_add(&p->sent, sent);
    }
    return DT_OK;
}

/* ---- opening */

static bool fill(struct dt_replay *p, float (*value)(int rank, size_t i))
{
    for (int rank = 0; rank < p->size; rank++) {
        if ((p->data[rank] = calloc(p->n_elems + 1, sizeof(float))) == NULL) {
            return false;
        }
        for (size_t i = 0; i < p->n_elems; i++) {
            p->data[rank][i] = value(rank, i);
        }
    }
    return true;
}

static bool allocate(struct run *run)
{
    struct dt_replay *p = run->replay;
    const size_t size = (size_t)p->size, n_rounds = (size_t)p->n_rounds;
    run->wires = calloc(size, sizeof(void *));
    run->executors = calloc(size, sizeof *run->executors);
    run->moves = calloc((size_t)DT_MAX_MOVES(p->size), sizeof *run->moves);
    p->ends = calloc(n_rounds + 1, sizeof *p->ends);
    p->data = calloc(size, sizeof *p->data);
    if (run->wires == NULL || run->executors == NULL || run->moves == NULL || p->ends == NULL ||
        p->data == NULL || !cut(run)) {
        return false;
    }
    p->states = calloc((n_rounds + 1) * size * (size_t)p->n_pieces + 1, sizeof *p->states);
    run->after = calloc((size_t)p->n_pieces + 1, sizeof *run->after);
    return p->states != NULL && run->after != NULL;
}

static enum dt_status open_and_run(struct run *run, float (*value)(int rank, size_t i))
{
    struct dt_replay *p = run->replay;
    if (!allocate(run) || !fill(p, value)) {
        return dt_error(DT_NO_MEMORY, "no memory for %zu floats on each of %d ranks", p->n_elems,
                        p->size);
    }
    DT_TRY(dt_wire_open_local(p->size, run->wires));
    run->n_wires = p->size;
    for (int rank = 0; rank < p->size; rank++) {
        DT_TRY(dt_executor_open(p->algorithm, run->wires[rank], p->data[rank], p->n_elems, 1, NULL,
                                &run->executors[rank]));
    }
    return run_all(run);
}

enum dt_status dt_replay_open(const struct dt_algorithm *algorithm, int size, size_t n_elems,
                              float (*value)(int rank, size_t i), struct dt_replay *out)
{
    *out = (struct dt_replay){.algorithm = algorithm,
                              .size = size,
                              .n_elems = n_elems,
                              .n_rounds = algorithm->n_rounds(size, n_elems)};
    struct run run = {.replay = out};
    const enum dt_status s = open_and_run(&run, value);
    for (int i = 0; run.executors != NULL && i < size; i++) {
        dt_executor_close(&run.executors[i]);
    }
    for (int i = 0; i < run.n_wires; i++) {
        dt_wire_close(run.wires[i]);
    }
    free(run.wires);
    free(run.executors);
    free(run.moves);
    free(run.after);
    if (s != DT_OK) {
        dt_replay_close(out);
    }
    return s;
}

void dt_replay_close(struct dt_replay *r)
{
    for (int i = 0; r->data != NULL && i < r->size; i++) {
        free(r->data[i]);
    }
    free(r->data);
    free(r->cuts);
    free(r->transfers);
    free(r->ends);
    free(r->states);
    *r = (struct dt_replay){.size = 0};
}

const struct dt_transfer *dt_replay_transfers(const struct dt_replay *r, int round, int *n)
{
    const int first = round > 0 ? r->ends[round - 1] : 0;
    *n = r->ends[round] - first;
    return r->transfers + first;
}
