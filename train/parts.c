#include "train/parts.h"

#include "data/transform.h"
#include "train/device.h"

static const struct dt_driver_ops *const drivers[] = {&dt_recorded_driver, &dt_free_driver,
                                                      &dt_host_driver, NULL};

/* What GPUs do not do in a training, as a message shows it; NULL: nothing. */
static const char *not_on_gpus(const struct dt_config *config)
{
    if (config->freeze.n > 0) {
        return "train.freeze";
    }
    for (int i = 0; i < config->model.n_layers; i++) {
        if (config->model.layers[i].lr > 0) {
            return "a layer's lr";
        }
    }
    for (int i = 0; i < config->data.augment.n; i++) {
        if (config->data.augment.kind[i] >= DT_AUGMENT_ROTATE) {
            return "data.augment: rotate and cutout";
        }
    }
    return config->class_weights.n != 0 ? "train.class_weights" : NULL;
}

static enum dt_status choose_device(struct dt_world *world, const struct dt_config *config,
                                    struct dt_device_choice *out)
{
    const char *what = not_on_gpus(config);
    DT_TRY(dt_device_choose(world, config, out));
    return what == NULL || out->module == NULL
               ? DT_OK
               : dt_error_agreed(
                     dt_error(DT_UNAVAILABLE, "%s: not on GPUs (use \"device\": \"cpu\")", what));
}

const struct dt_trainer_parts dt_all_parts = {.drivers = drivers,
                                              .choose_device = choose_device,
                                              .check_memory = dt_fit_check,
                                              .advise = dt_fit_advise,
                                              .open_images = dt_bad_images_open,
                                              .close_images = dt_bad_images_close,
                                              .normalize = dt_trainer_normalize};
