/* Names, work and memory of a model, for people. */
#include "model/network_parts.h"

const char *const dt_activation_names[] = {
#define DT_NAME(constant, name) [constant] = name,
    DT_ACTIVATION_LIST(DT_NAME)};

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
    const struct dt_network_plan plan = {0}; /* shares no memory */
    size_t n_elems = 0;                      /* per sample */
    for (int i = 0; i <= model->n_blocks; i++) {
        n_elems += dt_network_sample_elems(model, i);
    }
    for (int i = 0; i < 2; i++) {
        n_elems += dt_network_delta_elems(model, &plan, false, i) +
                   dt_network_delta_elems(model, &plan, true, i);
    }
    return sizeof(float) *
           (model->arena_elems * (size_t)(2 + n_optimizer_states) + n_elems * (size_t)capacity);
}
