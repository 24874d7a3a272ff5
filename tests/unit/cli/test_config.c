/* The configuration: what is accepted, and what is refused and in which words. */
#include "tests/unit/cli/config_sample.h"

#define TRAIN(members) WITH("`train`: {" members "}")
#define OPTIMIZER(members) TRAIN("`optimizer`: {" members "}")
#define IN_DATA(members) "{`data`: {`format`: `idx`, " members "}, " MODEL "}"
#define INPUT(value) "{" DATA ", `model`: {`input`: " value ", `layers`: [" DENSE_LAYER "]}}"
#define LAYERS(value) "{" DATA ", `model`: {`input`: [1, 28, 28], `layers`: " value "}}"
#define LAYER(value) LAYERS("[" value "]")
#define LINEAR(input, loss)                                                                      \
    "{`data`: {`format`: `linear`}, `model`: {`input`: " input ", `layers`: [{`type`: `dense`, " \
    "`units`: 1}], `loss`: `" loss "`}}"
#define NINE "[[[[[[[[["
#define NINE_ENDS "]]]]]]]]]"

/* Each is DT_CONFIG, with the needle in its message. */
static const struct {
    const char *text, *needle;
} bad[] = {
    /* syntax, with the position */
    {"", "c.json:1:1: the text ends too early"},
    {"   \n ", "c.json:2:2: the text ends too early"},
    {"{\n  `data`: {`format`: `idx`", "c.json:2:27: the text ends too early"},
    {"{`data`: `idx", "c.json:1:14: the text ends too early"},
    {"{\n  `threads`: 1,\n}", "c.json:3:1: a comma before a closing bracket (remove the comma)"},
    {"{`data`: [1, 2,]}", "c.json:1:16: a comma before a closing bracket"},
    {"{`a` 1}", "c.json:1:6: ':' is missing"},
    {"{`a`: 1 `b`: 2}", "c.json:1:9: ',' or '}' is missing"},
    {"{`a`: [1 2]}", "c.json:1:10: ',' or ']' is missing"},
    {"{a: 1}", "c.json:1:2: a key in quotes is expected"},
    {"{,}", "c.json:1:2: a key in quotes is expected"},
    {"{'a': 1}", "c.json:1:2: single quotes"},
    {"{ /* hello */ }", "c.json:1:3: not JSON (remove it; comments begin with //, in a"},
    {"{`a`: 1} # end", "c.json:1:10: not JSON (remove it; comments begin with //"},
    {"{`a`: 1 / 2}", "c.json:1:9: not JSON (remove it; comments"},
    /* comments: places behind them are those of the file */
    {"{ // h\xC3\xA9llo `x\n  `a`: 1,}", "c.json:2:10: a comma before a closing bracket"},
    {"{\n  `a`: 1, // one\n}", "c.json:3:1: a comma before a closing bracket"},
    {"{`a`: `//`, b}", "c.json:1:13: a key in quotes is expected"},
    {"{`a`: `\\` // `, b}", "c.json:1:17: a key in quotes is expected"},
    {"{`a`: `\\\\` // `, b", "c.json:1:19: the text ends too early"},
    {"{`a // b\n: 1}", "c.json:1:9: a line end or control character inside a text"},
    {"// nothing", "c.json:1:11: the text ends too early"},
    {"{ /", "c.json:1:3: not JSON"},
    {"{`a\\", "c.json:1:5: "},
    {"{} // h\xC3\xA9\x01", "c.json:1:9: a control character or invalid UTF-8 in a comment"},
    {"{ // \xFF\n}", "c.json:1:6: a control character or invalid UTF-8 in a comment"},
    {"{ // \x7F\n}", "c.json:1:6: a control character or invalid UTF-8 in a comment"},
    {WITH("`extends`: `base.json`"), "c.json: extends: only a file extends another"},
    {WITH("`extends`: 5"), "c.json: extends: expected the path of a configuration"},
    {WITH("`extends`: ``"), "got string ``"},
    {"{`a`: True}", "c.json:1:7: not a JSON value"},
    {"{`a`: nul}", "c.json:1:7: not a JSON value"},
    {"{`a`: NaN}", "c.json:1:7: not a JSON value"},
    {"{`a`: Infinity}", "c.json:1:7: not a JSON value"},
    {"{`a`: idx}", "c.json:1:7: not a JSON value"},
    {GOOD " x", "unexpected text after the end of the document"},
    {GOOD "\n" GOOD, "c.json:2:1: unexpected text after the end of the document"},
    {GOOD "]", "unexpected text after the end of the document"},
    {"\xEF\xBB\xBF" GOOD, "c.json:1:1: a byte order mark"},
    {NINE NINE NINE_ENDS NINE_ENDS, "c.json:1:17: nesting deeper than 16"},
    /* numbers */
    {"{`a`: 007}", "c.json:1:8: a number begins with 0"},
    {"{`a`: 5.}", "c.json:1:9: a digit is missing"},
    {"{`a`: .5}", "c.json:1:7: not a JSON value"},
    {"{`a`: +5}", "c.json:1:7: not a JSON value"},
    {"{`a`: -}", "c.json:1:8: a digit is missing"},
    {"{`a`: 1e}", "c.json:1:9: a digit is missing"},
    {"{`a`: 0x10}", "c.json:1:8: ',' or '}' is missing"},
    {"{`a`: 1.0000000000000000000000000000000000000000000000000000000000001}",
     "a number of more than 60 characters"},
    /* texts */
    {"{`a`: `x\\u0000y`}", "contains a NUL character"},
    {"{`a\\u0000`: 1}", "contains a NUL character"},
    {"{`a`: `\\ud800`}", "half of a surrogate pair"},
    {"{`a`: `\\udc00\\ud800`}", "half of a surrogate pair"},
    {"{`a`: `\\ud800\\u0041`}", "half of a surrogate pair"},
    {"{`a`: `\\u12g4`}", "four hexadecimal digits"},
    {"{`a`: `\\x41`}", "an unknown escape"},
    {"{`a`: `C:\\data`}", "an unknown escape (a backslash is written \\\\)"},
    {"{`a`: `\xFF`}", "c.json:1:8: invalid UTF-8"},
    {"{`a`: `\xC0\xAF`}", "invalid UTF-8"},
    {"{`a`: `\xED\xA0\x80`}", "invalid UTF-8"},
    {"{`a`: `\xF5\x80\x80\x80`}", "invalid UTF-8"},
    {"{`a`: `\xE2\x82`}", "invalid UTF-8"},
    {"{`a`: `one\ntwo`}", "c.json:1:11: a line end or control character inside a text"},
    /* keys */
    {"[]", "c.json: expected an object in braces, got a list of 0"},
    {"5", "expected an object in braces, got 5"},
    {"`data`", "expected an object in braces, got string `data`"},
    {"null", "expected an object in braces, got null"},
    {"{}", "data.format: the key is missing (give it one of idx, synthetic, linear, cifar, npy, "
           "images, csv)"},
    {"{" DATA "}", "model.input: the key is missing"},
    {"{" DATA ", `model`: {`input`: [1]}}",
     "model.layers: the key is missing (give it a list of 1..64 layers)"},
    {TRAIN("`epoch`: 1"), "c.json: train.epoch: unknown key (did you mean 'train.epochs'?)"},
    {TRAIN("`EPOCHS`: 1"), "train.EPOCHS: unknown key (did you mean 'train.epochs'?)"},
    {WITH("`Train`: {}"), "Train: unknown key (did you mean 'train'?)"},
    {WITH("`epochs`: 3"), "epochs: unknown key (did you mean 'train.epochs'?)"},
    {TRAIN("`lr`: 3"), "train.lr: unknown key (did you mean 'train.optimizer.lr'?)"},
    {TRAIN("`xyzzy`: 3"),
     "train.xyzzy: unknown key (the keys here are: epochs, max_steps, seed, batch,"},
    {OPTIMIZER("`xyzzy`: 3"),
     "train.optimizer.xyzzy: unknown key (the keys here are: type, lr, momentum, nesterov,"},
    {WITH("`train.epochs`: 3"), "in place of a dot"},
    {WITH("``: 3"), ": unknown key (the keys here are: data, model, train,"},
    {WITH("`$schema`: `a`, `$schema`: `b`"), "$schema: the key is given twice"},
    {TRAIN("`epochs`: 1, `epochs`: 2"), "train.epochs: the key is given twice"},
    {WITH("`train`: {}, `train`: {}"), "train: the key is given twice"},
    {LAYER("{`type`: `dense`, `units`: 1, `units`: 2}"),
     "model.layers[0].units: the key is given twice"},
    {LAYER("{`type`: `dense`, `type`: `flatten`}"), "model.layers[0].type: the key is given twice"},
    {WITH("`train`: 3"), "train: expected an object, got 3"},
    {TRAIN("`optimizer`: `adam`"), "train.optimizer: expected an object, got string `adam`"},
    {TRAIN("`batch`: 128"),
     "train.batch: expected an object, got 128 (say train.batch.per_rank=128, or write it in "
     "braces)"},
    /* types and ranges */
    {TRAIN("`epochs`: `ten`"), "train.epochs: expected an integer 1..1000000, got string `ten`"},
    {TRAIN("`epochs`: 1.5"), "train.epochs: expected an integer 1..1000000, got 1.5"},
    {TRAIN("`epochs`: 0"), "train.epochs: expected an integer 1..1000000, got 0"},
    {TRAIN("`epochs`: -1"), "got -1"},
    {TRAIN("`epochs`: 2147483648"), "got 2147483648"},
    {TRAIN("`epochs`: true"), "got true"},
    {TRAIN("`epochs`: null"), "got null"},
    {TRAIN("`epochs`: [1]"), "got a list of 1"},
    {TRAIN("`epochs`: {}"), "got an object"},
    {TRAIN("`seed`: 9007199254740993"),
     "train.seed: expected an integer 0..9007199254740991, got 9007199254740992"},
    {TRAIN("`seed`: 1e999"), "got inf (too large for a double)"},
    {OPTIMIZER("`lr`: 1e999"),
     "train.optimizer.lr: expected a number > 0 and <= 1000000, got inf (too large for a double)"},
    {OPTIMIZER("`lr`: 0"), "train.optimizer.lr: expected a number > 0 and <= 1000000, got 0"},
    {OPTIMIZER("`lr`: -0.001"), "got -0.001"},
    {OPTIMIZER("`lr`: `0.001`"), "got string `0.001`"},
    {OPTIMIZER("`type`: `sgd`, `momentum`: 1"),
     "train.optimizer.momentum: expected a number >= 0 and < 1, got 1"},
    {OPTIMIZER("`type`: `adm`"), "train.optimizer.type: expected one of sgd, adam, adamw, got "
                                 "string `adm` (did you mean `adam`?)"},
    {OPTIMIZER("`type`: `Adam`"), "(did you mean `adam`?)"},
    {OPTIMIZER("`type`: `rmsprop`"), "expected one of sgd, adam, adamw, got string `rmsprop`"},
    {OPTIMIZER("`type`: 1"), "expected one of sgd, adam, adamw, got 1"},
    {WITH("`distributed`: {`strategy`: `pipeline`, `average`: false}"),
     "distributed.average: a pipeline has nothing to average (leave it on)"},
    {WITH("`distributed`: {`deterministic`: true, `average`: false}"),
     "distributed.deterministic: replicas that step alone differ (leave distributed.average on)"},
    {WITH("`distributed`: {`average`: 1}"), "distributed.average: expected true or false, got 1"},
    {WITH("`distributed`: {`average`: `true`}"),
     "distributed.average: expected true or false, got string `true`"},
    {WITH("`distributed`: {`allreduce`: `mpi`, `compression`: {`type`: `bf16`}}"),
     "distributed.compression.type: allreduce `mpi` cannot add what is sent as bf16 (take one of "
     "auto, hierarchical, ring, "},
    {WITH("`distributed`: {`allreduce`: `ring`, `compression`: {`type`: `onebit`}}"),
     "allreduce `ring` cannot add what is sent as onebit (take one of auto, all_to_all)"},
    {WITH("`distributed`: {`compression`: {`type`: `int8`, `ratio`: 0.5}}"),
     "distributed.compression.ratio: "},
    {WITH("`distributed`: {`compression`: {`type`: `topk`, `ratio`: 0}}"),
     "expected a number > 0 and <= 1, got 0"},
    {WITH("`device`: `gpu`"),
     "device: expected one of auto, cpu, ref, cuda, got string `gpu` (did you mean `cuda`?)"},
    {IN_DATA("`dir`: ``"), "data.dir: expected a text of 1..1023 bytes, got string ``"},
    {IN_DATA("`dir`: 5"), "data.dir: expected a text of 1..1023 bytes, got 5"},
    {INPUT("28"), "model.input: expected [channels, height, width] or [features]"},
    {INPUT("[]"), "model.input: expected [channels, height, width] or [features]"},
    {INPUT("[28, 28]"), "model.input: expected [channels, height, width] or [features]"},
    {INPUT("[1, 2, 3, 4]"), "model.input: expected [channels, height, width] or [features]"},
    {INPUT("[1, 28, 0]"), "model.input[2]: expected an integer 1..65536, got 0"},
    {INPUT("[1, 28.5, 28]"), "model.input[1]: expected an integer 1..65536, got 28.5"},
    {INPUT("[`1`]"), "model.input[0]: expected an integer 1..65536, got string `1`"},
    /* layers */
    {LAYERS("{}"), "model.layers: expected a list of 1..64 layers, got an object"},
    {LAYERS("[]"), "model.layers: expected 1..64 layers, got 0"},
    {LAYER("5"), "model.layers[0]: expected an object such as {`type`: `flatten`}, got 5"},
    {LAYER("`flatten`"), "model.layers[0]: expected an object"},
    {LAYER("{}"), "model.layers[0].type: the key is missing"},
    {LAYER("{`type`: `conv2`}"), "model.layers[0].type: expected one of conv2d, dense,"},
    {LAYER("{`type`: `conv2`}"), "(did you mean `conv2d`?)"},
    {LAYER("{`type`: 2}"), "model.layers[0].type: expected one of conv2d"},
    {LAYER("{`type`: `conv2d`, `kernel`: 3}"), "model.layers[0].filters: the key is missing"},
    {LAYER(DENSE_LAYER ", {`type`: `conv2d`, `filters`: 4}"),
     "model.layers[1].kernel: the key is missing"},
    {LAYER("{`type`: `conv2d`, `filters`: 4, `kernel`: 0}"),
     "model.layers[0].kernel: expected an integer 1..1024, got 0"},
    {LAYER("{`type`: `dense`, `units`: 0}"),
     "model.layers[0].units: expected an integer 1..65536, got 0"},
    {LAYER("{`type`: `dense`, `units`: 65537}"), "got 65537"},
    {LAYER("{`type`: `dense`, `unit`: 1}"),
     "model.layers[0].unit: unknown key (did you mean 'model.layers[0].units'?)"},
    {LAYER("{`type`: `dense`, `filters`: 1}"),
     "model.layers[0].filters: unknown key (dense has the keys: type, units, activation, init, lr, "
     "name, input)"},
#define SPLIT(layer, distributed)                                                              \
    "{`data`: {`format`: `idx`, `sharding`: `global`}, `model`: {`input`: [1, 28, "            \
    "28], "                                                                                    \
    "`layers`: [" layer "]}, `train`: {`batch`: {`global`: 32}}, `distributed`: {" distributed \
    "}}"
#define SYNC "{`type`: `batch_norm`, `sync`: true}"
    {SPLIT("{`type`: `batch_norm`}", "`strategy`: `pipeline`"),
     "model.layers[0] batch_norm takes statistics over the whole batch, and a pipeline cuts it"},
    {SPLIT("{`type`: `batch_norm`}", "`deterministic`: true"),
     "model.layers[0] batch_norm takes statistics over a batch, and its leaves pass one by one"},
    {SPLIT(SYNC, "`deterministic`: true"), "and its leaves pass one by one"},
    {SPLIT(SYNC, "`strategy`: `pipeline`"), "and a pipeline cuts it"},
    {SPLIT(SYNC, "`strategy`: `parameter_server`"),
     "distributed.strategy: model.layers[0] batch_norm with sync adds statistics over all ranks, "
     "and servers compute none (use allreduce or central)"},
    {SPLIT(SYNC, "`strategy`: `parameter_server`, `parameter_server`: {`mode`: "
                 "`async`}"),
     "batch_norm with sync adds statistics over all ranks, and servers compute none"},
    {SPLIT(SYNC, "`average`: false"),
     "distributed.average: model.layers[0] batch_norm with sync adds statistics over ranks that "
     "then step alone"},
    {SPLIT("{`type`: `relu`, `input`: `a`}", "`strategy`: `pipeline`"),
     "model.layers[0] relu reads a branch, and a pipeline would cut through it"},
    {SPLIT("{`type`: `layer_norm`}", "`strategy`: `pipeline`"),
     "model.layers[0] layer_norm is no part of a plain chain, and a pipeline passes through "
     "nothing "
     "else (use allreduce)"},
    {SPLIT("{`type`: `add`, `inputs`: [`a`, `b`, `c`]}", "`average`: true"),
     "model.layers[0].inputs: expected a list of 1..2 names"},
    {LAYER("{`type`: `flatten`, `filters`: 1}"),
     "model.layers[0].filters: unknown key (flatten has the keys: type, name, input)"},
    {LAYER("{`type`: `dropout`, `rate`: 1}"),
     "model.layers[0].rate: expected a number >= 0 and < 1, got 1"},
    {LAYER("{`type`: `dense`, `units`: 1, `activation`: `rely`}"), "(did you mean `relu`?)"},
    {LAYER("{`type`: `dense`, `units`: 1, `activation`: null}"),
     "model.layers[0].activation: expected one of none, relu"},
    {LAYER("{`type`: `dense`, `units`: 1, `activation`: `softmax`}"),
     "got string `softmax` (leave it out: the loss softmax_cross_entropy has it)"},
    {LAYER(DENSE_LAYER ", {`type`: `softmax`}"),
     "(leave it out: the loss softmax_cross_entropy has it)"},
    /* keys that do not go together */
    {TRAIN("`batch`: {`per_rank`: 1, `global`: 2}"),
     "train.batch: both per_rank and global are given"},
    {TRAIN("`batch`: {`per_rank`: 4}, `accumulate`: 8"),
     "train.accumulate: a batch of 4 has no 8 parts"},
    {OPTIMIZER("`momentum`: 0.9"),
     "train.optimizer.momentum: has a meaning only with train.optimizer.type=sgd"},
    {OPTIMIZER("`type`: `sgd`, `beta1`: 0.9"),
     "train.optimizer.beta1: has a meaning only with train.optimizer.type=adam|adamw"},
    {OPTIMIZER("`beta2`: 0.99999999"),
     "train.optimizer.beta2: expected a number >= 0 and <= 0.9999999, got 0.99999999"},
    {OPTIMIZER("`beta1`: 0.9999999999999999"),
     "train.optimizer.beta1: expected a number >= 0 and <= 0.9999999, got 0.99"},
    {OPTIMIZER("`type`: `sgd`, `nesterov`: true"), "train.optimizer.nesterov: needs a momentum"},
    {TRAIN("`schedule`: {`type`: `step`, `min_lr`: 0.1}"),
     "train.schedule.min_lr: has a meaning only with"},
    {TRAIN("`schedule`: {`type`: `cosine`, `min_lr`: 0.1}"),
     "train.schedule.min_lr: 0.1 is above train.optimizer.lr 0.001"},
    {TRAIN("`schedule`: {`type`: `plateau`, `factor`: 1}"),
     "train.schedule.factor: expected a number > 0 and < 1, got 1"},
    {TRAIN("`schedule`: {`factor`: 0.5}"),
     "train.schedule.factor: has a meaning only with train.schedule.type=plateau"},
    {TRAIN("`schedule`: {`type`: `step`, `milestones`: [30, 30]}"),
     "train.schedule.milestones[1]: expected epochs in ascending order, got 30 (such as [30, 60])"},
    {TRAIN("`schedule`: {`type`: `step`, `milestones`: [0]}"),
     "train.schedule.milestones[0]: expected epochs in ascending order, got 0"},
    {TRAIN("`schedule`: {`type`: `step`, `milestones`: 30}"),
     "train.schedule.milestones: expected a list of 0..16 epochs in ascending order, got 30"},
    {TRAIN("`schedule`: {`type`: `cosine`, `milestones`: [30]}"),
     "train.schedule.milestones: has a meaning only with train.schedule.type=step"},
    {TRAIN("`schedule`: {`type`: `one_cycle`}, `warmup_epochs`: 1"),
     "train.warmup_epochs: one_cycle has a warm-up of its own, of train.schedule.peak of the steps "
     "(leave train.warmup_epochs out)"},
    {TRAIN("`schedule`: {`type`: `one_cycle`, `peak`: 1.5}"),
     "train.schedule.peak: expected a number >= 0 and <= 1, got 1.5"},
    {TRAIN("`warmup_from`: -0.1"), "train.warmup_from: expected a number >= 0 and <= 1, got -0.1"},
    {TRAIN("`schedule`: {`type`: `plateau`, `metric`: `none`}"),
     "train.schedule.metric: a plateau is one of a metric"},
    {TRAIN("`early_stopping`: {`metric`: `test_lost`}"), "(did you mean `test_loss`?)"},
    {TRAIN("`early_stopping`: {`patience`: 5}"),
     "train.early_stopping.patience: has a meaning only with"},
    {TRAIN("`early_stopping`: {`metric`: `test_loss`, `min_delta`: -1}"),
     "train.early_stopping.min_delta: expected a number >= 0"},
    {TRAIN("`early_stopping`: {`metric`: `test_accuracy`, `min_delta`: 1}"),
     "an accuracy is at most 1, and cannot improve by 1"},
    {IN_DATA("`augment`: [`flip`]"),
     "{\"rotate\": 9} or {\"cutout\": 8}, one change each, got string \"flip\""},
    {IN_DATA("`augment`: [{`rotate`: 181}]"),
     "data.augment[0].rotate: expected an integer 1..180, got 181"},
    {IN_DATA("`augment`: [{`cutout`: 0.5}]"), "data.augment[0].cutout: expected an integer 1..180"},
    {TRAIN("`freeze`: [`fc9`]"), "train.freeze: no layer 'fc9' has weights (there are 'fc1')"},
    {TRAIN("`freeze`: [`fc1`]"), "train.freeze: nothing is left to train (leave out one of 'fc1')"},
    {WITH("`thread`: 1"), "(did you mean 'threads'?)"},
    {IN_DATA("`slope`: 1"), "data.slope: has a meaning only with data.format=linear"},
};

