/* Groups layers into blocks, and assigns every parameter its place. A block is at most one linear
 * operation (convolution or dense) and then, each optional and in this order: bias, activation,
 * pool, dropout, flatten. Any sequence of layers is a chain of blocks, and a backend can fuse a
 * block as a whole. All parameters lie in one flat float buffer, the arena, all gradients in a
 * second one of the same layout. Blocks lie in it in reverse order, so that the backward pass
 * completes gradients front to back, and any bucket is a contiguous range. Names, shapes and
 * element order are PyTorch's: conv weight K C R S ("OIHW"), dense weight out in. One exception:
 * the inputs of the first dense layer after a flatten are in H W C order, as backends store images,
 * so that no step reorders anything; dt_param_at gives an element's place. */
#ifndef DT_MODEL_BLOCK_H
#define DT_MODEL_BLOCK_H

#include <stdbool.h>

#include "base/status.h"
#include "model/spec.h"

#define DT_MAX_PARAMS (2 * DT_MAX_LAYERS)
#define DT_PARAM_ALIGN 16 /* floats: each tensor begins on a cache line; the gaps stay zero */
#define DT_NO_PARAM (-1)
#define DT_BLOCK_NAME_SIZE 24

enum dt_linear { DT_LINEAR_NONE, DT_LINEAR_CONV, DT_LINEAR_DENSE };
enum dt_pool { DT_POOL_NONE, DT_POOL_MAX, DT_POOL_AVG };

struct dt_param {
    char name[40]; /* "conv1.weight" */
    int n_dims;
    size_t dims[4];
    size_t offset; /* into the arena, in floats */
    size_t n_elems;
    struct dt_shape image; /* of a weight whose inputs are this image, H W C; all 0 for others */
    enum dt_init init;     /* weights: never DT_INIT_AUTO; biases are zero whatever its value */
    size_t fan_in, fan_out;
    bool is_bias; /* or of a normalization: begins with `initial` */
    float initial;
};

struct dt_block {
    char name[DT_BLOCK_NAME_SIZE]; /* "conv2", "fc1", or "block3" for one without parameters */
    int first_layer;    /* index into the spec's layers; the block ends before the next block's */
    struct dt_shape in; /* after a flatten: { units, 1, 1 } */

    enum dt_linear linear;
    int kernel, stride;             /* conv */
    int pad_before_h, pad_before_w; /* conv: zeros above and to the left; "same" adds an unpaired
                                       zero below and to the right */
    struct dt_shape linear_out;     /* == in without a linear operation */
    int weight, bias;               /* indices into dt_model.params or DT_NO_PARAM */

    enum dt_activation activation;

    enum dt_pool pool;
    int pool_h, pool_w, pool_stride; /* the window is a square, or the whole image */
    struct dt_shape pool_out;        /* == linear_out without a pool */

    float dropout_rate;      /* 0: none */
    uint32_t dropout_stream; /* RNG stream: the dropout layer's index in the spec */

    bool flatten;   /* from here on outputs are a row of units: { units, 1, 1 } */
    bool canonical; /* with flatten: outputs in C H W order, because no dense layer follows; else in
                       the image's, H W C */
    struct dt_shape out;
    /* Beyond a plain chain (model/layers/layers.h), each 0 for none: 1 + the index of the layer
     * that takes the linear operation's place, 1 + that of its first buffer, and 1 + the outputs
     * that the block reads, where they are not the last block's: 0 are the samples, i + 1 block
     * i's. */
    int row, buffer, inputs[DT_MAX_INPUTS];
    size_t grad_begin, grad_end; /* its range of the arena; empty without parameters */
    float lr;                    /* factor of the learning rate; 0: frozen, its weights stay */
};

struct dt_model {
    struct dt_model_spec spec;
    int n_blocks;
    struct dt_block blocks[DT_MAX_LAYERS];
    int n_spatial; /* leading blocks whose input is an image, up to the one with `flatten` */
    int n_params, n_buffers;
    struct dt_param params[DT_MAX_PARAMS],
        buffers[DT_MAX_PARAMS];       /* in forward order; buffers: saved, and not trained */
    size_t n_parameters;              /* trainable parameters, without alignment gaps */
    size_t arena_elems, buffer_elems; /* with alignment gaps */
    size_t frozen_elems;              /* at the arena's end, of first blocks that are frozen */
    bool has_rates;                   /* blocks are frozen, or have factors of the learning rate */
    bool is_graph; /* a block has an operation of its own, or reads other blocks than the last */
    int n_outputs; /* logits, or regression outputs, per sample */
};

/* Layers beyond a plain chain, for a program that links them (model/layers/layers.h). */
struct dt_lowering;
struct dt_layer_entries {
    enum dt_status (*enter)(struct dt_lowering *lowering); /* before each layer */
    /* Fills the block that a layer has opened. */
    enum dt_status (*lower)(struct dt_lowering *lowering, const struct dt_layer_spec *layer);
    enum dt_status (*finish)(struct dt_lowering *lowering); /* after the last layer */
    const struct dt_layer_ops *const *ref;                  /* on the reference backend, by type */
    const struct dt_block_operations *operations;           /* model/network.h */
};

/* Fills `model` from `spec` (copied). DT_CONFIG names the layer: "model.layers[2] conv2d: kernel 7
 * does not fit input 4x4 (...)".
 */
enum dt_status dt_model_lower(const struct dt_model_spec *spec, struct dt_model *model);

/* For a program that fills the blocks itself: adds a block's weight and bias; then, once, places
 * all tensors, resolves DT_INIT_AUTO, and sets n_spatial and is_graph. */
enum dt_status dt_block_add_params(struct dt_model *model, struct dt_block *block,
                                   enum dt_init init);
void dt_model_place(struct dt_model *model);

/* Zeros below, or to the right of, a convolution's input: as many as its last window takes. */
static inline int dt_conv_pad_after(const struct dt_block *block, int in, int before, int out)
{
    const int n = (out - 1) * block->stride + block->kernel - in - before;
    return n > 0 ? n : 0;
}

/* Offset in the arena, relative to the tensor's, of element i in PyTorch's order. */
size_t dt_param_at(const struct dt_param *param, size_t i);

/* Multiplications and additions (2 each) of one sample's forward pass through a block's linear
 * operation. */
double dt_block_flops(const struct dt_block *block);

/* Input i of a block as an index into the network's outputs: 0 are the samples, i + 1 is block i's
 * output; -1: none. */
static inline int dt_block_input(const struct dt_model *model, int block, int i)
{
    const int input = model->blocks[block].inputs[i];
    return input > 0 ? input - 1 : i == 0 ? block : -1;
}

/* Writes the initial weights to `arena` (arena_elems floats, host memory); they depend only on
 * (seed, tensor, element). */
void dt_model_init(const struct dt_model *model, uint64_t seed, float *arena);

#endif
