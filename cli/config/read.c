#include "cli/config/read.h"

#include <string.h>
#include <strings.h>

#include "cli/suggest.h"

static enum dt_status wrong_value(const struct dt_config_object *o, const struct dt_key *key,
                                  const cJSON *item)
{
    char expected[DT_EXPECTED_SIZE];
    dt_key_expected(key, expected);
    return dt_config_unexpected(&o->source, key->path, expected, item, "");
}

static enum dt_status wrong_element(const struct dt_config_object *o, const struct dt_key *key,
                                    int i, const char *expected, const cJSON *item,
                                    const char *cure)
{
    char path[DT_CONFIG_PATH_SIZE];
    snprintf(path, sizeof path, "%s[%d]", key->path, i);
    return dt_config_unexpected(&o->source, path, expected, item, cure);
}

/* Names that other trainers have, or that sound right. In parentheses: no name, but what to do. */
static const struct {
    const char *key, *said, *meant;
} other_names[] = {
    {"device", "gpu", "cuda"},
    {"format", "mnist", "idx"},
    {"format", "fashion", "idx"},
    {"format", "kmnist", "idx"},
    {"format", "cifar10", "cifar"},
    {"format", "imagefolder", "images"},
    {"format", "png", "images"},
    {"format", "npz", "npy"},
    {"format", "csv", " (CSV is not read: write an .npz file with numpy.savez)"},
    {"metric", "val_loss", "validation_loss"},
    {"metric", "val_accuracy", "validation_accuracy"},
    {"metric", "val_acc", "validation_accuracy"},
    {"best", "val_loss", "validation_loss"},
    {"best", "val_accuracy", "validation_accuracy"},
    {"type", "softmax", " (leave it out: the loss softmax_cross_entropy has it)"},
    {"activation", "softmax", " (leave it out: the loss softmax_cross_entropy has it)"},
};

/* NULL: the word is none of them. */
static const char *find_other_name(const char *path, const char *word)
{
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++) {
        if (strcmp(other_names[i].key, dt_key_name(path)) == 0 &&
            strcasecmp(other_names[i].said, word) == 0) {
            return other_names[i].meant;
        }
    }
    return NULL;
}

static enum dt_status wrong_name(const struct dt_config_object *o, const char *path,
                                 const char *names, const cJSON *item)
{
    const struct dt_key key = {.path = path, .kind = DT_KEY_ENUM, .values = names};
    struct dt_suggestion s = {.word = cJSON_IsString(item) ? item->valuestring : ""};
    char candidates[16][DT_NAME_SIZE], expected[DT_EXPECTED_SIZE], cure[96] = "";
    for (int i = 0; i < 16 && dt_names_get(names, i, candidates[i]); i++) {
        dt_suggest_offer(&s, candidates[i]);
    }
    const char *other = find_other_name(path, s.word);
    if (other != NULL && other[0] == ' ') {
        snprintf(cure, sizeof cure, "%s", other);
    } else if (other != NULL || s.best != NULL) {
        snprintf(cure, sizeof cure, " (did you mean \"%s\"?)", other != NULL ? other : s.best);
    }
    dt_key_expected(&key, expected);
    return dt_config_unexpected(&o->source, path, expected, item, cure);
}

/* Whole and in the key's range. cJSON's valueint is not used: it saturates and cuts fractions. */
static bool is_integer(const struct dt_key *key, const cJSON *item)
{
    const struct dt_range range = dt_range_parse(key->values);
    return cJSON_IsNumber(item) && dt_range_holds(&range, item->valuedouble) &&
           floor(item->valuedouble) == item->valuedouble;
}

static enum dt_status read_shape(const struct dt_config_object *o, const struct dt_key *key,
                                 const cJSON *item, struct dt_shape *out)
{
    const int n = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 0;
    int dims[3] = {0, 1, 1};
    if (n != 1 && n != 3) {
        return wrong_value(o, key, item);
    }
    for (int i = 0; i < n; i++) {
        const cJSON *dim = cJSON_GetArrayItem(item, i);
        if (!is_integer(key, dim)) {
            return wrong_element(o, key, i, "an integer 1..65536", dim, "");
        }
        dims[i] = (int)dim->valuedouble;
    }
    *out = (struct dt_shape){dims[0], dims[1], dims[2]};
    return DT_OK;
}

