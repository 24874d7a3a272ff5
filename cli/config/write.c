/* dt_config_to_json of cli/config/config.h: from the schema, so that nothing can be left out. */
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/config/schema.h"
#include "data/transform.h"

/* A list of sizes, without the dimensions that [n] leaves out. */
static void write_shape(FILE *out, const struct dt_shape *s)
{
    if (s->h == 1 && s->w == 1) {
        fprintf(out, "[%d]", s->c);
    } else {
        fprintf(out, "[%d, %d, %d]", s->c, s->h, s->w);
    }
}

/* --print-config shows it on a terminal: what is not printable as JSON's own escape, in two halves
 * above U+FFFF. */
static void write_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (size_t n; *text != '\0'; text += n) {
        uint32_t point = 0xFFFD;
        n = dt_utf8_length(text, strlen(text), &point);
        if (n == 0) {
            fputs("\\ufffd", out);
            n = 1;
        } else if (!dt_text_shows(point) && point > 0xFFFF) {
            fprintf(out, "\\u%04x\\u%04x", 0xD7C0 + (point >> 10), 0xDC00 + (point & 0x3FF));
        } else if (!dt_text_shows(point)) {
            fprintf(out, "\\u%04x", point);
        } else {
            fprintf(out, *text == '"' || *text == '\\' ? "\\%.*s" : "%.*s", (int)n, text);
        }
    }
    fputc('"', out);
}

static void write_names(FILE *out, const struct dt_texts *names)
{
    fputc('[', out);
    for (int i = 0; i < names->n; i++) {
        fputs(i > 0 ? ", " : "", out);
        write_string(out, dt_texts_at(names, i));
    }
    fputc(']', out);
}

static void write_inputs(FILE *out, const struct dt_layer_inputs *inputs)
{
    fputc('[', out);
    for (int i = 0; i < inputs->n; i++) {
        fputs(i > 0 ? ", " : "", out);
        write_string(out, inputs->names[i]);
    }
    fputc(']', out);
}

static const char *const augment_names[] = {DT_AUGMENT_LIST(DT_ENUM_NAME)};

static void write_numbers(FILE *out, int n, const double *numbers)
{
    char text[DT_NUMBER_SIZE];
    fputc('[', out);
    for (int i = 0; i < n; i++) {
        dt_number_text(numbers[i], text);
        fprintf(out, "%s%s", i > 0 ? ", " : "", text);
    }
    fputc(']', out);
}

static void write_normalize(FILE *out, const struct dt_normalize *normalize)
{
    if (normalize->of_dataset) {
        fputs("\"dataset\"", out);
        return;
    }
    fputs("{ \"mean\": ", out);
    write_numbers(out, normalize->n, normalize->mean);
    fputs(", \"std\": ", out);
    write_numbers(out, normalize->n, normalize->std);
    fputs(" }", out);
}

static void write_augment(FILE *out, const struct dt_augment *augment)
{
    fputc('[', out);
    for (int i = 0; i < augment->n; i++) {
        const int kind = augment->kind[i];
        fprintf(out, "%s{ \"%s\": ", i > 0 ? ", " : "", augment_names[kind]);
        if (kind == DT_AUGMENT_FLIP) {
            fputs("\"horizontal\" }", out);
        } else {
            fprintf(out, kind == DT_AUGMENT_CROP ? "{ \"padding\": %d } }" : "%d }",
                    augment->size[i]);
        }
    }
    fputc(']', out);
}

static void write_weights(FILE *out, const struct dt_class_weights *weights)
{
    if (weights->n == DT_AUTO) {
        fputs("\"balanced\"", out);
    } else {
        write_numbers(out, weights->n, weights->of);
    }
}

static void write_layers(FILE *out, const struct dt_model_spec *model);

void dt_key_print(FILE *out, const struct dt_key *key, const void *base)
{
    char text[DT_NUMBER_SIZE] = "", name[DT_NAME_SIZE] = "";
    const struct dt_milestones *milestones;
    switch (key->kind) {
    case DT_KEY_BOOL:
        fputs(*(const bool *)dt_key_field(key, base) ? "true" : "false", out);
        break;
    case DT_KEY_INT:
        fprintf(out, "%lld", (long long)dt_key_int(key, base));
        break;
    case DT_KEY_AUTO:
        if (dt_names_get(dt_key_words(key), (int)(-1 - dt_key_int(key, base)), name)) {
            fprintf(out, "\"%s\"", name);
        } else {
            fprintf(out, "%lld", (long long)dt_key_int(key, base));
        }
        break;
    case DT_KEY_REAL:
        dt_number_text(*(const double *)dt_key_field(key, base), text);
        fputs(text, out);
        break;
    case DT_KEY_TEXT:
        write_string(out, dt_key_field(key, base));
        break;
    case DT_KEY_ENUM:
        dt_names_get(key->values, (int)dt_key_int(key, base), name);
        fprintf(out, "\"%s\"", name);
        break;
    case DT_KEY_SHAPE:
        write_shape(out, dt_key_field(key, base));
        break;
    case DT_KEY_LAYERS:
        write_layers(out, &((const struct dt_config *)base)->model);
        break;
    case DT_KEY_EPOCHS:
        milestones = dt_key_field(key, base);
        write_numbers(out, milestones->n, milestones->epochs);
        break;
    case DT_KEY_INPUTS:
        write_inputs(out, dt_key_field(key, base));
        break;
    case DT_KEY_NAMES:
        write_names(out, dt_key_field(key, base));
        break;
    case DT_KEY_NORMALIZE:
        write_normalize(out, dt_key_field(key, base));
        break;
    case DT_KEY_AUGMENT:
        write_augment(out, dt_key_field(key, base));
        break;
    case DT_KEY_WEIGHTS:
        write_weights(out, dt_key_field(key, base));
        break;
    }
}

