#include "cli/config/read.h"
#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

#include "cli/suggest.h"
#include "data/transform.h"

/* ---- what messages say */

#define CLIPPED_SIZE 56

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

const cJSON *dt_json_at(const cJSON *item, const char *path)
{
    char segment[DT_CONFIG_PATH_SIZE];
    while (item != NULL && *path != '\0') {
        const size_t n = strcspn(path, ".");
        snprintf(segment, sizeof segment, "%.*s", (int)n, path);
        item = cJSON_GetObjectItemCaseSensitive(item, segment);
        path += n + (path[n] == '.');
    }
    return item;
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
    } else if (cJSON_IsArray(item)) {
        snprintf(out, DT_FOUND_SIZE, "a list of %d", cJSON_GetArraySize(item));
    } else {
        snprintf(out, DT_FOUND_SIZE, "%s", cJSON_IsNull(item) ? "null" : "an object");
    }
}

/* Whether a --set text such as "model.layers.1.filters=16", or with brackets, reaches the path
 * "model.layers[1].filters", or into or around it. */
static bool set_reaches(const char *set, const char *path)
{
    for (;; set++, path++) {
        set += *set == ']';
        path += *path == ']';
        if (*set == '=' || *set == '\0') {
            return strchr(".[", *path) != NULL; /* also at its end */
        }
        if (*path == '\0') {
            return strchr(".[", *set) != NULL;
        }
        if (*set != *path && !(strchr(".[", *set) != NULL && strchr(".[", *path) != NULL)) {
            return false;
        }
    }
}

/* The first file that has what the path leads to, or the list that it leads into. */
static const char *file_of(const struct dt_config_files *files, const char *path)
{
    char outside[DT_CONFIG_PATH_SIZE];
    snprintf(outside, sizeof outside, "%.*s", (int)strcspn(path, "["), path);
    for (int i = 0; i < files->n; i++) {
        if (dt_json_at(files->files[i].tree, outside) != NULL) {
            return files->files[i].name;
        }
    }
    return files->files[0].name;
}

enum dt_status dt_config_error(const struct dt_config_source *source, const char *path,
                               const char *format, ...)
{
    char text[DT_ERROR_TEXT_SIZE], full[DT_CONFIG_PATH_SIZE];
    bool was_set = false;
    snprintf(full, sizeof full, "%s%s", source->prefix, path);
    for (int i = 0; i < source->n_sets; i++) {
        was_set = was_set || set_reaches(source->sets[i], full);
    }
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return dt_error(was_set ? DT_USAGE : DT_CONFIG, "%s: %s%s%s",
                    was_set ? "--set" : file_of(source->files, full), full,
                    full[0] == '\0' ? "" : ": ", text);
}

/* An object being read; its keys have paths relative to it. */
struct object {
    struct dt_config_source source;
    struct dt_key_list list;
    const char *owner; /* "conv2d" or NULL: whose keys these are */
};

/* DT_CONFIG: "expected <expected>, got <item><cure>" of the value at the path; NULL: it is missing.
 */
static enum dt_status __attribute__((format(printf, 5, 6)))
unexpected(const struct object *o, const cJSON *item, const char *expected, const char *cure,
           const char *path_format, ...)
{
    char path[DT_CONFIG_PATH_SIZE], found[DT_FOUND_SIZE];
    va_list args;
    va_start(args, path_format);
    vsnprintf(path, sizeof path, path_format, args);
    va_end(args);
    dt_json_found(item, found);
    return item == NULL
               ? dt_config_error(&o->source, path, "the key is missing (give it %s)", expected)
               : dt_config_error(&o->source, path, "expected %s, got %s%s", expected, found, cure);
}

/* ---- that the keys of an object are known */

#define MOST_NAMES 64 /* a group has no more */

/* The names in a group, each once: of its keys, and of the groups in it. `group` is "" or ends in a
 * dot. */
static int names_in(const struct object *o, const char *group, char out[MOST_NAMES][DT_NAME_SIZE])
{
    const size_t n_group = strlen(group);
    int n = 0;
    for (int i = 0; i < o->list.n && n < MOST_NAMES; i++) {
        const char *path = o->list.keys[i].path;
        if (strncmp(path, group, n_group) == 0) {
            snprintf(out[n], DT_NAME_SIZE, "%.*s", (int)strcspn(path + n_group, "."),
                     path + n_group);
            n += n == 0 || strcmp(out[n], out[n - 1]) != 0; /* keys of a group stand together */
        }
    }
    return n;
}

