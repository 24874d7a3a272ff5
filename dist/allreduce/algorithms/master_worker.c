/* Master and workers: rank 0 receives every vector, adds them in rank order, and sends the sum to
 * all. Its link carries 2 (n - 1) vectors, while the others' carry two. */
#include "dist/allreduce/algorithm.h"

int dt_master_worker_n_rounds(int size, size_t n_elems)
{
    (void)n_elems;
    return size > 1 ? size : 0;
}

/* In round s the vector of rank s + 1 arrives; in the last one the sum leaves. */
int dt_master_worker_round(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    const bool last = round == size - 1;
    if (rank > 0) {
        moves[0] = (struct dt_move){.kind = last ? DT_REPLACE : DT_SEND, .peer = 0, .end = n_elems};
        return last || round == 0;
    }
    if (!last) {
        moves[0] = (struct dt_move){.kind = DT_ADD, .peer = round + 1, .end = n_elems};
        return 1;
    }
    for (int i = 1; i < size; i++) {
        moves[i - 1] = (struct dt_move){.kind = DT_SEND, .peer = i, .end = n_elems};
    }
    return size - 1;
}

struct dt_traffic dt_master_worker_formula(int size, size_t n_elems)
{
    const uint64_t n = 2 * ((uint64_t)size - 1);
    return (struct dt_traffic){.messages = n, .bytes = n * n_elems * sizeof(float)};
}
