/* All to all: every rank sends its vector to every other at once, and adds what comes in rank order, so that all have the same
 * bits. One hop, but n (n - 1) messages of everything. */
#include "dist/allreduce/algorithm.h"

int dt_all_to_all_n_rounds(int size)
{
    return size > 1 ? size : 0;
}

/* In round s the vector of rank s joins the sum. */
int dt_all_to_all_round(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    int n = 0;
    for (int i = 1; round == 0 && i < size; i++) {
        moves[n++] = (struct dt_move){.kind = DT_SEND_INPUT, .peer = (rank + i) % size, .end = n_elems};
    }
    if (round != rank) {
        moves[n++] = (struct dt_move){.kind = round == 0 ? DT_REPLACE : DT_ADD, .peer = round, .end = n_elems};
    } else if (rank > 0) {
        moves[n++] = (struct dt_move){.kind = DT_ADD_INPUT, .peer = rank, .end = n_elems};
    }
    return n;
}

struct dt_traffic dt_all_to_all_formula(int size, size_t n_elems)
{
    const uint64_t n = (uint64_t)size * (uint64_t)(size - 1);
    return (struct dt_traffic){.messages = n, .elements = n * n_elems};
}
