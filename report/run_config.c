/* The configuration of a run, and the keys in which several runs differ. */
#include "report/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/config/schema.h"

#define VALUE_SIZE 4096
#define MOST_NAME 46 /* characters of a legend that says what differs */

/* ---- the configuration of a run */

/* A key of the configuration, or of its layer number `layer`; key NULL: the whole layer. */
struct leaf {
    const struct dt_key *key;
    int layer; /* -1: none */
};

/* Its value as JSON in a line; "": it has none here. */
static enum dt_status leaf_text(struct leaf leaf, const struct dt_config *config,
                                char text[VALUE_SIZE])
{
    const struct dt_model_spec *model = &config->model;
    const void *base = config;
    bool shown = leaf.layer < model->n_layers;
    if (leaf.layer >= 0) {
        base = &model->layers[leaf.layer];
    } else {
        shown = dt_key_is_shown(leaf.key, config);
    }
    memset(text, 0, VALUE_SIZE);
    if (!shown) {
        return DT_OK;
    }
    FILE *out = fmemopen(text, VALUE_SIZE - 1, "w");
    if (out == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the keys of a configuration");
    }
    if (leaf.key != NULL) {
        dt_key_print(out, leaf.key, base);
    } else {
        fputc('{', out);
        dt_layer_print(out, base);
        fputc('}', out);
    }
    fclose(out);
    return DT_OK;
}

static bool is_default(const struct dt_key *key, const char *text)
{
    const size_t n = strlen(key->default_text);
    if (key->kind == DT_KEY_INT || key->kind == DT_KEY_REAL) {
        const bool batch = key->offset == offsetof(struct dt_config, batch_per_rank);
        const double usual = batch   ? DT_DEFAULT_BATCH
                             : n > 0 ? strtod(key->default_text, NULL)
                                     : (double)NAN;
        return strtod(text, NULL) == usual;
    }
    return dt_key_is_word(key)
               ? strlen(text) == n + 2 && strncmp(text + 1, key->default_text, n) == 0
               : strcmp(text, key->default_text) == 0;
}

static void put_key(struct dt_part *table, const struct dt_key *key, const char *text)
{
    const char *usual =
        key->default_text != NULL && key->default_text[0] != '\0' ? key->default_text : "absent";
    dt_doc_row(table, dt_t(key->path), dt_t(text), dt_t(usual));
}

enum dt_status dt_run_config_add(struct dt_doc *doc, const struct dt_record *r)
{
    char text[VALUE_SIZE];
    const struct dt_key_list list = dt_config_keys();
    struct dt_part *changed = dt_doc_table(doc, "Configuration", "key|value|default"),
                   *all = dt_doc_table(doc, "All keys of the configuration", "key|value|default");
    dt_doc_caption(changed, "Keys that differ from their defaults; the layers are in the table of "
                            "the model.");
    dt_doc_detail(all);
    for (int i = 0; i < list.n; i++) {
        const struct dt_key *key = &list.keys[i];
        DT_TRY(leaf_text((struct leaf){key, -1}, &r->config, text));
        if (text[0] == '\0' || key->kind == DT_KEY_LAYERS) {
            continue;
        }
        put_key(all, key, text);
        if (key->default_text != NULL && !is_default(key, text)) {
            put_key(changed, key, text);
        }
    }
    return DT_OK;
}

/* ---- where several differ */

struct comparison {
    const struct dt_record *records;
    int n, n_found;                  /* runs; keys that differ */
    struct dt_part *table;           /* gets a row for each of these keys; or NULL */
    char (*names)[DT_RUN_NAME_SIZE]; /* each gets " lr=0.01"; or NULL */
};

static void add_row(struct comparison *c, const char *path, char values[][VALUE_SIZE])
{
    struct dt_cell cells[DT_REPORT_MAX_RUNS + 1] = {dt_t(path)};
    for (int i = 0; i < c->n; i++) {
        cells[i + 1] = values[i][0] != '\0' ? dt_t(values[i]) : dt_n((double)NAN);
    }
    dt_doc_add_row(c->table, (size_t)c->n + 1, cells);
}

/* A name has texts without their quotes. */
static void add_value(char *name, const char *path, const char *value)
{
    const char *dot = strrchr(path, '.');
    const size_t used = strlen(name);
    const bool text = value[0] == '"';
    snprintf(name + used, DT_RUN_NAME_SIZE - used, " %s=%.*s", dot != NULL ? dot + 1 : path,
             (int)(text ? strlen(value) - 2 : DT_RUN_NAME_SIZE),
             value[0] != '\0' ? value + text : "-");
}

