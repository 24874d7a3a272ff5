/* The data format "csv": train.csv and test.csv, a header and a sample in each row (RFC 4180), with
 * commas, semicolons or tabs. Two passes: the first finds columns of text and names of classes, the
 * second reads the numbers. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "data/formats/labelled.h"

#define FIELD_SIZE 256

/* The role of a column, if not its place among the row's numbers: features, then the answers. */
enum { NONE = -1, PERHAPS = -2 };

struct table {
    const struct dt_data_spec *spec;
    struct dt_owned owned;
    struct dt_dataset *out;
    char path[DT_PATH_SIZE], *text, *at, separator, end; /* end: what ended the field */
    size_t line, n_rows;
    bool counts, scans; /* only the first pass; the first pass */
    int n_features, *roles;
    struct dt_names columns, classes;
    char field[FIELD_SIZE];
    double numbers[]; /* of a row: features, then answers */
};

static enum dt_status refuse(const struct table *t, int column, const char *what)
{
    return dt_error(DT_BAD_DATA, "%s: line %zu, column %.60s: \"%.40s\" is %s", t->path, t->line,
                    t->columns.at[column], t->field, what);
}

static void add(struct table *t, size_t *n, const char *text, size_t n_text)
{
    const size_t room = FIELD_SIZE - 1 - *n, n_taken = n_text < room ? n_text : room;
    memcpy(t->field + *n, text, n_taken);
    *n += n_taken;
}

/* Reads up to the separator behind a field, or the end of the line. A quote inside a quoted field
 * is written twice. Blanks before a field are dropped. */
static enum dt_status next_field(struct table *t)
{
    size_t n = 0, n_plain = 0;
    t->line += t->end == '\n';
    for (; *t->at == ' ' || (*t->at == '\t' && t->separator != '\t'); t->at++) {
    }
    if (*t->at == '"') {
        for (t->at++; *t->at != '\0' && (*t->at != '"' || t->at[1] == '"'); t->at++) {
            t->at += *t->at == '"';
            t->line += *t->at == '\n';
            add(t, &n, t->at, 1);
        }
        if (*t->at++ == '\0') {
            return dt_error(DT_BAD_DATA, "%s: a quote that does not end", t->path);
        }
    }
    for (char c; (c = t->at[n_plain]) != t->separator && c != '\n' && c != '\0'; n_plain++) {
    }
    add(t, &n, t->at, n_plain);
    t->at += n_plain;
    n -= n > 0 && t->field[n - 1] == '\r';
    t->field[n] = '\0';
    t->end = *t->at;
    t->at += t->end != '\0';
    return DT_OK;
}

/* The first value of a column decides whether it holds numbers. */
static enum dt_status read_value(struct table *t, int c)
{
    const bool open = t->roles[c] == PERHAPS && t->field[0] != '\0',
               label = t->roles[c] >= t->n_features && t->spec->n_classes > 0;
    double x = label ? dt_names_index(&t->classes, t->field) : 0;
    const bool number = !label && (open || !t->scans) && dt_text_number(t->field, &x);
    if (label && x < 0 && t->classes.n <= (size_t)t->spec->n_classes) {
        return t->field[0] == '\0' || strchr(t->field, '/') != NULL || t->spec->classes.n > 0
                   ? refuse(t, c, "no class of the training set")
                   : dt_names_add(t->path, t->field, &t->classes);
    }
    if (t->scans) {
        t->roles[c] = !open ? t->roles[c] : number ? 0 : NONE;
        return DT_OK;
    }
    t->numbers[t->roles[c]] = x;
    return label || number
               ? DT_OK
               : refuse(t, c, "no number (mend it, or leave the column out: data.features)");
}

