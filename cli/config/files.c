/* The files that a configuration is made of: comments, and "extends". */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/config/read.h"
#include "cli/suggest.h"
#include "model/block.h"

#define MAX_BYTES ((size_t)1 << 20)
#define MOST_KEYS 256 /* of an object that is merged: comparing all pairs takes no time then */

static enum dt_status parse_text(const char *name, const char *text, size_t n_bytes, bool saved,
                                 cJSON **out)
{
    struct dt_json_fault fault = {0};
    if (n_bytes > MAX_BYTES) {
        return dt_error(DT_CONFIG, "%s: larger than 1 MiB (is this a configuration?)", name);
    }
    char *copy = malloc(n_bytes + 1);
    if (copy != NULL) {
        memcpy(copy, text, n_bytes);
        *out = saved ? dt_json_parse(copy, n_bytes, &fault)
                     : dt_json_parse_commented(copy, n_bytes, &fault);
        free(copy);
    }
    if (*out != NULL) {
        return DT_OK;
    }
    if (fault.problem == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: out of memory", name);
    }
    const char *suffix = strrchr(name, '.');
    if (suffix != NULL && (strcmp(suffix, ".yaml") == 0 || strcmp(suffix, ".yml") == 0 ||
                           strcmp(suffix, ".toml") == 0)) {
        return dt_error(DT_CONFIG, "%s: a configuration is JSON, not %s (dtrain init writes one)",
                        name, suffix[1] == 't' ? "TOML" : "YAML");
    }
    const char *kind =
        fault.line == 1 && fault.column == 1 && strncmp(fault.problem, "not ", 4) == 0
            ? dt_file_kind((const uint8_t *)text, n_bytes)
            : NULL;
    return kind != NULL ? dt_error(DT_CONFIG, "%s: no configuration; looks like %s", name, kind)
                        : dt_error(DT_CONFIG, "%s:%zu:%zu: %s", name, fault.line, fault.column,
                                   fault.problem);
}

/* A file that is merged gives no key twice; else the one that stays would depend on the order. */
static enum dt_status check_once(const char *name, const cJSON *item, const char *path)
{
    int n = 0;
    const cJSON *member;
    cJSON_ArrayForEach(member, item)
    {
        char below[DT_CONFIG_PATH_SIZE];
        if (cJSON_IsObject(item) && ++n > MOST_KEYS) {
            return dt_error(DT_CONFIG, "%s: %s%smore than %d keys (no configuration has so many)",
                            name, path, path[0] != '\0' ? ": " : "", MOST_KEYS);
        }
        const char *key = member->string != NULL ? member->string : "[]";
        snprintf(below, sizeof below, "%.80s%s%.60s", path, path[0] != '\0' ? "." : "", key);
        if (cJSON_IsObject(item) && cJSON_GetObjectItemCaseSensitive(item, key) != member) {
            return dt_error(DT_CONFIG, "%s: %s: the key is given twice (remove one)", name, below);
        }
        DT_TRY(check_once(name, member, below));
    }
    return DT_OK;
}

/* Takes "extends" out. The path is relative to the file. */
static enum dt_status take_base(const char *name, cJSON *tree, char base[DT_PATH_SIZE])
{
    base[0] = '\0';
    if (cJSON_GetObjectItemCaseSensitive(tree, "extends") == NULL) {
        return DT_OK;
    }
    DT_TRY(check_once(name, tree, ""));
    cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(tree, "extends");
    char found[DT_FOUND_SIZE];
    const char *slash = strrchr(name, '/'), *path = cJSON_IsString(item) ? item->valuestring : "";
    const int n_folder = slash != NULL && path[0] != '/' ? (int)(slash - name) + 1 : 0;
    const int n = snprintf(base, DT_PATH_SIZE, "%.*s%s", n_folder, name, path);
    dt_json_found(item, found);
    const bool fits = path[0] != '\0' && n < DT_PATH_SIZE;
    cJSON_Delete(item);
    return fits ? DT_OK
                : dt_error(DT_CONFIG,
                           "%s: extends: expected the path of a configuration, from this file's "
                           "folder, got %s",
                           name, found);
}

