#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char error_text[DT_ERROR_TEXT_SIZE];
static bool error_is_agreed;

/* Whether an error that happens now is the first, whose text is kept. */
static bool is_first(void)
{
    const bool first = error_text[0] == '\0';
    error_is_agreed = error_is_agreed && !first;
    return first;
}

/* Names from hostile files end up here; they must not move the cursor or add a line. */
static void make_one_line(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            *text = '?';
        }
    }
}

enum dt_status dt_error(enum dt_status status, const char *format, ...)
{
    if (is_first()) {
        va_list args;
        va_start(args, format);
        vsnprintf(error_text, sizeof error_text, format, args);
        va_end(args);
        make_one_line(error_text);
    }
    return status;
}

enum dt_status dt_error_errno(enum dt_status status, const char *format, ...)
{
    const int error = errno;
    if (is_first()) {
        va_list args;
        va_start(args, format);
        const int used = vsnprintf(error_text, sizeof error_text, format, args);
        va_end(args);
        if (used >= 0 && (size_t)used < sizeof error_text) {
            snprintf(error_text + used, sizeof error_text - (size_t)used, ": %s", strerror(error));
        }
        make_one_line(error_text);
    }
    return error == ENOMEM ? DT_NO_MEMORY : status;
}

enum dt_status dt_error_around(enum dt_status status, const char *before, const char *after)
{
    char inner[sizeof error_text];
    memcpy(inner, error_text, sizeof inner);
    snprintf(error_text, sizeof error_text, "%s%s%s", before, inner, after);
    make_one_line(error_text);
    return status;
}

const char *dt_error_text(void)
{
    return error_text;
}

enum dt_status dt_error_agreed(enum dt_status status)
{
    error_is_agreed = true;
    return status;
}

bool dt_error_is_agreed(void)
{
    return error_is_agreed;
}

void dt_error_clear(void)
{
    error_text[0] = '\0';
    error_is_agreed = false;
}

const char *dt_status_meaning(enum dt_status s)
{
    switch (s) {
#define DT_STATUS_MEANING(name, code, meaning) \
    case name:                                 \
        return meaning;
        DT_STATUS_LIST(DT_STATUS_MEANING)
#undef DT_STATUS_MEANING
    }
    return "unknown status";
}
