/* Generated data sets: every sample is a function of (seed, split, its number), so a sample is the
 * same whichever rank makes it.
 *
 * Images: each class has a random pattern of cells of 4 x 4 pixels (1 x 1 in images of less than
 * 8). A sample is its class's pattern with a contrast of its own, and over it that of another
 * class, from not at all to 0.7 times as strong; both are moved by up to a cell. Then comes `noise`
 * (standard deviation; 1 is the range from black to white). So most samples are easy and some are
 * hard: one pass over 2000 images of 28 x 28 with noise 0.5 takes softmax regression to 98 or 99 %.
 * Training and test samples differ, the patterns do not. Noise is a sum of four uniform numbers,
 * which is normal enough, and exact in integers: the same on every machine. */
#ifndef DT_DATA_SYNTHETIC_H
#define DT_DATA_SYNTHETIC_H

#include "data/dataset.h"

/* pixels (owned.n, C, H, W), labels (owned.n); spec->n_classes >= 2. */
void dt_synthetic_images(const struct dt_data_spec *spec, enum dt_split split,
                         struct dt_owned owned, uint8_t *pixels, uint16_t *labels);

/* x uniform in [-1, 1), y = slope * x + intercept + noise; both (owned.n). */
void dt_synthetic_line(const struct dt_data_spec *spec, enum dt_split split, struct dt_owned owned,
                       float *x, float *y);

#endif
