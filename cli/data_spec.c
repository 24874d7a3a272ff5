#include "cli/data_spec.h"

#include <stdio.h>
#include <string.h>

enum dt_status dt_data_spec_fit(struct dt_data_spec *spec, const struct dt_model *model)
{
    const bool classifies = model->spec.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
    spec->shape = model->spec.input;
    spec->n_classes = classifies ? model->n_outputs : 0;
    spec->n_targets = classifies ? 0 : model->n_outputs;
    if (spec->format == DT_DATA_LINEAR && (classifies || model->n_outputs != 1 || dt_shape_elems(model->spec.input) != 1)) {
        return dt_error(DT_CONFIG,
                        "data.format \"linear\" has one input and one target (use \"input\": [1], one unit at the end and "
                        "\"loss\": \"mean_squared_error\")");
    }
    if (spec->format != DT_DATA_LINEAR && !classifies) {
        return dt_error(DT_CONFIG, "model.loss mean_squared_error: images have labels, not targets (use softmax_cross_entropy, or "
                                   "data.format \"linear\")");
    }
    return DT_OK;
}

enum dt_status dt_data_spec_set_dir(struct dt_data_spec *spec, const char *dir)
{
    if (dir == NULL) {
        return DT_OK;
    }
    if (spec->format != DT_DATA_IDX) {
        return dt_error(DT_USAGE, "--data %s: this configuration generates its data (leave --data out)", dir);
    }
    if (strlen(dir) >= sizeof spec->dir) {
        return dt_error(DT_USAGE, "--data: the path is longer than %zu bytes", sizeof spec->dir - 1);
    }
    snprintf(spec->dir, sizeof spec->dir, "%s", dir);
    return DT_OK;
}
