#include "dist/allreduce/allreduce.h"

#include <string.h>

const char *const dt_allreduce_names[DT_N_ALLREDUCE_TYPES] = {DT_ALLREDUCE_LIST(DT_ENUM_NAME)};

const struct dt_algorithm *dt_allreduce_algorithm(const struct dt_allreduce_entries *rows,
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
    DT_ASSERT(spec->n_slots >= 1 && spec->n_slots <= DT_ALLREDUCE_MAX_SLOTS);
    struct dt_allreduce_spec rest = *spec;
    *out = NULL;
    while (*rest.rows.implementations != NULL) {
        const struct dt_allreduce_entry *row = *rest.rows.implementations++;
        if (row->serves(&rest)) {
            return row->open(&rest, out);
        }
    }
    return dt_error(DT_INTERNAL, "this program links no allreduce for \"%s\"",
                    dt_allreduce_names[spec->type]);
}

enum dt_status dt_allreduce_take_memory(struct dt_allreduce *a,
                                        const struct dt_allreduce_spec *spec)
{
    void *memory = NULL;
    a->backend = spec->backend;
    DT_TRY(a->backend->ops->alloc(a->backend, spec->n_elems * sizeof *a->part, &memory));
    a->total = a->part = memory;
    return DT_OK;
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
    DT_ASSERT(slot >= 0 && slot < DT_ALLREDUCE_MAX_SLOTS && begin <= end);
    return a->ops->start(a, slot, begin, end, name, request);
}

bool dt_allreduce_sent(const struct dt_allreduce *a, struct dt_wire_sent *out)
{
    *out = (struct dt_wire_sent){0};
    return a->ops->sent(a, out);
}