static enum dt_status read_names(const struct dt_config_object *o, const struct dt_key *key,
                                 const cJSON *item, struct dt_pipeline_cut *out)
{
    const struct dt_range range = dt_range_parse(key->values);
    const int n = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : -1;
    if (!dt_range_holds(&range, n)) {
        return wrong_value(o, key, item);
    }
    for (const cJSON *name = item->child; name != NULL; name = name->next) {
        if (!cJSON_IsString(name) || name->valuestring[0] == '\0' ||
            strlen(name->valuestring) >= DT_BLOCK_NAME_SIZE) {
            return wrong_element(o, key, out->n, "the name of a block", name,
                                 " (dtrain plan prints them)");
        }
        snprintf(out->names[out->n++], DT_BLOCK_NAME_SIZE, "%s", name->valuestring);
    }
    return DT_OK;
}

static enum dt_status read_layers(const struct dt_config_object *o, const struct dt_key *key,
                                  const cJSON *item, struct dt_model_spec *out);

static enum dt_status read_value(const struct dt_config_object *o, const struct dt_key *key,
                                 const cJSON *item, void *base)
{
    void *field = (unsigned char *)base + key->offset;
    const struct dt_range range = dt_range_parse(key->kind == DT_KEY_REAL ? key->values : "[0, 0]");
    int index;
    switch (key->kind) {
    case DT_KEY_BOOL:
        *(bool *)field = cJSON_IsTrue(item);
        return cJSON_IsBool(item) ? DT_OK : wrong_value(o, key, item);
    case DT_KEY_INT:
    case DT_KEY_AUTO:
        index = key->kind == DT_KEY_AUTO && cJSON_IsString(item)
                    ? dt_names_find(dt_key_words(key), item->valuestring)
                    : -1;
        if (index < 0 && !is_integer(key, item)) {
            return wrong_value(o, key, item);
        }
        dt_key_store_int(key, base, index >= 0 ? -1 - index : (int64_t)item->valuedouble);
        return DT_OK;
    case DT_KEY_REAL:
        if (!cJSON_IsNumber(item) || !dt_range_holds(&range, item->valuedouble)) {
            return wrong_value(o, key, item);
        }
        *(double *)field = item->valuedouble;
        return DT_OK;
    case DT_KEY_TEXT:
        if (!cJSON_IsString(item) || item->valuestring[0] == '\0' ||
            strlen(item->valuestring) >= key->n_bytes) {
            return wrong_value(o, key, item);
        }
        memcpy(field, item->valuestring, strlen(item->valuestring) + 1);
        return DT_OK;
    case DT_KEY_ENUM:
        index = cJSON_IsString(item) ? dt_names_find(key->values, item->valuestring) : -1;
        if (index < 0) {
            return wrong_name(o, key->path, key->values, item);
        }
        dt_key_store_int(key, base, index);
        return DT_OK;
    case DT_KEY_SHAPE:
        return read_shape(o, key, item, field);
    case DT_KEY_LAYERS:
        return read_layers(o, key, item, &((struct dt_config *)base)->model);
    case DT_KEY_NAMES:
        return read_names(o, key, item, field);
    case DT_KEY_NORMALIZE:
        return dt_config_read_normalize(o, key, item, field);
    case DT_KEY_AUGMENT:
        return dt_config_read_augment(o, key, item, field);
    }
    return DT_OK;
}

/* The schema has it as text; a test reads them all. */
static enum dt_status read_default(const struct dt_config_object *o, const struct dt_key *key,
                                   void *base)
{
    cJSON *item = dt_key_is_word(key) ? cJSON_CreateString(key->default_text)
                                      : cJSON_Parse(key->default_text);
    const enum dt_status s =
        item != NULL ? read_value(o, key, item, base)
                     : dt_error(DT_NO_MEMORY, "%s: out of memory", o->source.files->files[0].name);
    cJSON_Delete(item);
    return s;
}

