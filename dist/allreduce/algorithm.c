#include "dist/allreduce/algorithm.h"

#include <string.h>

#define DT_ALGORITHM_ROW(constant, name, c_name, keeps_input, meaning) \
    {name, meaning, keeps_input, dt_##c_name##_n_rounds, dt_##c_name##_round, dt_##c_name##_formula},
const struct dt_algorithm dt_algorithms[DT_N_ALGORITHMS] = {DT_ALGORITHM_LIST(DT_ALGORITHM_ROW)};

const struct dt_algorithm *dt_algorithm_find(const char *name)
{
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        if (strcmp(dt_algorithms[i].name, name) == 0) {
            return &dt_algorithms[i];
        }
    }
    return NULL;
}

struct dt_traffic dt_algorithm_traffic(const struct dt_algorithm *algorithm, int rank, int size, size_t n_elems,
                                       struct dt_move *moves)
{
    struct dt_traffic sent = {0};
    for (int round = 0; round < algorithm->n_rounds(size); round++) {
        const int n = algorithm->round(rank, size, n_elems, round, moves);
        for (int i = 0; i < n; i++) {
            if (moves[i].kind == DT_SEND || moves[i].kind == DT_SEND_INPUT) {
                sent.messages++;
                sent.elements += moves[i].end - moves[i].begin;
            }
        }
    }
    return sent;
}
