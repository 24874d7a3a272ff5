/* The layers beyond a plain chain that a program links by naming dt_all_layers. */
#include "model/layers/layers.h"

#define DT_OPERATION(symbol) dt_ref_##symbol
DT_OPERATION_LIST(DT_OPERATION_DECLARATION)
static const struct dt_layer_ops *const ref[] = {DT_OPERATION_LIST(DT_OPERATION_ENTRY)};

const struct dt_layer_entries dt_all_layers = {.enter = dt_layers_enter,
                                               .lower = dt_layer_lower,
                                               .finish = dt_layers_finish,
                                               .ref = ref,
                                               .operations = &dt_block_operations};
