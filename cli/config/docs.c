/* `dtrain --help-config`: dt_config_help; dt_config_markdown and dt_config_schema_json of
 * cli/config/config.h. */
#include <string.h>

#include "cli/args.h"
#include "cli/config/schema.h"

#define VALUES_SIZE 160

/* "integer 1..64", "> 0 and <= 1", "idx, linear": the third column of the tables. */
static void values_text(const struct dt_key *key, char out[VALUES_SIZE])
{
    char expected[DT_EXPECTED_SIZE];
    const char *start = expected;
    dt_key_expected(key, expected);
    for (const char *const *lead = (const char *const[]){"an ", "a number ", "one of ", "a ", NULL};
         *lead != NULL; lead++) {
        if (strncmp(start, *lead, strlen(*lead)) == 0) {
            start += strlen(*lead);
            break;
        }
    }
    snprintf(out, VALUES_SIZE, "%s", start);
}

static const char *default_text(const struct dt_key *key)
{
    return key->default_text == NULL      ? "required"
           : key->default_text[0] == '\0' ? "-"
                                          : key->default_text;
}

/* "train.schedule.type=cosine or plateau": a line can be broken there. */
static void when_text(const struct dt_key *key, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (const char *part = key->when; *part != '\0' && n < size;) {
        const int length = (int)strcspn(part, "|");
        n += (size_t)snprintf(text + n, size - n, "%s%.*s", part != key->when ? " or " : "", length,
                              part);
        part += length + (part[length] == '|');
    }
}

/* One key: its line of three aligned columns, and its meaning below. */
static void help_key(FILE *out, const struct dt_key *key, int indent)
{
    char values[VALUES_SIZE], when[160], meaning[512];
    values_text(key, values);
    when_text(key, when, sizeof when);
    fprintf(out, "%*s%-*s  %-10s  ", indent, "", 27 - indent, key->path, default_text(key));
    dt_help_wrap(out, 41, values);
    snprintf(meaning, sizeof meaning, "%s%s%s%s", key->meaning,
             when[0] == '\0' ? "" : " (only with ", when, when[0] == '\0' ? "" : ")");
    fprintf(out, "%*s", indent + 4, "");
    dt_help_wrap(out, indent + 4, meaning);
}

void dt_config_help(FILE *out)
{
    const struct dt_key_list list = dt_config_keys();
    fputs("The configuration is a JSON object; a dot in a key stands for an object inside.\n"
          "// begins a comment. \"extends\": \"other.json\" takes what is not said from there.\n"
          "Any key can be set with --set KEY=VALUE.\n\n",
          out);
    fprintf(out, "%-27s  %-10s  %s\n", "Key", "Default", "Values");
    for (int i = 0; i < list.n; i++) {
        help_key(out, &list.keys[i], 0);
    }
    fputs("\nLayers: objects of the list model.layers, each with a \"type\" and its keys\n", out);
    for (int i = 0; i < DT_N_LAYER_TYPES; i++) {
        const struct dt_key_list keys = dt_layer_keys((enum dt_layer_type)i);
        fprintf(out, "  %s\n", dt_layer_names[i]);
        for (int k = 0; k < keys.n; k++) {
            help_key(out, &keys.keys[k], 4);
        }
    }
}

static enum dt_status help_config(const struct dt_args *args)
{
    (void)args;
    dt_config_help(stdout);
    return DT_OK;
}

const struct dt_command dt_command_help_config = {
    .word = "--help-config",
    .informative = true,
    .alone = help_config,
};

static void markdown_head(FILE *out)
{
    fputs("| key | values | default | meaning |\n|---|---|---|---|\n", out);
}

static void markdown_key(FILE *out, const struct dt_key *key)
{
    char values[VALUES_SIZE], when[128] = "";
    values_text(key, values);
    if (key->when[0] != '\0') {
        snprintf(when, sizeof when, " (only with `%s`)", key->when);
        for (char *bar = strchr(when, '|'); bar != NULL; bar = strchr(bar, '|')) {
            *bar = '/'; /* a bar would end the table's cell */
        }
    }
    fprintf(out, "| `%s` | %s | %s | %s%s |\n", key->path, values, default_text(key), key->meaning,
            when);
}

