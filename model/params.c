/* The weights of blocks: their tensors, the place of each in the arena, and initial values. */
#include <math.h>
#include <stdio.h>

#include "base/arithmetic.h"
#include "base/rng.h"
#include "model/block.h"

static int add_param(struct dt_model *model, const char *block_name, const char *kind, int n_dims,
                     const size_t *dims)
{
    DT_ASSERT(model->n_params < DT_MAX_PARAMS);
    struct dt_param *param = &model->params[model->n_params];
    *param = (struct dt_param){.n_dims = n_dims, .n_elems = 1, .is_bias = n_dims == 1};
    snprintf(param->name, sizeof param->name, "%s.%s", block_name, kind);
    for (int i = 0; i < n_dims; i++) {
        param->dims[i] = dims[i];
        param->n_elems *= dims[i];
    }
    return model->n_params++;
}

enum dt_status dt_block_add_params(struct dt_model *model, struct dt_block *block,
                                   enum dt_init init)
{
    DT_ASSERT(block->linear != DT_LINEAR_NONE);
    const size_t kernel = (size_t)block->kernel;
    const size_t dims[] = {(size_t)block->linear_out.c, (size_t)block->in.c, kernel, kernel};
    block->weight =
        add_param(model, block->name, "weight", block->linear == DT_LINEAR_CONV ? 4 : 2, dims);
    block->bias = add_param(model, block->name, "bias", 1, dims);
    struct dt_param *weight = &model->params[block->weight];
    weight->fan_in = weight->n_elems / dims[0];
    weight->fan_out = weight->n_elems / dims[1];
    weight->init = init;
    return weight->n_elems <= (size_t)1 << 31
               ? DT_OK
               : dt_error(DT_CONFIG, "more than 2^31 weights (make it smaller)");
}

void dt_model_place(struct dt_model *model)
{
    for (int b = model->n_blocks - 1; b >= 0; b--) {
        struct dt_block *block = &model->blocks[b];
        block->grad_begin = model->arena_elems;
        const int members[] = {block->weight, block->bias};
        for (int i = 0; i < 2 && members[i] != DT_NO_PARAM; i++) {
            struct dt_param *param = &model->params[members[i]];
            DT_ASSERT(param->n_elems > 0 && model->arena_elems % DT_PARAM_ALIGN == 0);
            param->offset = model->arena_elems;
            model->n_parameters += param->n_elems;
            model->arena_elems += dt_round_up(param->n_elems, DT_PARAM_ALIGN);
            if (param->init == DT_INIT_AUTO) {
                param->init = block->activation == DT_ACTIVATION_RELU ? DT_INIT_HE_UNIFORM
                                                                      : DT_INIT_GLOROT_UNIFORM;
            }
        }
        DT_ASSERT((members[0] == DT_NO_PARAM) == (members[1] == DT_NO_PARAM));
        block->grad_end = model->arena_elems;
        block->lr = block->lr < 0 ? 0.0f : block->lr > 0 ? block->lr : 1.0f;
        model->has_rates = model->has_rates || block->lr != 1;
        const size_t size = block->grad_end - block->grad_begin;
        model->frozen_elems = size > 0 && block->lr > 0 ? 0 : model->frozen_elems + size;
        model->n_spatial = dt_max(model->n_spatial, block->flatten ? b + 1 : 0);
        model->is_graph = model->is_graph || block->row > 0 || dt_block_input(model, b, 0) != b;
    }
}

size_t dt_param_at(const struct dt_param *param, size_t i)
{
    DT_ASSERT(i < param->n_elems);
    const size_t n_c = (size_t)param->image.c,
                 n_places = (size_t)param->image.h * (size_t)param->image.w;
    if (n_c == 0) {
        return i;
    }
    const size_t row = i / (n_c * n_places), column = i % (n_c * n_places);
    return row * n_c * n_places + column % n_places * n_c + column / n_places;
}

/* Half the width of a uniform distribution, or the standard deviation of a normal one. */
static double init_width(const struct dt_param *param, bool normal)
{
    DT_ASSERT(param->is_bias || (param->init != DT_INIT_AUTO && param->fan_in > 0));
    const bool he = param->init == DT_INIT_HE_UNIFORM || param->init == DT_INIT_HE_NORMAL;
    const double variance = 2.0 / (double)(param->fan_in + (he ? 0 : param->fan_out));
    return sqrt(normal ? variance : 3.0 * variance);
}

static float draw(const struct dt_rng4 *words, bool normal, double width)
{
    const double u = ((double)words->v[0] + 0.5) / 4294967296.0;
    if (!normal) {
        return (float)(width * (2.0 * u - 1.0));
    }
    const double v = (double)words->v[1] / 4294967296.0; /* Box and Muller 1958 */
    return (float)(width * sqrt(-2.0 * log(u)) * cos(2.0 * 3.14159265358979323846 * v));
}

void dt_model_init(const struct dt_model *model, uint64_t seed, float *arena)
{
    for (size_t i = 0; i < model->arena_elems; i++) {
        arena[i] = 0.0f;
    }
    for (int p = 0; p < model->n_params; p++) {
        const struct dt_param *param = &model->params[p];
        DT_ASSERT(param->offset + param->n_elems <= model->arena_elems);
        const bool normal =
            param->init == DT_INIT_HE_NORMAL || param->init == DT_INIT_GLOROT_NORMAL;
        const double width = init_width(param, normal);
        for (size_t i = 0; i < param->n_elems; i++) {
            const struct dt_rng4 words =
                dt_rng_words(seed, DT_RNG_INIT, (uint32_t)p, 0, 0, (uint32_t)i);
            arena[param->offset + dt_param_at(param, i)] =
                param->is_bias ? param->initial : draw(&words, normal, width);
        }
    }
}
