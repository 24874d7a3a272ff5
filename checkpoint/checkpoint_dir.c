#include "checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

void dt_checkpoint_name(uint64_t step, char name[DT_CHECKPOINT_NAME_SIZE])
{
    snprintf(name, DT_CHECKPOINT_NAME_SIZE, "step-%012llu.safetensors", (unsigned long long)step);
    DT_ASSERT(strlen(name) < DT_CHECKPOINT_NAME_SIZE - 1);
}

static enum dt_status path_in(const char *dir, const char *name, char path[DT_CHECKPOINT_PATH_SIZE])
{
    if (snprintf(path, DT_CHECKPOINT_PATH_SIZE, "%s/%s", dir, name) >= DT_CHECKPOINT_PATH_SIZE) {
        return dt_error(DT_CANT_CREATE, "%.80s...: the path is too long (at most %d characters)",
                        dir, DT_CHECKPOINT_PATH_SIZE);
    }
    return DT_OK;
}

enum dt_status dt_checkpoint_path(const char *dir, uint64_t step,
                                  char path[DT_CHECKPOINT_PATH_SIZE])
{
    char name[DT_CHECKPOINT_NAME_SIZE];
    dt_checkpoint_name(step, name);
    return path_in(dir, name, path);
}

enum dt_status dt_checkpoint_best_path(const char *dir, char path[DT_CHECKPOINT_PATH_SIZE])
{
    return path_in(dir, DT_CHECKPOINT_BEST, path);
}

/* Accepts only names that dt_checkpoint_name makes: "step-7.safetensors" is another program's
 * file. */
static bool parse_name(const char *name, uint64_t *step)
{
    unsigned long long value;
    char again[DT_CHECKPOINT_NAME_SIZE];
    if (sscanf(name, "step-%20llu", &value) != 1) {
        return false;
    }
    dt_checkpoint_name(value, again);
    *step = value;
    return strcmp(name, again) == 0;
}

static int compare_newest_first(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

static enum dt_status read_steps(DIR *folder, const char *dir, uint64_t **steps, size_t *n_steps)
{
    size_t capacity = 0;
    const struct dirent *entry;
    while (errno = 0, (entry = readdir(folder)) != NULL) {
        uint64_t step;
        if (!parse_name(entry->d_name, &step)) {
            continue;
        }
        DT_ASSERT(*n_steps <= capacity);
        if (*n_steps == capacity) {
            capacity = capacity == 0 ? 16 : 2 * capacity;
            uint64_t *more = realloc(*steps, capacity * sizeof **steps);
            if (more == NULL) {
                return dt_error(DT_NO_MEMORY, "%s: out of memory for the list of checkpoints", dir);
            }
            *steps = more;
        }
        (*steps)[(*n_steps)++] = step;
    }
    return errno == 0 ? DT_OK : dt_error_errno(DT_IO, "%s: the folder cannot be read", dir);
}

enum dt_status dt_checkpoint_list(const char *dir, uint64_t **steps, size_t *n_steps)
{
    *steps = NULL;
    *n_steps = 0;
    DIR *folder = opendir(dir);
    if (folder == NULL && errno == ENOENT) {
        return DT_OK;
    }
    if (folder == NULL) {
        return dt_error_errno(errno == EACCES ? DT_NO_PERMISSION : DT_IO, "%s", dir);
    }
    const enum dt_status status = read_steps(folder, dir, steps, n_steps);
    closedir(folder);
    if (status != DT_OK) {
        free(*steps);
        *steps = NULL;
        *n_steps = 0;
    } else if (*n_steps > 1) {
        qsort(*steps, *n_steps, sizeof **steps, compare_newest_first);
    }
    return status;
}

static void remove_from(const char *dir, const char *name)
{
    const int folder = dt_dir_open_real(dir);
    if (folder >= 0) {
        unlinkat(folder, name, 0);
        close(folder);
    }
}

enum dt_status dt_checkpoint_prune(const char *dir, uint64_t newest, int keep)
{
    DT_ASSERT(keep >= 1);
    uint64_t *steps;
    size_t n_steps;
    DT_TRY(dt_checkpoint_list(dir, &steps, &n_steps));
    int n_kept = 0;
    for (size_t i = 0; i < n_steps; i++) {
        DT_ASSERT(i == 0 || steps[i - 1] > steps[i]);
        if (steps[i] <= newest && ++n_kept > keep) {
            char name[DT_CHECKPOINT_NAME_SIZE];
            dt_checkpoint_name(steps[i], name);
            remove_from(dir, name);
        }
    }
    free(steps);
    return DT_OK;
}

static bool is_checkpoint(const char *name)
{
    uint64_t step;
    return parse_name(name, &step) || strcmp(name, DT_CHECKPOINT_BEST) == 0;
}

void dt_checkpoint_sweep(const char *dir)
{
    dt_dir_sweep(dir, is_checkpoint);
}

/* ---- the newest one */

/* True if damaged, unreadable, or no checkpoint despite its name: an older one may be usable. */
static bool is_passed_over(enum dt_status status)
{
    return status == DT_BAD_DATA || status == DT_IO || status == DT_NO_INPUT;
}

static enum dt_status open_judged(const char *path, const struct dt_checkpoint_judge *judge,
                                  struct dt_checkpoint_file *out)
{
    DT_TRY(dt_checkpoint_open(path, out));
    const enum dt_status status =
        judge->check != NULL ? judge->check(judge->context, path, out) : DT_OK;
    if (status != DT_OK) {
        dt_checkpoint_close(out);
    }
    DT_ASSERT((status == DT_OK) == (out->content != NULL));
    return status;
}

enum dt_status dt_checkpoint_newest(const char *dir, const struct dt_checkpoint_judge *judge,
                                    char path[DT_CHECKPOINT_PATH_SIZE],
                                    struct dt_checkpoint_file *out)
{
    DT_ASSERT(judge->on_damaged != NULL);
    uint64_t *steps;
    size_t n_steps;
    path[0] = '\0';
    memset(out, 0, sizeof *out);
    DT_TRY(dt_checkpoint_list(dir, &steps, &n_steps));
    enum dt_status status = DT_OK;
    bool all_read = true;
    for (size_t i = 0; i < n_steps; i++) {
        DT_ASSERT(i == 0 || steps[i - 1] > steps[i]);
        status = dt_checkpoint_path(dir, steps[i], path);
        if (status == DT_OK) {
            status = open_judged(path, judge, out);
        }
        if (!is_passed_over(status)) {
            break;
        }
        all_read = all_read && status == DT_BAD_DATA;
        judge->on_damaged(judge->context, dt_error_text());
        dt_error_clear();
        path[0] = '\0';
    }
    free(steps);
    if (is_passed_over(status) && all_read) {
        status = dt_error(DT_BAD_DATA,
                          "%s: all %zu checkpoints are damaged (remove them to start afresh)", dir,
                          n_steps);
    } else if (is_passed_over(status)) { /* it may be whole: nobody is to remove it */
        status = dt_error(DT_IO,
                          "%s: none of %zu checkpoints can be used, and not all can be read (mend "
                          "what the warnings tell of, and resume again)",
                          dir, n_steps);
    }
    DT_ASSERT(status != DT_OK || (path[0] != '\0') == (out->content != NULL));
    return status;
}