/* A key of this name elsewhere, or "". */
static void find_elsewhere(const struct object *o, const char *name, char out[DT_CONFIG_PATH_SIZE])
{
    const char *path = o->owner == NULL ? dt_config_key_of(name) : NULL;
    const char *prefix = "";
    for (int i = 0; i < o->list.n && path == NULL; i++) {
        if (strcasecmp(dt_key_name(o->list.keys[i].path), name) == 0) {
            prefix = o->source.prefix;
            path = o->list.keys[i].path;
        }
    }
    snprintf(out, DT_CONFIG_PATH_SIZE, "%s%s", prefix, path != NULL ? path : "");
}

/* The first key at this path, or in the group of this path; NULL: neither. */
static const struct dt_key *key_at(const struct object *o, const char *path)
{
    const size_t n = strlen(path);
    for (int i = 0; i < o->list.n; i++) {
        const char *key = o->list.keys[i].path;
        if (strncmp(key, path, n) == 0 && (key[n] == '\0' || key[n] == '.')) {
            return &o->list.keys[i];
        }
    }
    return NULL;
}

/* A value in place of the group `path`: what is meant is most often its first key, such as
 * train.optimizer.type. */
static enum dt_status no_group(const struct object *o, const char *path, const cJSON *item)
{
    char cure[DT_CONFIG_PATH_SIZE + 80], name[DT_NAME_SIZE] = "validation_loss";
    char *value = cJSON_PrintUnformatted(item);
    const struct dt_key *key = key_at(o, path);
    const bool is_name = key->kind == DT_KEY_ENUM && !cJSON_IsString(item);
    if (is_name && dt_names_find(key->values, name) < 0) {
        dt_names_get(key->values, 1, name); /* the first is often none */
    }
    snprintf(cure, sizeof cure, " (say %s=%.40s, or write it in braces)", key->path,
             is_name                ? name
             : cJSON_IsString(item) ? item->valuestring
             : value != NULL        ? value
                                    : "VALUE");
    cJSON_free(value);
    return unexpected(o, item, "an object", cure, "%s", path);
}

static enum dt_status unknown_key(const struct object *o, const char *group, const char *name)
{
    char path[DT_CONFIG_PATH_SIZE], near[DT_CONFIG_PATH_SIZE], clipped[CLIPPED_SIZE];
    char names[MOST_NAMES][DT_NAME_SIZE], keys[240];
    const int n = names_in(o, group, names);
    struct dt_suggestion s = {.word = name};
    snprintf(path, sizeof path, "%s%s", group, clip(name, clipped));
    if (o->owner == NULL && strcmp(path, "extends") == 0) {
        return dt_config_error(&o->source, path, "only a file extends another (write it there)");
    }
    if (strchr(name, '.') != NULL) {
        return dt_config_error(&o->source, path,
                               "unknown key (write an object inside an object in place of a dot)");
    }
    size_t used = (size_t)snprintf(keys, sizeof keys, "%s", o->owner != NULL ? "type" : "");
    for (int i = 0; i < n; i++) {
        dt_suggest_offer(&s, names[i]);
        if (used < sizeof keys) {
            used += (size_t)snprintf(keys + used, sizeof keys - used, "%s%s", used == 0 ? "" : ", ",
                                     names[i]);
        }
    }
    if (s.best != NULL) {
        snprintf(near, sizeof near, "%s%s%s", o->source.prefix, group, s.best);
    } else {
        find_elsewhere(o, name, near);
    }
    if (near[0] != '\0') {
        return dt_config_error(&o->source, path, "unknown key (did you mean '%s'?)", near);
    }
    return dt_config_error(&o->source, path, "unknown key (%s%s%s)",
                           o->owner == NULL ? "" : o->owner,
                           o->owner == NULL ? "the keys here are: " : " has the keys: ", keys);
}

/* Keys that are no settings: a layer's type, read before; "$schema", which editors want at the top.
 */
static bool is_extra(const struct object *o, const char *group, const char *name)
{
    return group[0] == '\0' && strcmp(name, o->owner == NULL ? "$schema" : "type") == 0;
}

