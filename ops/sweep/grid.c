#include "ops/sweep/grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* End of a value: a comma outside of brackets and strings, or the end of the text. */
static const char *value_end(const char *text)
{
    int depth = 0;
    bool in_string = false;
    for (; *text != '\0' && (*text != ',' || depth > 0 || in_string); text++) {
        if (in_string && *text == '\\' && text[1] != '\0') {
            text++;
        } else if (*text == '"') {
            in_string = !in_string;
        } else if (!in_string) {
            depth += *text == '[' || *text == '{';
            depth -= (*text == ']' || *text == '}') && depth > 0;
        }
    }
    return text;
}

static enum dt_status add_value(struct dt_axis *axis, const char *set, const char *value, size_t n)
{
    const size_t n_key = strlen(axis->key);
    if (n == 0) {
        return dt_error(DT_USAGE, "--set %.200s: an empty value (write KEY=VALUE,VALUE...)", set);
    }
    char *text = malloc(n_key + n + 2);
    if (text == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the runs of a sweep");
    }
    snprintf(text, n_key + n + 2, "%s=%.*s", axis->key, (int)n, value);
    axis->texts[axis->n++] = text;
    return DT_OK;
}

static enum dt_status read_axis(const char *set, struct dt_axis *out)
{
    const size_t n_key = strcspn(set, "=");
    size_t most = 1; /* values */
    if (n_key == 0 || set[n_key] == '\0' || n_key >= sizeof out->key) {
        return dt_error(DT_USAGE, "--set %.200s: not of the form KEY=VALUE,VALUE...", set);
    }
    snprintf(out->key, sizeof out->key, "%.*s", (int)n_key, set);
    for (const char *c = set + n_key; *c != '\0'; c++) {
        most += *c == ',';
    }
    out->texts = calloc(most, sizeof *out->texts);
    if (out->texts == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the runs of a sweep");
    }
    for (const char *value = set + n_key + 1;; value++) {
        const char *end = value_end(value);
        DT_TRY(add_value(out, set, value, (size_t)(end - value)));
        if (*end == '\0') {
            return DT_OK;
        }
        value = end;
    }
}

static enum dt_status read_axes(const char *const *sets, int n_sets, struct dt_sweep_grid *out)
{
    out->n_runs = 1;
    for (int i = 0; i < n_sets; i++) {
        struct dt_axis *axis = &out->axes[out->n_axes++];
        DT_TRY(read_axis(sets[i], axis));
        for (int k = 0; k < i; k++) {
            if (strcmp(out->axes[k].key, axis->key) == 0) {
                return dt_error(DT_USAGE,
                                "--set %s is given twice (list its values in one: %s=A,B)",
                                axis->key, axis->key);
            }
        }
        if (axis->n > DT_SWEEP_MAX_RUNS / out->n_runs) {
            return dt_error(DT_USAGE, "more than %d runs (list fewer values)", DT_SWEEP_MAX_RUNS);
        }
        out->n_runs *= axis->n;
    }
    return DT_OK;
}

enum dt_status dt_grid_open(const char *const *sets, int n_sets, struct dt_sweep_grid *out)
{
    *out = (struct dt_sweep_grid){.axes = calloc((size_t)n_sets + 1, sizeof *out->axes)};
    const enum dt_status s = out->axes != NULL
                                 ? read_axes(sets, n_sets, out)
                                 : dt_error(DT_NO_MEMORY, "out of memory for the runs of a sweep");
    if (s != DT_OK) {
        dt_grid_close(out);
    }
    return s;
}

void dt_grid_close(struct dt_sweep_grid *grid)
{
    for (int a = 0; a < grid->n_axes; a++) {
        for (int i = 0; i < grid->axes[a].n; i++) {
            free(grid->axes[a].texts[i]);
        }
        free(grid->axes[a].texts);
    }
    free(grid->axes);
    *grid = (struct dt_sweep_grid){0};
}

int dt_grid_value(const struct dt_sweep_grid *grid, int run, int axis)
{
    for (int a = grid->n_axes - 1; a > axis; a--) {
        run /= grid->axes[a].n;
    }
    return run % grid->axes[axis].n;
}

void dt_grid_sets(const struct dt_sweep_grid *grid, int run, const char **sets)
{
    for (int a = 0; a < grid->n_axes; a++) {
        sets[a] = grid->axes[a].texts[dt_grid_value(grid, run, a)];
    }
}
