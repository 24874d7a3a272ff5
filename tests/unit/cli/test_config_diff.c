/* A resumed run's changes are found, and named with both values. */
#include "cli/config/config.h"
#include "tests/lib/temporary.h"

static const char base[] = "{`model`:{`input`:[1,28,28],`layers`:[{`type`:`dense`,"
                           "`units`:10}]},`train`:{`seed`:1,"
                           "`optimizer`:{`type`:`adam`,`lr`:0.001}}}";

static void expect(const char *now, const char *path, const char *text)
{
    char found[256];
    CHECK_OK(dt_config_compare(quoted(base), quoted(now), path, found, sizeof found));
    CHECK_TEXT(found, quoted(text));
}

/* The text names as many differences as fit, with room for its end. */
static void expect_cut(void)
{
    static const char both[] = "a was 1, now it is 2; b was 1, now it is 2", end[] = "; and more";
    char found[sizeof both + sizeof end - 1];
    const char *before = quoted("{`a`:1,`b`:1}"), *now = quoted("{`a`:2,`b`:2}");
    CHECK_OK(dt_config_compare(before, now, "", found, sizeof found));
    CHECK_TEXT(found, both);
    CHECK_OK(dt_config_compare(before, now, "", found, sizeof found - 1));
    CHECK_TEXT(found, "a was 1, now it is 2; and more");
}

int main(void)
{
    expect(base, "model", "");
    expect("{`model`:{`input`:[1,28,28],`layers`:[{`type`:`dense`,`units`:12}]}}", "model",
           "model.layers[0].units was 10, now it is 12");
    expect("{`model`:{`input`:[1,28,32],`layers`:[{`type`:`dense`,`units`:10}]}}", "model",
           "model.input[2] was 28, now it is 32");
    expect("{`model`:{`input`:[1,28,28],`layers`:[{`type`:`dense`,`units`:10},{"
           "`type`:`relu`}]}}",
           "model", "model.layers[1] was not there, now it is {`type`:`relu`}");
    expect("{`train`:{`seed`:1,`optimizer`:{`type`:`sgd`,`lr`:0.1}}}", "train.optimizer.type",
           "train.optimizer.type was `adam`, now it is `sgd`");
    expect("{`train`:{`seed`:1,`optimizer`:{`type`:`adam`,`lr`:0.1}}}", "train.optimizer.type", "");
    expect("{}", "train.seed", "train.seed was 1, now it is not there");
    expect("{`train`:{`optimizer`:{`lr`:0.1,`type`:`adam`},`ema`:0.9,`seed`:2}}", "train",
           "train.seed was 1, now it is 2; train.optimizer.lr was 0.001, now it is 0.1; "
           "train.ema was not there, now it is 0.9");
    expect_cut();
    return 0;
}
