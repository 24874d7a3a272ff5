/* Learning rates: golden values of Horovod's warm-up, scaling, and the two schedules. */
#include "model/schedule.h"
#include "tests/lib/check.h"

static void test_scaling(void)
{
    CHECK_NEAR(dt_lr_scale(DT_LR_SCALING_NONE, 4), 1, 0);
    CHECK_NEAR(dt_lr_scale(DT_LR_SCALING_LINEAR, 4), 4, 0);
    CHECK_NEAR(dt_lr_scale(DT_LR_SCALING_SQRT, 4), 2, 0);
}

/* 4 ranks, 3 epochs of warm-up, 0.001 scaled to 0.004: 0.001 at the start, 0.0025 half way, 0.004
 * from epoch 3 on. */
static void test_warmup_as_horovod(void)
{
    const struct dt_schedule s = {
        .lr = 0.004, .scale = 4, .warmup_epochs = 3, .steps_per_epoch = 100, .n_epochs = 12};
    CHECK_NEAR(dt_schedule_lr(&s, 0), 0.001, 1e-15);
    CHECK_NEAR(dt_schedule_lr(&s, 150), 0.0025, 1e-15);
    CHECK_NEAR(dt_schedule_lr(&s, 300), 0.004, 1e-15);
    CHECK_NEAR(dt_schedule_lr(&s, 1199), 0.004, 1e-15);
}

static void test_step(void)
{
    const struct dt_schedule s = {.type = DT_SCHEDULE_STEP,
                                  .lr = 0.1,
                                  .scale = 1,
                                  .steps_per_epoch = 10,
                                  .step_epochs = 2,
                                  .step_gamma = 0.5};
    CHECK_NEAR(dt_schedule_lr(&s, 19), 0.1, 1e-15);
    CHECK_NEAR(dt_schedule_lr(&s, 20), 0.05, 1e-15);
    CHECK_NEAR(dt_schedule_lr(&s, 45), 0.025, 1e-15);
}

static void test_cosine(void)
{
    const struct dt_schedule s = {.type = DT_SCHEDULE_COSINE,
                                  .lr = 0.2,
                                  .scale = 1,
                                  .steps_per_epoch = 10,
                                  .n_epochs = 4,
                                  .min_lr = 0.02};
    CHECK_NEAR(dt_schedule_lr(&s, 0), 0.2, 1e-15);
    CHECK_NEAR(dt_schedule_lr(&s, 20), 0.11, 1e-15);
    CHECK_NEAR(dt_schedule_lr(&s, 40), 0.02, 1e-15);
    CHECK_NEAR(dt_schedule_lr(&s, 90), 0.02, 1e-15); /* past the end it stays */
}

static void test_cosine_begins_after_warmup(void)
{
    const struct dt_schedule s = {.type = DT_SCHEDULE_COSINE,
                                  .lr = 0.2,
                                  .scale = 2,
                                  .warmup_epochs = 2,
                                  .steps_per_epoch = 10,
                                  .n_epochs = 4};
    CHECK_NEAR(dt_schedule_lr(&s, 0), 0.1, 1e-15);
    CHECK_NEAR(dt_schedule_lr(&s, 20), 0.2, 1e-15);
    CHECK_NEAR(dt_schedule_lr(&s, 30), 0.1, 1e-15);
}

int main(void)
{
    test_scaling();
    test_warmup_as_horovod();
    test_step();
    test_cosine();
    test_cosine_begins_after_warmup();
    return 0;
}