enum dt_status dt_config_files_add(struct dt_config_files *files, const char *name,
                                   const char *text, size_t n_bytes, bool saved,
                                   char base[DT_PATH_SIZE])
{
    cJSON *tree = NULL;
    DT_TRY(parse_text(name, text, n_bytes, saved, &tree));
    if (saved) { /* how it once added gradients binds nobody */
        cJSON_DeleteItemFromObjectCaseSensitive(tree, "comm");
    }
    files->files[files->n].tree = tree;
    snprintf(files->files[files->n++].name, DT_PATH_SIZE, "%s", name);
    const enum dt_status s = take_base(name, tree, base);
    if (s == DT_OK && files->n > 1 && !cJSON_IsObject(tree)) {
        return dt_error(DT_CONFIG, "%s: expected an object in braces, as %s extends it", name,
                        files->files[files->n - 2].name);
    }
    return s == DT_OK && files->n > 1 ? check_once(name, tree, "") : s;
}

void dt_config_files_close(struct dt_config_files *files)
{
    for (int i = 0; i < files->n; i++) {
        cJSON_Delete(files->files[i].tree);
    }
    files->n = 0;
}

/* ---- merging */

/* Lays `over` over `base`, two objects of which no key is there twice. False: out of memory. */
static bool merge(cJSON *base, const cJSON *over)
{
    const cJSON *member;
    cJSON_ArrayForEach(member, over)
    {
        dt_config_displace(base, member->string, over);
        cJSON *below = cJSON_GetObjectItemCaseSensitive(base, member->string);
        if (below != NULL && cJSON_IsNull(member)) {
            cJSON_DeleteItemFromObjectCaseSensitive(base, member->string);
        } else if (cJSON_IsObject(below) && cJSON_IsObject(member)) {
            if (!merge(below, member)) {
                return false;
            }
        } else {
            cJSON *copy = cJSON_Duplicate(member, true);
            cJSON_DeleteItemFromObjectCaseSensitive(base, member->string);
            if (copy == NULL || !cJSON_AddItemToObject(base, member->string, copy)) {
                cJSON_Delete(copy);
                return false;
            }
        }
    }
    return true;
}

/* NULL: out of memory. */
static cJSON *merge_all(const struct dt_config_files *files)
{
    cJSON *whole = cJSON_Duplicate(files->files[files->n - 1].tree, true);
    for (int i = files->n - 2; whole != NULL && i >= 0; i--) {
        if (!merge(whole, files->files[i].tree)) {
            cJSON_Delete(whole);
            whole = NULL;
        }
    }
    return whole;
}

enum dt_status dt_config_files_read(const struct dt_config_files *files, const char *const *sets,
                                    int n_sets, struct dt_config *out)
{
    const struct dt_config_source source = {files, sets, n_sets, ""};
    cJSON *whole = merge_all(files);
    if (whole == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: out of memory", files->files[0].name);
    }
    const enum dt_status s = dt_config_build(&source, whole, out);
    cJSON_Delete(whole);
    return s;
}

/* ---- reading */

static enum dt_status parse(const char *name, const char *text, size_t n_bytes, bool saved,
                            const char *const *sets, int n_sets, struct dt_config *out)
{
    struct dt_config_files files = {0};
    char base[DT_PATH_SIZE];
    enum dt_status s = dt_config_files_add(&files, name, text, n_bytes, saved, base);
    if (s == DT_OK && base[0] != '\0') {
        s = dt_error(DT_CONFIG, "%s: extends: only a file extends another (name one)", name);
    }
    s = s == DT_OK ? dt_config_files_read(&files, sets, n_sets, out) : s;
    dt_config_files_close(&files);
    return s;
}

enum dt_status dt_config_parse(const char *name, const char *text, size_t n_bytes,
                               const char *const *sets, int n_sets, struct dt_config *out)
{
    return parse(name, text, n_bytes, false, sets, n_sets, out);
}

static enum dt_status parse_saved(const char *name, const char *text, struct dt_config *out)
{
    return parse(name, text, strlen(text), true, NULL, 0, out);
}

const struct dt_config_format dt_config_json = {
    .write = dt_config_to_json, .read = parse_saved, .compare = dt_config_compare};

/* The file that may have been meant: of that folder, with a similar name. The error's text then has
 * it. */
