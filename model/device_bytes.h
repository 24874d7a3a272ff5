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

/* Whether a block is a convolution of the samples that is small enough for kernels that read them where the data set has them, an
 * image at a time; such kernels use the arena's own weights. Where nothing but an activation follows, they need no z either. */
#define DT_DEVICE_FIRST_CONV_WEIGHTS 2048
#define DT_DEVICE_FIRST_CONV_IMAGE 6144 /* elements, with the zeros around it */
static inline bool dt_device_is_first_conv(const struct dt_model *model, int index)
{
    const struct dt_block *b = &model->blocks[index];
    if (index > 0 || b->linear != DT_LINEAR_CONV || b->in.c > 4) {
        return false;
    }
    const size_t h = (size_t)(b->linear_out.h - 1) * (size_t)b->stride + (size_t)b->kernel,
                 w = (size_t)(b->linear_out.w - 1) * (size_t)b->stride + (size_t)b->kernel;
    const size_t n_taps = (size_t)b->in.c * (size_t)b->kernel * (size_t)b->kernel, k = (size_t)b->linear_out.c;
    const size_t n_threads = (k % 8 == 0 ? k / 8 : k) * ((n_taps + 8) / 9); /* 8 channels and 9 taps each, on the way back */
    return n_taps * k <= DT_DEVICE_FIRST_CONV_WEIGHTS && (size_t)b->in.c * h * w <= DT_DEVICE_FIRST_CONV_IMAGE && n_threads <= 256;
}

static inline bool dt_device_is_plain_first_conv(const struct dt_model *model, int index)
{
    const struct dt_block *b = &model->blocks[index];
    return dt_device_is_first_conv(model, index) && b->pool == DT_POOL_NONE && b->dropout_rate == 0 && !b->canonical;
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
    if (block->linear == DT_LINEAR_NONE || dt_device_is_head(model, index) || dt_device_is_plain_first_conv(model, index)) {
        return (struct dt_device_block_bytes){0};
    }
    const bool overlap = block->pool != DT_POOL_NONE && block->pool_stride < block->pool_size; /* of windows: z is read again */
    const size_t z = (size_t)capacity * dt_shape_elems(block->linear_out) * each, dz = overlap ? z : 0;
    if (dt_device_is_first_conv(model, index)) {
        return (struct dt_device_block_bytes){.z = z, .dz = dz};
    }
    const size_t n_weights = model->params[block->weight].n_elems;
    return (struct dt_device_block_bytes){
        .z = z, .dz = dz, .weight = conv || half ? n_weights * each : 0, .dw = conv ? n_weights * each : 0};
}

#endif
