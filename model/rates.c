#include "base/arithmetic.h"
#include "model/block.h"
#include "model/network.h"
#include "model/optimizer.h"

enum dt_status dt_optimizer_apply_rates(struct dt_optimizer own, struct dt_update update,
                                        size_t begin, size_t end, float *params, const float *grads)
{
    const struct dt_model *model = own.model;
    const float lr = update.lr;
    double sum;
    if (update.clip_norm > 0) {
        DT_TRY(own.backend->ops->sum_squares(own.backend, end - begin, grads, &sum));
        update.grad_scale = dt_update_clipped_scale(&update, sum);
        update.clip_norm = 0;
    }
    own.by_rates = NULL;
    for (const struct dt_block *b = model->blocks; b < model->blocks + model->n_blocks; b++) {
        const size_t from = dt_max_size(begin, b->grad_begin), to = dt_min_size(end, b->grad_end);
        update.lr = lr * b->lr;
        if (from < to && b->lr > 0) {
            DT_TRY(dt_optimizer_apply_range(&own, &update, from, to, params, grads + from - begin));
        }
    }
    return DT_OK;
}
