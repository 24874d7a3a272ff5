/* System calls on files that fail, fall short or are the last: a test puts set_fault and no_fault
 * around what it tries. */
#ifndef DT_TESTS_FILE_FAULTS_H
#define DT_TESTS_FILE_FAULTS_H

#include "base/file.h"
#include "tests/unit/base/file_calls.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum fault { FAULT_NONE, FAULT_ERROR, FAULT_KILL_BEFORE, FAULT_KILL_AFTER };

static int n_calls, fault_at, fault_errno;
static enum fault fault;
static bool short_and_interrupted;
static bool half_written; /* the write before the call that fails does half of its bytes */

static char call_log[256]; /* a letter a call, in order */

/* True when this call is to fail. */
static bool strike(char letter)
{
    call_log[n_calls < 255 ? n_calls : 254] = letter;
    if (n_calls++ != fault_at) {
        return false;
    }
    if (fault == FAULT_KILL_BEFORE) {
        raise(SIGKILL);
    }
    errno = fault_errno;
    return fault == FAULT_ERROR;
}

static void strike_after(void)
{
    if (fault == FAULT_KILL_AFTER && n_calls > fault_at) {
        raise(SIGKILL);
    }
}

#define FILE_CALL_FAULTY(type, name, letter, parameters, arguments) \
    static type faulty_##name parameters                            \
    {                                                               \
        if (strike(letter)) {                                       \
            return -1;                                              \
        }                                                           \
        const type result = real.name arguments;                    \
        strike_after();                                             \
        return result;                                              \
    }
FILE_CALLS(FILE_CALL_FAULTY)

/* Every second call is interrupted; the others do 3 bytes at most. */
static bool interrupted(size_t *n_bytes)
{
    static int turn;
    if (!short_and_interrupted) {
        return false;
    }
    *n_bytes = *n_bytes < 3 ? *n_bytes : 3;
    errno = EINTR;
    return turn++ % 2 == 0;
}

static ssize_t short_read(int fd, void *bytes, size_t n_bytes)
{
    return interrupted(&n_bytes) ? -1 : faulty_read(fd, bytes, n_bytes);
}

static ssize_t short_write(int fd, const void *bytes, size_t n_bytes)
{
    const bool half = half_written && n_calls + 1 == fault_at && n_bytes > 1;
    return interrupted(&n_bytes) ? -1 : faulty_write(fd, bytes, half ? n_bytes / 2 : n_bytes);
}

/* As on Linux, the descriptor is gone even when close fails. */
static int close_anyway(int fd)
{
    const int result = faulty_close(fd), error = errno;
    if (result != 0) {
        real.close(fd);
        errno = error;
    }
    return result;
}

/* Call `at`, from 0, fails with `error`, or is the process's last. */
static inline void set_fault(enum fault what, int at, int error)
{
#define FILE_CALL_USE(type, name, letter, parameters, arguments) .name = faulty_##name,
    calls = (struct file_calls){FILE_CALLS(FILE_CALL_USE)};
    calls.read = short_read;
    calls.write = short_write;
    calls.close = close_anyway;
    fault = what;
    fault_at = at;
    fault_errno = error;
    n_calls = 0;
    memset(call_log, 0, sizeof call_log);
}

static inline void no_fault(void)
{
    calls = real;
    dt_error_clear();
}

#endif
