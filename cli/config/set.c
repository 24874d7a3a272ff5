#include "cli/config/read.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

#define SEGMENT_SIZE 64

static enum dt_status no_memory(void)
{
    return dt_error(DT_NO_MEMORY, "--set: out of memory");
}

static enum dt_status make_value(const char *text, cJSON **out)
{
    struct dt_json_fault fault;
    const size_t n = strlen(text);
    if (!dt_text_is_clean(text, n)) {
        return dt_error(
            DT_USAGE,
            "--set: the value holds control characters or invalid UTF-8 (write it in plain text)");
    }
    *out = dt_json_parse(text, n, &fault);
    if (*out == NULL && fault.problem != NULL) {
        *out = cJSON_CreateString(text);
    }
    return *out == NULL ? no_memory() : DT_OK;
}

/* Element number `segment` of a list, written as messages write it: what errors say of
 * "model.layers[0]" is to be found in the set.
 */
static enum dt_status find_element(cJSON *list, const char *segment, const char *path, int n_path,
                                   cJSON **out)
{
    char *end;
    const int n = cJSON_GetArraySize(list);
    const unsigned long index = strtoul(segment, &end, 10);
    if (segment[0] < '0' || segment[0] > '9' || (segment[0] == '0' && segment[1] != '\0') ||
        *end != '\0') {
        return dt_error(DT_USAGE, "--set: %.*s: expected an index from 0 to %d, got '%s'", n_path,
                        path, n - 1, segment);
    }
    if (index >= (unsigned long)n) {
        return dt_error(DT_USAGE, "--set: %.*s: index %s is out of range (0 to %d)", n_path, path,
                        segment, n - 1);
    }
    *out = cJSON_GetArrayItem(list, (int)index);
    return DT_OK;
}

/* The child of `node` named `segment`, made as an empty object if the node has none. */
static enum dt_status descend(cJSON *node, const char *segment, const char *path, int n_path,
                              cJSON **out)
{
    if (cJSON_IsArray(node)) {
        return find_element(node, segment, path, n_path, out);
    }
    if (!cJSON_IsObject(node)) {
        char found[DT_FOUND_SIZE];
        dt_json_found(node, found);
        return dt_error(DT_USAGE, "--set: %.*s is %s and has no key '%s' (set it as a whole)",
                        n_path, path, found, segment);
    }
    *out = cJSON_GetObjectItemCaseSensitive(node, segment);
    if (*out == NULL) {
        *out = cJSON_AddObjectToObject(node, segment);
    }
    return *out == NULL ? no_memory() : DT_OK;
}

/* Puts `value` where `place` is, a child of `parent`. Takes over `value`. */
static enum dt_status replace(cJSON *parent, cJSON *place, cJSON *value)
{
    if (cJSON_IsObject(parent)) {
        value->string = strdup(place->string);
        if (value->string == NULL) {
            cJSON_Delete(value);
            return no_memory();
        }
    }
    cJSON_ReplaceItemViaPointer(parent, place, value);
    return DT_OK;
}

void dt_config_displace(cJSON *object, const char *name, const cJSON *with)
{
    static const char *const pairs[] = {"per_rank", "global"};
    for (int i = 0; i < 2; i++) {
        const char *other = pairs[1 - i];
        if (strcmp(name, pairs[i]) == 0 && cJSON_IsObject(object) &&
            cJSON_GetObjectItemCaseSensitive(with, other) == NULL) {
            cJSON_DeleteItemFromObjectCaseSensitive(object, other);
        }
    }
}

/* The next part of a path: up to a dot, or in brackets; returns how many bytes that takes, with
 * what ends it. 0: it is none. */
static size_t next_segment(const char *at, char out[SEGMENT_SIZE])
{
    const bool index = at[0] == '[';
    const size_t n = index ? strcspn(at + 1, "].=") : strcspn(at, "[.=");
    const size_t n_all = index ? n + 2 : n;
    if (n == 0 || n >= SEGMENT_SIZE ||
        (index && (at[n + 1] != ']' || strchr(".[=", at[n + 2]) == NULL)) ||
        !dt_text_is_clean(at + index, n)) {
        return 0;
    }
    memcpy(out, at + index, n);
    out[n] = '\0';
    return n_all + (at[n_all] == '.');
}

enum dt_status dt_config_set(cJSON *root, const char *text)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text) {
        return dt_error(
            DT_USAGE,
            "--set: expected key.path=value, got '%.60s' (for example --set train.epochs=1)", text);
    }
    cJSON *parent = NULL, *place = root, *value = NULL;
    char segment[SEGMENT_SIZE];
    int depth = 0;
    for (const char *at = text; at < equals; depth++) {
        const size_t n = next_segment(at, segment);
        if (n == 0 || depth >= DT_JSON_DEPTH) {
            return dt_error(DT_USAGE, "--set: '%.60s' is no key path (for example train.epochs)",
                            text);
        }
        parent = place;
        DT_TRY(descend(parent, segment, text, (int)(at - text) - (at > text && at[-1] == '.'),
                       &place));
        at += n;
        if (at == equals && at[-1] == '.') {
            return dt_error(DT_USAGE, "--set: '%.60s' is no key path (it ends in a dot)", text);
        }
    }
    DT_TRY(make_value(equals + 1, &value));
    dt_config_displace(parent, segment, NULL);
    return replace(parent, place, value);
}
