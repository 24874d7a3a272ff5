#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"

uint64_t dt_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double dt_clock_s(void)
{
    return (double)dt_clock_ns() * 1e-9;
}

void dt_sleep_ms(unsigned n_ms)
{
    const struct timespec pause = {.tv_sec = n_ms / 1000,
                                   .tv_nsec = (long)(n_ms % 1000) * 1000000L};
    nanosleep(&pause, NULL);
}

#define SKIPPED "%*s %*s %*s %*s %*s %*s "

/* Another user's process may not be shown in /proc, but kill tells that it is there. */
uint64_t dt_clock_process_start(long pid)
{
    char path[32], text[1024], state;
    unsigned long long start;
    if (pid <= 0 || pid > INT_MAX || (kill((pid_t)pid, 0) != 0 && errno == ESRCH)) {
        return 0;
    }
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    const char *rest = strrchr(text, ')'); /* behind the program's name */
    if (rest == NULL ||
        sscanf(rest, ") %c " SKIPPED SKIPPED SKIPPED "%20llu", &state, &start) != 2) {
        return DT_START_UNKNOWN;
    }
    return state == 'Z' || state == 'X' ? 0 : start;
}

struct dt_patience dt_patience_begin(void)
{
    return (struct dt_patience){.last_ns = dt_clock_ns()};
}

double dt_patience_look(struct dt_patience *patience)
{
    const uint64_t now_ns = dt_clock_ns();
    DT_ASSERT(now_ns >= patience->last_ns);
    const double gap_s = (double)(now_ns - patience->last_ns) * 1e-9;
    patience->waited_s += gap_s < 1 ? gap_s : 1;
    patience->last_ns = now_ns;
    return patience->waited_s;
}
