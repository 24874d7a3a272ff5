/* Memory that a backend on a separate device allocates besides the network's, computed without the
 * device: the backend allocates these sizes, and `dtrain plan` adds them up. */
#ifndef DT_MODEL_DEVICE_BYTES_H
#define DT_MODEL_DEVICE_BYTES_H

#include "model/backend.h"

#define DT_DEVICE_WORKSPACE_BYTES \
    ((size_t)32                   \
     << 20) /* cuBLAS's advice for sm_90; dtrain allocates it, so that results are repeatable */
#define DT_DEVICE_N_WORKSPACES 2 /* concurrent calls cannot share one */

/* True if a block is a head: the last dense layer, with few enough inputs and outputs for a kernel
 * that also computes the loss, and without activation and dropout. It needs no extra memory. */
#define DT_DEVICE_HEAD_INPUTS 1024
#define DT_DEVICE_HEAD_OUTPUTS 32
static inline bool dt_device_is_head(const struct dt_model *model, int index)
{
    const struct dt_block *b = &model->blocks[index];
    return index == model->n_blocks - 1 && b->linear == DT_LINEAR_DENSE &&
           b->activation == DT_ACTIVATION_NONE && b->dropout_rate == 0 &&
           dt_shape_elems(b->in) <= DT_DEVICE_HEAD_INPUTS &&
           b->linear_out.c <= DT_DEVICE_HEAD_OUTPUTS;
}

/* True if a block is a convolution of the samples that is small enough for kernels that read the
 * images in the data set, one at a time; such kernels use the arena's own weights. If only an
 * activation follows, they need no z either. In a graph others may read the samples, too. */
#define DT_DEVICE_FIRST_CONV_WEIGHTS 2048
#define DT_DEVICE_FIRST_CONV_IMAGE 6144 /* elements, with the zeros around it */
static inline bool dt_device_is_first_conv(const struct dt_model *model, int index)
{
    const struct dt_block *b = &model->blocks[index];
    if (index > 0 || model->is_graph || b->linear != DT_LINEAR_CONV || b->in.c > 4) {
        return false;
    }
    const size_t h = (size_t)(b->linear_out.h - 1) * (size_t)b->stride + (size_t)b->kernel,
                 w = (size_t)(b->linear_out.w - 1) * (size_t)b->stride + (size_t)b->kernel;
    const size_t n_taps = (size_t)b->in.c * (size_t)b->kernel * (size_t)b->kernel,
                 k = (size_t)b->linear_out.c;
    const size_t n_threads =
        (k % 8 == 0 ? k / 8 : k) * ((n_taps + 8) / 9); /* 8 channels and 9 taps each, in backward */
    return n_taps * k <= DT_DEVICE_FIRST_CONV_WEIGHTS &&
           (size_t)b->in.c * h * w <= DT_DEVICE_FIRST_CONV_IMAGE && n_threads <= 256;
}

static inline bool dt_device_is_plain_first_conv(const struct dt_model *model, int index)
{
    const struct dt_block *b = &model->blocks[index];
    return dt_device_is_first_conv(model, index) && b->pool == DT_POOL_NONE &&
           b->activation != DT_ACTIVATION_GELU && /* its slope needs z */
           b->dropout_rate == 0 && !b->canonical;
}

/* True if a block is a convolution followed by relu only: the backward pass then needs its output
 * alone. */
static inline bool dt_device_is_plain_conv(const struct dt_model *model, int index)
{
    const struct dt_block *b = &model->blocks[index];
    return index < model->n_blocks - 1 && b->linear == DT_LINEAR_CONV &&
           !dt_device_is_first_conv(model, index) && b->activation == DT_ACTIVATION_RELU &&
           b->pool == DT_POOL_NONE && b->dropout_rate == 0 && !b->canonical;
}

/* True if the pool stores its winners, so that the backward pass need not read the pool's input. */
static inline bool dt_device_keeps_winners(const struct dt_block *block)
{
    return block->pool == DT_POOL_MAX &&
           block->pool_h <=
               11 && /* one byte: the element's index in the window, and a bit for relu */
           (block->activation == DT_ACTIVATION_NONE || block->activation == DT_ACTIVATION_RELU);
}

#define DT_DEVICE_BIAS_COPIES 32 /* blocks with a copy: an optimizer step has no room for more */

struct dt_device_block_bytes {
    size_t z;  /* the linear operation's output, or, if kept, relu's result; 0: y replaces it */
    size_t dz; /* its gradient; 0: it overwrites z */
    size_t
        bias; /* copy of a convolution's bias in the libraries' type; 0: the arena's own is used */
    size_t weight;  /* copy of the weights in the libraries' layout and type; 0: the arena's own are
                       used */
    size_t dw;      /* a filter's gradient, in the libraries' layout and type */
    size_t winners; /* the elements that a max pool took, one byte each; 0: recomputed from z */
    size_t signs;   /* one bit per output of a plain first convolution: its relu let it pass; 0:
                       recomputed from y */
};

static inline size_t dt_device_all_bytes(const struct dt_device_block_bytes *b)
{
    return b->z + b->dz + b->bias + b->weight + b->dw + b->winners + b->signs;
}

static inline struct dt_device_block_bytes dt_device_block_bytes(const struct dt_model *model,
                                                                 int index,
                                                                 enum dt_precision precision,
                                                                 int capacity)
{
    const struct dt_block *block = &model->blocks[index];
    const bool half = precision == DT_PRECISION_BF16, conv = block->linear == DT_LINEAR_CONV;
    const size_t each = half ? 2 : sizeof(float), n = (size_t)capacity,
                 n_linear = dt_shape_elems(block->linear_out);
    struct dt_device_block_bytes bytes = {
        .winners = dt_device_keeps_winners(block) ? n * dt_shape_elems(block->pool_out) : 0};
    if (dt_device_is_plain_first_conv(model, index)) {
        bytes.signs = block->activation == DT_ACTIVATION_RELU && block->linear_out.c % 8 == 0
                          ? n * n_linear / 8
                          : 0;
        return bytes;
    }
    if (block->linear == DT_LINEAR_NONE || dt_device_is_head(model, index)) {
        return bytes;
    }
    const bool overlap = block->pool != DT_POOL_NONE && block->pool_stride < block->pool_h;
    const bool plain = dt_device_is_plain_conv(model, index);
    bytes.z = plain ? 0 : n * n_linear * each;
    bytes.dz =
        plain || (overlap && bytes.winners == 0) ? n * n_linear * each : 0; /* z is read again */
    if (!dt_device_is_first_conv(model, index)) {
        const size_t n_weights = model->params[block->weight].n_elems;
        bytes.weight = conv || half ? n_weights * each : 0;
        bytes.dw = conv ? n_weights * each : 0;
        bytes.bias =
            conv && half && block->activation == DT_ACTIVATION_RELU && index < DT_DEVICE_BIAS_COPIES
                ? (size_t)block->linear_out.c * each
                : 0;
    }
    return bytes;
}

#endif
