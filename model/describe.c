/* Names, work and memory of a model, for people. */
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
    DT_ASSERT(capacity >= 1 && n_optimizer_states >= 0 && n_optimizer_states <= 3);
    const struct dt_network_plan whole = {.chunk = capacity};
    struct dt_network_layout layout;
    dt_network_lay_out(model, &whole, &layout);
    size_t n = layout.part + dt_operation_elems(model) + dt_shape_elems(model->spec.input);
    for (int i = 0; i < layout.n_arrays; i++) {
        n += layout.arrays[i].n_elems;
    }
    for (int b = 0; b < model->n_blocks; b++) {
        n += dt_shape_elems(model->blocks[b].out);
    }
    return sizeof(float) * (model->arena_elems * (size_t)(2 + n_optimizer_states) +
                            n * (size_t)capacity + model->buffer_elems);
}
