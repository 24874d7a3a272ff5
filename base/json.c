#include "base/json.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "base/text.h"

/* The text from `at` to `end`. On failure `problem` is set and `at` is the place. */
struct reader {
    const char *at, *end;
    char *comments; /* the text, where comments in it are to become spaces, or NULL */
    const char *text, *problem;
};

static bool fail(struct reader *r, const char *problem)
{
    r->problem = problem;
    return false;
}

static int peek(const struct reader *r)
{
    return r->at < r->end ? (unsigned char)*r->at : -1;
}

static bool accept(struct reader *r, int c)
{
    const bool there = peek(r) == c;
    r->at += there;
    return there;
}

static bool unexpected(struct reader *r, const char *problem)
{
    const int c = peek(r);
    return fail(r, c < 0 ? "the text ends too early (close every quote and bracket)"
                   : c == '/' || c == '#' ? "not JSON (remove it; comments begin with //, in a "
                                            "configuration alone)"
                   : c == '\''            ? "single quotes (JSON wants \")"
                   : (c == '\0' || c >= 0xfe) && r->at <= r->text + 1
                       ? "text in UTF-16, as PowerShell writes (save it as UTF-8)"
                   : c == '\0' ? "a NUL byte (remove it)"
                               : problem);
}

/* Steps over a character; false: it is a control character or invalid UTF-8. */
static bool skip_character(struct reader *r)
{
    const size_t n = dt_utf8_length(r->at, (size_t)(r->end - r->at), NULL);
    r->at += n;
    return n > 0;
}

static bool skip_comment(struct reader *r)
{
    const char *begin = r->at;
    for (int c = peek(r); c >= 0 && c != '\n'; c = peek(r)) {
        if ((c < 0x20 && c != '\t' && c != '\r') || c == 0x7F || !skip_character(r)) {
            return fail(r, "a control character or invalid UTF-8 in a comment (remove it)");
        }
    }
    memset(r->comments + (begin - r->text), ' ', (size_t)(r->at - begin));
    return true;
}

static bool skip_space(struct reader *r)
{
    for (int c = peek(r); c >= 0; c = peek(r)) {
        if (r->comments != NULL && c == '/' && r->end - r->at >= 2 && r->at[1] == '/') {
            if (!skip_comment(r)) {
                return false;
            }
        } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            break;
        } else {
            r->at++;
        }
    }
    return true;
}

/* The four digits after \u; -1 if they are none. */
static int read_hex4(struct reader *r)
{
    static const char digits[] = "0123456789abcdef";
    int value = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const int c = peek(r);
        const char *digit = c > 0 ? strchr(digits, tolower(c)) : NULL;
        if (digit == NULL) {
            return -1;
        }
        value = value * 16 + (int)(digit - digits);
    }
    return value;
}

static bool read_unicode_escape(struct reader *r)
{
    const int high = read_hex4(r);
    if (high <= 0) {
        return fail(r, high < 0 ? "\\u needs four hexadecimal digits"
                                : "the text contains a NUL character, \\u0000 (remove it)");
    }
    if (high < 0xD800 || high > 0xDFFF) {
        return true;
    }
    const int low = high < 0xDC00 && accept(r, '\\') && accept(r, 'u') ? read_hex4(r) : -1;
    return (low >= 0xDC00 && low <= 0xDFFF) ||
           fail(r, "half of a surrogate pair (write the character itself)");
}

/* Reads to the end of a string, whose first quote is read already. */
static bool read_string(struct reader *r)
{
    while (!accept(r, '"')) {
        const int c = peek(r);
        if (c < 0) {
            return unexpected(r, "");
        }
        if (c < 0x20) {
            return fail(
                r, "a line end or control character inside a text (close the quote, or write \\n)");
        }
        if (c != '\\') {
            if (!skip_character(r)) {
                return fail(r, "invalid UTF-8 (save the file as UTF-8)");
            }
            continue;
        }
        r->at++;
        const int escape = peek(r);
        if (escape <= 0 || strchr("\"\\/bfnrtu", escape) == NULL) {
            return unexpected(r, "an unknown escape (a backslash is written \\\\)");
        }
        r->at++;
        if (escape == 'u' && !read_unicode_escape(r)) {
            return false;
        }
    }
    return true;
}

static bool read_digits(struct reader *r)
{
    if (!isdigit(peek(r))) {
        return unexpected(r, "a digit is missing in a number");
    }
    while (isdigit(peek(r))) {
        r->at++;
    }
    return true;
}

