#include "base/json.h"

#include <string.h>

#include "base/text.h"

/* A recursive-descent reader that keeps nothing. On failure `problem` is set and `at` is where. */
struct reader {
    const unsigned char *at, *end;
    const char *problem;
    int depth;
};

static bool read_value(struct reader *r);

static bool fail(struct reader *r, const char *problem)
{
    r->problem = problem;
    return false;
}

static int peek(const struct reader *r)
{
    return r->at < r->end ? *r->at : -1;
}

static bool accept(struct reader *r, int c)
{
    if (peek(r) != c) {
        return false;
    }
    r->at++;
    return true;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static void skip_space(struct reader *r)
{
    for (int c = peek(r); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = peek(r)) {
        r->at++;
    }
}

static bool unexpected(struct reader *r, const char *problem)
{
    const int c = peek(r);
    if (c < 0) {
        return fail(r, "the text ends too early (close every quote and bracket)");
    }
    if (c == '/' || c == '#') {
        return fail(r, "not JSON (remove it; comments begin with //, in a configuration alone)");
    }
    if (c == '\'') {
        return fail(r, "single quotes (JSON wants \")");
    }
    return fail(r, c == '\0' ? "a NUL byte (remove it)" : problem);
}

/* The four digits behind \u; -1 if they are none. */
static int read_hex4(struct reader *r)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        const int c = peek(r);
        const int digit = is_digit(c)            ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
        r->at++;
    }
    return value;
}

static bool read_unicode_escape(struct reader *r)
{
    const int high = read_hex4(r);
    if (high < 0) {
        return fail(r, "\\u needs four hexadecimal digits");
    }
    if (high == 0) {
        return fail(r, "the text contains a NUL character, \\u0000 (remove it)");
    }
    if (high < 0xD800 || high > 0xDFFF) {
        return true;
    }
    const int low = high < 0xDC00 && accept(r, '\\') && accept(r, 'u') ? read_hex4(r) : -1;
    return low >= 0xDC00 && low <= 0xDFFF
               ? true
               : fail(r, "half of a surrogate pair (write the character itself)");
}

static bool read_escape(struct reader *r)
{
    const int c = peek(r);
    if (c == 'u') {
        r->at++;
        return read_unicode_escape(r);
    }
    if (c <= 0 || strchr("\"\\/bfnrt", c) == NULL) {
        return unexpected(r, "an unknown escape (a backslash is written \\\\)");
    }
    r->at++;
    return true;
}

static bool read_string(struct reader *r)
{
    while (!accept(r, '"')) {
        if (accept(r, '\\')) {
            if (!read_escape(r)) {
                return false;
            }
            continue;
        }
        const int c = peek(r);
        if (c < 0) {
            return unexpected(r, "");
        }
        if (c < 0x20) {
            return fail(
                r, "a line end or control character inside a text (close the quote, or write \\n)");
        }
        const size_t n = dt_utf8_length((const char *)r->at, (size_t)(r->end - r->at), NULL);
        if (n == 0) {
            return fail(r, "invalid UTF-8 (save the file as UTF-8)");
        }
        r->at += n;
    }
    return true;
}

static bool read_digits(struct reader *r)
{
    if (!is_digit(peek(r))) {
        return unexpected(r, "a digit is missing in a number");
    }
    while (is_digit(peek(r))) {
        r->at++;
    }
    return true;
}

static bool read_number(struct reader *r)
{
    const unsigned char *start = r->at;
    accept(r, '-');
    if (accept(r, '0')) {
        if (is_digit(peek(r))) {
            return fail(r, "a number begins with 0 (remove the leading zeros)");
        }
    } else if (!read_digits(r)) {
        return false;
    }
    if (accept(r, '.') && !read_digits(r)) {
        return false;
    }
    if (accept(r, 'e') || accept(r, 'E')) {
        if (!accept(r, '+')) {
            accept(r, '-');
        }
        if (!read_digits(r)) {
            return false;
        }
    }
    return r->at - start <= DT_JSON_NUMBER_LENGTH
               ? true
               : fail(r, "a number of more than 60 characters (shorten it)");
}

static const char not_a_value[] =
    "not a JSON value (strings need double quotes; the only bare words are true, false and null)";

static bool read_word(struct reader *r, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) {
        return unexpected(r, not_a_value);
    }
    r->at += n;
    return true;
}

