/* `dtrain init`: a configuration to begin with. */
#include "cli/commands/init.h"

#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/args.h"
#include "cli/output.h"
#include "cli/suggest.h"

static const struct start {
    const char *name, *text;
} starts[] = {
#define START_ROW(name) {#name, dt_start_##name},
    DT_START_LIST(START_ROW)};
#define START_NAME(name) #name ", "
#define N_STARTS (sizeof starts / sizeof starts[0])

static enum dt_status find(const char *name, const struct start **out)
{
    struct dt_suggestion s = {.word = name};
    for (size_t i = 0; i < N_STARTS; i++) {
        if (strcmp(name, starts[i].name) == 0) {
            *out = &starts[i];
            return DT_OK;
        }
        dt_suggest_offer(&s, starts[i].name);
    }
    const char *suffix = strstr(name, ".json");
    if (suffix != NULL && suffix[5] == '\0') {
        return dt_error(DT_USAGE, "init: '%.60s' is the file's name (write dtrain init %s %.60s)",
                        name, starts[0].name, name);
    }
    return dt_error(
        DT_USAGE, "init: expected one of " DT_START_LIST(START_NAME) "got '%.60s' (%s%s)", name,
        s.best != NULL ? "take " : "see dtrain init --help", s.best != NULL ? s.best : "");
}

static enum dt_status init(const struct dt_args *args)
{
    const struct dt_values *words = &args->values[DT_PATHS];
    const struct start *start = &starts[0];
    char path[DT_PATH_SIZE], cure[64];
    DT_TRY(words->n > 0 ? find(words->texts[0], &start) : DT_OK);
    if (words->n > 1) {
        snprintf(path, sizeof path, "%s", words->texts[1]);
    } else {
        snprintf(path, sizeof path, "%s.json", start->name);
    }
    snprintf(cure, sizeof cure, "write dtrain init %s FILE", start->name);
    DT_TRY(dt_output_new(path, start->text, cure));
    dt_text_print(stdout, "wrote %s; next: mpirun -np 2 dtrain --config %s", path, path);
    return DT_OK;
}

static enum dt_status check(const struct dt_args *args)
{
    const struct dt_values *words = &args->values[DT_PATHS];
    const bool fits = words->n < 2 || (words->n == 2 && strlen(words->texts[1]) < DT_PATH_SIZE);
    return fits ? DT_OK
                : dt_error(DT_USAGE, "init: expected a name and a file (dtrain init mnist FILE)");
}

const struct dt_command dt_command_init = {
    .word = "init",
    .meaning = "write a commented configuration to begin with",
    .usage = "dtrain init [mnist|mlp|cifar] [FILE]",
    .examples = "  dtrain init\n"
                "  dtrain init cifar mine.json\n",
    .more = "Writes a new file, `mnist.json` where none is named, and says how to train with it. "
            "`mnist` and `mlp` are those of `configs/`; `cifar` is a ResNet-20 for CIFAR-10, which "
            "`scripts/get-data cifar10` fetches.",
    .options = {[DT_PATHS] = {DT_TAKEN}},
    .check = check,
    .alone = init,
};
