/* A layer's operation in parts, which threads share: always the same parts, so that the bits do not
 * depend on their number. */
#ifndef DT_CPU_LAYERS_PARTS_H
#define DT_CPU_LAYERS_PARTS_H

#include "cpu/block.h"
#include "model/layers/layers.h"

#define DT_PART ((size_t)1 << 15) /* elements: in a core's own cache */

/* Calls fn(context, part, thread) for parts 0 .. n_parts - 1. */
static inline void dt_parts_run(struct dt_backend *backend, const struct dt_pass *pass,
                                size_t n_parts, dt_threads_fn fn, const void *context)
{
    dt_threads_run(((const struct dt_cpu *)backend)->threads, (int)n_parts, fn, (void *)context);
    if (pass->poll != NULL) {
        pass->poll(pass->context);
    }
}

static inline size_t dt_parts_of(size_t n, size_t n_per_part)
{
    return (n + n_per_part - 1) / n_per_part;
}

#endif
