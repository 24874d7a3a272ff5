/* Decisions from the results of epochs, with known numbers: when a run stops, when its
 * rate goes down, which epoch is best. */
#include "tests/lib/check.h"
#include "train/events.h"
#include "train/trainer.h"

static struct dt_world world = {.size = 1, .local_size = 1, .host = "here"};
static struct dt_trainer t;

static int n_warnings;

static enum dt_status hear(void *context, struct dt_event *event)
{
    (void)context;
    n_warnings += event->kind == DT_EVENT_WARNING;
    return DT_OK;
}

static const struct dt_emitter emitter = {.emit = hear};

/* Again: a run that is resumed. */
static void begin_run(void)
{
    dt_monitor_begin(&t, &emitter);
}

static void begin(const struct dt_config *config)
{
    memset(&t, 0, sizeof t);
    t.world = &world;
    t.config = *config;
    t.state.step_in_epoch = 10;
    t.schedule = (struct dt_lr_schedule){.type = config->schedule,
                                         .lr = config->optimizer.lr,
                                         .steps_per_epoch = 10,
                                         .min_lr = config->schedule_min_lr,
                                         .factor = config->schedule_factor};
    begin_run();
}

struct result {
    bool is_best, is_reduced;
};

/* An epoch of 200 test samples. */
static struct result epoch(double loss, double accuracy)
{
    const struct dt_metrics test = {
        .loss_sum = 200 * loss, .n_correct = 200 * accuracy, .n_samples = 200};
    const uint64_t best = t.state.best_epoch;
    const double reduced_lr = dt_monitor_epoch(&t, &test, &(struct dt_metrics){0});
    t.state.epoch++;
    return (struct result){.is_best = t.state.best_epoch != best, .is_reduced = reduced_lr > 0};
}

static struct dt_end_event end_of(void)
{
    struct dt_end_event end = {0};
    dt_monitor_end(&t, &end);
    return end;
}

/* The weights get worse, their average better: metrics of the average go by it, others do not. */
static void test_average(void)
{
    static const enum dt_test_metric metrics[] = {DT_EMA_TEST_LOSS, DT_EMA_TEST_ACCURACY,
                                                  DT_EMA_VALIDATION_LOSS,
                                                  DT_EMA_VALIDATION_ACCURACY, DT_TEST_LOSS};
    for (int i = 0; i < 5; i++) {
        begin(&(struct dt_config){.checkpoint_best = metrics[i],
                                  .early_stopping = {.metric = metrics[i], .patience = 2}});
        for (int e = 1; e <= 3; e++) {
            const struct dt_metrics test = {.loss_sum = e, .n_correct = 4 - e, .n_samples = 4},
                                    average = {.loss_sum = 4 - e, .n_correct = e, .n_samples = 4};
            dt_monitor_epoch(&t, &test, &average);
            t.state.epoch++;
        }
        CHECK_INT(t.state.best_epoch, i < 4 ? 3 : 1);
        CHECK(dt_monitor_stops(&t) == (i == 4));
    }
}

static void test_nothing_is_asked(void)
{
    begin(&(struct dt_config){.epochs = 9});
    for (int i = 0; i < 9; i++) {
        const struct result result = epoch(1, 0.5);
        CHECK(!result.is_best && !result.is_reduced && !dt_monitor_stops(&t));
    }
    CHECK_INT(t.state.stop_epoch + t.state.best_epoch + t.state.plateau_epoch, 0);
    CHECK_INT(end_of().stopping.metric, DT_TEST_NONE);
}

/* As good as the best is no improvement. */
static void test_stops(void)
{
    static const double losses[] = {1, 0.5, 0.75, 0.25, 0.25, 0.5};
    begin(&(struct dt_config){.early_stopping = {.metric = DT_TEST_LOSS, .patience = 2}});
    for (int i = 0; i < 6; i++) {
        CHECK(!dt_monitor_stops(&t));
        epoch(losses[i], 0);
    }
    CHECK(dt_monitor_stops(&t));
    const struct dt_monitored m = end_of().stopping;
    CHECK_NEAR(m.best, 0.25, 0);
    CHECK_INT(m.epoch, 4);
    CHECK_INT(m.n_since, 2);
    t.config.early_stopping.patience = 3; /* resumed with more patience */
    begin_run();
    CHECK(!dt_monitor_stops(&t));
}

static void test_min_delta(void)
{
    static const double accuracies[] = {0.5, 0.59, 0.625,
                                        0.7}; /* 0.5 and 0.625 are kept: steps of more than 0.1 */
    begin(&(struct dt_config){
        .early_stopping = {.metric = DT_TEST_ACCURACY, .patience = 2, .min_delta = 0.1}});
    for (int i = 0; i < 4; i++) {
        epoch(1, accuracies[i]);
        CHECK(!dt_monitor_stops(&t));
    }
    CHECK_INT(t.state.stop_epoch, 3);
    epoch(1, 0.72);
    CHECK(dt_monitor_stops(&t));
    CHECK_NEAR(t.state.stop_value, 0.625, 0);
}

