#include "cli/config/read.h"

#define PATH_SIZE 128

/* The text of the differences, as many as fit. */
struct differences {
    char *text;
    size_t size, used;
    bool cut, no_memory;
};

static const char more[] = "; and more";

static void say(struct differences *d, const char *path, const cJSON *before, const cJSON *now)
{
    char *a = before != NULL ? cJSON_PrintUnformatted(before) : NULL;
    char *b = now != NULL ? cJSON_PrintUnformatted(now) : NULL;
    const size_t room = d->size - d->used - (sizeof more - 1);
    const int n = snprintf(d->text + d->used, room, "%s%s was %.60s, now it is %.60s",
                           d->used > 0 ? "; " : "", path, a != NULL ? a : "not there",
                           b != NULL ? b : "not there");
    d->no_memory = d->no_memory || (before != NULL && a == NULL) || (now != NULL && b == NULL);
    d->cut = n < 0 || (size_t)n >= room;
    if (d->cut) {
        snprintf(d->text + d->used, sizeof more, "%s", more);
    } else {
        d->used += (size_t)n;
    }
    cJSON_free(a);
    cJSON_free(b);
}

/* The child of `parent` with the key, or the index, of another's child; NULL: none. */
static const cJSON *child_like(const cJSON *parent, const cJSON *other, int index)
{
    return other->string != NULL ? cJSON_GetObjectItemCaseSensitive(parent, other->string)
                                 : cJSON_GetArrayItem(parent, index);
}

static void differ(struct differences *d, const char *path, const cJSON *before, const cJSON *now);

static void differ_at(struct differences *d, const char *path, const char *key, int index,
                      const cJSON *before, const cJSON *now)
{
    char below[2 * PATH_SIZE];
    if (key != NULL) {
        snprintf(below, sizeof below, "%.120s%s%.60s", path, path[0] != '\0' ? "." : "", key);
    } else {
        snprintf(below, sizeof below, "%.120s[%d]", path, index);
    }
    differ(d, below, before, now);
}

static void differ(struct differences *d, const char *path, const cJSON *before, const cJSON *now)
{
    const cJSON *a = before != NULL ? before->child : NULL, *b = now != NULL ? now->child : NULL;
    if (a == NULL || b == NULL) {
        if (!d->cut && before != now && !cJSON_Compare(before, now, 1)) {
            say(d, path, before, now);
        }
        return;
    }
    for (int i = 0; a != NULL; a = a->next, i++) {
        differ_at(d, path, a->string, i, a, child_like(now, a, i));
    }
    for (int i = 0; b != NULL; b = b->next, i++) { /* what is new comes last */
        if (child_like(before, b, i) == NULL) {
            differ_at(d, path, b->string, i, NULL, b);
        }
    }
}

enum dt_status dt_config_compare(const char *before, const char *now, const char *path, char *text,
                                 size_t size)
{
    struct differences d = {.text = text, .size = size};
    cJSON *a = cJSON_Parse(before), *b = a != NULL ? cJSON_Parse(now) : NULL;
    text[0] = '\0';
    d.no_memory = b == NULL;
    if (b != NULL) {
        differ(&d, path, dt_json_at(a, path), dt_json_at(b, path));
    }
    cJSON_Delete(a);
    cJSON_Delete(b);
    return d.no_memory ? dt_error(DT_NO_MEMORY, "out of memory for a comparison of configurations")
                       : DT_OK;
}
