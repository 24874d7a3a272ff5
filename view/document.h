/* A document: the result of a command or a lesson as data. A command fills it; a renderer draws it
 * as text, page, JSON, CSV or JUnit (view/render.h). No caller writes a tag, a colour or a column
 * width.
 *
 *     struct dt_doc *doc = dt_doc_open("lab ring", "A ring of %d ranks", n);
 *     dt_doc_text(doc, "Each rank sends to `rank + 1`.");
 *     struct dt_part *costs = dt_doc_table(doc, "Costs", "algorithm|messages::0|sent:bytes:B");
 *     dt_doc_row(costs, dt_t("ring"), dt_n(6), dt_n(2400));
 *     s = dt_result_show(args, doc); (cli/result.h)
 *     dt_doc_close(doc);
 *
 * The document copies all that it is given. Texts are UTF-8 and may come from outside: the
 * renderers escape them. Where memory runs out, the document remembers that (dt_doc_status), and
 * every function accepts the NULL that an earlier one returned, so that no caller checks. */
#ifndef DT_VIEW_DOCUMENT_H
#define DT_VIEW_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct dt_doc;
struct dt_part;

/* X(constant, word, class of its colour) */
#define DT_VERDICT_LIST(X)                     \
    X(DT_NO_VERDICT, "", "")                   \
    X(DT_VERDICT_PASS, "PASS", "good")         \
    X(DT_VERDICT_FAIL, "FAIL", "bad")          \
    X(DT_VERDICT_WARN, "WARN", "odd")          \
    X(DT_VERDICT_MEASURED, "MEASURED", "note") \
    X(DT_VERDICT_SKIPPED, "SKIPPED", "note")
#define DT_VERDICT_ENUM(constant, word, class) constant,
enum dt_verdict { DT_VERDICT_LIST(DT_VERDICT_ENUM) DT_N_VERDICTS };

/* A value of a table or a figure: dt_t("ring"), dt_n(6). */
struct dt_cell {
    const char *text; /* NULL: a number */
    double number;    /* not finite: unknown, shown as a dash */
};
static inline struct dt_cell dt_t(const char *text)
{
    return (struct dt_cell){text != NULL ? text : "", 0};
}
static inline struct dt_cell dt_n(double number)
{
    return (struct dt_cell){NULL, number};
}

/* ---- the document */

/* `command`: the command's word, such as "lab batch". Never fails: NULL is a document that
 * remembers nothing and whose status is DT_NO_MEMORY. */
struct dt_doc *dt_doc_open(const char *command, const char *title, ...)
    __attribute__((format(printf, 2, 3)));
void dt_doc_close(struct dt_doc *doc);
enum dt_status dt_doc_status(const struct dt_doc *doc);

