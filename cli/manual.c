/* `dtrain help --json`: the program's tables, from which scripts/make-docs writes the manual pages,
 * docs/config.md and the JSON Schema. */
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/config/schema.h"
#include "cli/prose.h"
#include "cli/sinks/fields.h"
#include "train/hooks/inject.h"

/* ---- commands and options */

static void put_command(struct dt_json *j, const struct dt_command *c)
{
    dt_json_begin(j, NULL, '{');
    dt_json_text(j, "name", c->word);
    dt_json_text(j, "meaning", c->meaning);
    dt_json_text(j, "usage", c->usage);
    dt_json_text_if(j, "more", c->more);
    dt_json_text_if(j, "examples", c->examples);
    dt_json_begin(j, "options", '[');
    for (int i = 0; i < DT_N_OPTIONS; i++) {
        if (c->options[i].need != DT_NOT_TAKEN) {
            dt_json_begin(j, NULL, '{');
            dt_json_text(j, "name", dt_options[i].name);
            dt_json_bool(j, "required", c->options[i].need == DT_REQUIRED);
            dt_json_text_if(j, "meaning", c->options[i].meaning);
            dt_json_end(j, '{');
        }
    }
    dt_json_end(j, '[');
    dt_json_end(j, '{');
}

static void put_option(struct dt_json *j, const struct dt_option_entry *o)
{
    dt_json_begin(j, NULL, '{');
    dt_json_text(j, "name", o->name);
    dt_json_text_if(j, "letter", (const char[]){o->letter, '\0'});
    dt_json_text_if(j, "value", o->value);
    dt_json_bool(j, "value_optional", o->optional);
    dt_json_bool(j, "repeated", o->use == DT_REPEATED);
    dt_json_bool(j, "common", o->use == DT_COMMON);
    dt_json_text(j, "meaning", o->meaning);
    dt_json_text_if(j, "more", o->more);
    dt_json_end(j, '{');
}

/* ---- keys */

static const char *const type_names[] = {
    [DT_KEY_BOOL] = "boolean",
    [DT_KEY_INT] = "integer",
    [DT_KEY_REAL] = "number",
    [DT_KEY_TEXT] = "text",
    [DT_KEY_ENUM] = "name",
    [DT_KEY_SHAPE] = "shape",
    [DT_KEY_LAYERS] = "layers",
    [DT_KEY_NAMES] = "names",
    [DT_KEY_INPUTS] = "names",
    [DT_KEY_EPOCHS] = "epochs",
    [DT_KEY_AUTO] = "name or integer",
    [DT_KEY_NORMALIZE] = "normalize",
    [DT_KEY_AUGMENT] = "augment",
    [DT_KEY_WEIGHTS] = "weights",
};

static void put_range(struct dt_json *j, const char *values)
{
    const struct dt_range range = dt_range_parse(values);
    dt_json_number(j, range.low_open ? "above" : "least", 16, range.low);
    dt_json_number(j, range.high_open ? "below" : "most", 16, range.high);
}

static void put_names(struct dt_json *j, const char *names)
{
    char name[DT_NAME_SIZE];
    dt_json_begin(j, "names", '[');
    for (int i = 0; dt_names_get(names, i, name); i++) {
        dt_json_text(j, NULL, name);
    }
    dt_json_end(j, '[');
}

/* The default as a value of JSON; a key without one has no member for it. */
static void put_default(struct dt_json *j, const struct dt_key *key)
{
    const char *text = key->default_text;
    if (text == NULL || text[0] == '\0') {
        return;
    }
    if (key->kind == DT_KEY_BOOL) {
        dt_json_bool(j, "default", strcmp(text, "true") == 0);
    } else if (key->kind == DT_KEY_INT || key->kind == DT_KEY_REAL) {
        dt_json_number(j, "default", 0, strtod(text, NULL));
    } else if (key->kind == DT_KEY_NAMES || key->kind == DT_KEY_EPOCHS) {
        dt_json_begin(j, "default", '[');
        dt_json_end(j, '[');
    } else {
        dt_json_text(j, "default", text);
    }
}

/* The largest number of bytes of a text, or of items of a list. */
static void put_most(struct dt_json *j, const struct dt_key *key)
{
    if (key->kind == DT_KEY_TEXT || key->kind == DT_KEY_NAMES || key->kind == DT_KEY_INPUTS) {
        const size_t size = key->kind == DT_KEY_TEXT     ? key->n_bytes
                            : key->kind == DT_KEY_INPUTS ? DT_LAYER_NAME_SIZE
                                                         : DT_TEXTS_BYTES;
        dt_json_number(j, "most_bytes", 0, (double)size - 1);
    } else if (key->kind >= DT_KEY_NORMALIZE) {
        dt_json_number(j, "most_items", 0, dt_key_most(key));
    }
}

