#include <stdlib.h>

#include "checkpoint/checkpoint.h"
#include "model/layers/layers.h"
#include "model/network.h"

enum dt_status dt_buffers_load(struct dt_network *network, const struct dt_checkpoint_file *file)
{
    const struct dt_model *model = network->model;
    float *buffers = calloc(model->buffer_elems + 1, sizeof *buffers);
    if (buffers == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for running statistics");
    }
    dt_checkpoint_get_buffers(file, model, buffers);
    enum dt_status s = dt_buffers_reorder(model, false, buffers);
    s = s == DT_OK ? dt_buffers_set(network, buffers) : s;
    free(buffers);
    return s;
}
