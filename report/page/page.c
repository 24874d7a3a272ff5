#include "report/page/page.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/text.h"

static const char style[] =
    ":root{color-scheme:light "
    "dark;--back:#fbfbf9;--text:#1c1e21;--soft:#62676e;--line:#d5d8dc;--empty:#eceef0;--card:#fff;"
    "--a:#0b6bcb;--b:#b3470a;--c:#23803f;--d:#8250c4}\n"
    "@media screen and "
    "(prefers-color-scheme:dark){:root{--back:#15171a;--text:#e8eaed;--soft:#9aa0a8;--line:#3a3f46;"
    "--empty:#24282d;"
    "--card:#1c1f23;--a:#6cb2ff;--b:#ff9d5c;--c:#6fd08c;--d:#c3a0ff}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:1000px;padding:1.5rem 1rem "
    "3rem;background:var(--back);color:var(--text);"
    "font:16px/1.5 system-ui,sans-serif}\n"
    "h1{margin:0;font-size:1.7rem;letter-spacing:-.01em}h2{margin:0;font-size:1.1rem}\n"
    "p{margin:.3rem 0 .8rem;color:var(--soft);max-width:75ch}\n"
    "svg{display:block;width:100%;height:auto}\n"
    "text{font:600 12px "
    "ui-monospace,Menlo,Consolas,monospace;fill:var(--soft);text-anchor:middle}\n"
    "table{width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.93rem}"
    ".wide{overflow-x:auto}caption{text-align:left;color:var(--soft);padding:.3rem 0}\n"
    "th,td{padding:.35rem .6rem;text-align:right;border-top:1px solid "
    "var(--line);white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}thead "
    "th{border:0;color:var(--soft);font-weight:600}\n"
    "tr.this{background:var(--empty);font-weight:600}\n"
    "h2.part{margin:2rem 0 .4rem}\n"
    ".cards{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr)"
    ");margin:1rem 0}\n"
    ".card{padding:1rem 1.2rem;background:var(--card);border:1px solid "
    "var(--line);border-radius:12px;min-width:0}\n"
    ".cards>:last-child:nth-child(odd){grid-column:1/"
    "-1}.cards>:last-child:nth-child(odd)>svg{max-width:36rem;margin:0 auto}\n"
    ".card p{margin-bottom:.4rem;font-size:.93rem}\n"
    ".s0,.s1,.s2,.s3{fill:none;stroke-width:2;stroke-linejoin:round}"
    ".s0{stroke:var(--a)}.s1{stroke:var(--b)}.s2{stroke:var(--c)}.s3{stroke:var(--d)}\n"
    ".d0{fill:var(--a)}.d1{fill:var(--b)}.d2{fill:var(--c)}.d3{fill:var(--d)}\n"
    ".grid{stroke:var(--line);fill:none}.box{fill:var(--empty);stroke:var(--line)}text.dark{fill:"
    "var(--text)}"
    "text.start{text-anchor:start}text.end{text-anchor:end}\n"
    ".card table{font-size:.82rem}.card td,.card th{padding:.3rem .35rem}.card "
    "text{font-size:13px}\n"
    ".verdict{font-weight:600;color:var(--text)}\n"
#define PHASE(name, colour) "." name "{--own:" colour "}"
    DT_PAGE_PHASE_LIST(PHASE)
#undef PHASE
        "\n.phase{fill:var(--own)}b.phase{color:var(--own);font-weight:600}.key.phase::before{"
        "color:var(--own)}\n";

/* After all others. On paper two charts fit beside each other, nothing scrolls or unfolds, and no
 * title stands alone. */
static const char printed[] =
    "@media print{:root{--back:#fff}body{max-width:none;padding:0;font-size:11px}p{margin:.2rem 0 "
    ".4rem}"
    ".cards{grid-template-columns:1fr 1fr;gap:.6rem;margin:.5rem 0}.card{padding:.6rem "
    ".8rem}.wide{overflow:visible}"
    ".wide td,.wide th{white-space:normal}th,td{padding:.12rem "
    ".4rem}h1{font-size:1.5rem}h2.part{margin:1rem 0 .2rem}"
    "h2,h3{break-after:avoid}figure,.card,tr{break-inside:avoid}details:not([open]){display:none}}"
    "\n";

void dt_page_text(FILE *out, const char *text)
{
    char shown[DT_LINE_SIZE];
    dt_text_escape(text, shown, sizeof shown);
    for (const char *c = shown; *c != '\0'; c++) {
        switch (*c) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*c, out);
        }
    }
}

/* What is in the page itself, and nothing of elsewhere: whatever gets into it sends nothing away.
 */
#define POLICY                                                                              \
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src " \
    "'unsafe-inline'; "                                                                     \
    "script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"

/* A dt_file_put_fn. */
static void put_page(FILE *out, const void *context)
{
    const struct dt_page *page = context;
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n" POLICY
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<title>",
          out);
    dt_page_text(out, page->title);
    fprintf(out, "</title>\n<style>\n%s", style);
    if (page->style != NULL) {
        page->style(out, page->context);
    }
    fprintf(out, "%s</style></head>\n<body>\n", printed);
    page->body(out, page->context);
    fputs("</body></html>\n", out);
}

enum dt_status dt_page_write(const char *path, const struct dt_page *page)
{
    return dt_file_print(path, put_page, page);
}

enum dt_status dt_page_write_own(const char *dir, const char *name, const struct dt_page *page)
{
    char *text = NULL;
    size_t n = 0;
    DT_TRY(dt_file_collect(name, put_page, page, &text, &n));
    const enum dt_status s = dt_file_write_atomic(dir, name, &(struct dt_file_part){text, n}, 1);
    free(text);
    return s;
}
