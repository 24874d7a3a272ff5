/* Large memory that is read from many places at once: a row of a data set here, a column of weights
 * there. */
#ifndef DT_BASE_MEMORY_H
#define DT_BASE_MEMORY_H

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#define DT_HUGE_PAGE ((size_t)2 << 20) /* of x86-64, and of aarch64 with pages of 4 KiB */

/* n_bytes that begin at a multiple of 64, to be freed with free(); NULL: no memory. From
 * DT_HUGE_PAGE on huge pages are asked for, so that a processor has to look up few of them. Its
 * content is undefined. */
static inline void *dt_memory_alloc(size_t n_bytes)
{
    void *memory;
    if (posix_memalign(&memory, n_bytes >= DT_HUGE_PAGE ? DT_HUGE_PAGE : 64, n_bytes) != 0) {
        return NULL;
    }
#ifdef MADV_HUGEPAGE
    if (n_bytes >= DT_HUGE_PAGE) {
        madvise(memory, n_bytes, MADV_HUGEPAGE); /* no matter if refused */
    }
#endif
    return memory;
}

#endif
