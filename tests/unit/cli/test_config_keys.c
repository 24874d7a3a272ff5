/* The list of keys: ranges, names and defaults of each; the ready configs; and `help config`. */
#include <stdbool.h>
#include <unistd.h>

#include "cli/config/schema.h"
#include "tests/lib/folder.h"
#include "tests/unit/cli/config_sample.h"

/* GOOD changed so that `key` has a meaning, and then to `value`. */
static enum dt_status set_key(const struct dt_key *key, const char *value, struct dt_config *config)
{
    char governor[128], change[256];
    const char *sets[] = {change, governor};
    const int n = (int)strcspn(key->when, "|!"); /* != is of metrics, and none of them */
    snprintf(governor, sizeof governor, "%.*s%s", n, key->when,
             key->when[n] == '!' ? "=test_loss" : "");
    snprintf(change, sizeof change, "%s=%s", key->path, value);
    return parse(GOOD, sets, governor[0] == '\0' ? 1 : 2, config);
}

static void check_key(const struct dt_key *key, double value, bool accepted)
{
    char text[DT_NUMBER_SIZE], expected[DT_EXPECTED_SIZE];
    struct dt_config config;
    dt_number_text(value, text);
    dt_key_expected(key, expected);
    const enum dt_status status = set_key(key, text, &config);
    const bool out_of_range = status != DT_OK && strstr(dt_error_text(), expected) != NULL &&
                              strstr(dt_error_text(), key->path) != NULL;
    if (out_of_range == accepted) { /* accepted ones may still not go with the others */
        CHECK_FAIL("%s = %s: %d %s", key->path, text, (int)status, dt_error_text());
    }
}

/* Both ends of every interval of the schema, and every name. */
static void test_every_key(void)
{
    const struct dt_key_list list = dt_config_keys();
    for (int i = 0; i < list.n; i++) {
        const struct dt_key *key = &list.keys[i];
        struct dt_config config;
        char name[DT_NAME_SIZE];
        if (key->kind == DT_KEY_INT || key->kind == DT_KEY_REAL || key->kind == DT_KEY_AUTO) {
            const struct dt_range range = dt_range_parse(key->values);
            check_key(key, range.low, !range.low_open);
            check_key(key, range.high, !range.high_open);
            check_key(key, range.low - 1, false);
            check_key(key, range.high + 1, false);
        }
        for (int k = 0; key->kind == DT_KEY_ENUM && dt_names_get(key->values, k, name); k++) {
            set_key(key, name, &config);
            CHECK(strstr(dt_error_text(), "expected one of") == NULL);
            CHECK_INT(dt_key_int(key, &config), k);
        }
    }
}

static void test_defaults(void)
{
    struct dt_config config;
    CHECK_OK(parse(GOOD, NULL, 0, &config));
    CHECK_TEXT(config.name, "c");
    CHECK_INT(config.data.format, DT_DATA_IDX);
    CHECK_TEXT(config.data.dir, "data/mnist");
    CHECK_INT(config.sharding, DT_SHARDING_SHARD);
    CHECK(config.shuffle);
    CHECK_INT(config.data.n_train, 0);
    CHECK_INT(config.data.shape.c, 1);
    CHECK_INT(config.data.shape.w, 28);
    CHECK_INT(config.model.loss, DT_LOSS_SOFTMAX_CROSS_ENTROPY);
    CHECK_INT(config.epochs, 12);
    CHECK_INT(config.batch_per_rank, 128);
    CHECK_INT(config.batch_global, 0);
    CHECK_INT(config.accumulate, 1);
    CHECK_INT(config.optimizer.type, DT_OPTIMIZER_ADAM);
    CHECK_NEAR(config.optimizer.lr, 0.001, 0);
    CHECK_NEAR(config.optimizer.momentum, 0, 0);
    CHECK_NEAR(config.optimizer.beta1, 0.9, 0);
    CHECK_NEAR(config.optimizer.beta2, 0.999, 0);
    CHECK_NEAR(config.optimizer.epsilon, 1e-8, 0);
    CHECK_INT(config.lr_scaling, DT_LR_SCALING_LINEAR);
    CHECK(config.dist.average && config.dist.broadcast && config.dist.overlap &&
          !config.init_per_rank);
    CHECK_INT(config.dist.bucket_bytes, 1 << 20);
    CHECK_INT(config.dist.check_every, 100);
    CHECK_NEAR(config.timeout_s, 60, 0);
    CHECK_INT(config.checkpoint_every_epochs, 1);
    CHECK_INT(config.checkpoint_keep, 2);
    CHECK_INT(config.device, DT_DEVICE_AUTO);
    CHECK_INT(config.precision, DT_PRECISION_F32);
    CHECK_INT(config.dist.allreduce, DT_ALLREDUCE_AUTO);
    CHECK_INT(config.threads, 0);
}

static char *path_in_source(const char *path, char out[512])
{
    snprintf(out, 512, "%s/%s", DT_TEST_SOURCE_DIR, path);
    return out;
}

