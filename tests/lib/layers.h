/* Layers of a model in one line each: initializers of struct dt_layer_spec. Further members may
 * follow, such as .name. */
#ifndef DT_TESTS_LAYERS_H
#define DT_TESTS_LAYERS_H

#include "model/spec.h"

/* clang-format off */
#define LAYER(type_, ...) {.type = DT_LAYER_##type_, ##__VA_ARGS__}
#define CONV(filters, kernel_, stride_, padding_, activation_, ...)                      \
    LAYER(CONV2D, .size = (filters), .kernel = (kernel_), .stride = (stride_),           \
          .padding = DT_PADDING_##padding_, .activation = DT_ACTIVATION_##activation_, ##__VA_ARGS__)
#define DENSE(units, activation_, ...) \
    LAYER(DENSE, .size = (units), .activation = DT_ACTIVATION_##activation_, ##__VA_ARGS__)
#define MAX_POOL(size_, stride_) LAYER(MAX_POOL2D, .size = (size_), .stride = (stride_))
#define AVG_POOL(size_, stride_) LAYER(AVG_POOL2D, .size = (size_), .stride = (stride_))
#define DROPOUT(rate_, ...) LAYER(DROPOUT, .rate = (rate_), ##__VA_ARGS__)
/* clang-format on */

#endif