static enum dt_status suggest_file(const char *path, enum dt_status status)
{
    const char *slash = strrchr(path, '/');
    const size_t n_folder = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    struct dt_suggestion s = {.word = path + n_folder};
    char folder[DT_PATH_SIZE], best[256] = "", after[DT_PATH_SIZE + 300];
    snprintf(folder, sizeof folder, "%.*s", (int)n_folder, path);
    DIR *dir = n_folder < sizeof folder ? opendir(n_folder > 0 ? folder : ".") : NULL;
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        const size_t n = strlen(entry->d_name);
        s.best = best[0] != '\0' ? best : NULL; /* a copy: the entry goes */
        if (n > 5 && n < sizeof best && strcmp(entry->d_name + n - 5, ".json") == 0) {
            dt_suggest_offer(&s, entry->d_name);
        }
        if (s.best == entry->d_name) {
            memcpy(best, entry->d_name, n + 1);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    snprintf(after, sizeof after, " (did you mean '%s%s'?)", folder, best);
    return best[0] != '\0' ? dt_error_around(status, "", after) : status;
}

/* Lowers the model to find layers that do not fit; errors name the file. */
static enum dt_status check_model(const char *path, const struct dt_config *config)
{
    struct dt_model model;
    const struct dt_shape in = config->model.input;
    char before[DT_PATH_SIZE], after[120] = "";
    snprintf(before, sizeof before, "%s: ", path);
    if (in.c == in.h && in.w <= 3) { /* as TensorFlow writes it */
        snprintf(after, sizeof after, "; model.input is [channels, height, width]: [%d, %d, %d]?",
                 in.w, in.c, in.h);
    }
    const enum dt_status s = dt_model_lower(&config->model, &model);
    return s == DT_OK ? DT_OK : dt_error_around(s, before, after);
}

/* That the file is none of those before. */
static enum dt_status check_circle(const struct dt_config_files *files, const char *path)
{
    struct stat now, before;
    const char *last = files->n > 0 ? files->files[files->n - 1].name : "";
    for (int i = 0; i < files->n && stat(path, &now) == 0; i++) {
        if (stat(files->files[i].name, &before) == 0 && before.st_dev == now.st_dev &&
            before.st_ino == now.st_ino) {
            return dt_error(DT_CONFIG, "%s: extends: a circle, %s extends it (remove one)", last,
                            path);
        }
    }
    return files->n < DT_CONFIG_MOST_FILES
               ? DT_OK
               : dt_error(DT_CONFIG, "%s: extends: more than %d files in a row (write fewer)", last,
                          DT_CONFIG_MOST_FILES);
}

/* The status of a configuration that is not there, or no file to read: a folder, say. */
static enum dt_status read_file(const struct dt_config_files *files, const char *path,
                                uint8_t **bytes, size_t *n_bytes)
{
    char before[DT_PATH_SIZE + 32];
    bool there = false;
    enum dt_status s = dt_file_read(path, MAX_BYTES, bytes, n_bytes);
    if (s == DT_NO_INPUT && dt_file_exists(path, &there) == DT_OK && !there) {
        s = suggest_file(path, s);
    }
    if (s == DT_BAD_DATA) { /* empty or too large: a wrong configuration, not wrong data */
        s = DT_CONFIG;
    }
    if (s == DT_OK || files->n == 0) {
        return s;
    }
    snprintf(before, sizeof before, "%s: extends: ", files->files[files->n - 1].name);
    return dt_error_around(s, before, "");
}

/* The file and those that it extends, one after the other. */
static enum dt_status read_files(const char *path, struct dt_config_files *files)
{
    char name[DT_PATH_SIZE], base[DT_PATH_SIZE];
    snprintf(base, sizeof base, "%s", path);
    do {
        uint8_t *bytes = NULL;
        size_t n_bytes = 0;
        snprintf(name, sizeof name, "%s", base);
        DT_TRY(check_circle(files, name));
        DT_TRY(read_file(files, name, &bytes, &n_bytes));
        const enum dt_status s =
            dt_config_files_add(files, name, (const char *)bytes, n_bytes, false, base);
        free(bytes);
        DT_TRY(s);
    } while (base[0] != '\0');
    return DT_OK;
}

enum dt_status dt_config_load(const char *path, const char *const *sets, int n_sets,
                              struct dt_config *out)
{
    struct dt_config_files files = {0};
    enum dt_status s =
        strlen(path) < DT_PATH_SIZE
            ? read_files(path, &files)
            : dt_error(DT_NO_INPUT, "%.60s...: the path is too long (at most %d bytes)", path,
                       DT_PATH_SIZE - 1);
    s = s == DT_OK ? dt_config_files_read(&files, sets, n_sets, out) : s;
    dt_config_files_close(&files);
    return s == DT_OK ? check_model(path, out) : s;
}
