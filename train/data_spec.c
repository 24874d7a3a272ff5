#include "train/data_spec.h"

#include <stdio.h>
#include <string.h>

void dt_data_spec_fit(struct dt_data_spec *spec, const struct dt_model *model)
{
    const bool classifies = model->spec.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
    spec->shape = model->spec.input;
    spec->n_classes = classifies ? model->n_outputs : 0;
    spec->n_targets = classifies ? 0 : model->n_outputs;
}

enum dt_status dt_data_spec_set_dir(struct dt_data_spec *spec, const char *dir)
{
    if (dir == NULL) {
        return DT_OK;
    }
    if (spec->format != DT_DATA_IDX) {
        return dt_error(DT_USAGE,
                        "--data %s: this configuration generates its data (leave --data out)", dir);
    }
    if (strlen(dir) >= sizeof spec->dir) {
        return dt_error(DT_USAGE, "--data: the path is longer than %zu bytes",
                        sizeof spec->dir - 1);
    }
    snprintf(spec->dir, sizeof spec->dir, "%s", dir);
    return DT_OK;
}
