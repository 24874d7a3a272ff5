#include "data/formats/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"

#define MOST_NAMED 6
#define MOST_TRIED 64 /* folders of one folder */

static enum dt_status no_memory(const char *path)
{
    return dt_error(DT_NO_MEMORY, "%s: no memory for the names in it", path);
}

enum dt_status dt_names_add(const char *path, const char *name, struct dt_names *out)
{
    if (out->n == out->room) {
        out->room = 2 * out->room + 64;
        char **grown = realloc(out->at, out->room * sizeof *grown);
        if (grown == NULL) {
            return no_memory(path);
        }
        out->at = grown;
    }
    out->at[out->n] = strdup(name);
    return out->at[out->n++] != NULL ? DT_OK : no_memory(path);
}

int dt_names_index(const struct dt_names *names, const char *name)
{
    int i = (int)names->n - 1;
    while (i >= 0 && strcmp(names->at[i], name) != 0) {
        i--;
    }
    return i;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void dt_names_sort(struct dt_names *names)
{
    if (names->n > 1) {
        qsort(names->at, names->n, sizeof *names->at, by_name);
    }
}

void dt_names_close(struct dt_names *names)
{
    for (size_t i = 0; i < names->n; i++) {
        free(names->at[i]);
    }
    free(names->at);
    *names = (struct dt_names){0};
}

bool dt_folder_is_there(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool is_folder(const char *path, const struct dirent *entry)
{
    char below[DT_PATH_SIZE];
    return entry->d_type == DT_DIR ||
           ((entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN) &&
            snprintf(below, sizeof below, "%s/%s", path, entry->d_name) < DT_PATH_SIZE &&
            dt_folder_is_there(below));
}

enum dt_status dt_folder_list(const char *path, struct dt_names *files, struct dt_names *folders)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return errno == ENOENT || errno == ENOTDIR
                   ? dt_error(DT_NO_INPUT, "%s: no such folder", path)
                   : dt_error_errno(errno == EACCES ? DT_NO_PERMISSION : DT_IO, "%s", path);
    }
    enum dt_status s = DT_OK;
    for (const struct dirent *entry; s == DT_OK && (entry = readdir(folder)) != NULL;) {
        const char *name = entry->d_name;
        if (name[0] != '.' && strcmp(name, "__MACOSX") != 0 && strcmp(name, "@eaDir") != 0) {
            struct dt_names *to = is_folder(path, entry) ? folders : files;
            s = to != NULL ? dt_names_add(path, name, to) : DT_OK;
        }
    }
    closedir(folder);
    for (int i = 0; i < 2; i++) {
        struct dt_names *names = i == 0 ? files : folders;
        if (s == DT_OK && names != NULL) {
            dt_names_sort(names);
        }
    }
    return s;
}

void dt_names_some(const struct dt_names *names, char text[DT_SOME_NAMES_SIZE])
{
    const size_t n = names->n < MOST_NAMED ? names->n : MOST_NAMED;
    size_t used = (size_t)snprintf(text, DT_SOME_NAMES_SIZE, "%s", names->n > 0 ? "" : "nothing");
    for (size_t i = 0; i < n; i++) {
        const bool cut = strlen(names->at[i]) > 30;
        used += (size_t)snprintf(text + used, DT_SOME_NAMES_SIZE - used, "%s%.30s%s",
                                 i > 0 ? ", " : "", names->at[i], cut ? "..." : "");
    }
    if (names->n > n) {
        snprintf(text + used, DT_SOME_NAMES_SIZE - used, " and %zu more", names->n - n);
    }
}

/* One of the folders in `dir` that is right, or one in these. */
static bool find_below(const char *dir, bool (*is_right)(const char *dir), int depth,
                       char out[DT_PATH_SIZE])
{
    struct dt_names folders = {0};
    bool found = false;
    if (dt_folder_list(dir, NULL, &folders) != DT_OK) {
        dt_error_clear();
    }
    for (int deeper = 0; deeper < depth && !found; deeper++) {
        for (size_t i = 0; i < folders.n && i < MOST_TRIED && !found; i++) {
            char below[DT_PATH_SIZE];
            found = snprintf(below, sizeof below, "%s/%s", dir, folders.at[i]) < DT_PATH_SIZE &&
                    (deeper == 0 ? is_right(below) : find_below(below, is_right, 1, out));
            if (found && deeper == 0) {
                memcpy(out, below, sizeof below);
            }
        }
    }
    dt_names_close(&folders);
    return found;
}

static bool find_above(const char *dir, bool (*is_right)(const char *dir), char out[DT_PATH_SIZE])
{
    return snprintf(out, DT_PATH_SIZE, "%s/..", dir) < DT_PATH_SIZE && is_right(out);
}

enum dt_status dt_folder_refuse(const char *dir, const char *lacks,
                                bool (*is_right)(const char *dir), const char *cure)
{
    char right[DT_PATH_SIZE], some[DT_SOME_NAMES_SIZE];
    struct dt_names there = {0};
    struct stat info;
    if (stat(dir, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return dt_error(DT_NO_INPUT, "%s: %s (%s)", dir,
                        stat(dir, &info) == 0 ? "a file, and no folder" : "no such folder", cure);
    }
    enum dt_status s = dt_folder_list(dir, &there, &there);
    dt_names_some(&there, some);
    dt_names_close(&there);
    DT_TRY(s);
    if (find_below(dir, is_right, 2, right) || find_above(dir, is_right, right)) {
        return dt_error(DT_NO_INPUT, "%s: %s, but %s (say --data %s, or set data.dir to it)", dir,
                        lacks, some, right);
    }
    return dt_error(DT_NO_INPUT, "%s: %s, but %s (%s)", dir, lacks, some, cure);
}
