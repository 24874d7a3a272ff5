#include "cli/config/read.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/config/schema.h"
#include "cli/suggest.h"

#define PATH_SIZE 160
#define CLIPPED_SIZE 56

/* An object being read: its keys have paths relative to it, `prefix` is its own ("" or
 * "model.layers[2]."). */
struct object {
    const struct dt_config_source *source;
    const char *prefix;
    struct dt_key_list list;
    const char *owner; /* "conv2d" or NULL: whose keys these are */
};

/* Names from hostile files: cut between characters. */
static const char *clip(const char *text, char out[CLIPPED_SIZE])
{
    size_t n = strlen(text);
    if (n < CLIPPED_SIZE) {
        memcpy(out, text, n + 1);
        return out;
    }
    for (n = CLIPPED_SIZE - 4; n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80;) {
        n--;
    }
    snprintf(out, CLIPPED_SIZE, "%.*s...", (int)n, text);
    return out;
}

void dt_json_found(const cJSON *item, char out[DT_FOUND_SIZE])
{
    char clipped[CLIPPED_SIZE], number[DT_NUMBER_SIZE];
    if (cJSON_IsString(item)) {
        snprintf(out, DT_FOUND_SIZE, "string \"%s\"", clip(item->valuestring, clipped));
    } else if (cJSON_IsNumber(item)) {
        dt_number_text(item->valuedouble, number);
        snprintf(out, DT_FOUND_SIZE, "%s%s", number,
                 isinf(item->valuedouble) ? " (too large for a double)" : "");
    } else if (cJSON_IsBool(item)) {
        snprintf(out, DT_FOUND_SIZE, "%s", cJSON_IsTrue(item) ? "true" : "false");
    } else {
        snprintf(out, DT_FOUND_SIZE, "%s",
                 cJSON_IsNull(item)    ? "null"
                 : cJSON_IsArray(item) ? "a list"
                                       : "an object");
    }
}

/* Whether a --set text such as "model.layers.1.filters=16" reaches the path
 * "model.layers[1].filters", or into or around it. */
static bool set_reaches(const char *set, const char *path)
{
    for (;;) {
        while (*path == ']') {
            path++;
        }
        if (*set == '=' || *set == '\0') {
            return *path == '\0' || *path == '.' || *path == '[';
        }
        if (*path == '\0') {
            return *set == '.';
        }
        if (*set != (*path == '[' ? '.' : *path)) {
            return false;
        }
        set++;
        path++;
    }
}

enum dt_status dt_config_error(const struct dt_config_source *source, const char *path,
                               const char *format, ...)
{
    char text[DT_ERROR_TEXT_SIZE];
    bool was_set = false;
    for (int i = 0; i < source->n_sets; i++) {
        was_set = was_set || set_reaches(source->sets[i], path);
    }
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return dt_error(was_set ? DT_USAGE : DT_CONFIG, "%s: %s%s%s", was_set ? "--set" : source->name,
                    path, path[0] == '\0' ? "" : ": ", text);
}

/* Path of a key of the object, for messages. */
static const char *full_path(const struct object *o, const char *path, char out[PATH_SIZE])
{
    snprintf(out, PATH_SIZE, "%s%s", o->prefix, path);
    return out;
}