/* Reads a row. The first one, before there are roles, is the header with the columns' names. */
static enum dt_status read_row(struct table *t)
{
    int c = 0;
    do {
        DT_TRY(next_field(t));
        const bool used = t->roles != NULL && c < (int)t->columns.n && t->roles[c] != NONE;
        DT_TRY(t->roles == NULL ? dt_names_add(t->path, t->field, &t->columns)
               : used           ? read_value(t, c)
                                : DT_OK);
        c++;
    } while (t->end == t->separator);
    if (t->roles == NULL || (c == 1 && t->field[0] == '\0')) { /* an empty line */
        return DT_OK;
    }
    if (c != (int)t->columns.n) {
        return dt_error(DT_BAD_DATA, "%s: line %zu has %d fields, the header has %zu", t->path,
                        t->line, c, t->columns.n);
    }
    const size_t i = t->n_rows++;
    const double *x = t->numbers;
    DT_TRY(t->scans ? DT_OK : dt_labelled_numbers(t->spec, t->path, t->owned, i, false, x, t->out));
    return t->scans ? DT_OK
                    : dt_labelled_answer(t->spec, t->path, t->owned, i, x + t->n_features, t->out);
}

/* Reads up to n rows below the header. */
static enum dt_status read_rows(struct table *t, size_t n)
{
    char *first = t->at;
    const size_t line = t->line;
    for (t->n_rows = 0; *t->at != '\0' && t->n_rows < n;) {
        dt_alive_show(&t->spec->alive);
        DT_TRY(read_row(t));
    }
    t->at = first;
    t->line = line;
    t->end = '\n';
    return DT_OK;
}

/* Gives the named columns their roles; `role`: that of the first name. */
static enum dt_status find_columns(struct table *t, const char *names, int n, int role)
{
    char some[DT_SOME_NAMES_SIZE];
    dt_names_some(&t->columns, some);
    for (; n > 0; n--, role++, names += strlen(names) + 1) {
        const int c = dt_names_index(&t->columns, names);
        if (c < 0 || t->roles[c] >= 0) {
            return dt_error(DT_BAD_DATA,
                            "%s: no column \"%.60s\", or it is named twice; there are %s", t->path,
                            names, some);
        }
        t->roles[c] = role;
    }
    return DT_OK;
}

/* Features are the columns of data.features, or else all columns of numbers. */
static enum dt_status find_roles(struct table *t)
{
    const struct dt_data_spec *spec = t->spec;
    const bool named = spec->features.n > 0, labels = spec->n_classes > 0;
    const int n_answers = spec->unanswered ? 0 : labels ? 1 : spec->target.n;
    struct dt_texts *features = &t->out->found->features;
    struct dt_name_list texts = {.n = 0};
    bool fits = true;
    for (size_t c = 0; c < t->columns.n; c++) {
        t->roles[c] = named ? NONE : PERHAPS;
    }
    DT_TRY(find_columns(t, spec->features.bytes, spec->features.n, 0));
    DT_TRY(find_columns(t, labels ? spec->label : spec->target.bytes, n_answers, t->n_features));
    DT_TRY(read_rows(t, SIZE_MAX));
    for (size_t c = 0; !named && c < t->columns.n; c++) {
        if (t->roles[c] == 0) {
            t->roles[c] = features->n;
            fits = fits && dt_texts_add(features, t->columns.at[c]);
        } else if (t->roles[c] < 0) {
            t->roles[c] = NONE;
            dt_name_list_add(&texts, t->columns.at[c], strlen(t->columns.at[c]));
        }
    }
    memcpy(t->out->left_out, texts.text, sizeof texts.text);
    if (!fits) {
        return dt_error(DT_BAD_DATA,
                        "%s: the names of its columns take more than %d bytes (shorten them, or "
                        "save the numbers as an array for data.format npy)",
                        t->path, DT_TEXTS_BYTES - 1);
    }
    const int n = named ? spec->features.n : features->n;
    return n == t->n_features
               ? DT_OK
               : dt_error(DT_BAD_DATA,
                          "%s: %d columns of features, model.input has %d numbers (set it to [%d], "
                          "or choose columns by data.features)",
                          t->path, n, t->n_features, n);
}

