#include "data/dataset.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/assert.h"

/* Row i of an array; the seed makes the hash that of what came before, too. */
static uint64_t hash_row(const void *array, size_t i, size_t n_bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed((const char *)array + i * n_bytes, n_bytes, seed);
}

uint64_t dt_fingerprint(const struct dt_samples *s, uint32_t part, uint32_t n_parts)
{
    DT_ASSERT(part < n_parts);
    DT_ASSERT(s->n == 0 || (s->pixels != NULL) != (s->values != NULL));
    DT_ASSERT(s->n == 0 || (s->labels != NULL) != (s->targets != NULL));
    const size_t n_elems = dt_shape_elems(s->shape);
    uint64_t sum = 0;
    for (size_t i = 0; i < s->n; i++) {
        const uint64_t id = s->first_id + i * s->id_stride;
        if (id % n_parts != part) {
            continue;
        }
        const uint64_t item = s->pixels != NULL
                                  ? hash_row(s->pixels, i, n_elems, id)
                                  : hash_row(s->values, i, n_elems * sizeof *s->values, id);
        sum += s->labels != NULL
                   ? hash_row(s->labels, i, sizeof *s->labels, item)
                   : hash_row(s->targets, i, (size_t)s->n_targets * sizeof *s->targets, item);
    }
    return sum;
}
