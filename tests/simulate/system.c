/* The system calls of the trainer. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/lib/wrap.h"
#include "tests/simulate/sim.h"

void *__real_calloc(size_t n, size_t n_each);
void __real_free(void *memory);
int __real_munmap(void *memory, size_t n);

/* ---- the clock */

WRAP(int, clock_gettime, clockid_t id, struct timespec *out)
{
    struct sim_rank *rank = sim.now;
    if (rank == NULL) {
        return __real_clock_gettime(id, out);
    }
    rank->time_ns += 50;
    sim_point("a look at the clock");
    const uint64_t ns = rank->time_ns + sim.jump_ns[rank->host];
    out->tv_sec = (time_t)(ns / SIM_S);
    out->tv_nsec = (long)(ns % SIM_S);
    return 0;
}

WRAP(int, nanosleep, const struct timespec *wanted, struct timespec *left)
{
    (void)left;
    sim_sleep((uint64_t)wanted->tv_sec * SIM_S + (uint64_t)wanted->tv_nsec);
    return 0;
}

WRAP(int, sched_yield, void)
{
    sim_yield();
    sim_point("a wait");
    return 0;
}

/* ---- memory: who has it, so that what a dead rank leaves is no leak, and what another leaves is
 */

#define N_OWNED ((size_t)1 << 12) /* a power of two, several times what all ranks have at once */

struct owned {
    void *memory;
    size_t n_bytes;
    int rank;
    bool mapped;
};
static struct owned owned[N_OWNED];
static size_t n_owned;

