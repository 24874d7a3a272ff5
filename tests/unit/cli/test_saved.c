/* Checkpoints whose checksums fit and whose content lies: counters that cannot be, tensors of
 * another model, configurations that are none. All are refused as damaged, with one line, before
 * anything is built. */
#include <stddef.h>
#include <sys/resource.h>

#include "cli/commands/eval.h"
#include "cli/config/config.h"
#include "tests/lib/checkpoint_sample.h"
#include "train/save/saved.h"

#define MODEL(units)                                                             \
    "`model`: {`input`: [1, 8, 8], `layers`: [{`type`: `conv2d`, `filters`: 4, " \
    "`kernel`: 3, `activation`: "                                                \
    "`relu`}, {`type`: `flatten`}, {`type`: `dense`, `units`: " units            \
    ", `activation`: `tanh`}, {`type`: "                                         \
    "`dense`, `units`: 4}]}"
#define CONFIG_OF(more, units, train) \
    "{`data`: {`format`: `synthetic`, `train_samples`: 100" more "}, " MODEL(units) train "}"
#define CONFIG(units, train) CONFIG_OF("", units, train)
#define TRAIN ", `train`: {`seed`: 7, `batch`: {`per_rank`: 8}}"
static const char config_text[] = CONFIG("8", TRAIN);

/* Two ranks, 7 steps an epoch, in the middle of the third. */
static const struct dt_checkpoint_state good = {.step = 17,
                                                .epoch = 2,
                                                .step_in_epoch = 3,
                                                .optimizer_steps = 17,
                                                .seed = 7,
                                                .world_size = 2,
                                                .global_batch = 16,
                                                .n_train = 100,
                                                .data_crc = 0xffffffffu,
                                                .loss_sum = 40,
                                                .n_correct = 12,
                                                .n_samples = 48};

static struct sample sample;
static char path[DT_CHECKPOINT_PATH_SIZE];

static enum dt_status check(void)
{
    struct dt_checkpoint_file file;
    struct dt_config config;
    struct dt_model model;
    CHECK_OK(dt_checkpoint_save(folder, 1, &sample.model, &sample.checkpoint, path));
    CHECK_OK(dt_checkpoint_open(path, &file));
    const enum dt_status s = dt_saved_check(&dt_config_json, path, &file, &config, &model);
    dt_checkpoint_close(&file);
    unlink(path);
    return s;
}

static void check_refused(const char *text)
{
    CHECK_FAILS(check(), DT_BAD_DATA, path);
    CHECK_HAS(dt_error_text(), text);
    dt_error_clear();
}

#define COUNTER(field) offsetof(struct dt_checkpoint_state, field)