/* The value at a relative path, or NULL. */
static const cJSON *find(const cJSON *item, const char *path)
{
    char segment[PATH_SIZE];
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

/* The nearest key in the same group, else one of the same name elsewhere. `group` is "" or ends in
 * a dot. */
static void suggest_key(const struct object *o, const char *group, const char *name,
                        char out[PATH_SIZE])
{
    char candidates[64][DT_NAME_SIZE]; /* a group has no more names than this */
    int n = 0;
    struct dt_suggestion s = {.word = name};
    const size_t n_group = strlen(group);
    out[0] = '\0';
    for (int i = 0; i < o->list.n && n < 64; i++) {
        const char *path = o->list.keys[i].path;
        if (strncmp(path, group, n_group) != 0) {
            continue;
        }
        snprintf(candidates[n], DT_NAME_SIZE, "%.*s", (int)strcspn(path + n_group, "."),
                 path + n_group);
        if (n == 0 || strcmp(candidates[n], candidates[n - 1]) !=
                          0) { /* else one more of the group just named */
            dt_suggest_offer(&s, candidates[n++]);
        }
    }
    if (s.best != NULL) {
        snprintf(out, PATH_SIZE, "%s%s%s", o->prefix, group, s.best);
        return;
    }
    for (int i = 0; i < o->list.n; i++) {
        if (strcasecmp(dt_key_name(o->list.keys[i].path), name) == 0) {
            full_path(o, o->list.keys[i].path, out);
            return;
        }
    }
    if (o->owner == NULL && dt_config_key_of(name) != NULL) {
        snprintf(out, PATH_SIZE, "%s", dt_config_key_of(name));
    }
}

/* A value in place of the group `path`: what is meant is most often its first key, such as
 * train.optimizer.type. */
static enum dt_status no_group(const struct object *o, const char *path, const cJSON *item)
{
    char full[PATH_SIZE], found[DT_FOUND_SIZE];
    const size_t n = strlen(path);
    int i = 0;
    while (!(strncmp(o->list.keys[i].path, path, n) == 0 && o->list.keys[i].path[n] == '.')) {
        i++;
    }
    char *value = cJSON_PrintUnformatted(item);
    dt_json_found(item, found);
    const enum dt_status s =
        dt_config_error(o->source, full_path(o, path, full),
                        "expected an object, got %s (say %s=%.40s, or write it in braces)", found,
                        o->list.keys[i].path,
                        cJSON_IsString(item) ? item->valuestring
                        : value != NULL      ? value
                                             : "VALUE");
    cJSON_free(value);
    return s;
}

/* The keys of a group as "a, b, c". */
static void list_keys(const struct object *o, const char *group, char *out, size_t n_out)
{
    const size_t n_group = strlen(group);
    size_t used = 0;
    const char *last = "";
    out[0] = '\0';
    if (o->owner != NULL) {
        used += (size_t)snprintf(out, n_out, "type");
    }
    for (int i = 0; i < o->list.n && used < n_out; i++) {
        if (strncmp(o->list.keys[i].path, group, n_group) != 0) {
            continue;
        }
        const char *name = o->list.keys[i].path + n_group;
        const size_t n = strcspn(name, ".");
        if (strncmp(name, last, n) == 0 && strcspn(last, ".") == n) {
            continue; /* one more of the group just named */
        }
        used += (size_t)snprintf(out + used, n_out - used, "%s%.*s", used == 0 ? "" : ", ", (int)n,
                                 name);
        last = name;
    }
}

static enum dt_status unknown_key(const struct object *o, const char *group, const char *name)
{
    char path[PATH_SIZE], near[PATH_SIZE], clipped[CLIPPED_SIZE], keys[240];
    snprintf(path, sizeof path, "%s%s%s", o->prefix, group, clip(name, clipped));
    if (strcmp(path, "comm") == 0) {
        return dt_config_error(o->source, path,
                               "the key is called distributed.allreduce now (rename it)");
    }
    suggest_key(o, group, name, near);
    if (near[0] != '\0') {
        return dt_config_error(o->source, path, "unknown key (did you mean '%s'?)", near);
    }
    if (strchr(name, '.') != NULL) {
        return dt_config_error(o->source, path,
                               "unknown key (write an object inside an object in place of a dot)");
    }
    list_keys(o, group, keys, sizeof keys);
    return dt_config_error(o->source, path, "unknown key (%s%s%s)",
                           o->owner == NULL ? "" : o->owner,
                           o->owner == NULL ? "the keys here are: " : " has the keys: ", keys);
}

enum role { ROLE_NONE, ROLE_KEY, ROLE_GROUP };

static enum role role_of(const struct object *o, const char *path)
{
    const size_t n = strlen(path);
    for (int i = 0; i < o->list.n; i++) {
        const char *key = o->list.keys[i].path;
        if (strncmp(key, path, n) == 0 && (key[n] == '\0' || key[n] == '.')) {
            return key[n] == '\0' ? ROLE_KEY : ROLE_GROUP;
        }
    }
    return ROLE_NONE;
}

/* Keys that are no settings: a layer's type, read before; "$schema", which editors want at the top.
 */
static bool is_extra(const struct object *o, const char *group, const char *name)
{
    return group[0] == '\0' && strcmp(name, o->owner == NULL ? "$schema" : "type") == 0;
}

/* Every member known and given once, groups being objects. Groups nest three deep at most. */
static enum dt_status check_members(const struct object *o, const cJSON *item, const char *group)
{
    for (const cJSON *member = item->child; member != NULL; member = member->next) {
        char path[PATH_SIZE], full[PATH_SIZE];
        const int n = snprintf(path, sizeof path - 1, "%s%s", group, member->string);
        const bool fits = n > 0 && (size_t)n < sizeof path - 1 && member->string[0] != '\0' &&
                          strchr(member->string, '.') == NULL;
        const enum role role = fits ? role_of(o, path) : ROLE_NONE;
        if (role == ROLE_NONE && !is_extra(o, group, member->string)) {
            return unknown_key(o, group, member->string);
        }
        if (cJSON_GetObjectItemCaseSensitive(item, member->string) != member) {
            return dt_config_error(o->source, full_path(o, path, full),
                                   "the key is given twice (remove one)");
        }
        if (role == ROLE_GROUP) {
            if (!cJSON_IsObject(member)) {
                return no_group(o, path, member);
            }
            strcat(path, ".");
            DT_TRY(check_members(o, member, path));
        }
    }
    return DT_OK;
}

static enum dt_status wrong_value(const struct object *o, const struct dt_key *key,
                                  const cJSON *item)
{
    char path[PATH_SIZE], expected[DT_EXPECTED_SIZE], found[DT_FOUND_SIZE];
    dt_key_expected(key, expected);
    dt_json_found(item, found);
    return dt_config_error(o->source, full_path(o, key->path, path), "expected %s, got %s",
                           expected, found);
}

static enum dt_status wrong_name(const struct object *o, const char *path, const char *names,
                                 const cJSON *item)
{
    const struct dt_key key = {.path = path, .kind = DT_KEY_ENUM, .values = names};
    struct dt_suggestion s = {.word = cJSON_IsString(item) ? item->valuestring : ""};
    char candidates[16][DT_NAME_SIZE], full[PATH_SIZE], expected[DT_EXPECTED_SIZE],
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
            o->source, full_path(o, path, full),
            "expected %s, got %s (leave it out: the loss softmax_cross_entropy has it)", expected,
            found);
    }
    if (s.best == NULL) {
        return wrong_value(o, &key, item);
    }
    return dt_config_error(o->source, full_path(o, path, full),
                           "expected %s, got %s (did you mean \"%s\"?)", expected, found, s.best);
}