/* Patience begins anew after a reduction, and the floor is not reduced. */
static void test_plateau(void)
{
    static const bool reduced[] = {false, false, true, false, true, false, false, false};
    begin(&(struct dt_config){.schedule = DT_SCHEDULE_PLATEAU,
                              .optimizer = {.lr = 1},
                              .schedule_factor = 0.5,
                              .schedule_min_lr = 0.3,
                              .plateau = {.metric = DT_TEST_LOSS, .patience = 2}});
    for (int i = 0; i < 8; i++) {
        CHECK(epoch(1, 0).is_reduced == reduced[i]);
    }
    CHECK_INT(t.state.lr_reductions, 2);
    CHECK_INT(t.state.lr_reduced_epoch, 5);
    CHECK_NEAR(dt_lr_schedule_at(&t.schedule, 0), 0.3, 0);
    t.schedule.n_reductions = 0; /* resumed */
    begin_run();
    CHECK_NEAR(dt_lr_schedule_at(&t.schedule, 0), 0.3, 0);
}

static void test_best(void)
{
    begin(&(struct dt_config){.checkpoint_best = DT_TEST_ACCURACY});
    CHECK(epoch(1, 0).is_best); /* the first, whatever it is */
    CHECK(epoch(2, 0.25).is_best);
    CHECK(!epoch(0.5, 0.25).is_best);
    CHECK(epoch(3, 0.75).is_best);
    CHECK_INT(end_of().best.epoch, 4);
    CHECK_INT(end_of().best.n_since, 0);
}

/* An epoch that ends before its last step decides nothing. */
static void test_part(void)
{
    begin(&(struct dt_config){.checkpoint_best = DT_TEST_ACCURACY});
    t.state.step_in_epoch = 9;
    CHECK(!epoch(1, 0.5).is_best);
    t.state.step_in_epoch = 10;
    CHECK(epoch(1, 0.5).is_best);
}

/* Numbers of one metric say nothing of another. */
static void test_forget(void)
{
    const struct dt_config by_loss = {.early_stopping = {.metric = DT_TEST_LOSS},
                                      .checkpoint_best = DT_TEST_LOSS};
    const struct dt_config by_accuracy = {.early_stopping = {.metric = DT_TEST_ACCURACY},
                                          .checkpoint_best = DT_TEST_LOSS};
    struct dt_checkpoint_state state = {
        .stop_epoch = 3, .stop_value = 0.5, .best_epoch = 2, .best_value = 0.25};
    dt_monitor_forget(&by_loss, &by_loss, &state);
    CHECK_INT(state.stop_epoch, 3);
    dt_monitor_forget(&by_loss, &by_accuracy, &state);
    CHECK_INT(state.stop_epoch, 0);
    CHECK_INT(state.best_epoch, 2);
}

/* One warning for all that goes by the test samples, none for what does not, on rank 0 alone. */
static void test_warning(void)
{
    const struct dt_config test = {.early_stopping = {.metric = DT_TEST_LOSS, .patience = 2},
                                   .checkpoint_best = DT_TEST_ACCURACY};
    const struct dt_config valid = {.early_stopping = {.metric = DT_VALIDATION_LOSS, .patience = 2},
                                    .checkpoint_best = DT_VALIDATION_ACCURACY,
                                    .plateau = {.metric = DT_TEST_LOSS}}; /* unused: constant */
    n_warnings = 0;
    begin(&valid);
    CHECK_INT(n_warnings, 0);
    begin(&test);
    CHECK_INT(n_warnings, 1);
    world.rank = 1;
    begin(&test);
    world.rank = 0;
    CHECK_INT(n_warnings, 1);
}

/* Less than 30 bits is no improvement of a validation loss; of a test loss it is. */
static void test_rounding(void)
{
    static const enum dt_test_metric metrics[] = {DT_VALIDATION_LOSS, DT_TEST_LOSS};
    for (int i = 0; i < 2; i++) {
        begin(&(struct dt_config){.checkpoint_best = metrics[i]});
        CHECK(epoch(0.7, 0.5).is_best);
        CHECK(epoch(0.7 - 1e-12, 0.5).is_best == (metrics[i] == DT_TEST_LOSS));
        CHECK(epoch(0.7 - 1e-8, 0.5).is_best);
    }
    begin(&(struct dt_config){.checkpoint_best = DT_VALIDATION_ACCURACY});
    CHECK(epoch(1, 0.5).is_best && !epoch(0.1, 0.5).is_best && epoch(2, 0.51).is_best);
}

int main(void)
{
    test_warning();
    test_rounding();
    test_average();
    test_nothing_is_asked();
    test_stops();
    test_min_delta();
    test_plateau();
    test_best();
    test_part();
    test_forget();
    return 0;
}
