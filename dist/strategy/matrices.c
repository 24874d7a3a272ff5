#include "dist/strategy/matrices.h"

_Static_assert(DT_MAX_LAYERS <= DT_MAX_MATRICES, "a dense layer is a matrix");

struct dt_codec_layout dt_matrices_of(const struct dt_model *model)
{
    struct dt_codec_layout out = {.n_matrices = 0};
    for (int b = model->n_blocks - 1; b >= 0; b--) { /* the arena's order */
        const struct dt_block *block = &model->blocks[b];
        if (block->linear == DT_LINEAR_DENSE) {
            const struct dt_param *weight = &model->params[block->weight];
            out.matrices[out.n_matrices++] = (struct dt_matrix){
                .begin = weight->offset, .n_rows = weight->dims[0], .n_cols = weight->dims[1]};
        }
    }
    return out;
}
