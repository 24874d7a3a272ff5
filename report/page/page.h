/* A page of a lesson or a report: one file with all that it shows, so that it works from a file
 * share; light or dark as the reader's system is, and not too wide for a telephone. */
#ifndef DT_REPORT_PAGE_PAGE_H
#define DT_REPORT_PAGE_PAGE_H

#include <stdio.h>

#include "base/file.h"

typedef dt_file_put_fn dt_page_fn;

struct dt_page {
    const char *title;
    const char *class; /* of its body, for rules of its own in page.css; or NULL */
    dt_page_fn body;
    const void *context; /* what it is called with */
};

/* page.css and page.js, which the build embeds: the same of every page. */
extern const char dt_page_css[], dt_page_js[];

/* Classes for every page: cards (.card) in columns (.cards), tables in a .wide, and for pictures
 * the colours --a to --d of series, as class .s0 to .s3 of lines and .d0 to .d3 of areas. Written
 * as dt_file_write does; NULL: no page. */
enum dt_status dt_page_write(const char *path, const struct dt_page *page);

/* `text` as HTML shows it, also in an attribute: whatever is not printable escaped (base/text.h).
 * At most DT_LINE_SIZE bytes. */
void dt_page_text(FILE *out, const char *text);

#endif
