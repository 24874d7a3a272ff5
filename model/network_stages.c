/* A network in parts: for pipelines, and for a look at its ends. */
#include "model/network_parts.h"

enum dt_status dt_network_open_for_stages(const struct dt_model *model, struct dt_backend *backend,
                                          int capacity, const struct dt_network_memory *memory,
                                          struct dt_network **out)
{
    const struct dt_network_plan plan = {.chunk = capacity};
    return dt_network_open_planned(model, backend, capacity, memory, &plan, out);
}

float *dt_network_activation(struct dt_network *net, int block, int first)
{
    return dt_network_activation_at(net, block, first);
}

enum dt_status dt_network_forward_stage(struct dt_network *net, int begin, int end,
                                        const struct dt_pass *pass)
{
    return dt_network_forward_blocks(net, begin, end, DT_SPAN_FORWARD, pass);
}

enum dt_status dt_network_backward_stage(struct dt_network *net, int begin, int end, float *dy,
                                         float *dx, const struct dt_pass *pass)
{
    const int trained = dt_model_first_trained(net->model),
              lowest = begin > trained ? begin : trained;
    for (int b = end - 1; b >= lowest; b--) {
        float *of_output =
            b == end - 1 && dy != NULL ? dy : dt_network_delta_at(net, b, pass->first);
        float *of_input = b > lowest ? dt_network_delta_at(net, b - 1, pass->first) : dx;
        DT_TRY(dt_network_backward_block(net, b, of_output, of_input, pass));
    }
    return DT_OK;
}

float *dt_network_logits(struct dt_network *net)
{
    return net->activations[net->model->n_blocks];
}

float *dt_network_dlogits(struct dt_network *net)
{
    return dt_network_delta_at(net, net->model->n_blocks - 1, 0);
}
