/* A whole training without a command line, JSON or a terminal: the configuration is a struct, its
 * text in checkpoints of a format that only this test knows, and what the run tells are events. It
 * is linked with train/ and what lies below. */
#include "data/validation_split.h"
#include "tests/lib/checkpoint_sample.h"
#include "tests/lib/layers.h"
#include "train/hooks/hooks.h"
#include "train/save/saver.h"
#include "train/train.h"
#include "train/trainer.h"

static const struct dt_config config = {
    .name = "line",
    .data = {.row = &dt_linear_data,
             .format = DT_DATA_LINEAR,
             .n_train = 8,
             .n_test = 4,
             .slope = 2,
             .intercept = 1},
    .sharding = DT_SHARDING_SHARD,
    .model = {.input = {1, 1, 1},
              .n_layers = 1,
              .layers = {DENSE(1, NONE)},
              .loss = DT_LOSS_MEAN_SQUARED_ERROR},
    .epochs = 1,
    .batch_per_rank = 4,
    .accumulate = 1,
    .optimizer = {.type = DT_OPTIMIZER_SGD, .lr = 0.1},
    .dist = {.rows = &dt_all_entries, .average = true, .broadcast = true, .bucket_bytes = 1024},
    .timeout_s = 60,
    .checkpoint_keep = 2,
    .device = DT_DEVICE_CPU,
    .threads = 1,
};

/* ---- a format that is not JSON: one word */

static const char *word = "thin";

static char *write_word(const struct dt_config *written)
{
    (void)written;
    return strdup(word);
}

static enum dt_status read_word(const char *name, const char *text, struct dt_config *out)
{
    *out = config;
    return strcmp(text, "thin") == 0 ? DT_OK
                                     : dt_error(DT_CONFIG, "%s: \"%s\" is not thin", name, text);
}

static enum dt_status compare_words(const char *before, const char *now, const char *path,
                                    char *text, size_t size)
{
    const bool differ = strcmp(path, "model") == 0 && strcmp(before, now) != 0;
    snprintf(text, size, differ ? "%s was %s, now it is %s" : "", path, before, now);
    return DT_OK;
}

static const struct dt_config_format format = {
    .write = write_word, .read = read_word, .compare = compare_words};

/* ---- events */

static char told[256], warning[1024];
static uint64_t best_epoch; /* that an end tells of */

static enum dt_status hear(void *context, struct dt_event *event)
{
    static const char *const names[] = {
#define NAME(constant, member, type) #member,
        DT_EVENT_LIST(NAME)};
    char *end = told + strlen(told);
    (void)context;
    snprintf(end, (size_t)(told + sizeof told - end), "%s%s", end == told ? "" : " ",
             names[event->kind]);
    if (event->kind == DT_EVENT_WARNING) {
        snprintf(warning, sizeof warning, "%s", event->warning);
    } else if (event->kind == DT_EVENT_END) {
        best_epoch = event->end->best.epoch;
    }
    return DT_OK;
}

/* ---- a hook that fails at the end of a run */

static bool end_fails;

static enum dt_status fail(struct dt_hook *hook, struct dt_trainer *t, enum dt_status status,
                           struct dt_end_event *end)
{
    (void)hook, (void)t, (void)end;
    return status == DT_OK ? dt_error(DT_IO, "the end fails") : DT_OK;
}

static enum dt_status open_failing(const void *context, struct dt_trainer *t,
                                   const struct dt_emitter *emitter)
{
    static const struct dt_hook_ops ops = {.run_end = fail};
    void *hook;
    (void)context, (void)emitter;
    return dt_hook_open(t, &ops, sizeof(struct dt_hook), "a hook", &hook);
}

/* ---- runs */

static char checkpoints[DT_CHECKPOINT_PATH_SIZE];

static enum dt_status train(int epochs, bool resume, enum dt_test_metric best)
{
    struct dt_config now = config;
    struct dt_comm *comm;
    now.epochs = epochs;
    now.checkpoint_best = best;
    told[0] = '\0';
    CHECK_OK(dt_comm_open_self(&comm));
    struct dt_world world = {.size = 1, .local_size = 1, .host = "here", .comm = comm};
    struct dt_folder_saver saver = {
        .saver = {.ops = &dt_folder_saver_ops}, .run_dir = folder, .resume = resume};
    const struct dt_train_options options = {.format = &format,
                                             .parts = &dt_all_parts,
                                             .saver = &saver.saver,
                                             .hooks = {.open = best != DT_TEST_NONE ? dt_hooks_open
                                                               : end_fails          ? open_failing
                                                                                    : NULL}};
    const enum dt_status s = dt_train(&world, &now, &options, &(struct dt_emitter){.emit = hear});
    dt_comm_close(comm);
    return s;
}

