#include "model/stages.h"

#include "base/arithmetic.h"

enum dt_status dt_network_forward_stage(struct dt_network *net, int begin, int end,
                                        const struct dt_pass *pass)
{
    return dt_network_forward_blocks(net, begin, end, DT_SPAN_FORWARD, pass);
}

enum dt_status dt_network_backward_stage(struct dt_network *net, int begin, int end, float *dy,
                                         float *dx, const struct dt_pass *pass)
{
    const int lowest = dt_max(begin, dt_model_first_trained(net->model));
    for (int b = end - 1; b >= lowest; b--) {
        float *of_output = b == end - 1 && dy != NULL ? dy : dt_network_delta(net, b, pass->first);
        float *of_input = b > lowest ? dt_network_delta(net, b - 1, pass->first) : dx;
        DT_TRY(dt_network_backward_block(net, b, of_output, of_input, pass));
    }
    return DT_OK;
}

float *dt_network_logits(struct dt_network *net)
{
    return dt_network_activation(net, net->model->n_blocks, 0);
}

float *dt_network_dlogits(struct dt_network *net)
{
    return dt_network_delta(net, net->model->n_blocks - 1, 0);
}

/* ---- of network.h: memory of its own, where no strategy has mirrored weights for it */

void dt_floats_free(struct dt_backend *backend, float *floats)
{
    backend->ops->free(backend, floats);
}

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
