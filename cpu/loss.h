/* Loss heads: small, so plain loops in double. */
#ifndef DT_CPU_LOSS_H
#define DT_CPU_LOSS_H

#include "model/backend.h"

/* One sample's loss is added to `metrics`; dz (n), unless NULL, is its gradient. softmax(z) -
 * onehot(label). */
void dt_cpu_cross_entropy(int label, int n, const float *z, float *dz, struct dt_metrics *metrics);
/* 2 (z - target) / n. */
void dt_cpu_squared_error(const float *target, int n, const float *z, float *dz,
                          struct dt_metrics *metrics);

#endif
