#include "dist/allreduce/allreduce.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define BEHIND_BYTES ((size_t)256) /* readable behind an array, as a backend's have it */

#define NAME(constant, name, ...) name,
const char *const dt_allreduce_names[DT_N_ALLREDUCE_TYPES] = {DT_ALLREDUCE_LIST(NAME)};

const struct dt_algorithm *dt_allreduce_algorithm(const struct dt_allreduce_rows *rows,
                                                  enum dt_allreduce_type type)
{
    for (int i = 0; i < rows->n_algorithms; i++) {
        if (strcmp(rows->algorithms[i].name, dt_allreduce_names[type]) == 0) {
            return &rows->algorithms[i];
        }
    }
    return NULL;
}

enum dt_status dt_allreduce_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    struct dt_allreduce_spec rest = *spec;
    *out = NULL;
    while (*rest.rows.implementations != NULL) {
        const struct dt_allreduce_row *row = *rest.rows.implementations++;
        if (row->serves(&rest)) {
            return row->open(&rest, out);
        }
    }
    return dt_error(DT_INTERNAL, "this program links no allreduce for \"%s\"",
                    dt_allreduce_names[spec->type]);
}

enum dt_status dt_allreduce_open_wire(const struct dt_allreduce_spec *spec, struct dt_comm *comm,
                                      struct dt_wire **out)
{
    DT_TRY(comm->ops->wire_open(comm, out));
    return spec->wrap != NULL ? spec->wrap(*out, spec->wrap_context, out) : DT_OK;
}

enum dt_status dt_allreduce_take_memory(const struct dt_allreduce_spec *spec, float **part)
{
    const size_t n_bytes = spec->n_elems * sizeof **part;
    void *memory = NULL;
    if (spec->backend != NULL) {
        DT_TRY(spec->backend->ops->alloc(spec->backend, n_bytes, &memory));
    } else {
        memory = dt_memory_alloc(n_bytes + BEHIND_BYTES);
        if (memory == NULL) {
            return dt_error(DT_NO_MEMORY, "no memory for sums of %zu bytes", n_bytes);
        }
        memset(memory, 0, n_bytes + BEHIND_BYTES);
    }
    *part = memory;
    return DT_OK;
}

void dt_allreduce_free_memory(struct dt_backend *backend, float *part)
{
    if (backend != NULL) {
        backend->ops->free(backend, part);
    } else {
        free(part);
    }
}

void dt_allreduce_close(struct dt_allreduce *a)
{
    if (a != NULL) {
        a->ops->close(a);
    }
}

enum dt_status dt_allreduce_start(struct dt_allreduce *a, int slot, size_t begin, size_t end,
                                  const char *name, struct dt_request *request)
{
    return a->ops->start(a, slot, begin, end, name, request);
}

bool dt_allreduce_sent(const struct dt_allreduce *a, struct dt_wire_sent *out)
{
    *out = (struct dt_wire_sent){0};
    return a->ops->sent(a, out);
}