/* Groups nest three deep at most. */
static enum dt_status check_members(const struct object *o, const cJSON *item, const char *group)
{
    for (const cJSON *member = item->child; member != NULL; member = member->next) {
        char path[DT_CONFIG_PATH_SIZE];
        const int n = snprintf(path, sizeof path - 1, "%s%s", group, member->string);
        const bool fits = n > 0 && (size_t)n < sizeof path - 1 && member->string[0] != '\0' &&
                          strchr(member->string, '.') == NULL;
        const struct dt_key *key = fits ? key_at(o, path) : NULL;
        if (key == NULL && !is_extra(o, group, member->string)) {
            return unknown_key(o, group, member->string);
        }
        if (cJSON_GetObjectItemCaseSensitive(item, member->string) != member) {
            return dt_config_error(&o->source, path, "the key is given twice (remove one)");
        }
        if (key != NULL && key->path[n] == '.') {
            if (!cJSON_IsObject(member)) {
                return no_group(o, path, member);
            }
            strcat(path, ".");
            DT_TRY(check_members(o, member, path));
        }
    }
    return DT_OK;
}

/* ---- values */

static enum dt_status wrong_value(const struct object *o, const struct dt_key *key,
                                  const cJSON *item)
{
    char expected[DT_EXPECTED_SIZE];
    dt_key_expected(key, expected);
    return unexpected(o, item, expected, "", "%s", key->path);
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
    {"metric", "val_loss", "validation_loss"},
    {"metric", "val_accuracy", "validation_accuracy"},
    {"metric", "val_acc", "validation_accuracy"},
    {"best", "val_loss", "validation_loss"},
    {"best", "val_accuracy", "validation_accuracy"},
    {"type", "softmax", " (leave it out: the loss softmax_cross_entropy has it)"},
    {"activation", "softmax", " (leave it out: the loss softmax_cross_entropy has it)"},
};

static enum dt_status wrong_name(const struct object *o, const char *path, const char *names,
                                 const cJSON *item)
{
    const struct dt_key key = {.path = path, .kind = DT_KEY_ENUM, .values = names};
    struct dt_suggestion s = {.word = cJSON_IsString(item) ? item->valuestring : ""};
    char candidates[16][DT_NAME_SIZE], expected[DT_EXPECTED_SIZE], cure[96] = "";
    for (int i = 0; i < 16 && dt_names_get(names, i, candidates[i]); i++) {
        dt_suggest_offer(&s, candidates[i]);
    }
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++) {
        if (strcmp(other_names[i].key, dt_key_name(path)) == 0 &&
            strcasecmp(other_names[i].said, s.word) == 0) {
            s.best = other_names[i].meant;
        }
    }
    if (s.best != NULL) {
        snprintf(cure, sizeof cure, s.best[0] == ' ' ? "%s" : " (did you mean \"%s\"?)", s.best);
    }
    dt_key_expected(&key, expected);
    return unexpected(o, item, expected, cure, "%s", path);
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
            return unexpected(o, dim, "an integer 1..65536", "", "%s[%d]", key->path, i);
        }
        dims[i] = (int)dim->valuedouble;
    }
    *out = (struct dt_shape){dims[0], dims[1], dims[2]};
    return DT_OK;
}

static enum dt_status read_epochs(const struct object *o, const struct dt_key *key,
                                  const cJSON *item, struct dt_milestones *out)
{
    if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) > DT_MAX_MILESTONES) {
        return wrong_value(o, key, item);
    }
    double before = 0;
    for (const cJSON *epoch = item->child; epoch != NULL; epoch = epoch->next) {
        if (!cJSON_IsNumber(epoch) || !(epoch->valuedouble > before && epoch->valuedouble <= 1e6)) {
            return unexpected(o, epoch, "epochs in ascending order", " (such as [30, 60])",
                              "%s[%d]", key->path, out->n);
        }
        out->epochs[out->n++] = before = epoch->valuedouble;
    }
    return DT_OK;
}

static enum dt_status read_inputs(const struct object *o, const struct dt_key *key,
                                  const cJSON *item, struct dt_layer_inputs *out)
{
    const struct dt_range range = dt_range_parse(key->values);
    if (!cJSON_IsArray(item) || !dt_range_holds(&range, cJSON_GetArraySize(item))) {
        return wrong_value(o, key, item);
    }
    for (const cJSON *name = item->child; name != NULL; name = name->next) {
        if (!cJSON_IsString(name) || name->valuestring[0] == '\0' ||
            strlen(name->valuestring) >= DT_LAYER_NAME_SIZE) {
            return unexpected(o, name, "the name of a block", " (dtrain plan prints them)",
                              "%s[%d]", key->path, out->n);
        }
        snprintf(out->names[out->n++], DT_LAYER_NAME_SIZE, "%s", name->valuestring);
    }
    return DT_OK;
}

