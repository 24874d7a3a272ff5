#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cpu/block_state.h"

void *dt_cpu_memory(size_t n_bytes)
{
    const size_t rounded = dt_round_up(n_bytes, 64) + DT_READABLE_PAST_END;
    void *memory = n_bytes < rounded ? dt_memory_alloc(rounded) : NULL;
    if (memory != NULL) {
        memset(memory, 0, rounded);
    }
    return memory;
}

size_t dt_cpu_cache_bytes(int level, size_t otherwise)
{
    const long n = sysconf(level);
    return n > 0 ? (size_t)n : otherwise;
}

void *dt_piece(struct dt_pieces *pieces, bool wanted, size_t n, size_t size)
{
    const size_t at = pieces->n_bytes;
    size_t n_bytes;
    if (!wanted || pieces->too_large) {
        return NULL;
    }
    if (__builtin_mul_overflow(n, size, &n_bytes) || n_bytes > SIZE_MAX / 4 || at > SIZE_MAX / 4) {
        pieces->too_large = true;
        return NULL;
    }
    pieces->n_bytes = at + dt_round_up(n_bytes, 64) + DT_READABLE_PAST_END;
    DT_ASSERT(at % 64 == 0 && pieces->n_bytes % 64 == 0);
    return pieces->memory != NULL ? pieces->memory + at : NULL;
}
