/* Memory that all ranks have, or none. */
#include <stdlib.h>

#include "dist/ranks/world.h"

enum dt_status dt_world_alloc(struct dt_world *world, size_t n, size_t n_bytes, const char *what,
                              void **out)
{
    void *memory = calloc(n, n_bytes);
    const enum dt_status s = dt_world_agree(
        world, memory != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "out of memory for %s", what));
    *out = s == DT_OK ? memory : NULL;
    if (s != DT_OK) {
        free(memory);
    }
    return s;
}
