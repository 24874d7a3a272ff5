/* Writes the rows as JUnit's XML, for test runners, and as JSON, the baseline of a later run. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "ops/accept/outcome.h"
#include "ops/bench/bench.h"
#include "report/page/page.h"

static void put_property(FILE *out, const char *name, const char *text)
{
    fprintf(out, "    <property name=\"%s\" value=\"", name);
    dt_page_text(out, text);
    fputs("\"/>\n", out);
}

/* Date, place and versions. */
static void put_properties(FILE *out, const struct dt_acceptance *a)
{
    char text[DT_ACCEPT_WARNING_SIZE];
    fputs("  <properties>\n", out);
#define PROPERTY(key, text) put_property(out, #key, text);
    DT_ACCEPT_RECORD_LIST(PROPERTY)
    for (int r = 0; r < a->world->size; r++) {
        if (dt_accept_is_first_of_host(a, r)) {
            dt_accept_host_text(a, r, text, sizeof text);
            put_property(out, "host", text);
        }
    }
    for (int i = 0; dt_accept_next_warning(a, &i, text);) {
        put_property(out, "warning", text);
    }
    fputs("  </properties>\n", out);
}

static void put_case(FILE *out, const struct dt_accept_outcome *outcome, int i)
{
    static const struct {
        const char *begin, *end;
    } elements[DT_N_ACCEPT_VERDICTS] = {
        [DT_ACCEPT_FAIL] = {"<failure message=\"", "\"/>"},
        [DT_ACCEPT_PASS] = {"<system-out>", "</system-out>"},
        [DT_ACCEPT_MEASURED] = {"<skipped message=\"measured: ", "\"/>"},
        [DT_ACCEPT_SKIPPED] = {"<skipped message=\"", "\"/>"}};
    const struct dt_accept_row *row = &outcome->rows[i];
    fprintf(out, "  <testcase classname=\"dtrain.accept\" name=\"%s\" time=\"%.3f\">%s",
            dt_accept_names[i], outcome->seconds[i], elements[row->verdict].begin);
    dt_page_text(out, row->text);
    fprintf(out, "%s</testcase>\n", elements[row->verdict].end);
}

struct cases {
    const struct dt_acceptance *a;
    const struct dt_accept_outcome *outcome;
};

/* A dt_file_put_fn. */
static void put_cases(FILE *out, const void *context)
{
    const struct cases *cases = context;
    const struct dt_accept_outcome *outcome = cases->outcome;
    const int n_skipped = outcome->counts[DT_ACCEPT_MEASURED] + outcome->counts[DT_ACCEPT_SKIPPED];
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"dtrain accept %s\" "
            "tests=\"%d\" failures=\"%d\" "
            "skipped=\"%d\" timestamp=\"%.19s\">\n",
            dt_version, outcome->n_done, outcome->counts[DT_ACCEPT_FAIL], n_skipped,
            cases->a->date);
    put_properties(out, cases->a);
    for (int i = 0; i < outcome->n_done; i++) {
        put_case(out, outcome, i);
    }
    fputs("</testsuite>\n", out);
}

enum dt_status dt_accept_write_junit(const char *path, const struct dt_acceptance *a,
                                     const struct dt_accept_outcome *outcome)
{
    return dt_file_print(path, put_cases, &(struct cases){a, outcome});
}

static cJSON *row_json(const struct dt_accept_outcome *outcome, int i)
{
    const struct dt_accept_row *row = &outcome->rows[i];
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", dt_accept_names[i]);
    cJSON_AddStringToObject(json, "verdict", dt_accept_verdicts[row->verdict].word);
    cJSON_AddNumberToObject(json, "seconds", outcome->seconds[i]);
    cJSON_AddStringToObject(json, "text", row->text);
    cJSON *figures = cJSON_AddObjectToObject(json, "figures");
    for (int k = 0; k < DT_ACCEPT_FIGURES && row->figures[k].name[0] != '\0'; k++) {
        cJSON_AddNumberToObject(figures, row->figures[k].name, row->figures[k].value);
    }
    return json;
}

static cJSON *host_json(const struct dt_acceptance *a, int rank)
{
    const struct dt_rank_facts *f = &a->ranks[rank];
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "host", a->hosts[rank]);
    cJSON_AddNumberToObject(json, "ranks", dt_accept_ranks_on_host(a, rank));
    cJSON_AddNumberToObject(json, "cpus", f->n_host_cpus);
    cJSON_AddStringToObject(json, "cpu", f->cpu);
    cJSON_AddStringToObject(json, "kernel", f->kernel);
    cJSON *gpus = cJSON_AddArrayToObject(json, "gpus"); /* of each rank with a GPU */
    for (int r = 0; r < a->world->size; r++) {
        if (a->ranks[r].has_gpu && strcmp(a->hosts[r], a->hosts[rank]) == 0) {
            cJSON_AddItemToArray(gpus, cJSON_CreateString(a->ranks[r].gpu));
        }
    }
    return json;
}

/* Date, place and versions. */
static void add_record(cJSON *json, const struct dt_acceptance *a)
{
    char warning[DT_ACCEPT_WARNING_SIZE];
#define STRING(key, text) cJSON_AddStringToObject(json, #key, text);
    DT_ACCEPT_RECORD_LIST(STRING)
    cJSON *hosts = cJSON_AddArrayToObject(json, "hosts");
    for (int r = 0; r < a->world->size; r++) {
        if (dt_accept_is_first_of_host(a, r)) {
            cJSON_AddItemToArray(hosts, host_json(a, r));
        }
    }
    cJSON *warnings = cJSON_AddArrayToObject(json, "warnings"); /* the doctor's */
    for (int i = 0; dt_accept_next_warning(a, &i, warning);) {
        cJSON_AddItemToArray(warnings, cJSON_CreateString(warning));
    }
}

enum dt_status dt_accept_write_json(const char *path, const struct dt_acceptance *a,
                                    const struct dt_accept_outcome *outcome)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "kind", "accept");
    add_record(json, a);
    cJSON_AddNumberToObject(json, "ranks", a->world->size);
    cJSON_AddNumberToObject(json, "ranks_per_host", dt_accept_ranks_on_host(a, 0));
    cJSON_AddBoolToObject(json, "passed", outcome->counts[DT_ACCEPT_FAIL] == 0);
    cJSON *rows = cJSON_AddArrayToObject(json, "rows");
    for (int i = 0; i < outcome->n_done; i++) {
        cJSON_AddItemToArray(rows, row_json(outcome, i));
    }
    const enum dt_status s = dt_bench_write(path, json);
    cJSON_Delete(json);
    return s;
}
