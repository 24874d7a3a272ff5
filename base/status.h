/* Status codes: what went wrong, as the exit code that will say so.
 *
 * A function that can fail returns `enum dt_status`. The text of the first error travels beside it,
 * in one buffer per process, until `cli/main.c` prints it and exits: no other code prints or exits.
 * The numbers follow sysexits.h where it has a fitting one, so that job scripts can tell the cases
 * apart. */
#ifndef DT_BASE_STATUS_H
#define DT_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/assert.h"

/* X(name, exit code, meaning) */
#define DT_STATUS_LIST(X)                                                            \
    X(DT_OK, 0, "done")                                                              \
    X(DT_FAILED, 1, "an acceptance check failed")                                    \
    X(DT_USAGE, 64, "wrong command line")                                            \
    X(DT_BAD_DATA, 65, "corrupt or mismatched data or checkpoint")                   \
    X(DT_NO_INPUT, 66, "an input file is missing or unreadable")                     \
    X(DT_UNAVAILABLE, 69, "a backend, device or fitting launcher is not available")  \
    X(DT_INTERNAL, 70, "a bug, or replicas that diverged")                           \
    X(DT_NO_MEMORY, 71, "out of memory or threads")                                  \
    X(DT_CANT_CREATE, 73, "an output or run folder cannot be created, or is in use") \
    X(DT_IO, 74, "writing results failed")                                           \
    X(DT_STOPPED, 75, "stopped by a signal with a checkpoint saved: run me again")   \
    X(DT_STALLED, 76, "ranks disagree or one of them stalled")                       \
    X(DT_NO_PERMISSION, 77, "permission denied")                                     \
    X(DT_CONFIG, 78, "wrong configuration or environment")                           \
    X(DT_NON_FINITE, 80, "training diverged, or a model whose loss is not finite")

enum dt_status {
#define DT_STATUS_ENUM(name, code, meaning) name = code,
    DT_STATUS_LIST(DT_STATUS_ENUM)
#undef DT_STATUS_ENUM
};

/* The constants, and the names, of a list of X(constant, name, ...). */
#define DT_NAMED_ENUM(constant, ...) constant,
#define DT_ENUM_NAME(constant, name, ...) name,

#define DT_ERROR_TEXT_SIZE 2048

/* Records the text of an error, unless one is already waiting to be printed (the first one is the
 * cause), and returns `status`, so that a failing function can end in `return dt_error(DT_CONFIG,
 * "...", ...)`. The text is one line: `<what is wrong, where> (<how to mend it>)`. */
enum dt_status dt_error(enum dt_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for a failed system call: appends the text of `errno`; ENOMEM makes it DT_NO_MEMORY,
 * whatever the call was for. */
enum dt_status dt_error_errno(enum dt_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* How these texts are formatted: by vsnprintf, until a program sets another function; dtrain
 * escapes what a terminal would obey (dt_text_format). */
typedef int (*dt_format_fn)(char *out, size_t size, const char *format, va_list args);
extern dt_format_fn dt_error_format;

/* Says that every rank has the waiting error, so that all leave together, and returns `status`: of
 * what dt_world_agree found, and of a verdict on what a collective gave to all ranks alike. Any
 * error recorded later is this rank's own again. */
enum dt_status dt_error_agreed(enum dt_status status);
bool dt_error_is_agreed(void);

/* Puts words around the text that is waiting, for who knows more: what the memory was for, how to
 * mend it. Returns `status`. */
enum dt_status dt_error_around(enum dt_status status, const char *before, const char *after);

/* Which release this program is: "0.1.0". `dtrain --version` also says what it was built from. */
extern const char dt_version[];

const char *dt_error_text(void); /* "" when there is none */
void dt_error_clear(void);       /* after an error that was handled */

/* Hand a failure up; the second form first jumps to the cleanup at `label` with the status in
 * `status_variable`. */
#define DT_TRY(call)                            \
    do {                                        \
        const enum dt_status dt_try_s = (call); \
        if (dt_try_s != DT_OK) {                \
            return dt_try_s;                    \
        }                                       \
    } while (0)

#define DT_TRY_GOTO(status_variable, call, label) \
    do {                                          \
        (status_variable) = (call);               \
        if ((status_variable) != DT_OK) {         \
            goto label;                           \
        }                                         \
    } while (0)

#endif
