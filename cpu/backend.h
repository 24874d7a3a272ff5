/* The fast CPU backend: dt_cpu_backend implements model/backend.h. Its vector kernels are chosen
 * for the processor at open (isa.h). Activations are (n, H, W, C) inside, and stay so at a flatten,
 * unless the block needs canonical order there (model/block.h). */
#ifndef DT_CPU_BACKEND_H
#define DT_CPU_BACKEND_H

#include "model/backend.h"

#endif
