#include "train/parts.h"

#include "train/device.h"

static const struct dt_driver_ops *const drivers[] = {&dt_recorded_driver, &dt_free_driver,
                                                      &dt_host_driver, NULL};

const struct dt_trainer_parts dt_all_parts = {.drivers = drivers,
                                              .choose_device = dt_device_choose,
                                              .check_memory = dt_fit_check,
                                              .advise = dt_fit_advise,
                                              .open_images = dt_bad_images_open,
                                              .close_images = dt_bad_images_close,
                                              .normalize = dt_trainer_normalize};
