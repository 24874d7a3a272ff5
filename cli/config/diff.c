#include "cli/config/read.h"

#define PATH_SIZE 128

/* The text of the first difference. */
struct difference {
    char *text;
    size_t size;
    bool no_memory;
};

static void say(struct difference *d, const char *path, const cJSON *before, const cJSON *now)
{
    char *a = before != NULL ? cJSON_PrintUnformatted(before) : NULL;
    char *b = now != NULL ? cJSON_PrintUnformatted(now) : NULL;
    d->no_memory = (before != NULL && a == NULL) || (now != NULL && b == NULL);
    snprintf(d->text, d->size, "%s was %.60s, now it is %.60s", path, a != NULL ? a : "not there",
             b != NULL ? b : "not there");
    cJSON_free(a);
    cJSON_free(b);
}

/* The first leaf that differs; resolved configurations have their keys in one order, so children
 * are compared in pairs. */
static bool differ(struct difference *d, const char *path, const cJSON *before, const cJSON *now)
{
    const cJSON *a = before != NULL ? before->child : NULL, *b = now != NULL ? now->child : NULL;
    if (a == NULL || b == NULL) {
        if (before == now || cJSON_Compare(before, now, 1)) { /* both missing, or both alike */
            return false;
        }
        say(d, path, before, now);
        return true;
    }
    for (int i = 0; a != NULL || b != NULL; i++) {
        char below[2 * PATH_SIZE];
        const char *key = a != NULL ? a->string : b->string;
        if (key != NULL) {
            snprintf(below, sizeof below, "%.120s%s%.60s", path, path[0] != '\0' ? "." : "", key);
        } else {
            snprintf(below, sizeof below, "%.120s[%d]", path, i);
        }
        if (differ(d, below, a, b)) {
            return true;
        }
        a = a != NULL ? a->next : NULL;
        b = b != NULL ? b->next : NULL;
    }
    return false;
}

enum dt_status dt_config_compare(const char *before, const char *now, const char *path, char *text,
                                 size_t size)
{
    struct difference d = {.text = text, .size = size};
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