static int by_size(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts the classes by name; numbers by value. */
static enum dt_status find_classes(struct table *t, enum dt_split split)
{
    const int n = t->spec->n_classes;
    char some[DT_SOME_NAMES_SIZE];
    if (n == 0 || t->spec->unanswered || t->spec->classes.n > 0) {
        return DT_OK;
    }
    qsort(t->classes.at, t->classes.n, sizeof *t->classes.at, by_size);
    dt_names_some(&t->classes, some);
    bool fits = t->classes.n == (size_t)n && split != DT_SPLIT_TEST;
    for (int k = 0; k < n && fits; k++) {
        fits = dt_texts_add(&t->out->found->classes, t->classes.at[k]);
    }
    t->out->class_names = fits ? dt_class_names_join(&t->out->found->classes) : NULL;
    return fits ? DT_OK
                : dt_error(DT_BAD_DATA,
                           "%s: its classes are %s; the model has %d (let the last layer have as "
                           "many units; for a test set alone, name all in data.classes)",
                           t->path, some, n);
}

static enum dt_status read_table(struct table *t, enum dt_split split)
{
    const struct dt_data_spec *spec = t->spec;
    const char *name = split == DT_SPLIT_TEST ? "test.csv" : "train.csv";
    size_t n = 0;
    snprintf(t->path, DT_PATH_SIZE, "%s", spec->dir);
    DT_TRY(spec->unanswered ? DT_OK : dt_labelled_path(spec->dir, name, t->path));
    DT_TRY(dt_file_read(t->path, (size_t)8 << 30, (uint8_t **)&t->text, &n));
    const char *kind = dt_file_kind((uint8_t *)t->text, n), *mark = strpbrk(t->text, ",;\t\n");
    if (strlen(t->text) < n || (kind != NULL && strchr("<{v", t->text[0]) != NULL)) {
        return dt_error(DT_BAD_DATA, "%s: no table of text; it looks like %s", t->path,
                        kind != NULL ? kind : "none");
    }
    t->separator = mark != NULL && *mark != '\n' ? *mark : ',';
    t->at = t->text + (strncmp(t->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
    DT_TRY(read_row(t));
    t->roles = calloc(t->columns.n, sizeof *t->roles);
    t->out->found = calloc(1, sizeof *t->out->found);
    if (t->roles == NULL || t->out->found == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: no memory to read it", t->path);
    }
    for (int k = 0; k < spec->classes.n; k++) {
        DT_TRY(dt_names_add(t->path, dt_texts_at(&spec->classes, k), &t->classes));
    }
    DT_TRY(find_roles(t));
    DT_TRY(t->n_rows > 0 ? find_classes(t, split) : dt_error(DT_BAD_DATA, "%s: no rows", t->path));
    t->out->samples.n_total = dt_labelled_count(spec, split, t->n_rows);
    if (t->counts) {
        return DT_OK;
    }
    DT_TRY(dt_labelled_alloc(spec, t->path, t->out->samples.n_total,
                             spec->shape.h * spec->shape.w == 1, t->owned, t->out));
    t->scans = false;
    DT_TRY(read_rows(t, t->out->samples.n_total));
    return dt_labelled_settle(spec, split, t->owned.n, t->out);
}

static enum dt_status open_table(const struct dt_data_spec *spec, enum dt_split split,
                                 struct dt_owned owned, bool counts, struct dt_dataset *out)
{
    const int n = (int)dt_shape_elems(spec->shape), n_all = n + spec->n_targets + 1;
    struct table *t = calloc(1, sizeof *t + (size_t)n_all * sizeof(double));
    if (t == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: no memory to read it", spec->dir);
    }
    *t = (struct table){.spec = spec,
                        .owned = owned,
                        .out = out,
                        .line = 1,
                        .n_features = n,
                        .counts = counts,
                        .scans = true};
    const enum dt_status s = read_table(t, split);
    dt_names_close(&t->columns);
    dt_names_close(&t->classes);
    free(t->text);
    free(t->roles);
    free(t);
    return s;
}

static enum dt_status csv_load(const struct dt_data_spec *spec, enum dt_split split,
                               struct dt_owned owned, struct dt_dataset *out)
{
    return open_table(spec, split, owned, false, out);
}

static enum dt_status csv_count(const struct dt_data_spec *spec, enum dt_split split,
                                size_t *n_total)
{
    struct dt_dataset none = {.n_passed = 0};
    const enum dt_status s = open_table(spec, split, (struct dt_owned){.stride = 1}, true, &none);
    *n_total = none.samples.n_total;
    dt_dataset_close(&none);
    return s;
}

const struct dt_data_reader dt_csv_data = {
    .check = dt_labelled_check, .count = csv_count, .load = csv_load};
