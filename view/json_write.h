/* The one writer of JSON: into a file, without a tree and without memory. Texts may come from
 * outside (names of hosts and devices, paths, command lines): what JSON does not take is escaped,
 * and U+FFFD stands in the place of each byte that is no UTF-8. */
#ifndef DT_VIEW_JSON_WRITE_H
#define DT_VIEW_JSON_WRITE_H

#include <stdbool.h>
#include <stdio.h>

struct dt_json {
    FILE *out;
    bool in_lines; /* each member of an object in a line of its own, or all in one line */
    /* private */
    int depth;
    bool inside; /* something stands before, in the same object or array */
};

/* `key`: of the member of an object; NULL: in an array, or the outermost. bracket: '{' or '[', and
 * the same at its end. */
void dt_json_begin(struct dt_json *json, const char *key, char bracket);
void dt_json_end(struct dt_json *json, char bracket);

/* `digits`: so many, without zeros at the end; or -n: n behind the point; or 0: as many as it takes
 * to read the same number back. JSON has no NaN and no infinity: null. */
void dt_json_number(struct dt_json *json, const char *key, int digits, double value);
void dt_json_bool(struct dt_json *json, const char *key, bool value);
void dt_json_text(struct dt_json *json, const char *key, const char *text);
/* Leaves the member out if the text is NULL or empty. */
void dt_json_text_if(struct dt_json *json, const char *key, const char *text);

/* A number alone, with `digits` as above; "nan" of what is none. */
void dt_json_digits(FILE *out, int digits, double value);

#endif
