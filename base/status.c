#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

dt_format_fn dt_error_format = vsnprintf;

static char error_text[DT_ERROR_TEXT_SIZE];
static bool error_is_agreed;

/* Keeps the text of the first error; false: it is not the first. */
static bool keep(const char *format, va_list args)
{
    const bool first = error_text[0] == '\0';
    error_is_agreed = error_is_agreed && !first;
    if (first) {
        dt_error_format(error_text, sizeof error_text, format, args);
    }
    return first;
}

enum dt_status dt_error(enum dt_status status, const char *format, ...)
{
    DT_ASSERT(status != DT_OK);
    va_list args;
    va_start(args, format);
    keep(format, args);
    DT_ASSERT(error_text[0] != '\0');
    va_end(args);
    return status;
}

enum dt_status dt_error_errno(enum dt_status status, const char *format, ...)
{
    DT_ASSERT(status != DT_OK);
    const int error = errno;
    va_list args;
    va_start(args, format);
    if (keep(format, args)) {
        const size_t used = strlen(error_text);
        snprintf(error_text + used, sizeof error_text - used, ": %s", strerror(error));
    }
    va_end(args);
    return error == ENOMEM ? DT_NO_MEMORY : status;
}

enum dt_status dt_error_around(enum dt_status status, const char *before, const char *after)
{
    DT_ASSERT(status != DT_OK && error_text[0] != '\0');
    char text[DT_ERROR_TEXT_SIZE];
    const bool agreed = error_is_agreed;
    snprintf(text, sizeof text, "%s", error_text);
    dt_error_clear();
    (void)dt_error(status, "%s%s%s", before, text, after);
    error_is_agreed = agreed;
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