static const char *const good[] = {
    GOOD,
    "\r\n\t " GOOD " \n",
    WITH("`$schema`: `dtrain.schema.json`, `threads`: 0"),
    IN_DATA("`dir`: `/data/\\u00e9\\ud83d\\ude00/\xC3\xA9\\\\\\`\\n`"),
    "// h\xC3\xA9llo, \t`quoted`\r\n" GOOD "//\n// end, without a line's",
    IN_DATA("// `dir`: `no`,\n `dir`: `a//b\\\\` // `c\n"),
    IN_DATA("`train_samples`: 2147483647, `test_samples`: 1"),
    INPUT("[784]"),
    INPUT("[65536, 1, 1]"),
    TRAIN("`epochs`: 1e3, `seed`: 9007199254740991"),
    TRAIN("`epochs`: 3.0, `max_steps`: 0"),
    TRAIN("`batch`: {`global`: 384}"),
    TRAIN("`batch`: {}, `optimizer`: {}, `schedule`: {}"),
    OPTIMIZER("`type`: `sgd`, `lr`: 0.1, `momentum`: 0.9, `nesterov`: true, "
              "`weight_decay`: 0.30000000000000004"),
    OPTIMIZER("`type`: `adamw`, `lr`: 0.1234567890123456789, `beta1`: 0, `beta2`: "
              "0.9999999, `epsilon`: 1e-20"),
    TRAIN("`schedule`: {`type`: `step`, `step_epochs`: 0.5, `gamma`: 1}, "
          "`warmup_epochs`: 2.5"),
    TRAIN("`schedule`: {`type`: `cosine`, `min_lr`: 1e-7}, `lr_scaling`: `sqrt`"),
    TRAIN("`schedule`: {`type`: `plateau`, `metric`: `test_accuracy`, `min_delta`: "
          "0.01, `patience`: 1, `min_lr`: 0}"),
    TRAIN("`schedule`: {`type`: `step`, `milestones`: [0.5, 30]}, `warmup_from`: 0"),
    TRAIN("`schedule`: {`type`: `one_cycle`, `peak`: 0, `from`: 0, `to`: 1}, `warmup_from`: 1"),
    TRAIN("`early_stopping`: {`metric`: `test_loss`, `patience`: 1, `min_delta`: 2}"),
    TRAIN("`ema`: 0.9, `early_stopping`: {`metric`: `ema_test_accuracy`, `patience`: 1, "
          "`min_delta`: 0.5}"),
    LAYERS("[{`type`: `conv2d`, `filters`: 4, `kernel`: 3, `stride`: 2, `padding`: "
           "`same`, `activation`: `tanh`, `init`: `he_normal`}, {`type`: `relu`}, "
           "{`type`: `avg_pool2d`, `size`: 2, `stride`: 1}, {`type`: `sigmoid`}, "
           "{`type`: `tanh`}, {`type`: `max_pool2d`, `size`: 3}, {`type`: "
           "`flatten`}, {`type`: `dropout`, `rate`: 0}, " DENSE_LAYER "]"),
    LINEAR("[1]", "mean_squared_error"),
    WITH("`distributed`: {`average`: false, `broadcast`: false, `overlap`: false, "
         "`bucket_mb`: 0.5}"),
};

