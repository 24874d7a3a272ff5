/* Changes of the configuration by --set. */
#include "tests/unit/cli/config_sample.h"

/* Changes to GOOD by --set; "" as needle: accepted. */
static const struct {
    const char *sets[3], *needle;
} changes[] = {
    {{"train.epochs=1"}, ""},
    {{"train.epochs= 1 "}, ""},
    {{"distributed.strategy=pipeline", "distributed.pipeline.cut=[`conv2`, `fc1`]"}, ""},
    {{"distributed.strategy=pipeline", "distributed.pipeline.cut=conv2"},
     "cut: expected a list of 0..63 names, got string"},
    {{"distributed.strategy=pipeline", "distributed.pipeline.cut=[`a`, ``]"},
     "cut[1]: expected a name, each once, 8 kB in all, got string"},
    {{"distributed.strategy=pipeline", "distributed.pipeline.cut=[`a`, `b`, `a`]"},
     "cut[2]: expected a name, each once"},
    {{"distributed.pipeline.cut=[]"},
     "--set: distributed.pipeline.cut: has a meaning only with distributed.strategy=pipeline"},
    {{"train.epochs=7", "train.epochs=0", "train.epochs=1"}, ""},
    {{"train.batch={`global`:384}"}, ""},
    {{"train.batch.per_rank=64", "train.batch={`global`:384}"}, ""},
    {{"model.layers.1.units=16"}, ""},
    {{"model.layers[1].units=16"}, ""},
    {{"model.layers.0={`type`:`dense`,`units`:4}"}, ""},
    {{"data.dir=a=b"}, ""},
    {{"data.dir=`5`"}, ""},
    {{"train.optimizer.type=sgd", "train.optimizer.momentum=0.9", "train.optimizer.nesterov=true"},
     ""},
    {{"train.optimizer={`type`:`sgd`,`lr`:0.1}"}, ""},
    {{"data={`format`:`synthetic`,`noise`:0}"}, ""},
    {{"train.epochs=ten"}, "--set: train.epochs: expected an integer 1..1000000, got string `ten`"},
    {{"train.epochs=007"}, "--set: train.epochs: expected an integer 1..1000000, got string `007`"},
    {{"train.epochs=1.5"}, "--set: train.epochs: expected an integer 1..1000000, got 1.5"},
    {{"train.optimizer.lr=1e999"},
     "--set: train.optimizer.lr: expected a number > 0 and <= 1000000, got inf"},
    {{"train.epochs="}, "--set: train.epochs: expected an integer 1..1000000, got string ``"},
    {{"train.epoch=1"}, "--set: train.epoch: unknown key (did you mean 'train.epochs'?)"},
    {{"trian.epochs=1"}, "--set: trian: unknown key (did you mean 'train'?)"},
    {{"train=5"}, "--set: train: expected an object, got 5"},
    {{"train.batch=64"}, "(say train.batch.per_rank=64, or write it in braces)"},
    {{"train.optimizer=sgd"}, "(say train.optimizer.type=sgd, or write it in braces)"},
    {{"train.batch_size=64"}, "did you mean 'train.batch.per_rank'?"},
    {{"data.dir=5"}, "--set: data.dir: expected a text of 1..1023 bytes, got 5"},
    {{"model.layers.1.unit=16"},
     "--set: model.layers[1].unit: unknown key (did you mean 'model.layers[1].units'?)"},
    {{"model.layers.1.units=0"},
     "--set: model.layers[1].units: expected an integer 1..65536, got 0"},
    {{"model.layers.2.units=1"}, "--set: model.layers: index 2 is out of range (0 to 1)"},
    {{"model.layers[2].units=1"}, "--set: model.layers: index 2 is out of range (0 to 1)"},
    {{"model.layers.00.type={}"}, "--set: model.layers: expected an index from 0 to 1, got '00'"},
    {{"model.layers[1].units=0"},
     "--set: model.layers[1].units: expected an integer 1..65536, got 0"},
    {{"model.layers[1.units=1"}, "is no key path"},
    {{"model.layers[].units=1"}, "is no key path"},
    {{"model.layers[1]x.units=1"}, "is no key path"},
    {{"model.layers.0.type={}"}, "--set: model.layers[0].type: expected"},
    {{"model.layers.-1.units=1"}, "index from 0 to 1, got '-1'"},
    {{"model.layers.x.units=1"}, "index from 0 to 1, got 'x'"},
    {{"model.layers.99999999999999999999=1"}, "index 99999999999999999999 is out of range"},
    {{"data.format.x=1"}, "--set: data.format is string `idx` and has no key 'x'"},
    {{"train.batch.global=4"}, ""},
    {{"train.batch.global=4", "train.batch.per_rank=4"}, ""},
    {{"train.batch={`global`:4,`per_rank`:4}"},
     "--set: train.batch: both per_rank and global are given"},
    {{"train.optimizer.momentum=0.9"},
     "--set: train.optimizer.momentum: has a meaning only with train.optimizer.type=sgd"},
    {{"train.epochs"}, "--set: expected key.path=value, got 'train.epochs'"},
    {{"=1"}, "--set: expected key.path=value"},
    {{""}, "--set: expected key.path=value"},
    {{".train=1"}, "is no key path"},
    {{"train..epochs=1"}, "is no key path"},
    {{"train.=1"}, "is no key path"},
    {{"a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a=1"}, "is no key path"},
    {{"data.format=mnist"}, "(did you mean `idx`?)"},
    {{"device=GPU"}, "(did you mean `cuda`?)"},
    {{"early_stopping=true"}, "(did you mean 'train.early_stopping.metric'?)"},
    {{"schedule=cosine"}, "(did you mean 'train.schedule.type'?)"},
    {{"train.early_stopping=true"}, "(say train.early_stopping.metric=validation_loss,"},
    {{"train.early_stopping.metric=val_loss"}, "(did you mean `validation_loss`?)"},
    {{"trace.steps=10"}, "expected FIRST:LAST, such as 10:30, got 10"},
    {{"data.validation=1"}, "neither a share below 1 nor a whole number of samples from 2 on"},
    {{"data.validation=2"}, ""},
    {{"data.dir=a\nb"}, "--set: the value holds control characters"},
    {{"data.dir=\xFF"}, "--set: the value holds control characters or invalid UTF-8"},
    {{"data.dir=`a\\u0000b`", "data.dir=5"}, "--set: data.dir: expected a text"},
};

