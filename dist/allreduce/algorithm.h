/* An allreduce algorithm as data: what each rank sends to whom and what it does with what it
 * receives, round by round.
 *
 * A schedule is a pure function of (rank, size, number of elements, round). One executor runs it
 * over a wire (executor.h), and a test proves all of them; a new algorithm is one file and one row
 * of the list. The form is LibNBC's (Hoefler, Lumsdaine, Rehm, "Implementation and performance
 * analysis of non-blocking collective operations for MPI", SC 2007); the algorithms are compared in
 * Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
 * IJHPCA 2005.
 *
 * Every algorithm leaves the same bits on every rank: each element is added up once and then
 * copied, or by pairs of ranks that add the same two numbers, or in rank order by every rank. */
#ifndef DT_DIST_ALLREDUCE_ALGORITHM_H
#define DT_DIST_ALLREDUCE_ALGORITHM_H

#include "dist/ranks/wire.h"

/* A move of elements [begin, end) of the vector, which is summed in place. Additions happen when
 * the round ends, in the order of the moves. */
enum dt_move_kind {
    DT_SEND,       /* to the peer, as they are when the round begins */
    DT_SEND_INPUT, /* to the peer, as they were before the first round */
    DT_ADD,        /* from the peer */
    DT_REPLACE,    /* from the peer, in place of what was there */
    DT_ADD_INPUT   /* of this rank itself, which is the peer, as they were before the first round */
};

struct dt_move {
    enum dt_move_kind kind;
    int peer;
    size_t begin, end;
};

/* X(constant, the configuration's name, C name, gathers) */
#define DT_ALGORITHM_LIST(X)                                                            \
    X(DT_ALLREDUCE_RING, "ring", ring, false)                                           \
    X(DT_ALLREDUCE_TREE, "tree", tree, false)                                           \
    X(DT_ALLREDUCE_RECURSIVE_DOUBLING, "recursive_doubling", recursive_doubling, false) \
    X(DT_ALLREDUCE_HALVING_DOUBLING, "halving_doubling", halving_doubling, false)       \
    X(DT_ALLREDUCE_ALL_TO_ALL, "all_to_all", all_to_all, true)                          \
    X(DT_ALLREDUCE_MASTER_WORKER, "master_worker", master_worker, false)

#define DT_ALGORITHM_ONE(constant, ...) +1
enum { DT_N_ALGORITHMS = DT_ALGORITHM_LIST(DT_ALGORITHM_ONE) };

struct dt_algorithm {
    const char *name;
    bool gathers; /* a round may bring the vectors of many ranks: each has a place of its own, also
                     the rank's own input */
    int (*n_rounds)(int size, size_t n_elems);
    /* Writes this round's moves of a rank, at most DT_MAX_MOVES(size), and returns how many. Unless
     * it gathers, no two of those that receive overlap. */
    int (*round)(int rank, int size, size_t n_elems, int round, struct dt_move *moves);
    /* The textbook's formula for what all ranks together send. */
    struct dt_traffic (*formula)(int size, size_t n_elems);
};

/* The rows of DT_ALGORITHM_LIST. */
#define DT_ALGORITHM_ROW(constant, name, c_name, gathers) \
    {name, gathers, dt_##c_name##_n_rounds, dt_##c_name##_round, dt_##c_name##_formula},
/* All of them, for a program that links all (dist/strategy/all_entries.c). */
extern const struct dt_algorithm dt_algorithms[DT_N_ALGORITHMS];
const struct dt_algorithm *dt_algorithm_find(const char *name); /* NULL: none is called so */

#define DT_MAX_MOVES(size) (2 * (size))

#define DT_ALGORITHM_DECLARE(constant, name, c_name, ...)                                          \
    int dt_##c_name##_n_rounds(int size, size_t n_elems);                                          \
    int dt_##c_name##_round(int rank, int size, size_t n_elems, int round, struct dt_move *moves); \
    struct dt_traffic dt_##c_name##_formula(int size, size_t n_elems);
DT_ALGORITHM_LIST(DT_ALGORITHM_DECLARE)
#undef DT_ALGORITHM_DECLARE

/* ---- what several of them share */

/* The first element of piece i of `n_pieces` of a vector; piece n_pieces begins at its end. */
static inline size_t dt_piece_begin(size_t n_elems, int i, int n_pieces)
{
    DT_ASSERT(i >= 0 && i <= n_pieces && n_pieces >= 1);
    return (size_t)((unsigned __int128)n_elems * (unsigned)i / (unsigned)n_pieces);
}

#endif