void dt_config_markdown(FILE *out)
{
    const struct dt_key_list list = dt_config_keys();
    const char *section = "";
    fputs("# Configuration\n\n"
          "This page is made from `cli/config/schema.h` by `cmake --build build/release --target "
          "docs`; `dtrain --help-config` prints the same.\n\n"
          "A configuration is one JSON object (RFC 8259, at most 1 MiB, nested at most 16 deep). A "
          "dot in a key below stands for an object\n"
          "inside. Keys that are unknown, given twice, out of range or without meaning beside the "
          "others are errors, with exit status 78.\n"
          "Paths are relative to the working directory. `dtrain --print-config --config FILE` "
          "shows what a file means, defaults filled in.\n\n"
          "`//` begins a comment, which ends with its line. `\"extends\": \"other.json\"` takes "
          "what the file does not say from another\n"
          "one, whose path is relative to the file: members of objects are merged, lists are "
          "replaced as a whole, and `null` removes\n"
          "a key of the other file. At most 8 files extend each other in a row. Both are for files "
          "that people write; a run's\n"
          "`config.json` and what `--print-config` prints is the whole, in plain JSON.\n\n"
          "`--set KEY=VALUE` changes any key from the command line, also inside lists (`--set "
          "model.layers.1.filters=16`) and whole\n"
          "objects (`--set 'train.batch={\"global\":384}'`); a later one wins. The value is JSON, "
          "and otherwise a string. A wrong\n"
          "one has exit status 64, that of a wrong command line.\n\n"
          "Editors that know JSON Schema check and complete a configuration with `\"$schema\": "
          "\"dtrain.schema.json\"` as its first key,\n"
          "the path being relative to the file.\n",
          out);
    for (int i = 0; i < list.n; i++) {
        const char *path = list.keys[i].path;
        const size_t n = strcspn(path, ".");
        const char *next = path[n] == '.' ? path : "other.";
        if (strncmp(section, next, strcspn(next, ".") + 1) != 0) {
            fprintf(out, "\n## %.*s\n\n", (int)strcspn(next, "."), next);
            markdown_head(out);
            section = next;
        }
        markdown_key(out, &list.keys[i]);
    }
    fputs("\n## Layers\n\nEach entry of `model.layers` has a `type` and the keys of that type. The "
          "last one gives the outputs: as many units as\n"
          "classes, or as numbers to predict.\n",
          out);
    for (int i = 0; i < DT_N_LAYER_TYPES; i++) {
        const struct dt_key_list keys = dt_layer_keys((enum dt_layer_type)i);
        fprintf(out, "\n### %s\n\n", dt_layer_names[i]);
        fputs(keys.n == 0 ? "No keys of its own.\n" : "", out);
        for (int k = 0; k < keys.n; k++) {
            if (k == 0) {
                markdown_head(out);
            }
            markdown_key(out, &keys.keys[k]);
        }
    }
}

static void schema_range(FILE *out, const struct dt_key *key)
{
    const struct dt_range r = dt_range_parse(key->values);
    char low[DT_NUMBER_SIZE], high[DT_NUMBER_SIZE];
    dt_number_text(r.low, low);
    dt_number_text(r.high, high);
    fprintf(out, ", \"%s\": %s, \"%s\": %s", r.low_open ? "exclusiveMinimum" : "minimum", low,
            r.high_open ? "exclusiveMaximum" : "maximum", high);
}

static void schema_names(FILE *out, const char *names)
{
    char name[DT_NAME_SIZE];
    fputs("\"enum\": [", out);
    for (int i = 0; dt_names_get(names, i, name); i++) {
        fprintf(out, "%s\"%s\"", i == 0 ? "" : ", ", name);
    }
    fputc(']', out);
}

static void schema_default(FILE *out, const struct dt_key *key)
{
    if (key->default_text != NULL && key->default_text[0] != '\0') {
        const char *quote = dt_key_is_word(key) ? "\"" : "";
        fprintf(out, ", \"default\": %s%s%s", quote, key->default_text, quote);
    }
}

static void schema_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    fputc('"', out);
}

/* One key as a schema, all on one line. */
static void schema_key(FILE *out, const struct dt_key *key)
{
    fputs("{ ", out);
    switch (key->kind) {
    case DT_KEY_BOOL:
        fputs("\"type\": \"boolean\"", out);
        break;
    case DT_KEY_INT:
    case DT_KEY_REAL:
        fprintf(out, "\"type\": \"%s\"", key->kind == DT_KEY_INT ? "integer" : "number");
        schema_range(out, key);
        break;
    case DT_KEY_TEXT:
        fprintf(out, "\"type\": \"string\", \"minLength\": 1, \"maxLength\": %zu",
                key->n_bytes - 1);
        break;
    case DT_KEY_ENUM:
        schema_names(out, key->values);
        break;
    case DT_KEY_SHAPE:
        fputs("\"type\": \"array\", \"items\": { \"type\": \"integer\"", out);
        schema_range(out, key);
        fputs(" }, \"oneOf\": [{ \"minItems\": 1, \"maxItems\": 1 }, { \"minItems\": 3, "
              "\"maxItems\": 3 }]",
              out);
        break;
    case DT_KEY_LAYERS:
        fprintf(out,
                "\"type\": \"array\", \"minItems\": 1, \"maxItems\": %d, \"items\": { \"$ref\": "
                "\"#/$defs/layer\" }",
                DT_MAX_LAYERS);
        break;
    case DT_KEY_NAMES:
        fprintf(out,
                "\"type\": \"array\", \"minItems\": %.0f, \"maxItems\": %.0f, \"items\": { "
                "\"type\": \"string\", \"minLength\": 1, \"maxLength\": %d }",
                dt_range_parse(key->values).low, dt_range_parse(key->values).high,
                DT_BLOCK_NAME_SIZE - 1);
        break;
    case DT_KEY_AUTO:
        fputs("\"oneOf\": [{ ", out);
        schema_names(out, dt_key_words(key));
        fputs(" }, { \"type\": \"integer\"", out);
        schema_range(out, key);
        fputs(" }]", out);
        break;
    case DT_KEY_NORMALIZE:
        dt_config_schema_normalize(out);
        break;
    case DT_KEY_AUGMENT:
        dt_config_schema_augment(out);
        break;
    }
    schema_default(out, key);
    fputs(", \"description\": ", out);
    schema_text(out, key->meaning);
    fputs(" }", out);
}

