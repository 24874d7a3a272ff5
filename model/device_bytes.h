/* How much memory a backend on a device of its own allocates beside the network's, known without the device: the backend allocates
 * what this says, and `dtrain plan` adds it up. */
#ifndef DT_MODEL_DEVICE_BYTES_H
#define DT_MODEL_DEVICE_BYTES_H

#include "model/backend.h"

#define DT_DEVICE_WORKSPACE_BYTES ((size_t)32 << 20) /* what cuBLAS advises for sm_90; ours, so that its results are repeatable */
#define DT_DEVICE_N_WORKSPACES 2                     /* what runs at the same time cannot share one */

/* Whether a block is a head: the last dense layer, with few enough inputs and outputs for a kernel that does the loss as well, and
 * nothing else of its own to do. It needs no memory. */
#define DT_DEVICE_HEAD_INPUTS 1024
#define DT_DEVICE_HEAD_OUTPUTS 32
static inline bool dt_device_is_head(const struct dt_model *model, int index)
{
    const struct dt_block *b = &model->blocks[index];
    return index == model->n_blocks - 1 && b->linear == DT_LINEAR_DENSE && b->activation == DT_ACTIVATION_NONE &&
           b->dropout_rate == 0 && dt_shape_elems(b->in) <= DT_DEVICE_HEAD_INPUTS && b->linear_out.c <= DT_DEVICE_HEAD_OUTPUTS;
}

struct dt_device_block_bytes {
    size_t z;      /* the linear operation's output, which is kept */
    size_t dz;     /* its gradient; 0: it takes the place of z */
    size_t weight; /* copy of the weights in the libraries' order and type; 0: the arena's own serve */
    size_t dw;     /* a filter's gradient, in the libraries' order and type */
};

static inline struct dt_device_block_bytes dt_device_block_bytes(const struct dt_model *model, int index,
                                                                 enum dt_precision precision, int capacity)
{
    const struct dt_block *block = &model->blocks[index];
    const bool half = precision == DT_PRECISION_BF16, conv = block->linear == DT_LINEAR_CONV;
    const size_t each = half ? 2 : sizeof(float);
    if (block->linear == DT_LINEAR_NONE || dt_device_is_head(model, index)) {
        return (struct dt_device_block_bytes){0};
    }
    const size_t n_weights = model->params[block->weight].n_elems;
    const size_t z = (size_t)capacity * dt_shape_elems(block->linear_out) * each;
    const bool overlap = block->pool != DT_POOL_NONE && block->pool_stride < block->pool_size; /* of windows: z is read again */
    return (struct dt_device_block_bytes){
        .z = z, .dz = overlap ? z : 0, .weight = conv || half ? n_weights * each : 0, .dw = conv ? n_weights * each : 0};
}

#endif
