/* Configurations in several files: what "extends" makes of them, and which file an error names. */
#include <sys/stat.h>

#include "tests/lib/folder.h"
#include "tests/unit/cli/config_sample.h"

static void put_json(const char *name, const char *text)
{
    put(name, quoted(text));
}

static enum dt_status load(const char *name, struct dt_config *config)
{
    dt_error_clear();
    return dt_config_load(path_of("%s", name), NULL, 0, config);
}

/* The text is the error's, but for the folder. */
static void check_refused(const char *name, enum dt_status status, const char *text)
{
    struct dt_config config;
    char expected[DT_ERROR_TEXT_SIZE];
    snprintf(expected, sizeof expected, "%s/%s", folder, text);
    const enum dt_status s = load(name, &config);
    CHECK_MESSAGE(s == status && strncmp(dt_error_text(), expected, strlen(expected)) == 0,
                  "%s gives %d \"%s\", expected %d \"%s...\"", name, (int)s, dt_error_text(),
                  (int)status, expected);
}

/* The same as one file with all of it, to the bit. */
static void test_merging(void)
{
    struct dt_config got, expected;
    CHECK_INT(mkdir(path_of("below"), 0700), 0);
    put_json("below/base.json", "// The base.\n"
                                "{`extends`: `../deepest.json`, `train`: {`epochs`: 7, `seed`: 3, "
                                "`optimizer`: {`type`: `sgd`, `momentum`: 0.5}, "
                                "`schedule`: {`type`: `step`, `gamma`: 0.5}}, `device`: `ref`}");
    put_json("deepest.json", "{`train`: {`epochs`: 9, `accumulate`: 2}, " DATA ", `model`: "
                             "{`input`: [1, 28, 28], `layers`: [{`type`: `flatten`}, "
                             "{`type`: `relu`}, " DENSE_LAYER "]}}");
    put_json("child.json",
             "{`model`: {`layers`: [{`type`: `flatten`}, " DENSE_LAYER "]}, // shorter\n"
             "`extends`: `below/base.json`, `train`: {`epochs`: 5, `schedule`: "
             "null, `optimizer`: {`momentum`: null, `lr`: 0.25}}}");
    CHECK_OK(load("child.json", &got));
    CHECK_INT(mkdir(path_of("whole"), 0700), 0);
    put_json("whole/child.json",
             WITH("`device`: `ref`, `train`: {`epochs`: 5, `seed`: 3, `accumulate`: 2, "
                  "`optimizer`: {`type`: `sgd`, `lr`: 0.25}}"));
    CHECK_OK(load("whole/child.json", &expected));
    CHECK(memcmp(&got, &expected, sizeof got) == 0);
    CHECK_TEXT(got.name, "child");
    check_round_trip(&got);
    const char *set = "train.epochs=2";
    CHECK_OK(dt_config_load(path_of("child.json"), &set, 1, &got));
    CHECK_INT(got.epochs, 2);
}

static void test_absolute_path(void)
{
    struct dt_config got;
    char text[256];
    snprintf(text, sizeof text, "{`extends`: `%s`}", path_of("whole/child.json"));
    put_json("below/absolute.json", text);
    CHECK_OK(load("below/absolute.json", &got));
    CHECK_INT(got.epochs, 5);
}

/* Of a wrong value, the file that has it; of what is missing, the one that was asked for. */
static void test_blame(void)
{
    put_json("wrong.json", "{" DATA ", " MODEL ", `train`: {\n`epochs`: 0, `seeed`: 1}}");
    put_json("a.json", "{`extends`: `wrong.json`, `train`: {`seed`: 4}}");
    put_json("b.json", "{`extends`: `a.json`, `train`: {`epochs`: 0.5}}");
    put_json("c.json", "{`extends`: `a.json`, `train`: {`epochs`: 1, `seeed`: null}}");
    put_json("d.json", "{`extends`: `c.json`, `train`: {`seed`: null, `accumulate`: null}}");
    put_json("e.json", "{`extends`: `c.json`, `model`: {`layers`: null}}");
    put_json("f.json", "{`extends`: `c.json`, `train`: {`epochs`: 1,}}");
    put_json("g.json", "{`extends`: `f.json`}");
    put_json("h.json", "{`extends`: `c.json`, `model`: {`layers`: [{`type`: `rulu`}]}}");
    put_json("i.json", "{`extends`: `h.json`}");
    put_json("j.json", "{`extends`: `c.json`, `train`: null, `trian`: 1}");
    check_refused("a.json", DT_CONFIG, "wrong.json: train.seeed: unknown key");
    check_refused("b.json", DT_CONFIG, "wrong.json: train.seeed: unknown key");
    check_refused("d.json", DT_CONFIG, "d.json: train.accumulate: expected an integer");
    check_refused("e.json", DT_CONFIG, "e.json: model.layers: the key is missing");
    check_refused("g.json", DT_CONFIG, "f.json:1:45: a comma before a closing bracket");
    check_refused("i.json", DT_CONFIG, "h.json: model.layers[0].type: expected one of");
    check_refused("j.json", DT_CONFIG, "j.json: trian: unknown key (did you mean 'train'?)");
    put_json("b.json", "{`extends`: `c.json`, `train`: {`epochs`: 0.5}}");
    check_refused("b.json", DT_CONFIG, "b.json: train.epochs: expected an integer");
    put_json("c.json", "{`extends`: `wrong.json`, `train`: {`seeed`: null}}");
    check_refused("c.json", DT_CONFIG, "wrong.json: train.epochs: expected an integer");
}