/* A text that lives as long as the document, for cells. Never NULL. */
const char *dt_doc_print(struct dt_doc *doc, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The document's verdict and the sentence that says it: the headline of a page, the last line of a
 * text. */
void dt_doc_verdict(struct dt_doc *doc, enum dt_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A heading: the parts that follow belong to it. */
void dt_doc_section(struct dt_doc *doc, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The parts that follow are step `name` of a sequence, which a page shows one at a time, by button
 * and key; a text has the first and the last steps of a long one. NULL ends the sequence. */
void dt_doc_step(struct dt_doc *doc, const char *name);

/* ---- parts. `title` may be NULL; titles of figures, tables, series, lanes and grids are their
 * names in the JSON, so keep them stable. */

/* A paragraph; `code` stands between backticks. A line's end is escaped, as in all texts but code:
 * names that come from outside begin no line. */
void dt_doc_text(struct dt_doc *doc, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Lines that are shown as they are: commands, JSON, a program. */
void dt_doc_code(struct dt_doc *doc, const char *title, const char *text);

/* Named values, one below the other. */
struct dt_part *dt_doc_figures(struct dt_doc *doc, const char *title);

/* `column`: the name, and for numbers unit and format, as in a table: "speed:images/s:0". */
void dt_doc_figure(struct dt_part *figures, const char *column, struct dt_cell value);
void dt_doc_fact(struct dt_part *figures, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4))); /* a figure that is a text */

/* A table. `columns`: name, unit and format, separated by ":", columns by "|": "rank|time:ms:2".
 * Without a format a column holds texts, aligned to the left. Formats of numbers: N: N digits
 * behind the point, thousands separated; "g": up to four significant digits; "B": bytes as kB, MB,
 * GB; "t": seconds as µs, ms, s; "d": seconds as 0:42 or 3:07:59; "%": a share as percent with two
 * digits; "+": an integer without separators (a year, a step's name); "f": a float in as few digits
 * as read it back. Units of B, t, d, %: leave them empty. JSON and CSV have the value as given, in
 * full. */
struct dt_part *dt_doc_table(struct dt_doc *doc, const char *title, const char *columns);

/* A row, a cell for each column. A text may stand in a column of numbers, and the reverse. */
#define dt_doc_row(table, ...)                                                                \
    dt_doc_add_row((table), sizeof((struct dt_cell[]){__VA_ARGS__}) / sizeof(struct dt_cell), \
                   (struct dt_cell[]){__VA_ARGS__})
void dt_doc_add_row(struct dt_part *table, size_t n, const struct dt_cell *cells);

/* Judges the last row or figure. `hint`: why, and how to mend it; or "". */
void dt_doc_judge(struct dt_part *part, enum dt_verdict verdict, const char *hint, ...)
    __attribute__((format(printf, 3, 4)));

/* What the last row or figure was held against: "at most" (`at_most`) or "at least" `bound`, in the
 * figure's unit. */
void dt_doc_bound(struct dt_part *part, bool at_most, double bound);

/* Marks the last row or figure as the chosen one (this run, the best). */
void dt_doc_emphasize(struct dt_part *part);

/* Lines over two axes. Axes: name and unit, "step", "loss", "time, ms". */
struct dt_part *dt_doc_series(struct dt_doc *doc, const char *title, const char *x, const char *y);

enum dt_stroke { DT_LINE, DT_DASHES, DT_DOTS, DT_LINE_AND_DOTS, DT_BARS };
struct dt_line {
    const char *name; /* for the legend; "": a background, such as a contour, in a page alone */
    enum dt_stroke stroke;
    size_t n; /* points; x grows; a point whose y is not finite is left out */
    const double *x, *y;
    const double *low, *high; /* a band around it, or error bars of dots and bars; or both NULL */
    int color;                /* 1 to 8; 0: the next one */
};
void dt_doc_line(struct dt_part *series, const struct dt_line *line);
static inline void dt_doc_plot(struct dt_part *series, const char *name, enum dt_stroke stroke,
                               size_t n, const double *x, const double *y) /* without a band */
{
    dt_doc_line(series, &(struct dt_line){name, stroke, n, x, y, NULL, NULL, 0});
}

/* Names in place of numbers at x = 0, 1 .. n - 1. */
void dt_doc_ticks(struct dt_part *series, size_t n, const char *const *names);

/* A line from bottom to top at x, such as "resumed". */
void dt_doc_mark(struct dt_part *series, double x, const char *name);

enum { DT_LOG_X = 1, DT_LOG_Y = 2, DT_LOG_Y_IF_WIDE = 4, DT_FROM_ZERO = 8 };
/* Any of the above: logarithmic axes (also of lanes: no), an axis y that begins at 0. */
void dt_doc_axes(struct dt_part *series, unsigned flags);

/* Rows of boxes over an axis of time, rounds or elements: "time, ms", "round"; "": without an
 * axis, for boxes whose labels say all. */
struct dt_part *dt_doc_lanes(struct dt_doc *doc, const char *title, const char *axis);
/* Where the axis ends, if not with the last box: several pictures then have one scale. */
void dt_doc_extent(struct dt_part *lanes, double end);
int dt_doc_lane(struct dt_part *lanes, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* its number, from 0 */
/* Boxes of one kind (from 0) share a colour; `name` of a kind is for the legend. The label stands
 * in the box where it fits, and appears under a pointer. */
void dt_doc_kind(struct dt_part *lanes, int kind, const char *name);
void dt_doc_box(struct dt_part *lanes, int lane, double begin, double end, int kind,
                const char *label, ...) __attribute__((format(printf, 6, 7)));

/* Numbers for each row and column. */
enum dt_grid {
    DT_GRID_COUNTS, /* numbers over a shade: a confusion matrix */
    DT_GRID_MAP,    /* a shade, numbers up to 16 columns: bandwidths between ranks */
    DT_GRID_PIXELS, /* a picture of greys, 0 to 255; in a page alone, with a paragraph right before
                       it; several stand beside each other */
    DT_GRID_COLORS  /* likewise, of colours: 0xRRGGBB */
};
struct dt_part *dt_doc_grid(struct dt_doc *doc, const char *title, enum dt_grid kind, size_t rows,
                            size_t columns, const double *values);
/* Names of rows and columns, or NULL: their numbers. `axes`: what they are: "true|predicted". */
void dt_doc_names(struct dt_part *grid, const char *axes, const char *const *rows,
                  const char *const *columns);
/* A cell that stands out. */
void dt_doc_odd(struct dt_part *grid, size_t row, size_t column);

/* ---- of any part */

void dt_doc_caption(struct dt_part *part, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* a sentence below the title */
/* Only for a reader who asks: folded in a page, left out of a text. */
void dt_doc_detail(struct dt_part *part);
/* The table that --csv writes; without one it is the first. */
void dt_doc_main(struct dt_part *table);

#endif