/* One key: its value from the object, or its default. `config` is NULL where keys have no
 * conditions. */
static enum dt_status read_key(const struct dt_config_object *o, const struct dt_key *key,
                               const cJSON *object, void *base, const struct dt_config *config)
{
    char expected[DT_EXPECTED_SIZE];
    const cJSON *item = dt_json_at(object, key->path);
    if (item != NULL && config != NULL && !dt_key_applies(key, config)) {
        return dt_config_error(&o->source, key->path, "has a meaning only with %s (remove it)",
                               key->when);
    }
    if (item != NULL) {
        return read_value(o, key, item, base);
    }
    if (key->default_text == NULL) {
        dt_key_expected(key, expected);
        return dt_config_error(&o->source, key->path, "the key is missing (give it %s)", expected);
    }
    return key->default_text[0] != '\0' ? read_default(o, key, base) : DT_OK;
}

static enum dt_status read_keys(const struct dt_config_object *o, const cJSON *object, void *base,
                                const struct dt_config *config)
{
    DT_TRY(dt_config_object_check(o, object));
    for (int k = 0; k < o->list.n; k++) {
        DT_TRY(read_key(o, &o->list.keys[k], object, base, config));
    }
    return DT_OK;
}

static enum dt_status read_layer(const struct dt_config_object *whole, const struct dt_key *list,
                                 int i, const cJSON *item, struct dt_layer_spec *out)
{
    static const char names[] = DT_LAYER_LIST(DT_BAR_NAME);
    char prefix[DT_CONFIG_PATH_SIZE];
    struct dt_config_object o = {.source = whole->source, .owner = "a layer"};
    snprintf(prefix, sizeof prefix, "%s[%d].", list->path, i);
    o.source.prefix = prefix;
    if (!cJSON_IsObject(item)) {
        return wrong_element(whole, list, i, "an object such as {\"type\": \"flatten\"}", item, "");
    }
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(item, "type");
    if (type == NULL) {
        return dt_config_error(&o.source, "type",
                               "the key is missing (say what kind of layer it is)");
    }
    const int index = cJSON_IsString(type) ? dt_names_find(names, type->valuestring) : -1;
    if (index < 0) {
        return wrong_name(&o, "type", names, type);
    }
    out->type = (enum dt_layer_type)index;
    o.list = dt_layer_keys(out->type);
    o.owner = dt_layer_names[out->type];
    DT_TRY(read_keys(&o, item, out, NULL));
    if (out->stride == 0 &&
        (out->type == DT_LAYER_MAX_POOL2D || out->type == DT_LAYER_AVG_POOL2D)) {
        out->stride = out->size;
    }
    return DT_OK;
}

static enum dt_status read_layers(const struct dt_config_object *o, const struct dt_key *key,
                                  const cJSON *item, struct dt_model_spec *out)
{
    const int n = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 0;
    if (!cJSON_IsArray(item)) {
        return wrong_value(o, key, item);
    }
    if (n < 1 || n > DT_MAX_LAYERS) {
        return dt_config_error(&o->source, key->path, "expected 1..%d layers, got %d",
                               DT_MAX_LAYERS, n);
    }
    for (int i = 0; i < n; i++) {
        DT_TRY(read_layer(o, key, i, cJSON_GetArrayItem(item, i), &out->layers[i]));
    }
    out->n_layers = n;
    return DT_OK;
}

enum dt_status dt_config_read(const struct dt_config_source *source, const cJSON *root,
                              struct dt_config *out)
{
    const struct dt_config_object o = {.source = *source, .list = dt_config_keys()};
    return cJSON_IsObject(root) ? read_keys(&o, root, out, out)
                                : dt_config_unexpected(source, "", "an object in braces", root, "");
}
