#include "dist/allreduce/formula.h"

#define SLICE_ELEMS ((size_t)1 << 14) /* a shorter one is not worth a message of its own */

static const char *const meanings[DT_N_ALLREDUCE_TYPES] = {
    [DT_ALLREDUCE_AUTO] = "the best there is",
    [DT_ALLREDUCE_SHARED_MEMORY] = "in memory that the ranks of a host share, by MPI between hosts",
    [DT_ALLREDUCE_MPI] = "MPI_Iallreduce",
    [DT_ALLREDUCE_NCCL] = "between GPUs by NCCL",
    [DT_ALLREDUCE_STAGED] = "between GPUs by way of host memory",
    [DT_ALLREDUCE_HIERARCHICAL] = "shared memory inside each host, an algorithm between the hosts",
    [DT_ALLREDUCE_RING] = "partial sums travel once round the ring, then the totals do",
    [DT_ALLREDUCE_TREE] = "sums go up a binomial tree to rank 0, and down again",
    [DT_ALLREDUCE_RECURSIVE_DOUBLING] = "pairs at distances 1, 2, 4, ... exchange all they have",
    [DT_ALLREDUCE_HALVING_DOUBLING] = "pairs exchange halves to add, then double the sums",
    [DT_ALLREDUCE_ALL_TO_ALL] = "every rank sends everything to every other",
    [DT_ALLREDUCE_MASTER_WORKER] = "rank 0 adds everything up and sends it back",
};

const char *dt_allreduce_meaning(enum dt_allreduce_type type)
{
    return meanings[type];
}

bool dt_allreduce_is_for_gpus(enum dt_allreduce_type type)
{
    return type == DT_ALLREDUCE_NCCL || type == DT_ALLREDUCE_STAGED;
}

struct dt_traffic dt_algorithm_traffic(const struct dt_algorithm *algorithm, int rank, int size,
                                       size_t n_elems, const int *host_roots, struct dt_move *moves)
{
    DT_ASSERT(rank >= 0 && rank < size);
    struct dt_traffic sent = {0};
    for (int round = 0; round < algorithm->n_rounds(size, n_elems); round++) {
        const int n_moves = algorithm->round(rank, size, n_elems, round, moves);
        for (int i = 0; i < n_moves; i++) {
            const bool counts = host_roots == NULL || host_roots[moves[i].peer] != host_roots[rank];
            if (counts && (moves[i].kind == DT_SEND || moves[i].kind == DT_SEND_INPUT)) {
                const size_t n = moves[i].end - moves[i].begin;
                dt_traffic_add(&sent, (struct dt_traffic){1, n * sizeof(float)});
            }
        }
    }
    return sent;
}

int dt_allreduce_n_slices(const struct dt_comm *comm, size_t n_elems)
{
    const size_t n_worth = (n_elems + SLICE_ELEMS - 1) / SLICE_ELEMS;
    return n_worth < (size_t)comm->n_across ? (int)n_worth : comm->n_across;
}

struct dt_traffic dt_allreduce_formula(const struct dt_allreduce *a, size_t n_elems)
{
    DT_ASSERT(a->algorithm != NULL);
    if (a->shared == NULL) {
        return a->algorithm->formula(a->comm->size, n_elems);
    }
    const int n_slices = dt_allreduce_n_slices(a->comm, n_elems);
    struct dt_traffic all = {0};
    for (int i = 0; i < n_slices; i++) {
        const size_t begin = dt_piece_begin(n_elems, i, n_slices),
                     end = dt_piece_begin(n_elems, i + 1, n_slices);
        dt_traffic_add(&all, a->algorithm->formula(a->comm->n_hosts, end - begin));
    }
    return all;
}
