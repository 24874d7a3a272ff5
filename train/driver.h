/* A driver takes a trainer's steps: chosen once, when it opens, among the drivers that the program
 * names. */
#ifndef DT_TRAIN_DRIVER_H
#define DT_TRAIN_DRIVER_H

#include <stdbool.h>

#include "base/status.h"

struct dt_trainer;
struct dt_step_results;

struct dt_driver_ops {
    bool on_device; /* a device takes the steps, recorded: the host sees nothing within a step */
    /* Whether the driver fits this trainer. Drivers on a device are also asked before the strategy
     * is open. NULL: always. */
    bool (*fits)(const struct dt_trainer *trainer);
    /* Local: the caller agrees. NULL: `own` stays NULL. */
    enum dt_status (*open)(struct dt_trainer *trainer, void **own);
    void (*close)(struct dt_trainer *trainer, void *own); /* with open */
    /* The next n steps of state.epoch, 1 to driver.most; adds them to `state`. Every rank calls
     * it. */
    enum dt_status (*take)(struct dt_trainer *trainer, int n, struct dt_step_results *out);
};

struct dt_driver {
    const struct dt_driver_ops *ops;
    void *own;
    int most; /* steps that it takes together; the same on every rank */
};

/* A step at a time, on which the ranks agree while the gradients travel (train/step.c). */
extern const struct dt_driver_ops dt_host_driver;
/* A GPU takes several, recorded once (model/device_module.h): cuda.graph. */
extern const struct dt_driver_ops dt_recorded_driver;
/* Workers that do not wait for each other within steps (struct dt_strategy). */
extern const struct dt_driver_ops dt_free_driver;

#endif
