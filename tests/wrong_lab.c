/* dtrain, but rank 1 of a ring replaces in the second round what it should add. */
#include "dist/allreduce/algorithm.h"

int __real_dt_ring_round(int rank, int size, size_t n_elems, int round, struct dt_move *moves);
int __wrap_dt_ring_round(int rank, int size, size_t n_elems, int round, struct dt_move *moves);

int __wrap_dt_ring_round(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    const int n = __real_dt_ring_round(rank, size, n_elems, round, moves);
    if (rank == 1 && round == 1) {
        moves[1].kind = DT_REPLACE;
    }
    return n;
}
