/* Large memory that is read from many places at once: a row of a data set here, a column of weights
 * there. */
#ifndef DT_BASE_MEMORY_H
#define DT_BASE_MEMORY_H

#include <stddef.h>

#define DT_HUGE_PAGE ((size_t)2 << 20) /* of x86-64, and of aarch64 with pages of 4 KiB */

/* n_bytes that begin at a multiple of 64, to be freed with free(); NULL: no memory. From
 * DT_HUGE_PAGE on huge pages are asked for, so that a processor has to look up few of them. What it
 * holds is not said. */
void *dt_memory_alloc(size_t n_bytes);

#endif
