/* Learning rates: golden values of Horovod's warm-up, scaling, and the two schedules. */
#include "model/lr_schedule.h"
#include "tests/lib/check.h"

static void test_scaling(void)
{
    CHECK_NEAR(dt_lr_scale(DT_LR_SCALING_NONE, 4), 1, 0);
    CHECK_NEAR(dt_lr_scale(DT_LR_SCALING_LINEAR, 4), 4, 0);
    CHECK_NEAR(dt_lr_scale(DT_LR_SCALING_SQRT, 4), 2, 0);
}

static const struct {
    struct dt_lr_schedule schedule;
    int n_steps;
    struct {
        uint64_t step;
        double lr;
    } at[4];
} cases[] = {
    /* as Horovod: 4 ranks, 3 epochs of warm-up, 0.001 scaled to 0.004: half way 0.0025 */
    {{.lr = 0.004, .scale = 4, .warmup_epochs = 3, .steps_per_epoch = 100, .n_epochs = 12},
     4,
     {{0, 0.001}, {150, 0.0025}, {300, 0.004}, {1199, 0.004}}},
    {{.type = DT_SCHEDULE_STEP,
      .lr = 0.1,
      .scale = 1,
      .steps_per_epoch = 10,
      .step_epochs = 2,
      .step_gamma = 0.5},
     3,
     {{19, 0.1}, {20, 0.05}, {45, 0.025}}},
    /* past the end it stays */
    {{.type = DT_SCHEDULE_COSINE,
      .lr = 0.2,
      .scale = 1,
      .steps_per_epoch = 10,
      .n_epochs = 4,
      .min_lr = 0.02},
     4,
     {{0, 0.2}, {20, 0.11}, {40, 0.02}, {90, 0.02}}},
    /* begins after the warm-up */
    {{.type = DT_SCHEDULE_COSINE,
      .lr = 0.2,
      .scale = 2,
      .warmup_epochs = 2,
      .steps_per_epoch = 10,
      .n_epochs = 4},
     3,
     {{0, 0.1}, {20, 0.2}, {30, 0.1}}},
};

int main(void)
{
    test_scaling();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int k = 0; k < cases[i].n_steps; k++) {
            CHECK_NEAR(dt_lr_schedule_at(&cases[i].schedule, cases[i].at[k].step),
                       cases[i].at[k].lr, 1e-15);
        }
    }
    return 0;
}
