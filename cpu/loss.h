/* Loss heads: small, so plain loops in double. */
#ifndef DT_CPU_LOSS_H
#define DT_CPU_LOSS_H

#include "model/backend.h"

/* Adds one sample's loss to `metrics`; dz (n), unless NULL, gets its gradient: softmax(z) -
 * onehot(label). */
void dt_cpu_cross_entropy(int label, int n, const float *z, float *dz, struct dt_metrics *metrics);
/* The same with gradient 2 (z - target) / n. */
void dt_cpu_squared_error(const float *target, int n, const float *z, float *dz,
                          struct dt_metrics *metrics);

#endif
