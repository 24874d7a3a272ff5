/* For test_file_systems.sh: linked into dtrain with ld's --wrap. LACKING="fsync:95 flock:37": calls
 * that fail with such an errno, as on a file system that does not have them. renameat fails only
 * five times, as if a reader had the file open for a while. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int fails(const char *call)
{
    const char *lacking = getenv("LACKING"), *at = lacking != NULL ? strstr(lacking, call) : NULL;
    errno = at != NULL ? atoi(at + strlen(call) + 1) : 0;
    return at != NULL;
}

static int fails_at_first(const char *call)
{
    static int n_calls;
    return n_calls++ < 5 && fails(call);
}

#define LACKS(function, fails, parameters, arguments)               \
    int __real_##function parameters;                               \
    int __wrap_##function parameters;                               \
    int __wrap_##function parameters                                \
    {                                                               \
        return fails(#function) ? -1 : __real_##function arguments; \
    }

LACKS(flock, fails, (int fd, int what), (fd, what))
LACKS(fchmod, fails, (int fd, mode_t mode), (fd, mode))
LACKS(fsync, fails, (int fd), (fd))
LACKS(fallocate, fails, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))
LACKS(linkat, fails, (int a, const char *from, int b, const char *to, int flags),
      (a, from, b, to, flags))
LACKS(renameat, fails_at_first, (int a, const char *from, int b, const char *to), (a, from, b, to))
