/* The renderers of a document (view/document.h), one file each. Each writes a whole document into a
 * stream; an error of the stream is the caller's to find. */
#ifndef DT_VIEW_RENDER_H
#define DT_VIEW_RENDER_H

#include <stdio.h>

#include "view/document.h"

struct dt_text_view {
    int width;  /* columns of the terminal; words are never broken */
    bool color; /* by escape sequences */
    bool utf8;  /* else ASCII alone stands for our own signs */
};
void dt_view_text(FILE *out, const struct dt_doc *doc, struct dt_text_view view);

/* Text from column `at` on, where the line is already; further lines begin at `indent`. The last
 * one is ended. */
void dt_view_wrap(FILE *out, struct dt_text_view view, const char *text, int at, int indent);

/* One file: no network, readable without script, light and dark, from 390 px on. Style and script
 * of every page are page.css and page.js, which the build embeds. */
void dt_view_html(FILE *out, const struct dt_doc *doc);
extern const char dt_view_css[], dt_view_js[];

/* {"dtrain_document": 1, ...}: docs/files.md has the shape. */
#define DT_DOCUMENT_VERSION 1
void dt_view_json(FILE *out, const struct dt_doc *doc);

/* The main table, RFC 4180; without a table its figures as rows (name, value, unit), or its series
 * as rows (series, x, y). */
void dt_view_csv(FILE *out, const struct dt_doc *doc);

/* Every judged row and figure as a test case of the suite "dtrain <command>". */
void dt_view_junit(FILE *out, const struct dt_doc *doc);

/* Near the beginning of every such file: by its mark a file is known as an earlier result. */
#define DT_HTML_MARK "<meta name=\"generator\" content=\"dtrain\">"
#define DT_JSON_MARK "\"dtrain_document\":"
#define DT_JUNIT_MARK "<testsuite name=\"dtrain "

#endif
