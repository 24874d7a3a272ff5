/* The program's own memory as a backend. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "dist/allreduce/allreduce.h"

#define BEHIND_BYTES ((size_t)256) /* readable behind an array, as a backend's have it */

static enum dt_status program_alloc(struct dt_backend *backend, size_t n_bytes, void **out)
{
    (void)backend;
    *out = dt_memory_alloc(n_bytes + BEHIND_BYTES);
    if (*out == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for sums of %zu bytes", n_bytes);
    }
    memset(*out, 0, n_bytes + BEHIND_BYTES);
    return DT_OK;
}

static void program_free(struct dt_backend *backend, void *memory)
{
    (void)backend;
    free(memory);
}

static const struct dt_backend_ops program_ops = {
    .name = "program", .alloc = program_alloc, .free = program_free};

struct dt_backend dt_program_memory = {.ops = &program_ops, .host_memory = true};