static void test_bad(void)
{
    struct dt_config config;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const enum dt_status status = parse(bad[i].text, NULL, 0, &config);
        CHECK_MESSAGE(status == DT_CONFIG && strstr(dt_error_text(), quoted(bad[i].needle)) != NULL,
                      "%s\n  gives %d \"%s\", expected \"...%s...\"", bad[i].text, (int)status,
                      dt_error_text(), bad[i].needle);
        CHECK(strncmp(dt_error_text(), "c.json:", 7) == 0);
    }
}

static void test_good(void)
{
    struct dt_config config;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK_MESSAGE(parse(good[i], NULL, 0, &config) == DT_OK, "%s\n  gives \"%s\"", good[i],
                      dt_error_text());
        check_round_trip(&config);
    }
}

/* Texts that a C string cannot hold, and limits of size. */
static void test_bytes(void)
{
    static char large[(1 << 20) + 2];
    const size_t n = sizeof GOOD - 1;
    struct dt_config config;
    memset(large, ' ', sizeof large);
    memcpy(large, quoted(GOOD), n + 1);
    memcpy(large + n + 1, large, n);
    CHECK_FAILS(dt_config_parse("c.json", large, 2 * n + 1, NULL, 0, &config), DT_CONFIG,
                "a NUL byte (remove it)");
    CHECK_FAILS(dt_config_parse("c.json", "{\0\n\0", 4, NULL, 0, &config), DT_CONFIG,
                "text in UTF-16, as PowerShell writes (save it as UTF-8)");
    CHECK_FAILS(dt_config_parse("c.json", "\xff\xfe{\0", 4, NULL, 0, &config), DT_CONFIG,
                "text in UTF-16");
    memset(large + n, ' ', sizeof large - n);
    CHECK_OK(dt_config_parse("c.json", large, 1 << 20, NULL, 0, &config));
    CHECK_FAILS(dt_config_parse("c.json", large, (1 << 20) + 1, NULL, 0, &config), DT_CONFIG,
                "larger than 1 MiB");
    memset(large, '[', sizeof large);
    CHECK_FAILS(dt_config_parse("c.json", large, 1 << 20, NULL, 0, &config), DT_CONFIG,
                "c.json:1:17: nesting deeper than 16");
}

