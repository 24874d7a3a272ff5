/* Blocks of the reference backend: one sample at a time, one stage after the other, images in C H W
 * order. */
#ifndef DT_CPU_REFERENCE_REFERENCE_BLOCK_H
#define DT_CPU_REFERENCE_REFERENCE_BLOCK_H

#include "model/backend.h"

enum dt_status dt_ref_block_open(struct dt_backend *backend, const struct dt_model *model,
                                 int index, int capacity, struct dt_block_state **out);
void dt_ref_block_close(struct dt_block_state *state);
enum dt_status dt_ref_block_forward(struct dt_block_state *state, const float *params,
                                    const float *x, float *y, const struct dt_pass *pass);
enum dt_status dt_ref_block_backward(struct dt_block_state *state, const float *params,
                                     float *grads, const float *x, const float *y, float *dy,
                                     float *dx, const struct dt_pass *pass);

#endif
