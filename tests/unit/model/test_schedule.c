/* Learning rates: golden values of Horovod's warm-up, of scaling, and of PyTorch's MultiStepLR,
 * CosineAnnealingLR and OneCycleLR. */
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
    } at[6];
} cases[] = {
    /* as Horovod: 4 ranks, 3 epochs of warm-up, 0.001 scaled to 0.004: half way 0.0025 */
    {{.lr = 0.004, .warmup_from = 0.25, .warmup_epochs = 3, .steps_per_epoch = 100, .n_epochs = 12},
     4,
     {{0, 0.001}, {150, 0.0025}, {300, 0.004}, {1199, 0.004}}},
    {{.type = DT_SCHEDULE_STEP,
      .lr = 0.1,
      .steps_per_epoch = 10,
      .step_epochs = 2,
      .step_gamma = 0.5},
     3,
     {{19, 0.1}, {20, 0.05}, {45, 0.025}}},
    /* past the end it stays */
    {{.type = DT_SCHEDULE_COSINE, .lr = 0.2, .steps_per_epoch = 10, .n_epochs = 4, .min_lr = 0.02},
     4,
     {{0, 0.2}, {20, 0.11}, {40, 0.02}, {90, 0.02}}},
    /* begins after the warm-up */
    {{.type = DT_SCHEDULE_COSINE,
      .lr = 0.2,
      .warmup_from = 0.5,
      .warmup_epochs = 2,
      .steps_per_epoch = 10,
      .n_epochs = 4},
     3,
     {{0, 0.1}, {20, 0.2}, {30, 0.1}}},
    /* warm-up of one rank */
    {{.lr = 0.2, .warmup_from = 0.1, .warmup_epochs = 0.5, .steps_per_epoch = 20, .n_epochs = 4},
     4,
     {{0, 0.02}, {5, 0.11}, {10, 0.2}, {79, 0.2}}},
    {{.lr = 0.2, .warmup_from = 0, .warmup_epochs = 1, .steps_per_epoch = 4, .n_epochs = 4},
     2,
     {{0, 0}, {1, 0.05}}},
    {{.type = DT_SCHEDULE_STEP,
      .lr = 0.1,
      .steps_per_epoch = 10,
      .step_epochs = 1,
      .milestones = {3, {2, 2.5, 7}},
      .step_gamma = 0.1},
     6,
     {{0, 0.1}, {19, 0.1}, {20, 0.01}, {25, 0.001}, {69, 0.001}, {70, 0.0001}}},
    /* 234 steps of 0.01, peak at 0.3; its phases end between two steps */
    {{.type = DT_SCHEDULE_ONE_CYCLE,
      .lr = 0.01,
      .steps_per_epoch = 234,
      .n_epochs = 1,
      .peak = 0.3,
      .from = 0.04,
      .to = 4e-6},
     6,
     {{0, 0.0003999999999999993},
      {35, 0.005287160785869182},
      {69, 0.009999802141001792},
      {70, 0.009999411452288016},
      {150, 0.005105498685703195},
      {233, 4e-08}}},
    /* the same over several epochs; past the end it stays */
    {{.type = DT_SCHEDULE_ONE_CYCLE,
      .lr = 0.4,
      .steps_per_epoch = 2,
      .n_epochs = 5,
      .peak = 0.25,
      .from = 0.1,
      .to = 0.001},
     6,
     {{0, 0.04},
      {1, 0.30999999999999994},
      {2, 0.3956338906266144},
      {5, 0.2210847869608772},
      {9, 0.0004},
      {20, 0.0004}}},
    /* a peak at the begin and at the end, and a cycle of one step */
    {{.type = DT_SCHEDULE_ONE_CYCLE, .lr = 1, .steps_per_epoch = 3, .n_epochs = 1, .to = 0.5},
     2,
     {{0, 0.875}, {2, 0.5}}},
    {{.type = DT_SCHEDULE_ONE_CYCLE,
      .lr = 1,
      .steps_per_epoch = 3,
      .n_epochs = 1,
      .peak = 1,
      .from = 0.5},
     3,
     {{0, 0.5}, {1, 0.75}, {2, 1}}},
    {{.type = DT_SCHEDULE_ONE_CYCLE,
      .lr = 1,
      .steps_per_epoch = 1,
      .n_epochs = 1,
      .peak = 0.3,
      .to = 0.5},
     1,
     {{0, 0.5}}},
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
