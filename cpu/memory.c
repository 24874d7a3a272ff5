#include "cpu/memory.h"

#include <string.h>

#include "base/arithmetic.h"
#include "base/memory.h"

void *dt_cpu_memory(size_t n_bytes)
{
    const size_t rounded = dt_round_up(n_bytes, 64) + DT_READABLE_PAST_END;
    void *memory = n_bytes < rounded ? dt_memory_alloc(rounded) : NULL;
    if (memory != NULL) {
        memset(memory, 0, rounded);
    }
    return memory;
}
