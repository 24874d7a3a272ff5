/* Passes over a few blocks of a network, for the stages of a pipeline, and the ends of a whole one.
 */
#ifndef DT_MODEL_STAGES_H
#define DT_MODEL_STAGES_H

#include "model/network.h"

/* Run blocks [begin, end) of a network opened by stages, over the part of the batch that begins at
 * pass->first. Forward reads dt_network_activation(begin) and writes dt_network_activation(end).
 * Backward reads dy, which it destroys (NULL: the gradient that this part's loss has just left),
 * and writes dx (NULL: no gradient of the input). Parts go backward in their order. */
enum dt_status dt_network_forward_stage(struct dt_network *network, int begin, int end,
                                        const struct dt_pass *pass);
enum dt_status dt_network_backward_stage(struct dt_network *network, int begin, int end, float *dy,
                                         float *dx, const struct dt_pass *pass);

float *
dt_network_logits(struct dt_network *network); /* device; (n, n_outputs) of the last forward pass */
float *dt_network_dlogits(struct dt_network *network); /* device; the start of the backward pass; a
                                                          test may write its own */

#endif
