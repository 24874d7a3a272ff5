/* Memory with a margin: vector kernels may read past its end. */
#ifndef DT_CPU_MEMORY_H
#define DT_CPU_MEMORY_H

#include <stddef.h>

#define DT_READABLE_PAST_END 256 /* bytes; kernels load whole vectors */

/* Zeroed, 64-byte aligned, DT_READABLE_PAST_END readable past the end; for free(). NULL: out of
 * memory. */
void *dt_cpu_memory(size_t n_bytes);

#endif
