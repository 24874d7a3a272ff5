#include "lab/points.h"

const struct dt_model_spec dt_lab_line_model = {.input = {1, 1, 1},
                                                .n_layers = 1,
                                                .layers = {{.type = DT_LAYER_DENSE, .size = 1}},
                                                .loss = DT_LOSS_MEAN_SQUARED_ERROR};

enum dt_status dt_lab_points_open(struct dt_owned owned, struct dt_dataset *out)
{
    const struct dt_data_spec spec = {.format = DT_DATA_LINEAR,
                                      .n_train = DT_LAB_N_POINTS,
                                      .n_test = 1,
                                      .slope = 2,
                                      .intercept = 2.4,
                                      .noise = 0.75,
                                      .seed = 157,
                                      .shape = {1, 1, 1},
                                      .n_targets = 1};
    return dt_dataset_open(&spec, DT_SPLIT_TRAIN, owned, out);
}

double dt_lab_points_loss(const struct dt_samples *points, double slope, double intercept)
{
    double sum = 0;
    for (size_t i = 0; i < points->n; i++) {
        const double error =
            slope * (double)points->values[i] + intercept - (double)points->targets[i];
        sum += error * error;
    }
    return sum / (double)points->n;
}
