#include <math.h>

#include "base/rng.h"
#include "model/block.h"

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
