/* The model as the user wrote it: a list of layers, as plain structs. `cli/config/config.c` fills
 * them in; nothing here depends on JSON. */
#ifndef DT_MODEL_SPEC_H
#define DT_MODEL_SPEC_H

#include <stdbool.h>

#include "base/samples.h"
#include "base/status.h"

#define DT_MAX_LAYERS 64
#define DT_MAX_INPUTS 4 /* of a layer */
#define DT_LAYER_NAME_SIZE 24
#define DT_MAX_EXTENT 65536  /* of any channel count, size, filters or units */
#define DT_LEAKY_SLOPE 0.01f /* PyTorch's default */

/* X(constant, config name, symbol of its keys and functions). Those of the first list are layers,
 * and activations of other layers; those of the last have operations of their own
 * (model/layers/layers.h). */
#define DT_NONLINEAR_LIST(X, kind)                \
    X(kind##_RELU, "relu", nonlinear)             \
    X(kind##_TANH, "tanh", nonlinear)             \
    X(kind##_SIGMOID, "sigmoid", nonlinear)       \
    X(kind##_LEAKY_RELU, "leaky_relu", nonlinear) \
    X(kind##_GELU, "gelu", nonlinear) /* x times the normal distribution's integral up to x */
#define DT_BLOCK_LAYER_LIST(X)                                  \
    X(DT_LAYER_CONV2D, "conv2d", conv2d)                        \
    X(DT_LAYER_DENSE, "dense", dense)                           \
    X(DT_LAYER_MAX_POOL2D, "max_pool2d", pool)                  \
    X(DT_LAYER_AVG_POOL2D, "avg_pool2d", pool)                  \
    X(DT_LAYER_GLOBAL_AVG_POOL, "global_avg_pool", global_pool) \
    X(DT_LAYER_DROPOUT, "dropout", dropout)                     \
    X(DT_LAYER_FLATTEN, "flatten", flatten)                     \
    DT_NONLINEAR_LIST(X, DT_LAYER)
#define DT_OPERATION_LIST(X)                         \
    X(DT_LAYER_BATCH_NORM, "batch_norm", batch_norm) \
    X(DT_LAYER_ADD, "add", add)                      \
    X(DT_LAYER_CONCAT, "concat", concat)             \
    X(DT_LAYER_LAYER_NORM, "layer_norm", layer_norm)
#define DT_LAYER_LIST(X) DT_BLOCK_LAYER_LIST(X) DT_OPERATION_LIST(X)

#define DT_ACTIVATION_LIST(X) X(DT_ACTIVATION_NONE, "none") DT_NONLINEAR_LIST(X, DT_ACTIVATION)

/* He et al. 2015 (arXiv 1502.01852) and Glorot and Bengio 2010. "auto": He uniform before a relu,
 * else Glorot uniform. */
#define DT_INIT_LIST(X)                         \
    X(DT_INIT_AUTO, "auto")                     \
    X(DT_INIT_HE_UNIFORM, "he_uniform")         \
    X(DT_INIT_HE_NORMAL, "he_normal")           \
    X(DT_INIT_GLOROT_UNIFORM, "glorot_uniform") \
    X(DT_INIT_GLOROT_NORMAL, "glorot_normal")

#define DT_LOSS_LIST(X)                                       \
    X(DT_LOSS_SOFTMAX_CROSS_ENTROPY, "softmax_cross_entropy") \
    X(DT_LOSS_MEAN_SQUARED_ERROR, "mean_squared_error")       \
    X(DT_LOSS_MEAN_ABSOLUTE_ERROR, "mean_absolute_error")

enum dt_layer_type { DT_LAYER_LIST(DT_NAMED_ENUM) };
enum dt_activation { DT_ACTIVATION_LIST(DT_NAMED_ENUM) };
enum dt_padding { DT_PADDING_SAME = -2, DT_PADDING_VALID }; /* a number >= 0 is PyTorch's padding */
enum dt_init { DT_INIT_LIST(DT_NAMED_ENUM) };
enum dt_loss { DT_LOSS_LIST(DT_NAMED_ENUM) };

struct dt_layer_spec {
    enum dt_layer_type type;
    char name[DT_LAYER_NAME_SIZE],
        input[DT_LAYER_NAME_SIZE]; /* ""; input: an earlier layer's name */
    struct dt_layer_inputs {
        int n;
        char names[DT_MAX_INPUTS][DT_LAYER_NAME_SIZE];
    } inputs;                      /* of several: one to go with the last layer's output, or all */
    int size;                      /* conv2d: filters; dense: units; pools: window size */
    int kernel, stride;            /* conv2d; stride also of pools: default = size */
    int padding;                   /* conv2d: zeros on each side, or of enum dt_padding */
    enum dt_activation activation; /* conv2d, dense, operations */
    enum dt_init init;             /* conv2d, dense */
    double rate;                   /* dropout: share dropped, 0 <= rate < 1 */
    double epsilon, momentum;      /* normalizations, as in PyTorch */
    bool sync;                     /* batch_norm: statistics of all ranks' samples */
    double lr; /* of a layer with weights: factor of the learning rate; 0 or below: 1 */
    bool frozen;
};

struct dt_model_spec {
    struct dt_shape input;
    int n_layers;
    struct dt_layer_spec layers[DT_MAX_LAYERS];
    enum dt_loss loss;
    double label_smoothing;              /* in training, as in PyTorch: 0 to below 1 */
    const struct dt_layer_entries *rows; /* NULL: a plain chain (model/block.h) */
};

/* "conv2d", "relu", as in the config. */
extern const char *const dt_layer_names[], *const dt_activation_names[];

#endif