static size_t place_of(const void *memory)
{
    size_t at = ((uintptr_t)memory >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 40 & (N_OWNED - 1);
    while (owned[at].memory != NULL && owned[at].memory != memory) {
        at = (at + 1) & (N_OWNED - 1);
    }
    return at;
}

static void *own(void *memory, size_t n_bytes, bool mapped)
{
    if (sim.now != NULL && memory != NULL && memory != MAP_FAILED && n_owned < N_OWNED / 2) {
        const size_t at = place_of(memory);
        n_owned += owned[at].memory == NULL;
        owned[at] = (struct owned){memory, n_bytes, sim.now->number, mapped};
    }
    return memory;
}

/* Later entries of the table move up. */
static void disown(const void *memory)
{
    size_t hole = place_of(memory);
    if (memory == NULL || owned[hole].memory == NULL) {
        return;
    }
    owned[hole].memory = NULL;
    n_owned--;
    for (size_t at = (hole + 1) & (N_OWNED - 1); owned[at].memory != NULL;
         at = (at + 1) & (N_OWNED - 1)) {
        const struct owned moved = owned[at];
        owned[at].memory = NULL;
        owned[place_of(moved.memory)] = moved;
    }
}

void sim_memory_begin(void)
{
    memset(owned, 0, sizeof owned);
    n_owned = 0;
}

size_t sim_memory_left(int rank, size_t *n_bytes)
{
    size_t n = 0;
    *n_bytes = 0;
    for (size_t i = 0; i < N_OWNED; i++) {
        if (owned[i].memory != NULL && owned[i].rank == rank) {
            n++;
            *n_bytes += owned[i].n_bytes;
        }
    }
    return n;
}

void sim_memory_end(void)
{
    for (size_t i = 0; i < N_OWNED; i++) {
        if (owned[i].memory != NULL && owned[i].mapped) {
            __real_munmap(owned[i].memory, owned[i].n_bytes);
        } else if (owned[i].memory != NULL) {
            __real_free(owned[i].memory);
        }
    }
    sim_memory_begin();
}

void *sim_alloc(size_t n_bytes)
{
    void *memory = __real_calloc(1, n_bytes);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

void sim_free(void *memory)
{
    __real_free(memory);
}

static bool fails(void)
{
    sim_point("memory asked for");
    const bool none = sim_call_fails(SIM_CALL_MEMORY);
    errno = none ? ENOMEM : errno;
    return none;
}

WRAP(void *, malloc, size_t n)
{
    return fails() ? NULL : own(__real_malloc(n), n, false);
}

WRAP(void *, calloc, size_t n, size_t n_each)
{
    return fails() ? NULL : own(__real_calloc(n, n_each), n * n_each, false);
}

WRAP(void *, realloc, void *memory, size_t n)
{
    if (fails()) {
        return NULL;
    }
    disown(memory);
    return own(__real_realloc(memory, n), n, false);
}

WRAP(int, posix_memalign, void **out, size_t alignment, size_t n)
{
    const int error = fails() ? ENOMEM : __real_posix_memalign(out, alignment, n);
    own(error == 0 ? *out : NULL, n, false);
    return error;
}

WRAP(char *, strdup, const char *text)
{
    return fails() ? NULL : own(__real_strdup(text), strlen(text) + 1, false);
}

WRAP(void, free, void *memory)
{
    disown(memory);
    __real_free(memory);
}

WRAP(void *, mmap, void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return own(__real_mmap(at, n, protection, flags, fd, offset), n, true);
}

WRAP(int, munmap, void *memory, size_t n)
{
    disown(memory);
    return __real_munmap(memory, n);
}

/* ---- who this is */

/* Reads of /proc, which describes the real process: a rank is none, and pages are costly to count.
 */
WRAP(FILE *, fopen, const char *path, const char *mode)
{
    return sim.now != NULL ? NULL : __real_fopen(path, mode);
}

WRAP(int, gethostname, char *name, size_t n)
{
    snprintf(name, n, "host%c", 'A' + (sim.now != NULL ? sim.now->host : 0));
    return 0;
}

/* ---- signals, and how a process ends */

static void (*alarm_handler)(int);
static int timer_signal;
static bool captures; /* an alarm is set: what it would do is noted */
static jmp_buf captured;

void sim_say(const char *text)
{
    sim_trace("prints: %s", text);
    if (sim.n_lines < SIM_MAX_LINES) {
        struct sim_line *line = &sim.lines[sim.n_lines++];
        *line = (struct sim_line){.rank = sim.now->number, .ns = sim.now->time_ns};
        snprintf(line->text, sizeof line->text, "%s", text);
    }
}

void __wrap_dt_launch_end_job(const char *line, int code) __attribute__((noreturn));
void __wrap_dt_launch_end_job(const char *line, int code)
{
    struct sim_rank *rank = sim.now;
    if (captures) {
        rank->alarm_code = code;
        snprintf(rank->alarm_line, sizeof rank->alarm_line, "%s", line);
        longjmp(captured, 1);
    }
    if (line[0] != '\0') {
        sim_say(line);
    }
    sim_take_others(code);
    sim_end(SIM_ENDED, code);
}

WRAP(bool, dt_mpich_abort, int code)
{
    sim_take_others(code);
    return true;
}

WRAP(int, sigaction, int number, const struct sigaction *action, struct sigaction *before)
{
    (void)before;
    alarm_handler = number == SIGALRM ? action->sa_handler : alarm_handler;
    return 0;
}

WRAP(int, pthread_sigmask, int how, const sigset_t *set, sigset_t *before)
{
    (void)how, (void)set, (void)before;
    return 0;
}

WRAP(int, timer_create, clockid_t clock, struct sigevent *event, timer_t *out)
{
    (void)clock;
    timer_signal = event->sigev_signo;
    *out = 0;
    return 0;
}

WRAP(int, timer_settime, timer_t timer, int flags, const struct itimerspec *when,
     struct itimerspec *before)
{
    struct sim_rank *rank = sim.now;
    const uint64_t ns = rank->time_ns + (uint64_t)when->it_value.tv_sec * SIM_S;
    (void)timer, (void)flags, (void)before;
    if (timer_signal != SIGALRM) {
        return 0;
    }
    rank->alarm_ns = ns < rank->alarm_ns ? ns : rank->alarm_ns;
    captures = true;
    if (setjmp(captured) == 0) {
        alarm_handler(SIGALRM);
    }
    captures = false;
    return 0;
}

WRAP(int, timer_delete, timer_t timer)
{
    (void)timer;
    return 0;
}

WRAP(bool, dt_stream_flush, void)
{
    return true;
}

WRAP(bool, dt_stream_wait, bool (*stops)(void))
{
    (void)stops;
    return true;
}

void __wrap_exit(int code) __attribute__((noreturn));
void __real_exit(int code) __attribute__((noreturn));
void __wrap_exit(int code)
{
    if (sim.now == NULL) {
        __real_exit(code);
    }
    sim_end(SIM_ENDED, code);
}

void __wrap__exit(int code) __attribute__((noreturn));
void __wrap__exit(int code)
{
    sim_end(SIM_ENDED, code);
}

WRAP(int, on_exit, void (*function)(int, void *), void *argument)
{
    (void)function, (void)argument;
    return 0;
}

WRAP(bool, dt_stop_requested, void)
{
    return sim.now->signal != 0;
}

WRAP(int, dt_stop_signal, void)
{
    return sim.now->signal;
}

WRAP(enum dt_status, dt_start_watch_open, const char *host)
{
    (void)host; /* looks at processes (test_roll_call) */
    return sim.now->open_points > 0 && sim_call_fails(SIM_CALL_MEMORY)
               ? dt_error(DT_NO_MEMORY, "no thread")
               : DT_OK;
}

WRAP(void, dt_start_watch_close, void)
{
}
