/* The layers beyond a plain chain that a program links by naming dt_all_layers. */
#include "model/layers/layers.h"

static const struct dt_layer_ops *const ref[] = {&dt_ref_batch_norm, &dt_ref_add, NULL};

const struct dt_layer_rows dt_all_layers = {
    .enter = dt_layers_enter, .lower = dt_layer_lower, .finish = dt_layers_finish, .ref = ref};
