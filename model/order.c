/* Reorders for files the one tensor whose order in the arena is not PyTorch's: the weight of a
 * dense layer after a flatten. */
#include <stdlib.h>
#include <string.h>

#include "model/block.h"

/* (n_columns, n_rows) from (n_rows, n_columns) */
static void transpose(size_t n_rows, size_t n_columns, const float *from, float *to)
{
    for (size_t column = 0; column < n_columns; column++) {
        for (size_t row = 0; row < n_rows; row++) {
            *to++ = from[row * n_columns + column];
        }
    }
}

static enum dt_status reorder_param(const struct dt_param *param, bool to_file, float *tensor)
{
    const size_t n_c = (size_t)param->image.c,
                 n_places = (size_t)param->image.h * (size_t)param->image.w, n = n_c * n_places;
    float *reordered = malloc(n * sizeof *reordered);
    if (reordered == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the weights' order in a checkpoint");
    }
    for (size_t row = 0; row < param->n_elems / n; row++, tensor += n) {
        transpose(to_file ? n_places : n_c, to_file ? n_c : n_places, tensor, reordered);
        memcpy(tensor, reordered, n * sizeof *reordered);
    }
    free(reordered);
    return DT_OK;
}

enum dt_status dt_model_reorder(const struct dt_model *model, bool to_file, float *arena)
{
    for (int p = 0; p < model->n_params; p++) {
        if (model->params[p].image.c > 0) {
            DT_TRY(reorder_param(&model->params[p], to_file, arena + model->params[p].offset));
        }
    }
    return DT_OK;
}
