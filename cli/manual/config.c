/* dt_manual_config of cli/manual/manual.h. */
#include <string.h>

#include "cli/config/schema.h"
#include "cli/manual/manual.h"

static const char example[] =
    "{\n"
    "  \"data\":  { \"format\": \"idx\", \"dir\": \"data/mnist\" },\n"
    "  \"model\": {\n"
    "    \"input\": [1, 28, 28],\n"
    "    \"layers\": [\n"
    "      { \"type\": \"flatten\" },\n"
    "      { \"type\": \"dense\", \"units\": 128, \"activation\": \"relu\" },\n"
    "      { \"type\": \"dense\", \"units\": 10 }\n"
    "    ]\n"
    "  },\n"
    "  \"train\": { \"epochs\": 3 }\n"
    "}\n";

static void print_key(FILE *out, const struct dt_key *key)
{
    char expected[DT_EXPECTED_SIZE], line[2 * DT_EXPECTED_SIZE];
    dt_key_expected(key, expected);
    dt_scdoc_name(out, key->path, false);
    fputc('\n', out);
    dt_scdoc_text(out, true, key->meaning, true);
    snprintf(line, sizeof line, "%s; %s%s", expected,
             key->default_text == NULL ? "required" : "default ",
             key->default_text == NULL      ? ""
             : key->default_text[0] == '\0' ? "none"
                                            : key->default_text);
    dt_scdoc_text(out, true, line, true);
    if (key->when[0] != '\0') {
        snprintf(line, sizeof line, "only with `%s`", key->when);
        dt_scdoc_text(out, true, line, true);
    }
}

static void print_keys(FILE *out, const struct dt_key_list *list)
{
    fputs(list->n > 0 ? "" : "No keys of its own.\n\n", out);
    for (int i = 0; i < list->n; i++) {
        print_key(out, &list->keys[i]);
    }
}

/* The keys with the same first word together; those that stand alone are the last. */
static void print_config_keys(FILE *out)
{
    const struct dt_key_list list = dt_config_keys();
    for (int i = 0, n; i < list.n; i += n) {
        const char *path = list.keys[i].path;
        const size_t first = strcspn(path, ".") + 1;
        for (n = 1; i + n < list.n &&
                    (strchr(path, '.') == NULL || strncmp(path, list.keys[i + n].path, first) == 0);
             n++) {
        }
        fprintf(out, "## %.*s\n\n", strchr(path, '.') == NULL ? 5 : (int)first - 1,
                strchr(path, '.') == NULL ? "other" : path);
        print_keys(out, &(struct dt_key_list){list.keys + i, n});
    }
}

static void print_layers(FILE *out)
{
    fputs(
        "# LAYERS\n\nEach entry of *model.layers* is an object with a *type* and the keys of that "
        "type.\n\n",
        out);
    for (int i = 0; i < DT_N_LAYER_TYPES; i++) {
        const struct dt_key_list keys = dt_layer_keys((enum dt_layer_type)i);
        fprintf(out, "## %s\n\n", dt_layer_names[i]);
        print_keys(out, &keys);
    }
}

void dt_manual_config(FILE *out)
{
    dt_scdoc_head(out, "dtrain-config", 5,
                  "configuration of dtrain: data, model, training, distribution");
    fputs("# DESCRIPTION\n\n", out);
    dt_scdoc_text(
        out, false,
        "A configuration is one JSON object. A dot in a key below stands for an object inside. "
        "Keys that are unknown, given twice, out of range or without meaning beside the others are "
        "errors, with exit status 78.\n"
        "`//` begins a comment, which ends with its line. `\"extends\": \"other.json\"` takes what "
        "the file does not say from another one, whose path is relative to the file: members of "
        "objects are merged, lists are replaced as a whole, and `null` removes a key.\n"
        "`dtrain --set KEY=VALUE` changes a key from the command line, also inside lists "
        "(`model.layers.1.filters=16`). `dtrain --print-config --config FILE` shows what a file "
        "means, defaults filled in.\n"
        "Editors that know JSON Schema check and complete a configuration with `\"$schema\": "
        "\"dtrain.schema.json\"` as its first key.",
        false);
    fputs("# KEYS\n\n", out);
    print_config_keys(out);
    print_layers(out);
    fputs("# EXAMPLES\n\n", out);
    dt_scdoc_literal(out, example);
    fputs("# SEE ALSO\n\n*dtrain*(1)\n", out);
}