static void test_values(void)
{
    static const struct {
        size_t offset;
        union {
            uint64_t n;
            double x;
        } value;
        const char *text;
    } cases[] = {
        {COUNTER(step_in_epoch), {.n = 8}, "step_in_epoch is 8, expected 0 to 7"},
        {COUNTER(step_in_epoch),
         {.n = UINT64_MAX},
         "step_in_epoch is 18446744073709551615, expected 0 to 7"},
        {COUNTER(step), {.n = UINT64_MAX}, "step is 18446744073709551615, expected 5 to 203"},
        {COUNTER(step), {.n = 4}, "step is 4, expected 5 to 203"},
        {COUNTER(step), {.n = 204}, "step is 204, expected 5 to 203"},
        {COUNTER(epoch), {.n = UINT64_MAX}, "epoch is 18446744073709551615, expected 0 to 1000000"},
        {COUNTER(epoch), {.n = 15}, "step is 17, expected 18 to 1503"},
        {COUNTER(optimizer_steps), {.n = 18}, "optimizer_steps is 18, expected 17 ("},
        {COUNTER(seed), {.n = 8}, "seed is 8, expected 7 ("},
        {COUNTER(world_size), {.n = 0}, "world_size is 0, expected 1 to 1048576"},
        {COUNTER(world_size),
         {.n = UINT64_MAX},
         "world_size is 18446744073709551615, expected 1 to 1048576"},
        {COUNTER(world_size), {.n = 4}, "global_batch is 16, expected 32 ("},
        {COUNTER(global_batch), {.n = 0}, "global_batch is 0, expected 16 ("},
        {COUNTER(n_train), {.n = 0}, "n_train is 0, expected 100 ("},
        {COUNTER(n_train), {.n = UINT64_MAX}, "n_train is 18446744073709551615, expected 100 ("},
        {COUNTER(data_crc),
         {.n = (uint64_t)1 << 32},
         "data_crc is 4294967296, expected 0 to 4294967295"},
        {COUNTER(stop_epoch), {.n = 3}, "stop_epoch is 3, expected 0 to 2"},
        {COUNTER(plateau_epoch),
         {.n = UINT64_MAX},
         "plateau_epoch is 18446744073709551615, expected 0 to 2"},
        {COUNTER(best_epoch), {.n = 3}, "best_epoch is 3, expected 0 to 2"},
        {COUNTER(lr_reduced_epoch), {.n = 3}, "lr_reduced_epoch is 3, expected 0 to 2"},
        {COUNTER(lr_reductions), {.n = 1}, "lr_reductions is 1, expected 0 ("},
        {COUNTER(n_samples), {.x = -48}, "n_samples is -48, expected 3 to 48"},
        {COUNTER(n_samples), {.x = 49}, "n_samples is 49, expected 3 to 48"},
        {COUNTER(n_correct), {.x = 48.5}, "n_correct is 48.5, expected 0 to 48"},
        {COUNTER(n_correct), {.x = -1}, "n_correct is -1, expected 0 to 48"},
        {COUNTER(loss_sum), {.x = -1e300}, "loss_sum is -1e+300, expected -48 to 1.63"},
        {COUNTER(loss_sum), {.x = 1e300}, "loss_sum is 1e+300, expected"},
        {COUNTER(stop_value), {.x = -2}, "stop_value is -2, expected -1 to"},
        {COUNTER(plateau_value), {.x = 1e300}, "plateau_value is 1e+300, expected"},
        {COUNTER(best_value), {.x = 1e300}, "best_value is 1e+300, expected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sample.checkpoint.state = good;
        memcpy((char *)&sample.checkpoint.state + cases[i].offset, &cases[i].value,
               sizeof cases[i].value);
        check_refused(cases[i].text);
    }
    sample.checkpoint.state = good;
}

static void test_good_ones(void)
{
    const struct dt_checkpoint_state states[] = {
        good,
        {.seed = 7, .world_size = 1, .global_batch = 8, .n_train = 100}, /* before the first step */
        {.step = 13,
         .epoch = 1,
         .optimizer_steps = 13,
         .seed = 7,
         .world_size = 1,
         .global_batch = 8,
         .n_train = 100},
        {.step = 7, /* the epoch's last step, saved before the epoch was finished */
         .step_in_epoch = 7,
         .optimizer_steps = 7,
         .seed = 7,
         .world_size = 2,
         .global_batch = 16,
         .n_train = 100,
         .loss_sum = 230,
         .n_samples = 100},
    };
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        sample.checkpoint.state = states[i];
        CHECK_MESSAGE(check() == DT_OK, "state %zu: %s", i, dt_error_text());
    }
    sample.checkpoint.state = good;
}

/* Inside an epoch a run of data.sharding global may have had another batch: steps are not those of
 * this one, and samples may be some more than it has had whole steps. */
static void test_resized(void)
{
    static const struct {
        uint64_t step;
        double n_samples;
        const char *text; /* NULL: a good one */
    } cases[] = {
        {201, 63, NULL},
        {203, 63, NULL},
        {263, 63, NULL},
        {3, 63, NULL},
        {264, 63, "step is 264, expected 3 to 263"},
        {2, 63, "step is 2, expected 3 to 263"},
        {17, 65, "n_samples is 65, expected 3 to 64"},
    };
    sample.checkpoint.config = quoted(CONFIG_OF(", `sharding`: `global`", "8", TRAIN));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sample.checkpoint.state = good;
        sample.checkpoint.state.step = sample.checkpoint.state.optimizer_steps = cases[i].step;
        sample.checkpoint.state.n_samples = cases[i].n_samples;
        if (cases[i].text != NULL) {
            check_refused(cases[i].text);
        } else if (check() != DT_OK) {
            CHECK_FAIL("case %zu: %s", i, dt_error_text());
        }
    }
    sample.checkpoint.config = quoted(config_text);
    sample.checkpoint.state = good;
}

