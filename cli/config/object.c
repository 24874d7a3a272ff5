#include "cli/config/read.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "cli/suggest.h"

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

enum dt_status dt_config_unexpected(const struct dt_config_source *source, const char *path,
                                    const char *expected, const cJSON *item, const char *cure)
{
    char found[DT_FOUND_SIZE];
    dt_json_found(item, found);
    return dt_config_error(source, path, "expected %s, got %s%s", expected, found, cure);
}

/* The nearest key in the same group, else one of the same name elsewhere. `group` is "" or ends in
 * a dot. */
static void suggest_key(const struct dt_config_object *o, const char *group, const char *name,
                        char out[DT_CONFIG_PATH_SIZE])
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
        snprintf(out, DT_CONFIG_PATH_SIZE, "%s%s%s", o->source.prefix, group, s.best);
        return;
    }
    for (int i = 0; i < o->list.n; i++) {
        if (strcasecmp(dt_key_name(o->list.keys[i].path), name) == 0) {
            snprintf(out, DT_CONFIG_PATH_SIZE, "%s%s", o->source.prefix, o->list.keys[i].path);
            return;
        }
    }
    if (o->owner == NULL && dt_config_key_of(name) != NULL) {
        snprintf(out, DT_CONFIG_PATH_SIZE, "%s", dt_config_key_of(name));
    }
}

/* The first key at this path, or in the group of this path; NULL: neither. */
static const struct dt_key *key_at(const struct dt_config_object *o, const char *path)
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
static enum dt_status no_group(const struct dt_config_object *o, const char *path,
                               const cJSON *item)
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
    return dt_config_unexpected(&o->source, path, "an object", item, cure);
}

/* The keys of a group as "a, b, c". */
static void list_keys(const struct dt_config_object *o, const char *group, char *out, size_t n_out)
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

static enum dt_status unknown_key(const struct dt_config_object *o, const char *group,
                                  const char *name)
{
    char path[DT_CONFIG_PATH_SIZE], near[DT_CONFIG_PATH_SIZE], clipped[CLIPPED_SIZE], keys[240];
    snprintf(path, sizeof path, "%s%s", group, clip(name, clipped));
    if (o->owner == NULL && strcmp(path, "comm") == 0) {
        return dt_config_error(&o->source, path,
                               "the key is called distributed.allreduce now (rename it)");
    }
    if (o->owner == NULL && strcmp(path, "extends") == 0) {
        return dt_config_error(&o->source, path, "only a file extends another (write it there)");
    }
    if (strchr(name, '.') != NULL) {
        return dt_config_error(&o->source, path,
                               "unknown key (write an object inside an object in place of a dot)");
    }
    suggest_key(o, group, name, near);
    if (near[0] != '\0') {
        return dt_config_error(&o->source, path, "unknown key (did you mean '%s'?)", near);
    }
    list_keys(o, group, keys, sizeof keys);
    return dt_config_error(&o->source, path, "unknown key (%s%s%s)",
                           o->owner == NULL ? "" : o->owner,
                           o->owner == NULL ? "the keys here are: " : " has the keys: ", keys);
}

/* Keys that are no settings: a layer's type, read before; "$schema", which editors want at the top.
 */
static bool is_extra(const struct dt_config_object *o, const char *group, const char *name)
{
    return group[0] == '\0' && strcmp(name, o->owner == NULL ? "$schema" : "type") == 0;
}

/* Groups nest three deep at most. */
static enum dt_status check_members(const struct dt_config_object *o, const cJSON *item,
                                    const char *group)
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

enum dt_status dt_config_object_check(const struct dt_config_object *o, const cJSON *item)
{
    return check_members(o, item, "");
}
