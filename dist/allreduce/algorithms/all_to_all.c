/* All to all: every rank sends its vector to every other at once, and adds what has come in rank
 * order, so that all have the same bits. One round, but n (n - 1) messages of everything, and room
 * for all vectors on every rank. */
#include "dist/allreduce/algorithm.h"

int dt_all_to_all_n_rounds(int size, size_t n_elems)
{
    (void)n_elems;
    return size > 1;
}

int dt_all_to_all_round(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    int n = 0;
    (void)round;
    for (int i = 1; i < size; i++) {
        moves[n++] =
            (struct dt_move){.kind = DT_SEND_INPUT, .peer = (rank + i) % size, .end = n_elems};
    }
    for (int from = 0; from < size; from++) {
        const enum dt_move_kind kind = from == rank ? DT_ADD_INPUT
                                       : from == 0  ? DT_REPLACE
                                                    : DT_ADD;
        if (from != rank || rank > 0) {
            moves[n++] = (struct dt_move){.kind = kind, .peer = from, .end = n_elems};
        }
    }
    return n;
}

struct dt_traffic dt_all_to_all_formula(int size, size_t n_elems)
{
    const uint64_t n = (uint64_t)size * (uint64_t)(size - 1);
    return (struct dt_traffic){.messages = n, .bytes = n * n_elems * sizeof(float)};
}
