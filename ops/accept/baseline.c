#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "ops/accept/outcome.h"
#include "report/record.h"

#define MAX_BYTES ((size_t)1 << 20)

static const char cure[] = "give a file that dtrain accept --json wrote";

static enum dt_status parse(const char *path, cJSON **out)
{
    uint8_t *bytes;
    size_t n;
    struct dt_json_fault fault;
    DT_TRY(dt_file_read(path, MAX_BYTES, &bytes, &n));
    const bool strict = dt_json_check((const char *)bytes, n, &fault);
    *out = strict ? cJSON_ParseWithLength((const char *)bytes, n) : NULL;
    free(bytes);
    if (!strict) {
        return dt_error(DT_BAD_DATA, "%.300s:%zu:%zu: %s", path, fault.line, fault.column,
                        fault.problem);
    }
    return *out != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "no memory for %.300s", path);
}

/* DT_BAD_DATA if it was measured on another machine: a rank's rate says nothing about a rank that
 * shares its host with more. */
static enum dt_status check_place(const struct dt_acceptance *a, const char *path,
                                  const cJSON *json)
{
    const cJSON *each = cJSON_GetObjectItemCaseSensitive(json, "ranks_per_host");
    const int n_each = dt_facts_on_host(a->ranks, a->world->size, 0);
    if (strcmp(dt_record_text(json, "kind"), "accept") != 0 || !cJSON_IsNumber(each)) {
        return dt_error(DT_BAD_DATA, "%.300s: no baseline (%s)", path, cure);
    }
    if (!(each->valuedouble >= n_each && each->valuedouble <= n_each)) {
        return dt_error(
            DT_BAD_DATA,
            "%.300s: was measured with %.0f ranks on a host, here are %d (measure one so)", path,
            each->valuedouble, n_each);
    }
    if (strcmp(dt_record_text(json, "device"), a->device.backend->name) != 0) {
        return dt_error(
            DT_BAD_DATA,
            "%.300s: was measured on the device \"%.20s\", here it is \"%s\" (measure one so)",
            path, dt_record_text(json, "device"), a->device.backend->name);
    }
    return DT_OK;
}

/* Reads a row's figures in order; negative: one is not a number. */
static int take_row(const cJSON *row, double values[DT_ACCEPT_FIGURES])
{
    int n = 0;
    const cJSON *figure;
    cJSON_ArrayForEach(figure, cJSON_GetObjectItemCaseSensitive(row, "figures"))
    {
        if (!cJSON_IsNumber(figure) || !(figure->valuedouble > 0) ||
            !isfinite(figure->valuedouble) || n == DT_ACCEPT_FIGURES) {
            return -1;
        }
        values[n++] = figure->valuedouble;
    }
    return n;
}

static enum dt_status take_rows(const char *path, const cJSON *json, struct dt_accept_baseline *out)
{
    int n_figures = 0;
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(json, "rows"))
    {
        for (int i = 0; i < DT_N_ACCEPT; i++) {
            const int n = strcmp(dt_record_text(row, "name"), dt_accept_checks[i].name) == 0
                              ? take_row(row, out->values[i])
                              : 0;
            if (n < 0) {
                return dt_error(DT_BAD_DATA, "%.300s: the figures of '%s' are no measurements (%s)",
                                path, dt_accept_checks[i].name, cure);
            }
            n_figures += n;
        }
    }
    return n_figures > 0 ? DT_OK : dt_error(DT_BAD_DATA, "%.300s: has no figures (%s)", path, cure);
}

enum dt_status dt_accept_baseline_read(const struct dt_acceptance *a, const char *path,
                                       struct dt_accept_baseline *out)
{
    cJSON *json;
    for (int i = 0; i < DT_N_ACCEPT * DT_ACCEPT_FIGURES; i++) {
        out->values[i / DT_ACCEPT_FIGURES][i % DT_ACCEPT_FIGURES] = (double)NAN;
    }
    DT_TRY(parse(path, &json));
    enum dt_status s = check_place(a, path, json);
    s = s == DT_OK ? take_rows(path, json, out) : s;
    cJSON_Delete(json);
    return s;
}

void dt_accept_baseline_apply(const struct dt_accept_baseline *baseline, int i,
                              struct dt_accept_row *row)
{
    for (int k = 0; k < DT_ACCEPT_FIGURES; k++) {
        const struct dt_accept_figure *f = &row->figures[k];
        const double then = baseline->values[i][k];
        const bool worse =
            f->less ? f->value * DT_ACCEPT_BASELINE > then : f->value < then * DT_ACCEPT_BASELINE;
        if (f->name[0] == '\0' || isnan(then) || row->verdict == DT_ACCEPT_FAIL) {
            continue;
        }
        row->verdict = dt_accept_verdict(!worse);
        if (worse) {
            char found[sizeof row->text];
            memcpy(found, row->text, sizeof found);
            dt_accept_say(row, DT_ACCEPT_FAIL,
                          "%s %.3g, %s %.3g of the baseline by more than a tenth; %.250s", f->name,
                          f->value, f->less ? "above" : "below", then, found);
        }
    }
}
