/* Ring: 2 (n - 1) rounds, in each of which every rank sends a piece to the next one. In the first
 * half of them the pieces' sums grow from rank to rank; in the second half the finished sums go
 * round. A rank sends 2 (n - 1) / n of the vector, which hardly depends on n: Patarasuk and Yuan,
 * "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009. */
#include "dist/allreduce/algorithm.h"

int dt_ring_n_rounds(int size, size_t n_elems)
{
    (void)n_elems;
    return 2 * (size - 1);
}

static struct dt_move piece_move(enum dt_move_kind kind, int peer, size_t n_elems, int piece,
                                 int size)
{
    return (struct dt_move){.kind = kind,
                            .peer = peer,
                            .begin = dt_piece_begin(n_elems, piece, size),
                            .end = dt_piece_begin(n_elems, piece + 1, size)};
}

/* In round s of the first half, rank p sends piece p - s; after it, it has the sum of piece p + 1,
 * which it sends first then. */
int dt_ring_round(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    DT_ASSERT(rank >= 0 && rank < size && round >= 0 && round < 2 * (size - 1));
    const bool adds = round < size - 1;
    const int s = adds ? round : round - size, piece = (rank - s + 2 * size) % size;
    moves[0] = piece_move(DT_SEND, (rank + 1) % size, n_elems, piece, size);
    moves[1] = piece_move(adds ? DT_ADD : DT_REPLACE, (rank - 1 + size) % size, n_elems,
                          (piece - 1 + size) % size, size);
    return 2;
}

struct dt_traffic dt_ring_formula(int size, size_t n_elems)
{
    const uint64_t n = (uint64_t)size;
    return (struct dt_traffic){.messages = 2 * n * (n - 1),
                               .bytes = 2 * (n - 1) * n_elems * sizeof(float)};
}
