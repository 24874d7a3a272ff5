#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

size_t dt_utf8_length(const char *text, size_t n, uint32_t *point)
{
    DT_ASSERT(n > 0);
    const unsigned char *s = (const unsigned char *)text;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t length = s[0] < 0x80                  ? 1
                          : s[0] < 0xC2 || s[0] > 0xF4 ? 0
                          : s[0] < 0xE0                ? 2
                          : s[0] < 0xF0                ? 3
                                                       : 4;
    if (length == 0 || length > n) {
        return 0;
    }
    uint32_t value = length == 1 ? s[0] : s[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            return 0;
        }
        value = value << 6 | (s[i] & 0x3F);
    }
    if (value < least[length] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
        return 0;
    }
    if (point != NULL) {
        *point = value;
    }
    return length;
}

bool dt_text_is_clean(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes;) {
        const size_t n = (unsigned char)text[i] < 0x20 || text[i] == 0x7F
                             ? 0
                             : dt_utf8_length(text + i, n_bytes - i, NULL);
        if (n == 0) {
            return false;
        }
        i += n;
    }
    return true;
}

bool dt_text_shows(uint32_t point)
{
    static const uint32_t hidden[][2] = {
        {0x00, 0x1F},         /* C0 */
        {0x7F, 0x9F},         /* DEL, C1 */
        {0xAD, 0xAD},         /* soft hyphen */
        {0x61C, 0x61C},       /* Arabic letter mark */
        {0x180E, 0x180E},     /* without a width */
        {0x200B, 0x200B},     /* without a width */
        {0x200E, 0x200F},     /* direction marks */
        {0x2028, 0x202E},     /* line, paragraph, embeddings and overrides */
        {0x2060, 0x206F},     /* invisible operators, isolates */
        {0xFEFF, 0xFEFF},     /* byte order mark */
        {0xFFF9, 0xFFFB},     /* annotations */
        {0xFFFE, 0xFFFF},     /* no characters */
        {0xE0000, 0xE0FFF},   /* tags */
        {0x10FFFE, 0x10FFFF}, /* no characters */
    };
    bool shows = true;
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        shows = shows && (point < hidden[i][0] || point > hidden[i][1]);
    }
    return shows;
}

const char *dt_text_escape(const char *text, char *out, size_t size)
{
    DT_ASSERT(size > 0);
    size_t used = 0;
    for (const char *end = text + strlen(text); text < end;) {
        char escape[16];
        const char *piece = text;
        uint32_t point = (unsigned char)*text;
        size_t n_read = dt_utf8_length(text, (size_t)(end - text), &point), n = n_read;
        if (n_read == 0 || !dt_text_shows(point)) {
            n = (size_t)snprintf(escape, sizeof escape,
                                 n_read <= 1       ? "\\x%02x"
                                 : point <= 0xFFFF ? "\\u%04x"
                                                   : "\\U%08x",
                                 point);
            n_read = n_read == 0 ? 1 : n_read;
            piece = escape;
        }
        if (used + n >= size) {
            break;
        }
        memcpy(out + used, piece, n);
        used += n;
        text += n_read;
    }
    DT_ASSERT(used < size);
    out[used] = '\0';
    return out;
}

int dt_text_format(char *out, size_t size, const char *format, va_list args)
{
    char raw[DT_LINE_SIZE];
    vsnprintf(raw, sizeof raw, format, args);
    return (int)strlen(dt_text_escape(raw, out, size));
}

/* glibc closes a stream that had no memory with 0, too. */
bool dt_text_close(FILE *out, char **text)
{
    const bool whole = out != NULL && ferror(out) == 0;
    if ((out != NULL && fclose(out) != 0) || !whole) {
        free(*text);
        *text = NULL;
    }
    return *text != NULL;
}

int (*dt_text_width)(FILE *out);

/* Breaks a line at its spaces, so that no piece is wider than the terminal where words allow it. */
static void break_line(char *line, int width)
{
    DT_ASSERT(strchr(line, '\n') == NULL);
    char *space = NULL;
    int column = 0;
    for (char *at = line + strspn(line, " "); *at != '\0' && width > 0; at++) {
        column += ((unsigned char)*at & 0xC0) != 0x80; /* a character's first byte */
        if (column > width && space != NULL) {
            *space = '\n';
            at = space;
            space = NULL;
            column = 0;
        } else if (*at == ' ') {
            space = at;
        }
    }
}

void dt_text_print(FILE *out, const char *format, ...)
{
    char line[DT_LINE_SIZE];
    va_list args;
    va_start(args, format);
    dt_text_format(line, sizeof line - 1, format, args);
    va_end(args);
    break_line(line, dt_text_width != NULL ? dt_text_width(out) : 0);
    const size_t n = strlen(line);
    memcpy(line + n, "\n", 2);
    fputs(line, out);
}

void dt_name_list_add(struct dt_name_list *list, const char *name, size_t n)
{
    DT_ASSERT(list->n_left_out <= list->n && list->used < sizeof list->text);
    char *end = list->text + list->used;
    const size_t n_spare = sizeof list->text - list->used;
    const char *comma = list->n++ == 0 ? "" : ", ";
    if (list->n_left_out == 0 && strlen(comma) + n + sizeof "'' and 65535 more" <= n_spare) {
        list->used += (size_t)snprintf(end, n_spare, "%s'%.*s'", comma, (int)n, name);
    } else {
        snprintf(end, n_spare, " and %d more", ++list->n_left_out);
    }
}

void dt_text_put_word(FILE *out, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            fputs("'\\'", out);
        }
        fputc(*word, out);
    }
    fputc('\'', out);
}

const char *dt_bytes_text(double n_bytes, char text[DT_BYTES_TEXT_SIZE])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int unit = 0;
    for (; n_bytes >= 999.5 && unit < 4; unit++) {
        n_bytes /= 1000;
    }
    snprintf(text, DT_BYTES_TEXT_SIZE, "%.3g %s", n_bytes, units[unit]);
    return text;
}

bool dt_text_number(const char *text, double *out)
{
    char *end;
    const char *at = text;
    for (; *at == ' ' || *at == '\t'; at++) {
    }
    at += *at == '+' || *at == '-';
    *out = strtod(text, &end);
    for (; *end == ' ' || *end == '\t'; end++) {
    }
    return (*at == '.' || (*at >= '0' && *at <= '9')) && (at[1] | 32) != 'x' && end > at &&
           *end == '\0' && isfinite(*out);
}