static void test_configurations(void)
{
    static const char *const cases[][2] = {
        {"../../etc/passwd", "its configuration:1:1: not a JSON value"},
        {"", "its configuration:1:1: the text ends too early"},
        {"{}", "its configuration: data.format: the key is missing"},
        {CONFIG("8", ", `train`: {`epochs`: 0}"),
         "its configuration: train.epochs: expected an integer 1..1000000, got 0"},
        {"{" MODEL("8") ", `data`: {`format`: `idx`, `dir`: `a\\u0000b`}}", "a NUL character"},
        {CONFIG("9", ""), "tensor 'fc1.weight' has shape [8, 144], the model has [9, 144]"},
        {CONFIG("8", ", `train`: {`optimizer`: {`type`: `sgd`, `momentum`: 0.5}}"),
         "tensors unknown: 'optimizer.1."},
        {"{`data`: {`format`: `idx`}, `model`: {`input`: [1, 8, 8], `layers`: "
         "[{`type`: `dense`, `units`: 4}]}}",
         "model.layers[0] dense: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sample.checkpoint.config = quoted(cases[i][0]);
        check_refused(cases[i][1]);
    }
    sample.checkpoint.config = quoted(config_text);
}

/* A small file that speaks of a model of gigabytes costs no memory: it is refused before the model
 * is built. */
static void test_wide_model(void)
{
    struct dt_world alone = {.size = 1, .local_size = 1};
    struct dt_inference inference;
    struct rusage before, after;
    sample.checkpoint.config =
        quoted(CONFIG("16384, `activation`: `tanh`}, {`type`: `dense`, `units`: 16384", ""));
    CHECK_OK(dt_checkpoint_save(folder, 1, &sample.model, &sample.checkpoint, path));
    CHECK_INT(getrusage(RUSAGE_SELF, &before), 0);
    CHECK_INT(dt_inference_open(&alone, &(struct dt_trained){.file = path}, 1, 256, &inference),
              DT_BAD_DATA);
    CHECK_INT(getrusage(RUSAGE_SELF, &after), 0);
    CHECK_HAS(dt_error_text(), "tensors missing: 'fc3.weight', 'fc3.bias', ");
    CHECK(after.ru_maxrss - before.ru_maxrss < 64 << 10); /* KiB */
    dt_error_clear();
    unlink(path);
    sample.checkpoint.config = quoted(config_text);
}

/* A checkpoint is opened with the threads of the configuration in it, if that says how many. */
static void test_threads(void)
{
    static const char *const cases[][2] = {{CONFIG("8", TRAIN ", `threads`: 3"), ", 3 threads"},
                                           {CONFIG("8", TRAIN ", `threads`: 0"), ", 2 threads"}};
    struct dt_world alone = {.size = 1, .local_size = 1};
    struct dt_inference inference;
    for (int i = 0; i < 2; i++) {
        sample.checkpoint.config = quoted(cases[i][0]);
        const struct dt_trained trained = {.file = sample_save(&sample, good.step, 1)};
        CHECK_OK(dt_inference_open(&alone, &trained, 2, 1, &inference));
        CHECK_HAS(inference.backend->description, cases[i][1]);
        dt_inference_close(&inference);
    }
}

int main(void)
{
    folder_open();
    sample_open(4, 8, &sample);
    sample.checkpoint.config = quoted(config_text);
    sample.checkpoint.state = good;
    test_good_ones();
    test_values();
    test_resized();
    test_configurations();
    test_wide_model();
    test_threads();
    sample_close(&sample);
    folder_remove();
    return 0;
}