static char *name_of_length(size_t n)
{
    char *name = malloc(n + 1);
    CHECK(name != NULL);
    memset(name, 'k', n);
    name[n] = '\0';
    return name;
}

/* Long names and texts are cut, between characters, and the message keeps its end. */
static void test_long_names(void)
{
    char text[8000];
    struct dt_config config;
    char *name = name_of_length(3000);
    snprintf(text, sizeof text, "{" DATA ", " MODEL ", `%s`: 1}", name);
    CHECK_FAILS(parse(text, NULL, 0, &config), DT_CONFIG,
                "kkk...: unknown key (the keys here are: data, model, train, "
                "distributed, checkpoint, log, trace, device, "
                "precision, cuda, report, tensorboard, threads)");
    snprintf(text, sizeof text, "{`data`: {`format`: `%s`}, " MODEL "}", name);
    CHECK_FAILS(parse(text, NULL, 0, &config), DT_CONFIG, "kkk...\"");
    snprintf(text, sizeof text, "{`data`: {`format`: `idx`, `dir`: `%.1024s`}, " MODEL "}", name);
    CHECK_INT(parse(text, NULL, 0, &config), DT_CONFIG);
    snprintf(text, sizeof text, "{`data`: {`format`: `idx`, `dir`: `%.1023s`}, " MODEL "}", name);
    CHECK_OK(parse(text, NULL, 0, &config));
    check_round_trip(&config);
    for (size_t i = 0; i + 1 < 3000; i += 2) {
        memcpy(name + i, "\xC3\xA9", 2);
    }
    snprintf(text, sizeof text, "{`data`: {`format`: `x%s`}, " MODEL "}", name);
    CHECK_FAILS(parse(text, NULL, 0, &config), DT_CONFIG, "\xC3\xA9...\"");
    free(name);
}

static void test_too_many_layers(void)
{
    char text[8000] = "{" DATA ", `model`: {`input`: [4], `layers`: [" DENSE_LAYER;
    struct dt_config config;
    for (int i = 1; i < DT_MAX_LAYERS; i++) {
        strcat(text, ", " DENSE_LAYER);
    }
    const size_t used = strlen(text);
    strcat(text, "]}}");
    CHECK_OK(parse(text, NULL, 0, &config));
    CHECK_INT(config.model.n_layers, DT_MAX_LAYERS);
    check_round_trip(&config);
    strcpy(text + used, ", " DENSE_LAYER "]}}");
    CHECK_FAILS(parse(text, NULL, 0, &config), DT_CONFIG,
                "model.layers: expected 1..64 layers, got 65");
}

int main(void)
{
    test_bad();
    test_good();
    test_bytes();
    test_long_names();
    test_too_many_layers();
    return 0;
}
