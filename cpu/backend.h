/* The fast CPU backend: dt_cpu_backend of model/backend.h. Our own vector kernels, chosen for the
 * processor at open (isa.h).
 *
 * Activations are (n, H, W, C) inside, and stay so at a flatten, unless the block wants canonical
 * order there (model/block.h). */
#ifndef DT_CPU_BACKEND_H
#define DT_CPU_BACKEND_H

#include "model/backend.h"

#endif
