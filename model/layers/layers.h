/* Layers beyond a plain chain: operations in the place of a block's linear one, which look at a
 * whole batch or at several inputs. A program names them in its model's spec, as dt_all_layers, and
 * links them so. */
#ifndef DT_MODEL_LAYERS_LAYERS_H
#define DT_MODEL_LAYERS_LAYERS_H

#include "model/network.h"

/* The state of dt_model_lower. */
struct dt_lowering {
    struct dt_model *model;
    int layer;              /* being lowered */
    struct dt_block *block; /* being filled; NULL before the first */
    int next_stage;         /* the earliest that still fits into the block */
    int input;              /* the next block's inputs[0] */
    struct dt_shape shape;  /* of the activations so far */
    struct dt_shape image;  /* that a dense layer would read, if the order of H W C matters */
    bool flat;
    int n_conv, n_dense;
};

/* A layer with an operation of its own, beside that operation. */
struct dt_operation {
    const char *block; /* "bn": its blocks are bn1, bn2 and so on */
    const char *onnx;  /* ONNX's operator, of the same inputs, weights, buffers and epsilon */
    int onnx_opset;    /* the first that has it; 0: any */
    bool onnx_axis;    /* it wants to be told that features begin at axis 1 */
    enum dt_status (*lower)(struct dt_lowering *lowering, const struct dt_layer_spec *layer);
};
const struct dt_operation *dt_operation_of(enum dt_layer_type type); /* NULL: it has none */

/* Sums over the ranks that train together, for layers with `sync`: every rank calls `add` as often,
 * in the same order, with as many values, also where it has no samples. `name` as of dt_comm_wait.
 */
struct dt_rank_sum {
    enum dt_status (*add)(struct dt_rank_sum *sum, double *values, size_t n, const char *name);
    double *values; /* dt_rank_sum_values: room in host memory, for devices */
};

/* Values of a call of `add` at most; 0: no layer has `sync`. */
size_t dt_rank_sum_values(const struct dt_model *model);

/* One call of an operation. Pointers are device memory; elements lie as the backend has them. */
struct dt_layer_call {
    const struct dt_layer_spec *layer;
    const struct dt_block *block;
    const struct dt_pass *pass;
    bool relu; /* ReLU follows, and is part of it */
    bool last; /* y and dy are the network's */
    const float *weight, *bias;
    float *running[2];             /* its buffers */
    void *memory;                  /* kept from forward to backward */
    struct dt_rank_sum *ranks;     /* in training, over whose samples to take statistics; NULL: over
                                      this rank's */
    size_t n_elems;                /* of a sample of y */
    const float *x[DT_MAX_INPUTS]; /* NULL ends them */
    size_t n_x[DT_MAX_INPUTS];     /* elements of a sample of each */
    float *y;
    /* backward */
    float *dy;                   /* may be destroyed */
    float *dx[DT_MAX_INPUTS];    /* NULL: not wanted */
    bool adds_dx[DT_MAX_INPUTS]; /* adds to what is there */
    float *dweight, *dbias;
};

/* An operation on a backend: dt_ref_add in cpu/reference/reference_add.c, DT_KERNEL(add) in
 * cpu/layers/, dt_cuda_add in cuda/layers/. */
struct dt_layer_ops {
    size_t (*n_bytes)(const struct dt_block *block, int capacity); /* of `memory`; NULL: none */
    enum dt_status (*forward)(struct dt_backend *backend, const struct dt_layer_call *call);
    enum dt_status (*backward)(struct dt_backend *backend, const struct dt_layer_call *call);
};

/* A network with such blocks passes the whole batch at once. */
extern const struct dt_block_operations dt_block_operations;

/* Layers with `sync` add by `sum` (borrowed) from now on; NULL: each rank is by itself, as before.
 */
void dt_graph_join(struct dt_network *network, struct dt_rank_sum *sum);

/* For backends: what each rank has becomes what all have together; nothing changes without `ranks`.
 * moments: (n_c, 2) mean and biased variance of a channel's values, then the number of these, of
 * which a rank may have none. sums: (n_c, 2). */
enum dt_status dt_moments_join(const struct dt_layer_call *call, double *moments);
enum dt_status dt_sums_join(const struct dt_layer_call *call, double *sums);

/* Host floats of the network's buffers (model.buffer_elems); a model without any has nothing to
 * copy. */
enum dt_status dt_buffers_get(struct dt_network *network, float *host);
enum dt_status dt_buffers_set(struct dt_network *network, const float *host);

/* Device floats that operations need for each sample, beside the blocks' outputs. */
size_t dt_operation_elems(const struct dt_model *model);

/* Implement struct dt_layer_entries. */
enum dt_status dt_layers_enter(struct dt_lowering *lowering);
enum dt_status dt_layer_lower(struct dt_lowering *lowering, const struct dt_layer_spec *layer);
enum dt_status dt_layers_finish(struct dt_lowering *lowering);

extern const struct dt_layer_entries dt_all_layers; /* cpu/layers.c */

/* Of DT_OPERATION_LIST: declarations of a backend's operations, and entries of its table, which is
 * by type. It defines DT_OPERATION(symbol), their names: dt_ref_add. */
#define DT_OPERATION_DECLARATION(constant, name, symbol) \
    extern const struct dt_layer_ops DT_OPERATION(symbol);
#define DT_OPERATION_ENTRY(constant, name, symbol) [constant] = &DT_OPERATION(symbol),

#endif