static void test_ready_configs(void)
{
    const char *const files[] = {"mnist", "mnist-mlp", "linear", "synthetic", "cifar-resnet20"};
    const char *file_key[] = {"data.format=synthetic"};
    char path[512], name[64];
    struct dt_config config;
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "configs/%s.json", files[i]);
        dt_error_clear();
        CHECK_OK(dt_config_load(path_in_source(name, path), NULL, 0, &config));
        CHECK_TEXT(config.name, files[i]);
        check_round_trip(&config);
    }
    CHECK_OK(dt_config_load(path_in_source("configs/mnist.json", path), file_key, 1, &config));
    CHECK_INT(config.model.n_layers, 8);
    CHECK_INT(config.model.layers[1].type, DT_LAYER_CONV2D);
    CHECK_INT(config.model.layers[1].size, 64);
    CHECK_INT(config.model.layers[1].stride, 1);
    CHECK_INT(config.model.layers[2].stride, 2);
    CHECK_NEAR(config.model.layers[3].rate, 0.25, 0);
    CHECK_INT(config.data.n_train, 6000);
}

/* With the keys that it must have, and a list of names, which is one that may be left out. */
static void put_layer(FILE *out, int type)
{
    const struct dt_key_list list = dt_layer_keys((enum dt_layer_type)type);
    fprintf(out, "{`type`: `%s`", dt_layer_names[type]);
    for (int k = 0; k < list.n; k++) {
        const struct dt_key *key = &list.keys[k];
        if (key->kind == DT_KEY_INPUTS) {
            fprintf(out, ", `%s`: [`a`]", key->path);
        } else if (key->default_text == NULL) {
            fprintf(out, ", `%s`: %g", key->path, dt_range_parse(key->values).low);
        }
    }
    fputs("}", out);
}

static void test_every_layer(void)
{
    for (int type = 0; type < DT_N_LAYER_TYPES; type++) {
        struct dt_config config;
        FILE *out = print_begin();
        fputs("{" DATA ", `model`: {`input`: [1, 28, 28], `layers`: [{`type`: `relu`, `name`: `a`}",
              out);
        for (int i = 0; i < 2; i++) {
            fputs(", ", out);
            put_layer(out, type);
        }
        fputs("]}}", out);
        CHECK_OK(parse(print_end(), NULL, 0, &config));
        check_round_trip(&config);
    }
}

static void test_files(void)
{
    struct dt_config config;
    folder_open();
    CHECK_FAILS(dt_config_load(folder, NULL, 0, &config), DT_NO_INPUT, "");
    const char *path = path_of("none.json");
    CHECK_FAILS(dt_config_load(path, NULL, 0, &config), DT_NO_INPUT, path);
    path = path_of("empty.json");
    put("empty.json", "");
    CHECK_FAILS(dt_config_load(path, NULL, 0, &config), DT_CONFIG, path);
    CHECK_INT(truncate(path, (1 << 20) + 1), 0);
    CHECK_FAILS(dt_config_load(path, NULL, 0, &config), DT_CONFIG, path);
    CHECK_INT(remove(path), 0);
    folder_close();
}

/* LONG is 62 bytes: with two before them one more than config.name has room for, which then ends
 * before the last character. */
#define CUT                                                                            \
    "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9" \
    "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9" \
    "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
#define LONG CUT "\xC3\xA9"

static void test_names(void)
{
    const char *const cases[][2] = {{"a/b.json", "b"},     {"b", "b"},
                                    {"/x/..", "config"},   {"x/", "config"},
                                    {".json", ".json"},    {"a.b.json", "a.b"},
                                    {".", "config"},       {"a\nb\x1b.json", "a_b_"},
                                    {"aa" LONG, "aa" CUT}, {"a" LONG, "a" CUT "\xC3\xA9"}};
    struct dt_config config;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_OK(dt_config_parse(cases[i][0], quoted(GOOD), sizeof GOOD - 1, NULL, 0, &config));
        CHECK_TEXT(config.name, cases[i][1]);
    }
}

/* Lines become one, with single spaces: what was wrapped reads as it was written. */
static void unwrap(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        const bool blank = *from == ' ' || *from == '\n';
        if (!blank || (to > text && to[-1] != ' ')) {
            *to++ = blank ? ' ' : *from;
        }
    }
    *to = '\0';
}

static void test_help(void)
{
    const struct dt_key_list list = dt_config_keys();
    dt_config_help(print_begin(), "config");
    char *text = print_end();
    unwrap(text);
    for (int i = 0; i < list.n; i++) {
        CHECK_HAS(text, list.keys[i].path);
        CHECK_HAS(text, list.keys[i].meaning);
    }
}

int main(void)
{
    test_every_key();
    test_defaults();
    test_ready_configs();
    test_every_layer();
    test_files();
    test_names();
    test_help();
    return 0;
}
