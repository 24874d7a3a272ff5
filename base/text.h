/* Texts from outside (paths, names, host names, what a file or a library says) on their way to a
 * terminal. They are UTF-8; a hostile one moves the cursor, turns the direction of writing, or adds
 * a line. Whatever is not printable is escaped, whoever wrote it. */
#ifndef DT_BASE_TEXT_H
#define DT_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Bytes of the UTF-8 character at `text`, of which `n` > 0 bytes are left, and its code point. 0 if
 * it is none: no overlong forms, no surrogates, nothing above U+10FFFF. `point` may be NULL. */
size_t dt_utf8_length(const char *text, size_t n, uint32_t *point);

/* Is it UTF-8 without control characters? */
bool dt_text_is_clean(const char *text, size_t n_bytes);

/* Whether a terminal shows this character and does nothing else: no control (C0, DEL, C1), no line
 * or paragraph separator, nothing that turns the direction of writing or is not seen at all. */
bool dt_text_shows(uint32_t point);

/* `text` in printable characters: the others as \x1b, \u202e, \U000e0041, bytes that are not UTF-8
 * as \xff. What does not fit into `size` bytes is left out. A text that was escaped before stays as
 * it is. Returns `out`. */
const char *dt_text_escape(const char *text, char *out, size_t size);

#define DT_LINE_SIZE 8192

/* vsnprintf, and escaped. At most DT_LINE_SIZE bytes; returns those of `out`. */
int dt_text_format(char *out, size_t size, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* As many names as a message has room for: "'conv1.weight', 'conv1.bias' and 4 more". Zeroed at
 * first. */
struct dt_name_list {
    char text[128];
    size_t used;
    int n, n_left_out;
};
/* Adds the first n bytes of `name`. */
void dt_name_list_add(struct dt_name_list *list, const char *name, size_t n);

#define DT_BYTES_TEXT_SIZE 16

/* "512 B", "33.6 MB", "139 GB": three digits, and a kB is 1000 B. Returns text. */
const char *dt_bytes_text(double n_bytes, char text[DT_BYTES_TEXT_SIZE]);

/* As a shell reads it back, in quotes where it needs them. */
void dt_text_put_word(FILE *out, const char *word);

/* Closes a stream of open_memstream, or NULL. False: there was not the memory for all of its text,
 * which is NULL then. */
bool dt_text_close(FILE *out, char **text);

/* Whether all of the text, but for blanks, is one finite decimal number. */
bool dt_text_number(const char *text, double *out);

/* Columns of a terminal that shows the stream, or 0: set by a program whose long lines shall break
 * at spaces. */
extern int (*dt_text_width)(FILE *out);

/* Prints one line, escaped, and ends it, all at once. */
void dt_text_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
