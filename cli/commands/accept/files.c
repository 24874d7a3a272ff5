/* The rows as JUnit's XML, for what runs tests, and as JSON, for a later run as its baseline. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/version.h"
#include "cli/commands/accept/outcome.h"
#include "cli/commands/bench.h"
#include "cli/page/page.h"

static void put_case(FILE *out, const struct dt_accept_outcome *outcome, int i)
{
    const struct dt_accept_row *row = &outcome->rows[i];
    fprintf(out, "  <testcase classname=\"dtrain.accept\" name=\"%s\" time=\"%.3f\">", dt_accept_names[i], outcome->seconds[i]);
    fputs(row->passed ? "<system-out>" : "<failure message=\"", out);
    dt_page_text(out, row->text);
    fputs(row->passed ? "</system-out></testcase>\n" : "\"/></testcase>\n", out);
}

enum dt_status dt_accept_write_junit(const char *path, const struct dt_accept_outcome *outcome)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (out == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for %.200s", path);
    }
    fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"dtrain accept %s\" tests=\"%d\" failures=\"%d\">\n",
            dt_version, outcome->n_done, outcome->n_failed);
    for (int i = 0; i < outcome->n_done; i++) {
        put_case(out, outcome, i);
    }
    fputs("</testsuite>\n", out);
    const enum dt_status s = fclose(out) == 0 ? dt_file_write_path(path, &(struct dt_file_part){text, n}, 1)
                                              : dt_error(DT_NO_MEMORY, "no memory for %.200s", path);
    free(text);
    return s;
}

static cJSON *row_json(const struct dt_accept_outcome *outcome, int i)
{
    const struct dt_accept_row *row = &outcome->rows[i];
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", dt_accept_names[i]);
    cJSON_AddBoolToObject(json, "passed", row->passed);
    cJSON_AddNumberToObject(json, "seconds", outcome->seconds[i]);
    cJSON_AddStringToObject(json, "text", row->text);
    cJSON *figures = cJSON_AddObjectToObject(json, "figures");
    for (int k = 0; k < DT_ACCEPT_FIGURES && row->figures[k].name[0] != '\0'; k++) {
        cJSON_AddNumberToObject(figures, row->figures[k].name, row->figures[k].value);
    }
    return json;
}

enum dt_status dt_accept_write_json(const char *path, const struct dt_acceptance *a, const struct dt_accept_outcome *outcome)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "kind", "accept");
    cJSON_AddStringToObject(json, "version", dt_version);
    cJSON_AddNumberToObject(json, "ranks", a->world->size);
    cJSON_AddNumberToObject(json, "ranks_per_host", dt_accept_ranks_on_host(a, 0));
    cJSON_AddStringToObject(json, "device", a->device.backend->name);
    cJSON_AddBoolToObject(json, "passed", outcome->n_failed == 0);
    cJSON *rows = cJSON_AddArrayToObject(json, "rows");
    for (int i = 0; i < outcome->n_done; i++) {
        cJSON_AddItemToArray(rows, row_json(outcome, i));
    }
    const enum dt_status s = dt_bench_write(path, json);
    cJSON_Delete(json);
    return s;
}
