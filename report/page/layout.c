#include "report/page/layout.h"

#include <stdarg.h>

void dt_card_begin(FILE *out, const char *title, const char *text, ...)
{
    va_list values;
    va_start(values, text);
    fprintf(out, "<div class=\"card\"><h2>%s</h2><p>", title);
    vfprintf(out, text, values);
    fputs("</p>\n", out);
    va_end(values);
}

void dt_card_end(FILE *out)
{
    fputs("</div>\n", out);
}

/* "a|b" as <td>a</td><td>b</td>. */
static void put_cells(FILE *out, const char *tag, const char *cells)
{
    fprintf(out, "<%s>", tag);
    for (const char *c = cells; *c != '\0'; c++) {
        if (*c == '|') {
            fprintf(out, "</%s><%s>", tag, tag);
        } else {
            fputc(*c, out);
        }
    }
    fprintf(out, "</%s></tr>", tag);
}

void dt_table_begin(FILE *out, const char *columns)
{
    fputs("<div class=\"wide\"><table><thead><tr>", out);
    put_cells(out, "th", columns);
    fputs("</thead>\n<tbody>", out);
}

void dt_table_row(FILE *out, const char *cells, ...)
{
    char text[512];
    va_list values;
    va_start(values, cells);
    vsnprintf(text, sizeof text, cells, values);
    va_end(values);
    fputs("<tr>", out);
    put_cells(out, "td", text);
    fputc('\n', out);
}

void dt_table_end(FILE *out)
{
    fputs("</tbody></table></div>\n", out);
}
