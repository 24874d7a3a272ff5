/* What a document consists of, for its renderers. */
#ifndef DT_VIEW_PARTS_H
#define DT_VIEW_PARTS_H

#include "view/document.h"

enum dt_part_kind {
    DT_PART_SECTION,
    DT_PART_TEXT,
    DT_PART_CODE,
    DT_PART_FIGURES,
    DT_PART_TABLE,
    DT_PART_SERIES,
    DT_PART_LANES,
    DT_PART_GRID
};

struct dt_column {
    char *name, *unit; /* unit: "" if it has none */
    char format;       /* of document.h: '\0': text; 'N': `decimals` digits behind the point */
    int decimals;
};

/* A row of a table, or a figure: then it has one cell and a column of its own. */
struct dt_row {
    struct dt_cell *cells; /* their texts are owned */
    struct dt_column column;
    enum dt_verdict verdict;
    char *hint; /* NULL: not judged */
    bool bounded, at_most, emphasized;
    double bound;
};

struct dt_box {
    int lane, kind;
    double begin, end;
    char *label;
};

struct dt_mark {
    double x;
    char *name;
};

/* A list that grows. */
#define DT_LIST(type) \
    struct {          \
        type *items;  \
        size_t n;     \
    }

struct dt_part {
    struct dt_doc *doc;
    enum dt_part_kind kind;
    char *title, *caption, *step; /* each may be NULL */
    char *text;                   /* section, text, code; of grids: the axes, or NULL */
    bool detail, main;
    DT_LIST(struct dt_column) columns; /* table */
    DT_LIST(struct dt_row) rows;       /* figures, table */
    char *x, *y;                       /* series; lanes: x alone */
    unsigned axes;                     /* DT_LOG_X ... */
    DT_LIST(struct dt_line) lines;     /* what they point to is owned */
    DT_LIST(struct dt_mark) marks;
    DT_LIST(char *) lanes;
    DT_LIST(char *) kinds; /* names of kinds of boxes; NULL: not in the legend */
    DT_LIST(struct dt_box) boxes;
    double extent; /* the axis ends here, or with the last box */
    enum dt_grid grid;
    size_t n_rows, n_columns;
    double *values;                   /* n_rows * n_columns */
    bool *odd;                        /* likewise */
    char **row_names, **column_names; /* NULL: numbers; of series: names on the axis x */
};

struct dt_doc {
    char *command, *title;
    bool failed; /* memory ran out */
    enum dt_verdict verdict;
    char *summary; /* of the verdict; NULL: none */
    char *step;    /* of the parts to come */
    DT_LIST(struct dt_part *) parts;
    DT_LIST(char *) texts; /* dt_doc_print's */
};

extern const char *const dt_verdict_words[DT_N_VERDICTS];
extern const char *const dt_verdict_classes[DT_N_VERDICTS];

/* ---- shared by the renderers (document.c) */

#define DT_CELL_SIZE 512
/* A cell as people read it, without its unit unless the format brings one. Returns its text or
 * `buffer`. */
const char *dt_cell_text(const struct dt_column *column, const struct dt_cell *cell,
                         char buffer[DT_CELL_SIZE]);
/* A number in up to four significant digits, as on an axis. */
const char *dt_view_number(double value, char buffer[DT_CELL_SIZE]);

/* "time, ms" */
const char *dt_column_head(const struct dt_column *column, char buffer[DT_CELL_SIZE]);

static inline bool dt_row_has_hint(const struct dt_row *row)
{
    return row->hint != NULL && row->hint[0] != '\0';
}

static inline bool dt_column_is_text(const struct dt_column *column)
{
    return column->format == '\0';
}

/* Where the axis of lanes ends. */
double dt_lanes_extent(const struct dt_part *lanes);

/* Name of a row or column of a grid: its name, or its number. */
const char *dt_grid_name(char *const *names, size_t i, char buffer[DT_CELL_SIZE]);

/* "rows: true; columns: predicted" of a grid whose axes have names. */
const char *dt_grid_axes(const struct dt_part *grid, char buffer[DT_CELL_SIZE]);

/* Whether some row is judged, and whether some hint says more. */
bool dt_part_has_verdicts(const struct dt_part *part);
bool dt_part_has_hints(const struct dt_part *part);

/* The table that --csv writes, or NULL. */
const struct dt_part *dt_doc_main_table(const struct dt_doc *doc);

#endif