static void test_structure(void)
{
    struct dt_config config;
    char name[16], text[64];
    put_json("good.json", GOOD);
    put_json("twice.json", "{`extends`: `good.json`, `threads`: 1, `threads`: 2}");
    put_json("of_twice.json", "{`extends`: `base_twice.json`}");
    put_json("base_twice.json", "{" DATA ", " DATA ", " MODEL "}");
    put_json("null.json", "{`extends`: `threads.json`, `threads`: null}");
    put_json("threads.json", "{" DATA ", " MODEL ", `threads`: 1, `threads`: 2}");
    put_json("two.json", "{`extends`: `good.json`, `extends`: `good.json`}");
    put_json("number.json", "{`extends`: 1}");
    put_json("none.json", "{`extends`: `godd.json`}");
    put_json("folder.json", "{`extends`: `below`}");
    put_json("pipe.json", "{`extends`: `a_pipe.json`}");
    put_json("list.json", "{`extends`: `a_list.json`}");
    put_json("a_list.json", "[" GOOD "]");
    put_json("self.json", "{`extends`: `below/../self.json`}");
    put_json("one.json", "{`extends`: `other.json`}");
    put_json("other.json", "{`extends`: `one.json`}");
    CHECK_INT(mkfifo(path_of("a_pipe.json"), 0600), 0);
    check_refused("twice.json", DT_CONFIG, "twice.json: threads: the key is given twice");
    check_refused("of_twice.json", DT_CONFIG, "base_twice.json: data: the key is given twice");
    check_refused("null.json", DT_CONFIG, "threads.json: threads: the key is given twice");
    check_refused("two.json", DT_CONFIG, "two.json: extends: the key is given twice");
    check_refused("number.json", DT_CONFIG, "number.json: extends: expected the path");
    check_refused("none.json", DT_NO_INPUT, "none.json: extends: ");
    CHECK_HAS(dt_error_text(), "/godd.json: No such file or directory (did you mean");
    CHECK_HAS(dt_error_text(), "/good.json'?)");
    check_refused("folder.json", DT_NO_INPUT, "folder.json: extends: ");
    check_refused("pipe.json", DT_NO_INPUT, "pipe.json: extends: ");
    CHECK(strstr(dt_error_text(), "/a_pipe.json: not a regular file") != NULL);
    CHECK(strstr(dt_error_text(), "did you mean") == NULL); /* it is there */
    check_refused("list.json", DT_CONFIG, "a_list.json: expected an object in braces, as ");
    check_refused("self.json", DT_CONFIG, "self.json: extends: a circle, ");
    check_refused("one.json", DT_CONFIG, "other.json: extends: a circle, ");
    put_json("0.json", "{`extends`: `good.json`}");
    for (int i = 1; i < 8; i++) {
        snprintf(name, sizeof name, "%d.json", i);
        snprintf(text, sizeof text, "{`extends`: `%d.json`}", i - 1);
        put_json(name, text);
    }
    struct dt_config good;
    CHECK_OK(load("6.json", &config)); /* with good.json eight */
    CHECK_OK(parse(GOOD, NULL, 0, &good));
    memcpy(good.name, config.name, sizeof good.name);
    CHECK(memcmp(&good, &config, sizeof good) == 0);
    check_refused("7.json", DT_CONFIG, "0.json: extends: more than 8 files in a row");
}

/* An object of very many keys is refused before all pairs of them are compared. */
static void test_many_keys(void)
{
    static char text[1 << 20];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"extends\": \"good.json\"");
    for (int i = 0; n < sizeof text - 64; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, ",\"%x\":1", (unsigned)i);
    }
    snprintf(text + n, sizeof text - n, "}");
    put_json("many.json", text);
    check_refused("many.json", DT_CONFIG, "many.json: more than 256 keys");
}

static void test_long_path(void)
{
    struct dt_config config;
    char path[2 * DT_PATH_SIZE];
    memset(path, 'a', sizeof path);
    path[sizeof path - 1] = '\0';
    CHECK_FAILS(dt_config_load(path, NULL, 0, &config), DT_NO_INPUT, "the path is too long");
    char text[2 * DT_PATH_SIZE + 32];
    snprintf(text, sizeof text, "{`extends`: `%s`}", path);
    put_json("long.json", text);
    check_refused("long.json", DT_CONFIG, "long.json: extends: expected the path");
}

int main(void)
{
    folder_open();
    test_merging();
    test_absolute_path();
    test_blame();
    test_structure();
    test_many_keys();
    test_long_path();
    folder_remove();
    return 0;
}
