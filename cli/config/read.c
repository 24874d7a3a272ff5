#include "cli/config/read.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/suggest.h"

/* The value at a relative path, or NULL. */
static const cJSON *find(const cJSON *item, const char *path)
{
    char segment[DT_CONFIG_PATH_SIZE];
    for (;;) {
        const size_t n = strcspn(path, ".");
        snprintf(segment, sizeof segment, "%.*s", (int)n, path);
        item = cJSON_GetObjectItemCaseSensitive(item, segment);
        if (item == NULL || path[n] == '\0') {
            return item;
        }
        path += n + 1;
    }
}

static enum dt_status wrong_value(const struct dt_config_object *o, const struct dt_key *key,
                                  const cJSON *item)
{
    char path[DT_CONFIG_PATH_SIZE], expected[DT_EXPECTED_SIZE], found[DT_FOUND_SIZE];
    dt_key_expected(key, expected);
    dt_json_found(item, found);
    return dt_config_error(o->source, dt_config_object_path(o, key->path, path),
                           "expected %s, got %s", expected, found);
}

static enum dt_status wrong_name(const struct dt_config_object *o, const char *path,
                                 const char *names, const cJSON *item)
{
    const struct dt_key key = {.path = path, .kind = DT_KEY_ENUM, .values = names};
    struct dt_suggestion s = {.word = cJSON_IsString(item) ? item->valuestring : ""};
    char candidates[16][DT_NAME_SIZE], full[DT_CONFIG_PATH_SIZE], expected[DT_EXPECTED_SIZE],
        found[DT_FOUND_SIZE];
    for (int i = 0; i < 16 && dt_names_get(names, i, candidates[i]); i++) {
        dt_suggest_offer(&s, candidates[i]);
    }
    if (strcmp(path, "device") == 0 &&
        strcasecmp(s.word, "gpu") == 0) { /* which is as near to "cpu" as can be */
        s.best = "cuda";
    }
    dt_key_expected(&key, expected);
    dt_json_found(item, found);
    if (strcasecmp(s.word, "softmax") == 0 && o->owner != NULL) {
        return dt_config_error(
            o->source, dt_config_object_path(o, path, full),
            "expected %s, got %s (leave it out: the loss softmax_cross_entropy has it)", expected,
            found);
    }
    if (s.best == NULL) {
        return wrong_value(o, &key, item);
    }
    return dt_config_error(o->source, dt_config_object_path(o, path, full),
                           "expected %s, got %s (did you mean \"%s\"?)", expected, found, s.best);
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
            char path[DT_CONFIG_PATH_SIZE], found[DT_FOUND_SIZE];
            snprintf(path, sizeof path, "%s%s[%d]", o->prefix, key->path, i);
            dt_json_found(dim, found);
            return dt_config_error(o->source, path, "expected an integer 1..%d, got %s",
                                   DT_MAX_EXTENT, found);
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
            char path[DT_CONFIG_PATH_SIZE], found[DT_FOUND_SIZE];
            snprintf(path, sizeof path, "%s%s[%d]", o->prefix, key->path, out->n);
            dt_json_found(name, found);
            return dt_config_error(o->source, path,
                                   "expected the name of a block, got %s (dtrain plan prints them)",
                                   found);
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
    unsigned char *field = (unsigned char *)base + key->offset;
    const struct dt_range range = dt_range_parse(key->kind == DT_KEY_REAL ? key->values : "[0, 0]");
    bool flag, automatic;
    int index;
    switch (key->kind) {
    case DT_KEY_BOOL:
        flag = cJSON_IsTrue(item);
        memcpy(field, &flag, sizeof flag);
        return cJSON_IsBool(item) ? DT_OK : wrong_value(o, key, item);
    case DT_KEY_INT:
    case DT_KEY_AUTO:
        automatic = key->kind == DT_KEY_AUTO && cJSON_IsString(item) &&
                    strcmp(item->valuestring, "auto") == 0;
        if (!automatic && !is_integer(key, item)) {
            return wrong_value(o, key, item);
        }
        dt_key_store_int(key, base, automatic ? DT_AUTO : (int64_t)item->valuedouble);
        return DT_OK;
    case DT_KEY_REAL:
        if (!cJSON_IsNumber(item) || !dt_range_holds(&range, item->valuedouble)) {
            return wrong_value(o, key, item);
        }
        memcpy(field, &item->valuedouble, sizeof item->valuedouble);
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
        return read_shape(o, key, item, (struct dt_shape *)(void *)field);
    case DT_KEY_LAYERS:
        return read_layers(o, key, item, &((struct dt_config *)base)->model);
    case DT_KEY_NAMES:
        return read_names(o, key, item, (struct dt_pipeline_cut *)(void *)field);
    }
    return DT_OK;
}

/* Defaults are texts of the schema, so they need no checks (a test reads them all through the
 * parser). */