static void put_key(struct dt_json *j, const struct dt_key *key)
{
    char text[DT_EXPECTED_SIZE];
    const char *names = strchr(key->values, '|');
    dt_json_begin(j, NULL, '{');
    dt_json_text(j, "key", key->path);
    dt_json_text(j, "type", type_names[key->kind]);
    dt_key_values(key, text);
    dt_json_text(j, "values", text);
    if (key->values[0] == '[' || key->values[0] == '(') {
        put_range(j, key->values);
    }
    if (names != NULL) {
        put_names(j, names);
    }
    put_most(j, key);
    dt_json_bool(j, "required", key->default_text == NULL);
    put_default(j, key);
    dt_json_text_if(j, "when", key->when);
    dt_json_text(j, "meaning", key->meaning);
    dt_json_end(j, '{');
}

static void put_keys(struct dt_json *j, const char *name, struct dt_key_list list)
{
    dt_json_begin(j, name, '[');
    for (int i = 0; i < list.n; i++) {
        put_key(j, &list.keys[i]);
    }
    dt_json_end(j, '[');
}

static void put_layers(struct dt_json *j)
{
    dt_json_begin(j, "layers", '[');
    for (int i = 0; i < DT_N_LAYER_TYPES; i++) {
        dt_json_begin(j, NULL, '{');
        dt_json_text(j, "type", dt_layer_names[i]);
        put_keys(j, "keys", dt_layer_keys((enum dt_layer_type)i));
        dt_json_end(j, '{');
    }
    dt_json_end(j, '[');
}

/* ---- records of a run */

static void put_fields(struct dt_json *j, const char *name, const struct dt_fields *fields)
{
    dt_json_begin(j, name, '[');
    for (int i = 0; i < fields->n; i++) {
        const struct dt_field *f = &fields->rows[i];
        dt_json_begin(j, NULL, '{');
        dt_json_text(j, "name", f->name);
        dt_json_text_if(j, "unit", f->unit);
        dt_json_bool(j, "csv", f->csv != DT_CSV_NO);
        dt_json_text_if(j, "tensorboard", f->tag);
        dt_json_text(j, "meaning", f->meaning);
        dt_json_end(j, '{');
    }
    dt_json_end(j, '[');
}

static void put_records(struct dt_json *j)
{
    dt_json_begin(j, "records", '{');
    put_fields(j, "step", &dt_step_fields);
    put_fields(j, "epoch", &dt_epoch_fields);
    dt_json_end(j, '{');
}

/* ---- all */

static void put_item(struct dt_json *j, const char *name, const char *meaning, const char *more)
{
    dt_json_begin(j, NULL, '{');
    dt_json_text(j, "name", name);
    dt_json_text(j, "meaning", meaning);
    dt_json_text_if(j, "more", more);
    dt_json_end(j, '{');
}

static void put_lists(struct dt_json *j)
{
    dt_json_begin(j, "faults", '[');
#define FAULT(constant, name, needs, may, example, meaning) put_item(j, example, meaning, NULL);
    DT_FAULT_LIST(FAULT)
    dt_json_end(j, '[');
    dt_json_begin(j, "environment", '[');
#define VARIABLE(variable, meaning, more) put_item(j, variable, meaning, more);
    DT_ENVIRONMENT_LIST(VARIABLE)
    dt_json_end(j, '[');
    dt_json_begin(j, "run_files", '[');
#define RUN_FILE(file, meaning) put_item(j, file, meaning, NULL);
    DT_RUN_FILE_LIST(RUN_FILE)
    dt_json_end(j, '[');
    dt_json_begin(j, "exit_codes", '[');
#define EXIT_CODE(name, code, meaning) put_item(j, #code, meaning, NULL);
    DT_STATUS_LIST(EXIT_CODE)
    dt_json_end(j, '[');
    dt_json_begin(j, "examples", '[');
#define EXAMPLE(purpose, commands) put_item(j, commands, purpose, NULL);
    DT_EXAMPLE_LIST(EXAMPLE)
    dt_json_end(j, '[');
}

void dt_manual_json(FILE *out, const struct dt_program *program)
{
    struct dt_json json = {.out = out, .in_lines = true}, *j = &json;
    dt_json_begin(j, NULL, '{');
    dt_json_begin(j, "commands", '[');
    for (const struct dt_command *const *c = program->commands; *c != NULL; c++) {
        if (dt_command_has_word(*c)) {
            put_command(j, *c);
        }
    }
    dt_json_end(j, '[');
    dt_json_begin(j, "options", '[');
    for (int i = 0; i < DT_N_OPTIONS; i++) {
        put_option(j, &dt_options[i]);
    }
    dt_json_end(j, '[');
    put_keys(j, "config", dt_config_keys());
    put_layers(j);
    put_lists(j);
    put_records(j);
    dt_json_end(j, '{');
    fputc('\n', out);
}
