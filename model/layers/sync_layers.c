/* Statistics of all ranks' samples, as torch.nn.SyncBatchNorm has them: one sum in a layer's
 * forward pass, one in its backward pass. */
#include "base/arithmetic.h"
#include "model/layers/layers.h"

size_t dt_rank_sum_values(const struct dt_model *model)
{
    size_t most = 0;
    for (int b = 0; b < model->n_blocks; b++) {
        const struct dt_block *block = &model->blocks[b];
        const bool adds = block->row > 0 && model->spec.layers[block->row - 1].sync;
        most = adds ? dt_max_size(most, 2 * (size_t)block->in.c + 1) : most;
    }
    return most;
}

/* Squares of floats, added in double, lose less of a variance than the floats have lost of it
 * already, unless the mean is 2^29 deviations. */
enum dt_status dt_moments_join(const struct dt_layer_call *call, double *moments)
{
    const size_t n_values = 2 * (size_t)call->block->in.c;
    double *n = &moments[n_values];
    DT_ASSERT(*n >= 0);
    if (call->ranks == NULL) {
        return DT_OK;
    }
    DT_ASSERT(call->pass->training);
    for (double *m = moments; m < n; m += 2) {
        m[1] = *n > 0 ? *n * (m[1] + m[0] * m[0]) : 0;
        m[0] = *n > 0 ? *n * m[0] : 0;
    }
    DT_TRY(
        call->ranks->add(call->ranks, moments, n_values + 1, "sum of a batch_norm's statistics"));
    for (double *m = moments; m < n; m += 2) {
        m[0] /= *n;
        m[1] = m[1] / *n - m[0] * m[0];
        m[1] = m[1] < 0 ? 0 : m[1]; /* a NaN stays one */
    }
    return DT_OK;
}

enum dt_status dt_sums_join(const struct dt_layer_call *call, double *sums)
{
    return call->ranks == NULL ? DT_OK
                               : call->ranks->add(call->ranks, sums, 2 * (size_t)call->block->in.c,
                                                  "sum of a batch_norm's gradients");
}
