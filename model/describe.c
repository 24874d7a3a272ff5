/* Names, work and memory of a model, for people. */
#include "base/arithmetic.h"
#include "model/layers/layers.h"

const char *const dt_activation_names[] = {DT_ACTIVATION_LIST(DT_ENUM_NAME)};

double dt_block_flops(const struct dt_block *block)
{
    const double outputs = (double)dt_shape_elems(block->linear_out);
    switch (block->linear) {
    case DT_LINEAR_CONV:
        return 2.0 * outputs * block->in.c * block->kernel * block->kernel;
    case DT_LINEAR_DENSE:
        return 2.0 * outputs * (double)dt_shape_elems(block->in);
    case DT_LINEAR_NONE:
        break;
    }
    return 0;
}

size_t dt_model_n_bytes(const struct dt_model *model, int capacity, int n_optimizer_states)
{
    const size_t n_weights = model->arena_elems * (size_t)(2 + n_optimizer_states);
    if (model->graph != NULL) {
        return sizeof(float) * (n_weights + dt_graph_elems(model, capacity));
    }
    size_t n_elems = dt_shape_elems(model->spec.input); /* per sample */
    size_t deltas[2][2] = {{0}};                        /* by turns; of a chunk, or not */
    for (int b = 0; b < model->n_blocks; b++) {
        const size_t n = dt_shape_elems(model->blocks[b].out);
        size_t *largest = &deltas[b % 2][b < model->n_spatial - 1];
        *largest = dt_max_size(*largest, n);
        n_elems += n;
    }
    n_elems += deltas[0][0] + deltas[0][1] + deltas[1][0] + deltas[1][1];
    return sizeof(float) * (n_weights + n_elems * (size_t)capacity);
}
