/* Weights and gradients in memory of the network's own, where no strategy shares or splits them. */
#ifndef DT_MODEL_OWN_MEMORY_H
#define DT_MODEL_OWN_MEMORY_H

#include "model/network.h"

enum dt_status dt_network_memory_open(struct dt_backend *backend, const struct dt_model *model,
                                      struct dt_network_memory *out);
void dt_network_memory_close(struct dt_backend *backend,
                             struct dt_network_memory *memory); /* a zeroed one is fine */

/* A network in memory of its own; parameters start at zero. */
enum dt_status dt_network_open_alone(const struct dt_model *model, struct dt_backend *backend,
                                     int capacity, struct dt_network **out);

#endif