static bool read_member(struct reader *r)
{
    skip_space(r);
    if (!accept(r, '"')) {
        return unexpected(r, "a key in quotes is expected here");
    }
    if (!read_string(r)) {
        return false;
    }
    skip_space(r);
    return accept(r, ':') ? read_value(r) : unexpected(r, "':' is missing after a key");
}

/* Reads the contents of brackets; the opening one is read already. */
static bool read_items(struct reader *r, int close, bool (*read_item)(struct reader *),
                       const char *missing)
{
    if (++r->depth > DT_JSON_DEPTH) {
        r->at--; /* at the bracket itself */
        return fail(r, "nesting deeper than 16 (no key of the configuration is)");
    }
    skip_space(r);
    if (!accept(r, close)) {
        do {
            if (!read_item(r)) {
                return false;
            }
            skip_space(r);
            if (accept(r, close)) {
                r->depth--;
                return true;
            }
            if (!accept(r, ',')) {
                return unexpected(r, missing);
            }
            skip_space(r);
        } while (peek(r) != close);
        return fail(r, "a comma before a closing bracket (remove the comma)");
    }
    r->depth--;
    return true;
}

static bool read_value(struct reader *r)
{
    skip_space(r);
    const int c = peek(r);
    switch (c) {
    case '{':
        r->at++;
        return read_items(r, '}', read_member, "',' or '}' is missing here");
    case '[':
        r->at++;
        return read_items(r, ']', read_value, "',' or ']' is missing here");
    case '"':
        r->at++;
        return read_string(r);
    case 't':
        return read_word(r, "true");
    case 'f':
        return read_word(r, "false");
    case 'n':
        return read_word(r, "null");
    default:
        return c == '-' || is_digit(c) ? read_number(r) : unexpected(r, not_a_value);
    }
}

static bool read_document(struct reader *r)
{
    if (r->end - r->at >= 3 && memcmp(r->at, "\xEF\xBB\xBF", 3) == 0) {
        return fail(r, "a byte order mark (save the file as UTF-8 without it)");
    }
    if (!read_value(r)) {
        return false;
    }
    skip_space(r);
    return r->at == r->end
               ? true
               : unexpected(r, "unexpected text after the end of the document (remove it)");
}

static void find_position(const unsigned char *text, const unsigned char *at,
                          struct dt_json_fault *fault)
{
    fault->line = fault->column = 1;
    for (; text < at; text++) {
        if (*text == '\n') {
            fault->line++;
            fault->column = 1;
        } else if ((*text & 0xC0) != 0x80) {
            fault->column++;
        }
    }
}

bool dt_json_check(const char *text, size_t n_bytes, struct dt_json_fault *fault)
{
    const unsigned char *bytes = (const unsigned char *)text;
    struct reader r = {.at = bytes, .end = bytes + n_bytes};
    if (read_document(&r)) {
        return true;
    }
    fault->problem = r.problem;
    find_position(bytes, r.at, fault);
    return false;
}

static bool is_control(unsigned char c)
{
    return (c < 0x20 && c != '\t' && c != '\r') || c == 0x7F;
}

/* The end of the line at `at`, or the first byte before it that is no text. */
static char *end_of_comment(char *at, const char *end)
{
    while (at < end && *at != '\n') {
        const size_t left = (size_t)(end - at);
        const size_t n = is_control((unsigned char)*at) ? 0 : dt_utf8_length(at, left, NULL);
        if (n == 0) {
            return at;
        }
        at += n;
    }
    return at;
}

/* Behind the string that begins at `at`. One that is not closed ends with its line, where
 * dt_json_check stops. */
static char *end_of_string(char *at, const char *end)
{
    for (at++; at < end && *at != '\n' && *at != '"'; at++) {
        at += *at == '\\' && end - at > 1;
    }
    return at + (at < end);
}

bool dt_json_blank_comments(char *text, size_t n_bytes, struct dt_json_fault *fault)
{
    char *at = text, *const end = text + n_bytes;
    while (at < end) {
        if (*at == '"') {
            at = end_of_string(at, end);
        } else if (*at != '/' || end - at < 2 || at[1] != '/') {
            at++;
        } else {
            char *const line = end_of_comment(at, end);
            if (line < end && *line != '\n') {
                fault->problem = "a control character or invalid UTF-8 in a comment (remove it)";
                find_position((unsigned char *)text, (unsigned char *)line, fault);
                return false;
            }
            memset(at, ' ', (size_t)(line - at));
            at = line;
        }
    }
    return true;
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