static enum dt_status read_names(const struct object *o, const struct dt_key *key,
                                 const cJSON *item, struct dt_texts *out)
{
    const struct dt_range range = dt_range_parse(key->values);
    if (!cJSON_IsArray(item) || !dt_range_holds(&range, cJSON_GetArraySize(item))) {
        return wrong_value(o, key, item);
    }
    for (const cJSON *name = item->child; name != NULL; name = name->next) {
        const char *text = cJSON_IsString(name) ? name->valuestring : "";
        char shown[DT_TEXTS_BYTES];
        if (text[0] == '\0' || dt_texts_find(out, text) >= 0 ||
            strcmp(dt_text_escape(text, shown, sizeof shown), text) != 0 ||
            !dt_texts_add(out, text)) {
            return unexpected(o, name, "a name, each once, 8 kB in all", "", "%s[%d]", key->path,
                              out->n);
        }
    }
    return DT_OK;
}

/* A number for each channel, or feature; *n: how many that are, or 0. */
static enum dt_status read_numbers(const struct object *o, const struct dt_key *key,
                                   const cJSON *object, const char *name, double least, int *n,
                                   double *out)
{
    char expected[96];
    const double most = dt_range_parse(key->values).high;
    const int n_most = dt_key_most(key);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, name);
    const int n_there = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    if (n_there < 1 || n_there > n_most || (*n > 0 && n_there != *n)) {
        snprintf(expected, sizeof expected, "a list of %s%d numbers, one for each channel",
                 *n > 0 ? "" : "1..", *n > 0 ? *n : n_most);
        return unexpected(o, list, expected, "", "%s.%s", key->path, name);
    }
    for (int i = 0; i < n_there; i++) {
        const cJSON *item = cJSON_GetArrayItem(list, i);
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= least && item->valuedouble <= most)) {
            snprintf(expected, sizeof expected, "a number %g..%g%s", least, most,
                     most == 1 ? ", where 1 is the brightest pixel" : "");
            return unexpected(o, item, expected, "", "%s.%s[%d]", key->path, name, i);
        }
        out[i] = item->valuedouble;
    }
    *n = n_there;
    return DT_OK;
}

static enum dt_status read_normalize(const struct object *o, const struct dt_key *key,
                                     const cJSON *item, struct dt_normalize *out)
{
    out->of_dataset = cJSON_IsString(item) && strcmp(item->valuestring, "dataset") == 0;
    if (out->of_dataset) {
        return DT_OK;
    }
    if (!cJSON_IsObject(item)) {
        return wrong_value(o, key, item);
    }
    for (const cJSON *member = item->child; member != NULL; member = member->next) {
        if ((strcmp(member->string, "mean") != 0 && strcmp(member->string, "std") != 0) ||
            cJSON_GetObjectItemCaseSensitive(item, member->string) != member) {
            return dt_config_error(&o->source, key->path,
                                   "has the keys mean and std, each once, not %.24s (remove it)",
                                   member->string);
        }
    }
    const struct dt_range range = dt_range_parse(key->values);
    DT_TRY(read_numbers(o, key, item, "mean", range.low, &out->n, out->mean));
    return read_numbers(o, key, item, "std", range.high == 1 ? 1e-6 : 1e-300, &out->n, out->std);
}

/* "balanced", or a number for each class. */
static enum dt_status read_weights(const struct object *o, const struct dt_key *key,
                                   const cJSON *item, struct dt_class_weights *out)
{
    const struct dt_range range = dt_range_parse(key->values);
    const bool balanced = cJSON_IsString(item) && strcmp(item->valuestring, "balanced") == 0;
    const cJSON *of = cJSON_IsArray(item) ? item->child : NULL;
    for (; of != NULL && out->n < DT_MOST_WEIGHTS && cJSON_IsNumber(of) &&
           dt_range_holds(&range, of->valuedouble);
         of = of->next) {
        out->of[out->n++] = of->valuedouble;
    }
    out->n = balanced ? DT_AUTO : out->n;
    return of == NULL && out->n != 0 ? DT_OK : wrong_value(o, key, item);
}

