#include "report/page/page.h"

#include "base/text.h"

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

/* Allows the page's own contents alone: text that gets into it can load and send nothing. */
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
    fprintf(out, "</title>\n<style>\n%s</style></head>\n<body class=\"%s\">\n", dt_page_css,
            page->class != NULL ? page->class : "");
    page->body(out, page->context);
    fprintf(out, "<script>\n%s</script>\n</body></html>\n", dt_page_js);
}

enum dt_status dt_page_write(const char *path, const struct dt_page *page)
{
    return dt_file_print(path, put_page, page);
}
