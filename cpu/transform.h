/* Pixels on their way to the network (base/transform.h), as the cpu backend wants them. */
#ifndef DT_CPU_TRANSFORM_H
#define DT_CPU_TRANSFORM_H

#include "base/samples.h"

/* The transform's `apply`, but for x, which is (H, W, C). The same bits. */
void dt_cpu_transform(const struct dt_transform *transform, const uint8_t *pixels, uint32_t epoch,
                      uint32_t id, float *x);

#endif
