/* Layers by the draw, for tests that compare backends over many kinds of block. */
#ifndef DT_TESTS_LAYER_DRAWS_H
#define DT_TESTS_LAYER_DRAWS_H

#include "tests/lib/guarded.h"

#include "model/spec.h"

#define N_POOLS 6
static const struct dt_layer_spec pools[N_POOLS] = {
    {.type = DT_LAYER_MAX_POOL2D, .size = 2, .stride = 2},
    {.type = DT_LAYER_MAX_POOL2D, .size = 3, .stride = 2},
    {.type = DT_LAYER_AVG_POOL2D, .size = 2, .stride = 2},
    {.type = DT_LAYER_AVG_POOL2D, .size = 2, .stride = 1},
    {.type = DT_LAYER_MAX_POOL2D, .size = 2, .stride = 3},
    {.type = DT_LAYER_GLOBAL_AVG_POOL}};

static inline void add_layer(struct dt_model_spec *spec, struct dt_layer_spec layer)
{
    spec->layers[spec->n_layers++] = layer;
}

static inline void add_dropout(struct dt_model_spec *spec) /* decided by 8 bits, or by 16 */
{
    add_layer(spec,
              (struct dt_layer_spec){.type = DT_LAYER_DROPOUT, .rate = draw(2) == 0 ? 0.25 : 0.3});
}

/* A pool in 6 of n_cases, dropout in a third. */
static inline void add_pool_and_dropout(struct dt_model_spec *spec, uint32_t n_cases)
{
    const uint32_t pool = draw(n_cases);
    if (pool < N_POOLS) {
        add_layer(spec, pools[pool]);
    }
    if (draw(3) == 0) {
        add_dropout(spec);
    }
}

static inline struct dt_layer_spec draw_activation(void) /* a layer of its own */
{
    return (struct dt_layer_spec){
        .type = (enum dt_layer_type)(DT_LAYER_RELU + (int)draw(N_ACTIVATIONS - 1))};
}

#endif
