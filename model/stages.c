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
