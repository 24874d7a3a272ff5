/* Whether images are light on dark, as MNIST's, or dark on light: their borders tell. */
#ifndef DT_TRAIN_SAVE_BORDER_H
#define DT_TRAIN_SAVE_BORDER_H

#include <stdbool.h>

#include "base/samples.h"

/* Whether the mean of an image (C, H, W) over its outermost rows and columns is above mid-grey. */
bool dt_border_is_bright(struct dt_shape shape, const uint8_t *pixels);

/* The number of such images among the samples, which must have pixels. */
size_t dt_border_count_bright(const struct dt_samples *samples);

enum dt_ground { DT_GROUND_UNKNOWN, DT_GROUND_MIXED, DT_GROUND_DARK, DT_GROUND_BRIGHT };

/* Decides by n_bright of n images about a data set: all but one in a thousand lie on dark, or on
 * bright; or both belong to it, as where things fill the picture. */
enum dt_ground dt_ground_of(uint64_t n_bright, uint64_t n);

#endif
