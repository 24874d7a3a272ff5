/* Which samples a batch consists of, in so few numbers that a GPU can be handed them and draw for
 * itself: data/shard.c makes them from (mode, seed, epoch, step, rank, size). Header only; nvcc
 * compiles it too. */
#ifndef DT_BASE_DRAW_H
#define DT_BASE_DRAW_H

#include <stdbool.h>

#include "base/permutation.h"

struct dt_draw {
    struct dt_permutation
        order; /* in which the rank goes through its rows in this epoch, if it shuffles */
    bool shuffle;
    uint32_t begin;     /* of the batch, in that order */
    uint32_t n;         /* samples of the batch; may be 0 */
    uint32_t like_step; /* the first step in which every rank has as many as in this one: the same
                           number on all ranks */
    uint32_t first_id,
        id_stride; /* row i is sample first_id + i * id_stride of the whole data set */
};

/* Of sample i < n of the batch. */
static inline DT_HOST_DEVICE uint32_t dt_draw_row(const struct dt_draw *draw, uint32_t i)
{
    return draw->shuffle ? dt_permutation_at(&draw->order, draw->begin + i) : draw->begin + i;
}

static inline DT_HOST_DEVICE uint32_t dt_draw_id(const struct dt_draw *draw, uint32_t row)
{
    return draw->first_id + row * draw->id_stride;
}

#endif
