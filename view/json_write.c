#include "view/json_write.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static void put_tabs(const struct dt_json *j)
{
    for (int i = 0; i < j->depth; i++) {
        fputc('\t', j->out);
    }
}

static void put_character(FILE *out, const char *at, size_t n)
{
    static const char plain[] = "\"\\\b\f\n\r\t", escaped[] = "\"\\bfnrt";
    const char *found = strchr(plain, *at);
    if (n == 0) {
        fputs("\xEF\xBF\xBD", out); /* U+FFFD */
    } else if (found != NULL) {
        fprintf(out, "\\%c", escaped[found - plain]);
    } else if ((unsigned char)*at < ' ') {
        fprintf(out, "\\u%04x", (unsigned)*at);
    } else {
        fwrite(at, 1, n, out);
    }
}

static void put_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (size_t n, n_left = strlen(text); n_left > 0; text += n, n_left -= n) {
        n = dt_utf8_length(text, n_left, NULL);
        put_character(out, text, n);
        n = n > 0 ? n : 1;
    }
    fputc('"', out);
}

/* The text before a value. */
static void put_key(struct dt_json *j, const char *key)
{
    if (j->inside) {
        fputs(!j->in_lines ? "," : key != NULL ? ",\n" : ", ", j->out);
    }
    if (key != NULL) {
        if (j->in_lines) {
            put_tabs(j);
        }
        put_text(j->out, key);
        fputs(j->in_lines ? ":\t" : ":", j->out);
    }
    j->inside = true;
}

void dt_json_begin(struct dt_json *j, const char *key, char bracket)
{
    put_key(j, key);
    fputc(bracket, j->out);
    fputs(j->in_lines && bracket == '{' ? "\n" : "", j->out);
    j->depth++;
    j->inside = false;
}

void dt_json_end(struct dt_json *j, char bracket)
{
    j->depth--;
    if (j->in_lines && bracket == '{') {
        fputs(j->inside ? "\n" : "", j->out);
        put_tabs(j);
    }
    fputc(bracket == '{' ? '}' : ']', j->out);
    j->inside = true;
}

void dt_json_digits(FILE *out, int digits, double value)
{
    char text[32];
    if (digits < 0) {
        fprintf(out, "%.*f", -digits, value);
        return;
    }
    snprintf(text, sizeof text, "%.*g", digits > 0 ? digits : 15, value == 0 ? 0 : value);
    if (digits == 0 && fabs(strtod(text, NULL) - value) > fabs(value) * DBL_EPSILON) {
        snprintf(text, sizeof text, "%.17g", value);
    }
    fputs(text, out);
}

void dt_json_number(struct dt_json *j, const char *key, int digits, double value)
{
    put_key(j, key);
    if (isfinite(value)) {
        dt_json_digits(j->out, digits, value);
    } else {
        fputs("null", j->out);
    }
}

void dt_json_bool(struct dt_json *j, const char *key, bool value)
{
    put_key(j, key);
    fputs(value ? "true" : "false", j->out);
}

void dt_json_text(struct dt_json *j, const char *key, const char *text)
{
    put_key(j, key);
    put_text(j->out, text);
}

void dt_json_text_if(struct dt_json *json, const char *key, const char *text)
{
    if (text != NULL && text[0] != '\0') {
        dt_json_text(json, key, text);
    }
}
