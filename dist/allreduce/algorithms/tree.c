/* Tree: sums go up a binomial tree to rank 0 and down again, in 2 log2 n rounds. Few messages, but
 * each of the whole vector, a large one in segments. */
#include "dist/allreduce/algorithms/fold.h"
#include "dist/allreduce/algorithms/segments.h"

/* Level l joins ranks that are 2^l apart, of which the lower one is a multiple of 2^(l + 1). */
static int segment_round(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    const int n_levels = dt_log2_ceil(size);
    const bool up = round < n_levels;
    const int distance = 1 << (up ? round : 2 * n_levels - 1 - round),
              place = rank % (2 * distance);
    if (place == distance) {
        moves[0] = (struct dt_move){
            .kind = up ? DT_SEND : DT_REPLACE, .peer = rank - distance, .end = n_elems};
        return 1;
    }
    if (place == 0 && rank + distance < size) {
        moves[0] = (struct dt_move){
            .kind = up ? DT_ADD : DT_SEND, .peer = rank + distance, .end = n_elems};
        return 1;
    }
    return 0;
}

static int depth_of(int size)
{
    return 2 * dt_log2_ceil(size);
}

int dt_tree_n_rounds(int size, size_t n_elems)
{
    return dt_segments_n_rounds(depth_of(size), n_elems);
}

int dt_tree_round(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    return dt_segments_round(segment_round, depth_of(size), rank, size, n_elems, round, moves);
}

struct dt_traffic dt_tree_formula(int size, size_t n_elems)
{
    const uint64_t n_edges = (uint64_t)size - 1;
    return (struct dt_traffic){.messages = 2 * n_edges * (uint64_t)dt_n_segments(n_elems),
                               .bytes = 2 * n_edges * n_elems * sizeof(float)};
}
