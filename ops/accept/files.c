/* Writes the rows as JUnit's XML, for test runners, and as JSON, the baseline of a later run. */
#include <stdio.h>

#include "base/file.h"
#include "ops/accept/outcome.h"
#include "report/page/page.h"
#include "view/json_write.h"

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
    dt_accept_record_put(a, out, put_property);
    for (int i = 0; dt_accept_next_warning(a, &i, text);) {
        put_property(out, "warning", text);
    }
    fputs("  </properties>\n", out);
}

static void put_case(FILE *out, const struct dt_acceptance *a, int i)
{
    static const struct {
        const char *begin, *end;
    } elements[DT_N_ACCEPT_VERDICTS] = {
        [DT_ACCEPT_FAIL] = {"<failure message=\"", "\"/>"},
        [DT_ACCEPT_PASS] = {"<system-out>", "</system-out>"},
        [DT_ACCEPT_MEASURED] = {"<skipped message=\"measured: ", "\"/>"},
        [DT_ACCEPT_SKIPPED] = {"<skipped message=\"", "\"/>"}};
    const struct dt_accept_row *row = &a->rows[i];
    fprintf(out, "  <testcase classname=\"dtrain.accept\" name=\"%s\" time=\"%.3f\">%s",
            dt_accept_checks[i].name, a->seconds[i], elements[row->verdict].begin);
    dt_page_text(out, row->text);
    fprintf(out, "%s</testcase>\n", elements[row->verdict].end);
}

/* A dt_file_put_fn. */
static void put_junit(FILE *out, const void *context)
{
    const struct dt_acceptance *a = context;
    const int n_skipped = a->counts[DT_ACCEPT_MEASURED] + a->counts[DT_ACCEPT_SKIPPED];
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"dtrain accept %s\" "
            "tests=\"%d\" failures=\"%d\" "
            "skipped=\"%d\" timestamp=\"%.19s\">\n",
            dt_version, a->n_done, a->counts[DT_ACCEPT_FAIL], n_skipped, a->date);
    put_properties(out, a);
    for (int i = 0; i < a->n_done; i++) {
        put_case(out, a, i);
    }
    fputs("</testsuite>\n", out);
}

enum dt_status dt_accept_write_junit(const char *path, const struct dt_acceptance *a)
{
    return dt_file_print(path, put_junit, a);
}

static void put_row(struct dt_json *json, const struct dt_acceptance *a, int i)
{
    const struct dt_accept_row *row = &a->rows[i];
    dt_json_begin(json, NULL, '{');
    dt_json_text(json, "name", dt_accept_checks[i].name);
    dt_json_text(json, "verdict", dt_accept_verdicts[row->verdict].word);
    dt_json_number(json, "seconds", 0, a->seconds[i]);
    dt_json_text(json, "text", row->text);
    dt_json_begin(json, "figures", '{');
    for (int k = 0; k < DT_ACCEPT_FIGURES && row->figures[k].name[0] != '\0'; k++) {
        dt_json_number(json, row->figures[k].name, 0, row->figures[k].value);
    }
    dt_json_end(json, '{');
    dt_json_end(json, '{');
}

static void put_host(struct dt_json *json, const struct dt_acceptance *a, int rank)
{
    const struct dt_rank_facts *f = &a->ranks[rank];
    dt_json_begin(json, NULL, '{');
    dt_json_text(json, "host", f->host);
    dt_json_number(json, "ranks", 0, dt_facts_on_host(a->ranks, a->world->size, rank));
    dt_json_number(json, "cpus", 0, f->n_host_cpus);
    dt_json_text(json, "cpu", f->cpu);
    dt_json_text(json, "kernel", f->kernel);
    dt_json_begin(json, "gpus", '['); /* of each rank with a GPU */
    for (int r = 0; r < a->world->size; r++) {
        if (a->ranks[r].has_gpu && dt_facts_same_host(&a->ranks[r], f)) {
            dt_json_text(json, NULL, a->ranks[r].gpu);
        }
    }
    dt_json_end(json, '[');
    dt_json_end(json, '{');
}

/* Date, place and versions. */
static void put_record(struct dt_json *json, const struct dt_acceptance *a)
{
    char warning[DT_ACCEPT_WARNING_SIZE];
#define TEXT(key, text) dt_json_text(json, #key, text);
    DT_ACCEPT_RECORD_LIST(TEXT)
    dt_json_begin(json, "hosts", '[');
    for (int r = 0; r < a->world->size; r++) {
        if (dt_facts_is_first(a->ranks, r)) {
            put_host(json, a, r);
        }
    }
    dt_json_end(json, '[');
    dt_json_begin(json, "warnings", '['); /* the doctor's */
    for (int i = 0; dt_accept_next_warning(a, &i, warning);) {
        dt_json_text(json, NULL, warning);
    }
    dt_json_end(json, '[');
}

/* A dt_file_put_fn. */
static void put_json(FILE *out, const void *context)
{
    const struct dt_acceptance *a = context;
    struct dt_json json = {.out = out, .in_lines = true};
    dt_json_begin(&json, NULL, '{');
    dt_json_text(&json, "kind", "accept");
    put_record(&json, a);
    dt_json_number(&json, "ranks", 0, a->world->size);
    dt_json_number(&json, "ranks_per_host", 0, dt_facts_on_host(a->ranks, a->world->size, 0));
    dt_json_bool(&json, "passed", a->counts[DT_ACCEPT_FAIL] == 0);
    dt_json_begin(&json, "rows", '[');
    for (int i = 0; i < a->n_done; i++) {
        put_row(&json, a, i);
    }
    dt_json_end(&json, '[');
    dt_json_end(&json, '{');
    fputc('\n', out);
}

enum dt_status dt_accept_write_json(const char *path, const struct dt_acceptance *a)
{
    return dt_file_print(path, put_json, a);
}
