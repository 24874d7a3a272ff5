/* For drivers that take several steps before the ranks agree on anything. How many follows from how
 * long they take, so that progress is shown, a signal heeded and divergence noticed soon enough. */
#ifndef DT_TRAIN_DRIVERS_TOGETHER_H
#define DT_TRAIN_DRIVERS_TOGETHER_H

#include "train/trainer.h"

struct dt_together {
    /* Takes the next n steps of this rank; `local`: what came of each one's own samples. */
    enum dt_status (*run)(struct dt_trainer *trainer, int n, struct dt_metrics *local);
    double most_s; /* that they may take */
    int n;         /* so many next */
};

/* A dt_driver_ops.take, of up to together->n steps, which it then adapts. */
enum dt_status dt_device_steps_take(struct dt_trainer *trainer, struct dt_together *together,
                                    uint64_t limit, struct dt_step_results *out);

#endif