/* Whole and in the key's range. cJSON's valueint is not used: it saturates and cuts fractions. */
static bool is_integer(const struct dt_key *key, const cJSON *item)
{
    const struct dt_range range = dt_range_parse(key->values);
    return cJSON_IsNumber(item) && dt_range_holds(&range, item->valuedouble) &&
           floor(item->valuedouble) == item->valuedouble;
}

static enum dt_status read_shape(const struct object *o, const struct dt_key *key,
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
            char path[PATH_SIZE], found[DT_FOUND_SIZE];
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

static enum dt_status read_names(const struct object *o, const struct dt_key *key,
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
            char path[PATH_SIZE], found[DT_FOUND_SIZE];
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

static enum dt_status read_layers(const struct object *o, const struct dt_key *key,
                                  const cJSON *item, struct dt_model_spec *out);

static enum dt_status read_value(const struct object *o, const struct dt_key *key,
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
static enum dt_status read_key(const struct object *o, const struct dt_key *key,
                               const cJSON *object, void *base, const struct dt_config *config)
{
    char path[PATH_SIZE], expected[DT_EXPECTED_SIZE];
    const cJSON *item = find(object, key->path);
    if (item != NULL && config != NULL && !dt_key_applies(key, config)) {
        return dt_config_error(o->source, full_path(o, key->path, path),
                               "has a meaning only with %s (remove it)", key->when);
    }
    if (item != NULL) {
        return read_value(o, key, item, base);
    }
    if (key->default_text == NULL) {
        dt_key_expected(key, expected);
        return dt_config_error(o->source, full_path(o, key->path, path),
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
    char prefix[PATH_SIZE], path[PATH_SIZE], found[DT_FOUND_SIZE], owner[DT_NAME_SIZE];
    snprintf(prefix, sizeof prefix, "model.layers[%d].", i);
    struct object o = {.source = source, .prefix = prefix, .owner = owner};
    if (!cJSON_IsObject(item)) {
        snprintf(path, sizeof path, "model.layers[%d]", i);
        dt_json_found(item, found);
        return dt_config_error(source, path,
                               "expected an object such as {\"type\": \"flatten\"}, got %s", found);
    }
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(item, "type");
    if (type == NULL) {
        return dt_config_error(source, full_path(&o, "type", path),
                               "the key is missing (say what kind of layer it is)");
    }
    const int index = cJSON_IsString(type) ? dt_names_find(names, type->valuestring) : -1;
    if (index < 0) {
        return wrong_name(&o, "type", names, type);
    }
    out->type = (enum dt_layer_type)index;
    o.list = dt_layer_keys(out->type);
    dt_names_get(names, index, owner);
    DT_TRY(check_members(&o, item, ""));
    for (int k = 0; k < o.list.n; k++) {
        DT_TRY(read_key(&o, &o.list.keys[k], item, out, NULL));
    }
    if (out->stride == 0 &&
        (out->type == DT_LAYER_MAX_POOL2D || out->type == DT_LAYER_AVG_POOL2D)) {
        out->stride = out->size;
    }
    return DT_OK;
}

static enum dt_status read_layers(const struct object *o, const struct dt_key *key,
                                  const cJSON *item, struct dt_model_spec *out)
{
    const int n = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 0;
    if (n < 1 || n > DT_MAX_LAYERS) {
        char path[PATH_SIZE];
        return cJSON_IsArray(item)
                   ? dt_config_error(o->source, full_path(o, key->path, path),
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
    const struct object o = {.source = source, .prefix = "", .list = dt_config_keys()};
    if (!cJSON_IsObject(root)) {
        char found[DT_FOUND_SIZE];
        dt_json_found(root, found);
        return dt_config_error(source, "", "expected an object in braces, got %s", found);
    }
    DT_TRY(check_members(&o, root, ""));
    for (int i = 0; i < o.list.n; i++) {
        DT_TRY(read_key(&o, &o.list.keys[i], root, out, out));
    }
    return DT_OK;
}
