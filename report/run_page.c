#include "report/run.h"

#include <stdio.h>

#include "base/text.h"
#include "cli/sinks/sinks.h"
#include "report/page/curve.h"
#include "report/page/page.h"

struct run_page {
    const struct dt_record *records;
    int n;
    const struct dt_learned *learned;
};

static void put_head(FILE *out, const struct dt_record *r)
{
    static struct dt_facts facts; /* large for a stack */
    dt_facts_find(r, &facts);
    fputs("<h1>", out);
    dt_page_text(out, dt_record_name(r));
    fprintf(out, " <span class=\"state t%d\">%s</span></h1>\n<dl class=\"facts\">\n", (int)r->state,
            dt_run_state_word(r->state));
    for (int i = 0; i < DT_N_FACTS; i++) {
        if (facts.texts[i][0] != '\0') {
            fprintf(out, "<dt>%s</dt><dd>", dt_fact_names[i]);
            dt_page_text(out, facts.texts[i]);
            fputs("</dd>\n", out);
        }
    }
    fputs("</dl>\n", out);
}

static void put_one(FILE *out, const struct dt_record *r, const struct dt_learned *learned)
{
    put_head(out, r);
    dt_run_flight_draw(out, r);
    dt_run_curves_draw(out, r, NULL, 1);
    dt_run_time_draw(out, r);
    dt_run_timeline_draw(out, r);
    if (learned != NULL) {
        dt_run_learned_draw(out, learned);
    } else {
        fputs("<p>What the model learned by its last checkpoint, <code>dtrain report</code> adds: "
              "confusion, the worst test samples, filters.</p>\n",
              out);
    }
    dt_run_model_draw(out, r);
    dt_run_config_draw(out, r);
}

static void put_several(FILE *out, const struct dt_record *records, int n)
{
    char texts[DT_CURVE_MAX_SERIES][DT_RUN_NAME_SIZE];
    const char *names[DT_CURVE_MAX_SERIES];
    for (int i = 0; i < n; i++) {
        dt_run_name(records, n, i, texts[i]);
        names[i] = texts[i];
    }
    fprintf(out, "<h1>%d runs</h1>\n", n);
    dt_run_compare_draw(out, records, n);
    dt_run_curves_draw(out, records, names, n);
}

static void put_body(FILE *out, const void *context)
{
    const struct run_page *page = context;
    if (page->n == 1) {
        put_one(out, page->records, page->learned);
    } else {
        put_several(out, page->records, page->n);
    }
}

enum dt_status dt_run_page_write(const char *path, const char *dir, const struct dt_record *records,
                                 int n, const struct dt_learned *learned)
{
    const struct run_page context = {records, n, learned};
    const struct dt_page page = {.title = dt_record_name(&records[0]),
                                 .class = "run",
                                 .body = put_body,
                                 .context = &context};
    if (path != NULL) {
        return dt_page_write(path, &page);
    }
    DT_TRY(dt_run_dir_check_file(dir, DT_RUN_PAGE));
    return dt_page_write_own(dir, DT_RUN_PAGE, &page);
}

static enum dt_status take(struct dt_sinks *sinks, const struct dt_event *event)
{
    struct dt_record record;
    if ((event->kind != DT_EVENT_END && event->kind != DT_EVENT_FAULT) ||
        !sinks->folder.config->report) {
        return DT_OK;
    }
    DT_TRY(dt_record_open(sinks->folder.dir->path, &record));
    const enum dt_status s = dt_run_page_write(
        NULL, record.path, &record, 1, event->kind == DT_EVENT_END ? event->end->learned : NULL);
    dt_record_close(&record);
    if (s == DT_OK && event->kind == DT_EVENT_END && !sinks->silent) {
        dt_text_print(stderr, "report %s/" DT_RUN_PAGE, sinks->folder.dir->path);
    }
    return s;
}

const struct dt_run_reader dt_run_reader = {.seconds = dt_record_seconds_of, .take = take};
