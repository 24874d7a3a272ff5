#include "cli/config_diff.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define PATH_SIZE 128

static const cJSON *find(const cJSON *tree, const char *path)
{
    char key[PATH_SIZE];
    while (tree != NULL && *path != '\0') {
        const size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        tree = cJSON_GetObjectItemCaseSensitive(tree, key);
        path += n + (path[n] == '.');
    }
    return tree;
}

static void say(const char *path, const cJSON *before, const cJSON *now, char *text, size_t size)
{
    char *a = before != NULL ? cJSON_PrintUnformatted(before) : NULL;
    char *b = now != NULL ? cJSON_PrintUnformatted(now) : NULL;
    snprintf(text, size, "%s was %.60s, now it is %.60s", path, a != NULL ? a : "not there", b != NULL ? b : "not there");
    cJSON_free(a);
    cJSON_free(b);
}

/* The first leaf that differs; resolved configurations have their keys in one order, so children are compared in pairs. */
static bool differ(const char *path, const cJSON *before, const cJSON *now, char *text, size_t size)
{
    const cJSON *a = before != NULL ? before->child : NULL, *b = now != NULL ? now->child : NULL;
    if (a == NULL || b == NULL) {
        if (before == now || cJSON_Compare(before, now, 1)) { /* both missing, or both alike */
            return false;
        }
        say(path, before, now, text, size);
        return true;
    }
    for (int i = 0; a != NULL || b != NULL; i++) {
        char below[2 * PATH_SIZE];
        const char *key = a != NULL ? a->string : b->string;
        if (key != NULL) {
            snprintf(below, sizeof below, "%.120s.%.60s", path, key);
        } else {
            snprintf(below, sizeof below, "%.120s[%d]", path, i);
        }
        if (differ(below, a, b, text, size)) {
            return true;
        }
        a = a != NULL ? a->next : NULL;
        b = b != NULL ? b->next : NULL;
    }
    return false;
}

bool dt_config_differs(const char *before, const char *now, const char *path, char *text, size_t size)
{
    cJSON *a = cJSON_Parse(before), *b = cJSON_Parse(now);
    const bool different = differ(path, find(a, path), find(b, path), text, size);
    cJSON_Delete(a);
    cJSON_Delete(b);
    return different;
}