/* The field is as it was before anything was read. */
static bool is_unset(const struct dt_key *key, const void *base)
{
    const void *field = dt_key_field(key, base);
    const struct dt_normalize *normalize = field;
    const struct dt_augment *augment = field;
    const struct dt_texts *names = field;
    const struct dt_layer_inputs *inputs = field;
    return key->kind == DT_KEY_TEXT        ? *(const char *)field == '\0'
           : key->kind == DT_KEY_NORMALIZE ? normalize->n == 0 && !normalize->of_dataset
           : key->kind == DT_KEY_AUGMENT   ? augment->n == 0
           : key->kind == DT_KEY_WEIGHTS   ? ((const struct dt_class_weights *)field)->n == 0
           : key->kind == DT_KEY_NAMES     ? names->n == 0
           : key->kind == DT_KEY_INPUTS    ? inputs->n == 0
           : key->kind == DT_KEY_REAL      ? *(const double *)field < 0
                                           : dt_key_int(key, base) == 0;
}

/* Whether it was left out, and has no default. */
static bool is_absent(const struct dt_key *key, const void *base)
{
    return key->default_text != NULL && key->default_text[0] == '\0' && is_unset(key, base);
}

void dt_layer_print(FILE *out, const struct dt_layer_spec *layer)
{
    const struct dt_key_list list = dt_layer_keys(layer->type);
    fprintf(out, "\"type\": \"%s\"", dt_layer_names[layer->type]);
    for (int k = 0; k < list.n; k++) {
        if (!is_absent(&list.keys[k], layer)) {
            fprintf(out, ", \"%s\": ", list.keys[k].path);
            dt_key_print(out, &list.keys[k], layer);
        }
    }
}

static void write_layers(FILE *out, const struct dt_model_spec *model)
{
    fputc('[', out);
    for (int i = 0; i < model->n_layers; i++) {
        fprintf(out, "%s\n      { ", i == 0 ? "" : ",");
        dt_layer_print(out, &model->layers[i]);
        fputs(" }", out);
    }
    fputs("\n    ]", out);
}

bool dt_key_is_shown(const struct dt_key *key, const struct dt_config *config)
{
    return !is_absent(key, config) && dt_key_applies(key, config);
}

/* A dt_file_put_fn. Keys whose paths begin alike stand together in the schema: each common
 * beginning is an object. */
static void write_config(FILE *out, const void *config)
{
    const struct dt_key_list list = dt_config_keys();
    const char *last = ""; /* the path before */
    int depth = 1;
    size_t n;
    fputc('{', out);
    for (int k = 0; k < list.n; k++) {
        const char *name = list.keys[k].path;
        int common = 1;
        if (!dt_key_is_shown(&list.keys[k], config)) {
            continue;
        }
        for (; name[n = strcspn(name, ".")] == '.' && strncmp(last, name, n + 1) == 0; common++) {
            name += n + 1;
            last += n + 1;
        }
        for (; depth > common; depth--) {
            fprintf(out, "\n%*s}", 2 * depth - 2, "");
        }
        fputs(*last != '\0' ? "," : "", out);
        for (; name[n = strcspn(name, ".")] == '.'; name += n + 1) {
            fprintf(out, "\n%*s\"%.*s\": {", 2 * depth++, "", (int)n, name);
        }
        fprintf(out, "\n%*s\"%s\": ", 2 * depth, "", name);
        dt_key_print(out, &list.keys[k], config);
        last = list.keys[k].path;
    }
    for (; depth > 0; depth--) {
        fprintf(out, "\n%*s}", 2 * depth - 2, "");
    }
    fputc('\n', out);
}

char *dt_config_to_json(const struct dt_config *config)
{
    char *text = NULL;
    size_t n = 0;
    (void)dt_file_collect("the configuration", write_config, config, &text, &n);
    return text;
}
