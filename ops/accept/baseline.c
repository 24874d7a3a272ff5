#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "ops/accept/accept.h"

#define MAX_BYTES ((size_t)4 << 20)

#define FIGURE(constant, check, name, unit, digits, old_key, less) \
    {DT_ACCEPT_##check, #check, name, unit, old_key, digits, less},
const struct dt_accept_figure dt_accept_figures[DT_ACCEPT_FIGURES] = {
    DT_ACCEPT_FIGURE_LIST(FIGURE)};

static const char cure[] = "give a file that dtrain accept --json wrote";

static enum dt_status parse(const char *path, cJSON **out)
{
    uint8_t *bytes;
    size_t n;
    struct dt_json_fault fault;
    DT_TRY(dt_file_read(path, MAX_BYTES, &bytes, &n));
    *out = dt_json_parse((const char *)bytes, n, &fault);
    free(bytes);
    if (*out == NULL && fault.problem != NULL) {
        return dt_error(DT_BAD_DATA, "%.300s:%zu:%zu: %s", path, fault.line, fault.column,
                        fault.problem);
    }
    return *out != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "no memory for %.300s", path);
}

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static bool is_text(const cJSON *item, const char *text)
{
    return cJSON_IsString(item) && strcmp(item->valuestring, text) == 0;
}

/* The item of `list` whose `key` is `text`, or NULL. */
static const cJSON *find(const cJSON *list, const char *key, const char *text)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        if (is_text(member(item, key), text)) {
            return item;
        }
    }
    return NULL;
}

/* The value of a figure of a document, such as "device" of the part "Record". */
static const cJSON *value_of(const cJSON *json, const char *part, const char *figure)
{
    const cJSON *figures = member(find(member(json, "parts"), "title", part), "figures");
    return member(member(figures, figure), "value");
}

/* DT_BAD_DATA if it was measured on another machine: a rank's rate says nothing about a rank that
 * shares its host with more. */
static enum dt_status check_place(const struct dt_acceptance *a, const char *path,
                                  const cJSON *device, const cJSON *each)
{
    const int n_each = dt_probe_on_host(a->ranks, a->world->size, 0);
    const char *name = a->device.backend->name;
    if (!cJSON_IsNumber(each) || !cJSON_IsString(device)) {
        return dt_error(DT_BAD_DATA, "%.300s: no baseline (%s)", path, cure);
    }
    if (!(each->valuedouble >= n_each && each->valuedouble <= n_each)) {
        return dt_error(DT_BAD_DATA,
                        "%.300s: was measured with %.0f ranks on a host, here are %d (start as "
                        "many, or measure a baseline with %d)",
                        path, each->valuedouble, n_each, n_each);
    }
    return is_text(device, name) ? DT_OK
                                 : dt_error(DT_BAD_DATA,
                                            "%.300s: was measured on the device \"%.20s\", here "
                                            "it is \"%s\" (measure a baseline on %s)",
                                            path, device->valuestring, name, name);
}

static enum dt_status take_figures(struct dt_acceptance *a, const char *path, const cJSON *json,
                                   bool old)
{
    int n = 0;
    for (int k = 0; k < DT_ACCEPT_FIGURES; k++) {
        const struct dt_accept_figure *f = &dt_accept_figures[k];
        const cJSON *item =
            old ? member(member(find(member(json, "rows"), "name", f->check_name), "figures"),
                         f->old_key)
                : value_of(json, "Figures", f->name);
        if (item == NULL || cJSON_IsNull(item)) {
            continue;
        }
        if (!cJSON_IsNumber(item) || !(item->valuedouble > 0) || !isfinite(item->valuedouble)) {
            return dt_error(DT_BAD_DATA, "%.300s: the %s is no measurement (%s)", path, f->name,
                            cure);
        }
        a->baseline[k] = item->valuedouble;
        n++;
    }
    return n > 0 ? DT_OK : dt_error(DT_BAD_DATA, "%.300s: has no figures (%s)", path, cure);
}

enum dt_status dt_accept_baseline_read(struct dt_acceptance *a, const char *path)
{
    cJSON *json;
    DT_TRY(parse(path, &json));
    const bool old = is_text(member(json, "kind"), "accept"), /* the older shape */
        new = is_text(member(json, "command"), "accept") && member(json, "parts") != NULL;
    enum dt_status s =
        old ? check_place(a, path, member(json, "device"), member(json, "ranks_per_host"))
            : check_place(a, path, new ? value_of(json, "Record", "device") : NULL,
                          new ? value_of(json, "Record", "ranks per host") : NULL);
    s = s == DT_OK ? take_figures(a, path, json, old) : s;
    cJSON_Delete(json);
    return s;
}

double dt_accept_bound(const struct dt_acceptance *a, int figure)
{
    return a->baseline[figure] *
           (dt_accept_figures[figure].less ? 1 + a->tolerance : 1 - a->tolerance);
}

void dt_accept_baseline_apply(const struct dt_acceptance *a, enum dt_accept_number check,
                              struct dt_finding *row)
{
    for (int k = 0; k < DT_ACCEPT_FIGURES; k++) {
        const struct dt_accept_figure *f = &dt_accept_figures[k];
        const double value = a->figures[k], bound = dt_accept_bound(a, k);
        if (f->check != check || isnan(bound) || isnan(value) || row->verdict == DT_VERDICT_FAIL) {
            continue;
        }
        if (f->less ? value <= bound : value >= bound) {
            row->verdict = DT_VERDICT_PASS;
            continue;
        }
        char found[sizeof row->text];
        memcpy(found, row->text, sizeof found);
        *row = dt_find(DT_VERDICT_FAIL,
                       "find what has changed since the baseline, or allow more: --tolerance",
                       "%s %.3g %s, more than %g %% worse than the baseline's %.3g; %.250s",
                       f->name, value, f->unit, 100 * a->tolerance, a->baseline[k], found);
    }
}
