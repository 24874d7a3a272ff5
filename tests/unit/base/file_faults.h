/* System calls that fail, fall short or are the last. A test puts set_fault(what, at which call
 * from 0, errno) and no_fault() around what it tries. */
#ifndef DT_TESTS_FILE_FAULTS_H
#define DT_TESTS_FILE_FAULTS_H

#include "base/file.h"
#include "tests/unit/base/file_calls.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum fault { FAULT_NONE, FAULT_ERROR, FAULT_KILL };

static int n_calls, fault_at, fault_errno;
static enum fault fault;
static bool short_and_interrupted;

static char call_log[256]; /* a letter a call, in order */

/* True when this call is to fail. */
static bool strike(char letter)
{
    call_log[n_calls < 255 ? n_calls : 254] = letter;
    if (n_calls++ != fault_at || fault == FAULT_NONE) {
        return false;
    }
    if (fault == FAULT_KILL) {
        kill(getpid(), SIGKILL);
    }
    errno = fault_errno;
    return true;
}

static int faulty_openat(int at, const char *path, int flags, mode_t mode)
{
    return strike('o') ? -1 : real.openat(at, path, flags, mode);
}

static int faulty_fstat(int fd, struct stat *info)
{
    return strike('i') ? -1 : real.fstat(fd, info);
}

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

static ssize_t faulty_read(int fd, void *bytes, size_t n_bytes)
{
    return strike('r') || interrupted(&n_bytes) ? -1 : real.read(fd, bytes, n_bytes);
}

static ssize_t faulty_write(int fd, const void *bytes, size_t n_bytes)
{
    return strike('w') || interrupted(&n_bytes) ? -1 : real.write(fd, bytes, n_bytes);
}

static int faulty_fallocate(int fd, int mode, off_t offset, off_t n_bytes)
{
    return strike('a') ? -1 : real.fallocate(fd, mode, offset, n_bytes);
}

static int faulty_fchmod(int fd, mode_t mode)
{
    return strike('m') ? -1 : real.fchmod(fd, mode);
}

static int faulty_fsync(int fd)
{
    return strike('s') ? -1 : real.fsync(fd);
}

/* As on Linux, the descriptor is gone even when close fails. */
static int faulty_close(int fd)
{
    const bool fails = strike('c');
    const int error = errno;
    const int result = real.close(fd);
    errno = fails ? error : errno;
    return fails ? -1 : result;
}

static int faulty_renameat(int from_at, const char *from, int to_at, const char *to)
{
    return strike('n') ? -1 : real.renameat(from_at, from, to_at, to);
}

static int faulty_unlinkat(int at, const char *path, int flags)
{
    return strike('u') ? -1 : real.unlinkat(at, path, flags);
}

static int faulty_mkdir(const char *path, mode_t mode)
{
    return strike('d') ? -1 : real.mkdir(path, mode);
}

static void set_fault(enum fault what, int at, int error)
{
    calls = (struct file_calls){.openat = faulty_openat,
                                .fstat = faulty_fstat,
                                .read = faulty_read,
                                .write = faulty_write,
                                .fallocate = faulty_fallocate,
                                .fchmod = faulty_fchmod,
                                .fsync = faulty_fsync,
                                .close = faulty_close,
                                .renameat = faulty_renameat,
                                .unlinkat = faulty_unlinkat,
                                .mkdir = faulty_mkdir};
    fault = what;
    fault_at = at;
    fault_errno = error;
    n_calls = 0;
    memset(call_log, 0, sizeof call_log);
}

static void no_fault(void)
{
    calls = real;
    dt_error_clear();
}

#endif
