#include "model/own_memory.h"

enum dt_status dt_network_memory_open(struct dt_backend *backend, const struct dt_model *model,
                                      struct dt_network_memory *out)
{
    *out = (struct dt_network_memory){0};
    DT_TRY(dt_floats_alloc(backend, "the weights", "", model->arena_elems, &out->params));
    return dt_floats_alloc(backend, "their gradients", "", model->arena_elems, &out->grads);
}

void dt_network_memory_close(struct dt_backend *backend, struct dt_network_memory *memory)
{
    dt_floats_free(backend, memory->params);
    dt_floats_free(backend, memory->grads);
    *memory = (struct dt_network_memory){0};
}

enum dt_status dt_network_open_alone(const struct dt_model *model, struct dt_backend *backend,
                                     int capacity, struct dt_network **out)
{
    struct dt_network_memory own;
    *out = NULL;
    enum dt_status s = dt_network_memory_open(backend, model, &own);
    s = s == DT_OK ? dt_network_open(model, backend, capacity, &own, false, out) : s;
    if (s != DT_OK) {
        dt_network_memory_close(backend, &own);
        return s;
    }
    (*out)->own = own;
    return DT_OK;
}