static void store_default(const struct dt_key *key, void *base)
{
    unsigned char *field = (unsigned char *)base + key->offset;
    const double number = strtod(key->default_text, NULL);
    const bool flag = strcmp(key->default_text, "true") == 0;
    switch (key->kind) {
    case DT_KEY_BOOL:
        memcpy(field, &flag, sizeof flag);
        break;
    case DT_KEY_AUTO:
        dt_key_store_int(key, base, DT_AUTO);
        break;
    case DT_KEY_INT:
        dt_key_store_int(key, base, (int64_t)number);
        break;
    case DT_KEY_REAL:
        memcpy(field, &number, sizeof number);
        break;
    case DT_KEY_TEXT:
        memcpy(field, key->default_text, strlen(key->default_text) + 1);
        break;
    case DT_KEY_ENUM:
        dt_key_store_int(key, base, dt_names_find(key->values, key->default_text));
        break;
    case DT_KEY_SHAPE:
    case DT_KEY_LAYERS:
    case DT_KEY_NAMES:
        break; /* always given, or none */
    }
}

/* One key: its value from the object, or its default. `config` is NULL where keys have no
 * conditions. */
static enum dt_status read_key(const struct dt_config_object *o, const struct dt_key *key,
                               const cJSON *object, void *base, const struct dt_config *config)
{
    char path[DT_CONFIG_PATH_SIZE], expected[DT_EXPECTED_SIZE];
    const cJSON *item = find(object, key->path);
    if (item != NULL && config != NULL && !dt_key_applies(key, config)) {
        return dt_config_error(o->source, dt_config_object_path(o, key->path, path),
                               "has a meaning only with %s (remove it)", key->when);
    }
    if (item != NULL) {
        return read_value(o, key, item, base);
    }
    if (key->default_text == NULL) {
        dt_key_expected(key, expected);
        return dt_config_error(o->source, dt_config_object_path(o, key->path, path),
                               "the key is missing (give it %s)", expected);
    }
    if (key->default_text[0] != '\0') {
        store_default(key, base);
    }
    return DT_OK;
}

static enum dt_status read_layer(const struct dt_config_source *source, const cJSON *item, int i,
                                 struct dt_layer_spec *out)
{
    static const char names[] = DT_LAYER_LIST(DT_BAR_NAME);
    char prefix[DT_CONFIG_PATH_SIZE], path[DT_CONFIG_PATH_SIZE], found[DT_FOUND_SIZE],
        owner[DT_NAME_SIZE];
    snprintf(prefix, sizeof prefix, "model.layers[%d].", i);
    struct dt_config_object o = {.source = source, .prefix = prefix, .owner = owner};
    if (!cJSON_IsObject(item)) {
        snprintf(path, sizeof path, "model.layers[%d]", i);
        dt_json_found(item, found);
        return dt_config_error(source, path,
                               "expected an object such as {\"type\": \"flatten\"}, got %s", found);
    }
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(item, "type");
    if (type == NULL) {
        return dt_config_error(source, dt_config_object_path(&o, "type", path),
                               "the key is missing (say what kind of layer it is)");
    }
    const int index = cJSON_IsString(type) ? dt_names_find(names, type->valuestring) : -1;
    if (index < 0) {
        return wrong_name(&o, "type", names, type);
    }
    out->type = (enum dt_layer_type)index;
    o.list = dt_layer_keys(out->type);
    dt_names_get(names, index, owner);
    DT_TRY(dt_config_object_check(&o, item));
    for (int k = 0; k < o.list.n; k++) {
        DT_TRY(read_key(&o, &o.list.keys[k], item, out, NULL));
    }
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
    if (n < 1 || n > DT_MAX_LAYERS) {
        char path[DT_CONFIG_PATH_SIZE];
        return cJSON_IsArray(item)
                   ? dt_config_error(o->source, dt_config_object_path(o, key->path, path),
                                     "expected 1..%d layers, got %d", DT_MAX_LAYERS, n)
                   : wrong_value(o, key, item);
    }
    int i = 0;
    for (const cJSON *layer = item->child; layer != NULL; layer = layer->next, i++) {
        DT_TRY(read_layer(o->source, layer, i, &out->layers[i]));
    }
    out->n_layers = n;
    return DT_OK;
}

enum dt_status dt_config_read(const struct dt_config_source *source, const cJSON *root,
                              struct dt_config *out)
{
    const struct dt_config_object o = {.source = source, .prefix = "", .list = dt_config_keys()};
    if (!cJSON_IsObject(root)) {
        char found[DT_FOUND_SIZE];
        dt_json_found(root, found);
        return dt_config_error(source, "", "expected an object in braces, got %s", found);
    }
    DT_TRY(dt_config_object_check(&o, root));
    for (int i = 0; i < o.list.n; i++) {
        DT_TRY(read_key(&o, &o.list.keys[i], root, out, out));
    }
    return DT_OK;
}
