/* The parts of network.c that network_stages.c uses, too. */
#ifndef DT_MODEL_NETWORK_PARTS_H
#define DT_MODEL_NETWORK_PARTS_H

#include "model/network.h"

/* dt_network_open by another plan than the backend's. */
enum dt_status dt_network_open_planned(const struct dt_model *model, struct dt_backend *backend,
                                       int capacity, const struct dt_network_memory *memory,
                                       const struct dt_network_plan *plan, struct dt_network **out);

/* Floats per sample in activations[index]; in deltas[i], or in chunk_deltas[i]. */
size_t dt_network_sample_elems(const struct dt_model *model, int index);
size_t dt_network_delta_elems(const struct dt_model *model, const struct dt_network_plan *plan,
                              bool of_chunk, int i);

/* The input of block `index`, and the gradient of block `block`'s output, from sample `first` on.
 */
float *dt_network_activation_at(struct dt_network *net, int index, int first);
float *dt_network_delta_at(struct dt_network *net, int block, int first);

/* Blocks [begin, end), and one block, over the pass's samples. */
enum dt_status dt_network_forward_blocks(struct dt_network *net, int begin, int end,
                                         enum dt_span_kind kind, const struct dt_pass *pass);
enum dt_status dt_network_backward_block(struct dt_network *net, int b, float *dy, float *dx,
                                         const struct dt_pass *pass);

#endif