static bool read_number(struct reader *r)
{
    const char *start = r->at;
    accept(r, '-');
    const bool zero = accept(r, '0');
    if (zero && isdigit(peek(r))) {
        return fail(r, "a number begins with 0 (remove the leading zeros)");
    }
    bool ok = zero || read_digits(r);
    if (ok && accept(r, '.')) {
        ok = read_digits(r);
    }
    if (ok && (accept(r, 'e') || accept(r, 'E'))) {
        r->at += peek(r) == '+' || peek(r) == '-';
        ok = read_digits(r);
    }
    return ok && (r->at - start <= DT_JSON_NUMBER_LENGTH ||
                  fail(r, "a number of more than 60 characters (shorten it)"));
}

static bool read_scalar(struct reader *r)
{
    static const char *const literals[] = {"true", "false", "null"};
    if (accept(r, '"')) {
        return read_string(r);
    }
    if (peek(r) == '-' || isdigit(peek(r))) {
        return read_number(r);
    }
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(literals[i]);
        if ((size_t)(r->end - r->at) >= n && memcmp(r->at, literals[i], n) == 0) {
            r->at += n;
            return true;
        }
    }
    return unexpected(r, "not a JSON value (strings need double quotes; the only bare words are "
                         "true, false and null)");
}

/* One token after the other, without recursion. */
static bool check(struct reader *r)
{
    enum { VALUE, FIRST_ITEM, ITEM, COLON, DONE } next = VALUE; /* DONE: a value is complete */
    char closing[DT_JSON_DEPTH + 1] = "";                       /* of the open brackets */
    for (int depth = 0;;) {
        if (!skip_space(r)) {
            return false;
        }
        const int c = peek(r), close = closing[depth];
        bool ok = true;
        if (depth == 0 && next == DONE) {
            return c < 0 ||
                   unexpected(r, "unexpected text after the end of the document (remove it)");
        }
        if (depth > 0 && c == close && next != VALUE && next != COLON) {
            ok = next != ITEM || fail(r, "a comma before a closing bracket (remove the comma)");
            depth--;
            r->at += ok;
            next = DONE;
        } else if (next == DONE) {
            ok = accept(r, ',') || unexpected(r, close == '}' ? "',' or '}' is missing here"
                                                              : "',' or ']' is missing here");
            next = ITEM;
        } else if (next == COLON) {
            ok = accept(r, ':') || unexpected(r, "':' is missing after a key");
            next = VALUE;
        } else if (next != VALUE && close == '}') {
            ok =
                accept(r, '"') ? read_string(r) : unexpected(r, "a key in quotes is expected here");
            next = COLON;
        } else if (c != '{' && c != '[') {
            ok = read_scalar(r);
            next = DONE;
        } else if (depth == DT_JSON_DEPTH) {
            ok = fail(r, "nesting deeper than 16 (no key of the configuration is)");
        } else {
            closing[++depth] = c == '{' ? '}' : ']';
            r->at++;
            next = FIRST_ITEM;
        }
        if (!ok) {
            return false;
        }
    }
}

static cJSON *parse(struct reader *r, struct dt_json_fault *fault)
{
    const size_t n_bytes = (size_t)(r->end - r->at);
    *fault = (struct dt_json_fault){.line = 1, .column = 1};
    if (n_bytes >= 3 && memcmp(r->at, "\xEF\xBB\xBF", 3) == 0) {
        fail(r, "a byte order mark (save the file as UTF-8 without it)");
    } else if (check(r)) {
        return cJSON_ParseWithLength(r->text, n_bytes);
    }
    fault->problem = r->problem;
    for (const char *c = r->text; c < r->at; c++) {
        fault->line += *c == '\n';
        fault->column = *c == '\n' ? 1 : fault->column + ((*c & 0xC0) != 0x80);
    }
    return NULL;
}

cJSON *dt_json_parse(const char *text, size_t n_bytes, struct dt_json_fault *fault)
{
    return parse(&(struct reader){.at = text, .end = text + n_bytes, .text = text}, fault);
}

cJSON *dt_json_parse_commented(char *text, size_t n_bytes, struct dt_json_fault *fault)
{
    struct reader r = {.at = text, .end = text + n_bytes, .text = text, .comments = text};
    return parse(&r, fault);
}