/* ---- configurations that do not open: what a command line would have found, and what it cannot */

static void refuse(const struct dt_config *wrong, const char *message)
{
    struct dt_trainer t;
    struct dt_comm *comm;
    CHECK_OK(dt_comm_open_self(&comm));
    struct dt_world world = {.size = 1, .local_size = 1, .host = "here", .comm = comm};
    CHECK_FAILS(dt_trainer_open(&world, wrong, &format, &dt_all_parts, &t), DT_CONFIG, message);
    dt_comm_close(comm);
    free(world.reports);
}

static void test_refused(void)
{
    struct dt_config wrong = config;
    wrong.batch_per_rank = 100;
    refuse(&wrong, "train.batch: 100 samples a step, but the training set has 8");
    wrong = config;
    wrong.data.row = &dt_validation_data;
    wrong.data.whole = &dt_linear_data;
    wrong.data.validation = 9;
    refuse(&wrong, "data.validation: 9 of 8 training samples leaves none to train with");
    wrong = config;
    wrong.model.layers[0] = (struct dt_layer_spec){
        .type = DT_LAYER_CONV2D, .size = 2, .kernel = 3, .stride = 1, .padding = DT_PADDING_VALID};
    refuse(&wrong, "model.layers[0]");
    wrong = config;
    wrong.model.n_layers = 2;
    wrong.model.layers[0] = (struct dt_layer_spec)DENSE(65536, NONE);
    wrong.model.layers[1] = config.model.layers[0];
    wrong.data.n_train = 1 << 22;
    wrong.batch_per_rank = 1 << 22;
    refuse(&wrong, "GiB a rank, this host has");
}

/* A run of any length has enough records of its steps for a curve, also if it ends early, and not
 * too many. */
static void test_record_interval(void)
{
    for (uint64_t all = 1; all < 300000; all += 1 + all / 7) {
        int n = 0;
        for (uint64_t step = 1; step <= all; step++) {
            n += step % dt_record_interval(step, all) == 0;
            CHECK(step >= 64 || dt_record_interval(step, all) == 1);
            if (step == 500 || step == 5000) {
                CHECK(n >= 150);
            }
        }
        CHECK(n <= 1000 && n >= (all < 200 ? (int)all : 200));
    }
    CHECK_INT(dt_record_interval(100000000, 100000000), 262144);
}

/* An epoch whose checkpoint cannot be saved is not the best. */
static void test_best(void)
{
    char best[DT_CHECKPOINT_PATH_SIZE + 32];
    snprintf(best, sizeof best, "%s/best.safetensors", checkpoints);
    CHECK(mkdir(best, 0700) == 0);
    CHECK_OK(train(3, true, DT_TEST_LOSS));
    CHECK_TEXT(told, "warning warning folder run step step epoch save save end result");
    CHECK_HAS(warning, "checkpoint.best: the test samples choose the result");
    CHECK_INT(best_epoch, 0);
    CHECK(rmdir(best) == 0);
    CHECK_OK(train(4, true, DT_TEST_LOSS));
    CHECK_INT(best_epoch, 4);
    CHECK(unlink(best) == 0);
}

/* A run that fails at its end is a run that failed. */
static void test_failed_end(void)
{
    end_fails = true;
    CHECK_FAILS(train(4, true, DT_TEST_NONE), DT_IO, "the end fails");
    CHECK_TEXT(told, "warning warning folder run fault");
    end_fails = false;
}

int main(void)
{
    test_record_interval();
    const struct dt_file_part damage = {"no checkpoint", 13};
    folder_open();
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", folder);
    CHECK_OK(train(1, false, DT_TEST_NONE));
    CHECK_TEXT(told, "folder run step step epoch save end result");
    CHECK_TEXT(text_of(path_of("config.json")), "thin\n");

    CHECK_OK(dt_file_write_atomic(checkpoints, "step-000000000099.safetensors", &damage, 1));
    CHECK_OK(train(2, true, DT_TEST_NONE));
    CHECK_TEXT(told, "warning folder run step step epoch save end result");
    CHECK_HAS(warning, "step-000000000099.safetensors");
    CHECK_HAS(warning, "; passing it over");

    test_best();
    test_failed_end();
    test_refused();
    word = "thick";
    CHECK_FAILS(train(9, true, DT_TEST_NONE), DT_CONFIG,
                "model was thin, now it is thick (use the checkpoint's, or begin a new run)");
    folder_remove();
    return 0;
}