/* The schema of the object of all keys that begin with the first `n_prefix` characters of keys[0];
 * returns how many those are. What is required is said once, of the whole. */
static int schema_group(FILE *out, const struct dt_key *keys, int n, size_t n_prefix, int indent)
{
    int i = 0;
    fprintf(out,
            "{\n%*s\"type\": \"object\", \"additionalProperties\": false,\n%*s\"properties\": {",
            indent + 2, "", indent + 2, "");
    if (n_prefix == 0) {
        fprintf(out, "\n%*s\"$schema\": { \"type\": \"string\" },", indent + 4, "");
        fprintf(
            out,
            "\n%*s\"extends\": { \"type\": \"string\", \"minLength\": 1, \"description\": \"the "
            "configuration that says what this one does not, relative to this file\" },",
            indent + 4, "");
    }
    while (i < n && strncmp(keys[i].path, keys[0].path, n_prefix) == 0) {
        const char *name = keys[i].path + n_prefix;
        const int n_name = (int)strcspn(name, ".");
        fprintf(out, "%s\n%*s\"%.*s\": ", i == 0 ? "" : ",", indent + 4, "", n_name, name);
        if (name[n_name] == '.') {
            i += schema_group(out, keys + i, n - i, n_prefix + (size_t)n_name + 1, indent + 4);
        } else {
            schema_key(out, &keys[i++]);
        }
    }
    fprintf(out, "\n%*s}", indent + 2, "");
    if (n_prefix > 0) {
        fprintf(out, "\n%*s}", indent, "");
    }
    return i;
}

/* Required keys are in groups, which are required with them. */
static void schema_required(FILE *out, struct dt_key_list list)
{
    const char *last = "";
    fputs(",\n      \"anyOf\": [{ \"required\": [\"extends\"] }, { \"allOf\": [", out);
    for (int i = 0; i < list.n; i++) {
        const char *path = list.keys[i].path;
        const int n = (int)strcspn(path, ".");
        if (list.keys[i].default_text == NULL) {
            fprintf(out,
                    "%s\n        { \"required\": [\"%.*s\"], \"properties\": { \"%.*s\": { "
                    "\"required\": [\"%s\"] } } }",
                    last, n, path, n, path, dt_key_name(path));
            last = ",";
        }
    }
    fputs("\n      ] }]\n    }", out);
}

static void schema_layer(FILE *out, enum dt_layer_type type)
{
    const struct dt_key_list list = dt_layer_keys(type);
    fprintf(out,
            "      {\n        \"type\": \"object\", \"additionalProperties\": false,\n"
            "        \"properties\": {\n          \"type\": { \"const\": \"%s\" }",
            dt_layer_names[type]);
    for (int k = 0; k < list.n; k++) {
        fprintf(out, ",\n          \"%s\": ", list.keys[k].path);
        schema_key(out, &list.keys[k]);
    }
    fputs("\n        },\n        \"required\": [\"type\"", out);
    for (int k = 0; k < list.n; k++) {
        if (list.keys[k].default_text == NULL) {
            fprintf(out, ", \"%s\"", list.keys[k].path);
        }
    }
    fputs("]\n      }", out);
}

void dt_config_schema_json(FILE *out)
{
    const struct dt_key_list list = dt_config_keys();
    fputs("{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n  \"title\": "
          "\"dtrain configuration\",\n"
          "  \"$ref\": \"#/$defs/config\",\n  \"$defs\": {\n    \"config\": ",
          out);
    schema_group(out, list.keys, list.n, 0, 4);
    schema_required(out, list);
    fputs(",\n    \"layer\": { \"oneOf\": [\n", out);
    for (int i = 0; i < DT_N_LAYER_TYPES; i++) {
        fputs(i == 0 ? "" : ",\n", out);
        schema_layer(out, (enum dt_layer_type)i);
    }
    fputs("\n    ] }\n  }\n}\n", out);
}