static enum dt_status compare(struct comparison *c, struct leaf leaf)
{
    char values[DT_REPORT_MAX_RUNS][VALUE_SIZE], layer_path[96];
    bool same = true;
    for (int i = 0; i < c->n; i++) {
        DT_TRY(leaf_text(leaf, &c->records[i].config, values[i]));
        same = same && strcmp(values[i], values[0]) == 0;
    }
    if (same) {
        return DT_OK;
    }
    snprintf(layer_path, sizeof layer_path, "model.layers.%d%s%s", leaf.layer,
             leaf.key != NULL ? "." : "", leaf.key != NULL ? leaf.key->path : "");
    const char *path = leaf.layer >= 0 ? layer_path : leaf.key->path;
    c->n_found++;
    add_row(c, path, values);
    for (int i = 0; i < c->n && c->names != NULL; i++) {
        add_value(c->names[i], path, values[i]);
    }
    return DT_OK;
}

static enum dt_status compare_layer(struct comparison *c, int layer)
{
    const struct dt_model_spec *first = &c->records[0].config.model;
    bool alike = true;
    for (int i = 0; i < c->n; i++) {
        const struct dt_model_spec *model = &c->records[i].config.model;
        alike = alike && layer < model->n_layers && layer < first->n_layers &&
                model->layers[layer].type == first->layers[layer].type;
    }
    if (!alike) {
        return compare(c, (struct leaf){NULL, layer});
    }
    const struct dt_key_list list = dt_layer_keys(first->layers[layer].type);
    for (int k = 0; k < list.n; k++) {
        DT_TRY(compare(c, (struct leaf){&list.keys[k], layer}));
    }
    return DT_OK;
}

static enum dt_status compare_all(struct comparison *c)
{
    const struct dt_key_list list = dt_config_keys();
    for (int k = 0; k < list.n; k++) {
        const bool layers = list.keys[k].kind == DT_KEY_LAYERS;
        DT_TRY(layers ? DT_OK : compare(c, (struct leaf){&list.keys[k], -1}));
        for (int layer = 0; layers && layer < DT_MAX_LAYERS; layer++) {
            DT_TRY(compare_layer(c, layer));
        }
    }
    return DT_OK;
}

enum dt_status dt_run_differences_add(struct dt_doc *doc, const struct dt_record *records, int n)
{
    char columns[] = "key|A|B|C|D|E|F|G|H";
    _Static_assert(sizeof columns == 4 + 2 * DT_REPORT_MAX_RUNS, "a letter for each run");
    columns[3 + 2 * n] = '\0';
    struct comparison c = {.records = records, .n = n};
    c.table = dt_doc_table(doc, "Where the configurations differ", columns);
    DT_TRY(compare_all(&c));
    if (c.n_found == 0) {
        dt_doc_caption(c.table, "The configurations are equal.");
    }
    return DT_OK;
}

/* ---- names of several */

/* How much of their paths all runs have in common: whole folders. */
static size_t common_folders(const struct dt_record *records, int n)
{
    size_t common = 0;
    for (size_t at = 0; records[0].path[at] != '\0'; at++) {
        for (int i = 1; i < n; i++) {
            if (records[i].path[at] != records[0].path[at]) {
                return common;
            }
        }
        common = records[0].path[at] == '/' ? at + 1 : common;
    }
    return common;
}

enum dt_status dt_run_names(const struct dt_record *records, int n,
                            char names[DT_REPORT_MAX_RUNS][DT_RUN_NAME_SIZE])
{
    struct comparison c = {.records = records, .n = n, .names = names};
    bool folders = false;
    for (int i = 0; i < n; i++) {
        snprintf(names[i], DT_RUN_NAME_SIZE, "%c", 'A' + i);
    }
    DT_TRY(compare_all(&c));
    for (int i = 0; i < n; i++) {
        folders = folders || c.n_found == 0 || strlen(names[i]) > MOST_NAME;
    }
    for (int i = 0; i < n && folders; i++) {
        snprintf(names[i], DT_RUN_NAME_SIZE, "%c %s", 'A' + i,
                 records[i].path + common_folders(records, n));
    }
    return DT_OK;
}
