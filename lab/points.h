/* The points of the lessons that fit a line: 64 around y = 2 x + 2.4, of the data format "linear".
 * The seed is chosen so that the first and the second 32 points give 9.88 as in `dtrain lab lr`,
 * and so that points with even and with odd numbers fit different lines. */
#ifndef DT_LAB_POINTS_H
#define DT_LAB_POINTS_H

#include "data/dataset.h"
#include "model/spec.h"

#define DT_LAB_N_POINTS 64

extern const struct dt_model_spec
    dt_lab_line_model; /* one dense layer, fc1: y = weight * x + bias, squared error */

enum dt_status dt_lab_points_open(struct dt_owned owned, struct dt_dataset *out);

/* Mean squared error of the line y = slope * x + intercept. */
double dt_lab_points_loss(const struct dt_samples *points, double slope, double intercept);

#endif
