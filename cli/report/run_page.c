#include "cli/report/run_page.h"

#include <stdio.h>

#include "cli/page/curve.h"
#include "cli/page/page.h"
#include "cli/report/facts.h"
#include "cli/report/run_curves.h"
#include "cli/report/run_timeline.h"

struct run_page {
    const struct dt_record *records;
    int n;
};

static void put_style(FILE *out, const void *context)
{
    (void)context;
    fputs(
        "body{max-width:1280px}.facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15rem 1rem;margin:1rem 0}\n"
        ".facts dt{color:var(--soft)}.facts dd{margin:0;overflow-wrap:anywhere}\n"
        ".state{font-size:.9rem;font-weight:600;padding:.1em .6em;border-radius:1em;border:1px solid;vertical-align:.2em;"
        "white-space:nowrap}.state.t0{color:var(--c)}.state.t1,.state.t4{color:var(--b)}.state.t2{color:#d32f2f}"
        ".state.t3{color:var(--a)}\n"
        "@media(min-width:900px){.cards{grid-template-columns:repeat(auto-fit,minmax(26rem,1fr))}}\n"
        "@media(max-width:500px){.facts{grid-template-columns:1fr;gap:0}.facts dd{margin-bottom:.4rem}}\n"
        "@media print{body{max-width:none;font-size:11px}figure,.card,tr{break-inside:avoid}}\n",
        out);
    dt_curve_style(out);
    dt_run_timeline_style(out);
}

static void put_head(FILE *out, const struct dt_record *r)
{
    static struct dt_facts facts; /* large for a stack */
    dt_facts_find(r, &facts);
    fputs("<h1>", out);
    dt_page_text(out, dt_record_name(r));
    fprintf(out, " <span class=\"state t%d\">%s</span></h1>\n<dl class=\"facts\">\n", (int)r->state, dt_run_state_word(r->state));
    for (int i = 0; i < DT_N_FACTS; i++) {
        if (facts.texts[i][0] != '\0') {
            fprintf(out, "<dt>%s</dt><dd>", dt_fact_names[i]);
            dt_page_text(out, facts.texts[i]);
            fputs("</dd>\n", out);
        }
    }
    fputs("</dl>\n", out);
}

static void put_timeline(FILE *out, const struct dt_record *r)
{
    struct dt_trace_record trace;
    dt_trace_open(r->path, &trace);
    dt_run_timeline_draw(out, &trace);
    dt_trace_close(&trace);
}

static void put_body(FILE *out, const void *context)
{
    const struct run_page *page = context;
    const char *names[] = {page->records[0].path};
    put_head(out, &page->records[0]);
    dt_run_curves_draw(out, page->records, names, page->n);
    if (page->n == 1) {
        put_timeline(out, page->records);
    }
    dt_curve_script(out);
}

enum dt_status dt_run_page_write(const char *path, const struct dt_record *records, int n)
{
    const struct run_page page = {records, n};
    return dt_page_write(
        path, &(struct dt_page){.title = dt_record_name(&records[0]), .style = put_style, .body = put_body, .context = &page});
}