static void test_sets(void)
{
    struct dt_config config;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const char *sets[3];
        int n = 0;
        for (; n < 3 && changes[i].sets[n] != NULL; n++) {
            sets[n] = quoted(changes[i].sets[n]);
        }
        const enum dt_status status = parse(GOOD, sets, n, &config);
        const enum dt_status expected = changes[i].needle[0] == '\0' ? DT_OK : DT_USAGE;
        CHECK_MESSAGE(status == expected &&
                          strstr(dt_error_text(), quoted(changes[i].needle)) != NULL,
                      "--set '%s' gives %d \"%s\", expected \"%s\"", changes[i].sets[0],
                      (int)status, dt_error_text(), changes[i].needle);
        if (status == DT_OK) {
            check_round_trip(&config);
        }
    }
}

static void test_set_values(void)
{
    const char *sets[] = {"train.epochs=3", "train.epochs=5",          "model.layers[1].units=16",
                          "data.dir=a b=c", "train.batch.per_rank=32", "train.batch.global=384",
                          "device=ref",     "train.optimizer.lr=0.25", "distributed.average=false"};
    struct dt_config config;
    CHECK_OK(parse(GOOD, sets, sizeof sets / sizeof sets[0], &config));
    CHECK_INT(config.epochs, 5);
    CHECK_INT(config.model.layers[1].size, 16);
    CHECK_TEXT(config.data.dir, "a b=c");
    CHECK_INT(config.batch_global, 384);
    CHECK_INT(config.batch_per_rank, 0);
    CHECK_INT(config.device, DT_DEVICE_REF);
    CHECK_NEAR(config.optimizer.lr, 0.25, 0);
    CHECK(!config.dist.average);
}

int main(void)
{
    test_sets();
    test_set_values();
    return 0;
}