/* {"shift": 2}, {"flip": "horizontal"} or {"crop": {"padding": 4}} as change i. */
static enum dt_status read_change(const struct object *o, const struct dt_key *key, int i,
                                  const cJSON *item, struct dt_augment *out)
{
    static const char kinds[] = DT_AUGMENT_LIST(DT_BAR_NAME);
    const cJSON *value = cJSON_IsObject(item) ? item->child : NULL, *size = value;
    const int kind = value != NULL ? dt_names_find(kinds, value->string) : -1;
    const bool flips = kind == DT_AUGMENT_FLIP, crops = kind == DT_AUGMENT_CROP;
    if (kind < 0 || value->next != NULL) {
        return unexpected(
            o, item,
            "{\"shift\": 2}, {\"flip\": \"horizontal\"}, {\"crop\": {\"padding\": 4}}, "
            "{\"rotate\": 9} or {\"cutout\": 8}, one change each",
            "", "%s[%d]", key->path, i);
    }
    if (crops) {
        size = cJSON_GetArraySize(value) == 1 ? cJSON_GetObjectItemCaseSensitive(value, "padding")
                                              : NULL;
    }
    out->kind[i] = kind;
    if (flips ? !cJSON_IsString(value) || strcmp(value->valuestring, "horizontal") != 0
              : !is_integer(key, size)) {
        char expected[DT_EXPECTED_SIZE];
        const struct dt_range range = dt_range_parse(key->values);
        snprintf(expected, sizeof expected, "%san integer %.0f..%.0f%s",
                 crops ? "{\"padding\": " : "", range.low, range.high, crops ? "}" : "");
        return unexpected(o, value, flips ? "\"horizontal\"" : expected, "", "%s[%d].%s", key->path,
                          i, value->string);
    }
    out->size[i] = flips ? 0 : (int)size->valuedouble;
    return DT_OK;
}

static enum dt_status read_augment(const struct object *o, const struct dt_key *key,
                                   const cJSON *item, struct dt_augment *out)
{
    if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) > DT_MOST_AUGMENTS) {
        return wrong_value(o, key, item);
    }
    for (const cJSON *change = item->child; change != NULL; change = change->next) {
        DT_TRY(read_change(o, key, out->n, change, out));
        out->n++;
    }
    return DT_OK;
}

static enum dt_status read_layers(const struct object *o, const struct dt_key *key,
                                  const cJSON *item, struct dt_model_spec *out);

static enum dt_status read_value(const struct object *o, const struct dt_key *key,
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
    case DT_KEY_EPOCHS:
        return read_epochs(o, key, item, field);
    case DT_KEY_INPUTS:
        return read_inputs(o, key, item, field);
    case DT_KEY_NAMES:
        return read_names(o, key, item, field);
    case DT_KEY_NORMALIZE:
        return read_normalize(o, key, item, field);
    case DT_KEY_AUGMENT:
        return read_augment(o, key, item, field);
    case DT_KEY_WEIGHTS:
        return read_weights(o, key, item, field);
    }
    return DT_OK;
}

/* The schema has it as text; a test reads them all. */
static enum dt_status read_default(const struct object *o, const struct dt_key *key, void *base)
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
static enum dt_status read_key(const struct object *o, const struct dt_key *key,
                               const cJSON *object, void *base, const struct dt_config *config)
{
    const cJSON *item = dt_json_at(object, key->path);
    if (item != NULL && config != NULL && !dt_key_applies(key, config)) {
        return dt_config_error(&o->source, key->path, "has a meaning only with %s (remove it)",
                               key->when);
    }
    if (item != NULL) {
        return read_value(o, key, item, base);
    }
    if (key->default_text == NULL) {
        return wrong_value(o, key, NULL);
    }
    if (key->default_text[0] != '\0') {
        return read_default(o, key, base);
    }
    if (key->kind == DT_KEY_REAL) {
        *(double *)((unsigned char *)base + key->offset) = -1;
    }
    return DT_OK;
}

static enum dt_status read_keys(const struct object *o, const cJSON *object, void *base,
                                const struct dt_config *config)
{
    DT_TRY(check_members(o, object, ""));
    for (int k = 0; k < o->list.n; k++) {
        DT_TRY(read_key(o, &o->list.keys[k], object, base, config));
    }
    return DT_OK;
}

static enum dt_status read_layer(const struct object *whole, const struct dt_key *list, int i,
                                 const cJSON *item, struct dt_layer_spec *out)
{
    static const char names[] = DT_LAYER_LIST(DT_BAR_NAME);
    char prefix[DT_CONFIG_PATH_SIZE];
    struct object o = {.source = whole->source, .owner = "a layer"};
    snprintf(prefix, sizeof prefix, "%s[%d].", list->path, i);
    o.source.prefix = prefix;
    if (!cJSON_IsObject(item)) {
        return unexpected(whole, item, "an object such as {\"type\": \"flatten\"}", "", "%s[%d]",
                          list->path, i);
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

static enum dt_status read_layers(const struct object *o, const struct dt_key *key,
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
    const struct object o = {.source = *source, .list = dt_config_keys()};
    return cJSON_IsObject(root) ? read_keys(&o, root, out, out)
                                : unexpected(&o, root, "an object in braces", "", "%s", "");
}
