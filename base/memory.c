#include "base/memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

void *dt_memory_alloc(size_t n_bytes)
{
    const bool huge = n_bytes >= DT_HUGE_PAGE;
    void *memory;
    if (posix_memalign(&memory, huge ? DT_HUGE_PAGE : 64, n_bytes) != 0) {
        return NULL;
    }
#ifdef MADV_HUGEPAGE
    if (huge) {
        madvise(memory, n_bytes, MADV_HUGEPAGE); /* no matter if refused */
    }
#endif
    return memory;
}
