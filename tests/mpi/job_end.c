/* A small job that ends in the way its first argument names, for test_exit_codes.sh. It reports
 * errors as cli/main.c does. Rank 0 prints 1000 lines first, none of which may be lost.
 *
 * all CODE:     every rank fails alike
 *
 * one CODE:     only the last rank fails, and all agree on it
 *
 * alone CODE:   the last rank fails while the others are inside a collective
 *
 * again CODE:   the same, after an error with that code on which all agreed
 *
 * apart CODE:   all agree on it, then the last rank stops itself and the others wait for it once
 *
 * wrong CODE:   as alone, but it takes its error for agreed
 *
 * stray CODE:   the last rank calls exit(CODE)
 *
 * stall:        the last rank does not come to a collective
 *
 * overtake:     on the last rank the first of three collectives never ends, though the others do
 *
 * freeze:       the last rank stops itself inside one
 *
 * network:      UCX, under MPI, gives up on the last rank
 *
 * early [CODE]: the last rank stops itself before it opens the world, or ends with CODE
 *
 * mute:         the last rank stops itself as early, and rank 0, which seems to wait, never speaks
 *
 * linger CODE:  all agree on it, and the last rank stops itself on its way out, after MPI
 *
 * run FILE:     steps until a signal asks to stop; each rank adds its pid to FILE when it runs */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/launch/job.h"
#include "dist/launch/launch.h"
#include "dist/launch/stop.h"
#include "tests/lib/check.h"

static void leave(struct dt_world *world, enum dt_status status) __attribute__((noreturn));
static void leave(struct dt_world *world, enum dt_status status)
{
    const bool agreed = status == DT_OK || dt_error_is_agreed();
    if (status != DT_OK && dt_world_speaks(world, agreed)) {
        fprintf(stderr, "dtrain: %s\n", dt_error_text());
    }
    dt_world_exit(world, status, agreed);
}

static void print_much(const struct dt_world *world)
{
    for (int i = 0; i < 1000 && world->rank == 0; i++) {
        printf("line %d of a result that must not be lost\n", i);
    }
    fflush(stdout); /* a killed process cannot */
}

static void append_pid(const char *path)
{
    char line[32];
    const int length = snprintf(line, sizeof line, "%d\n", (int)getpid());
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, line, (size_t)length) == length && close(fd) == 0);
}

static enum dt_status run_until_stopped(struct dt_world *world, const char *path)
{
    append_pid(path);
    for (;;) {
        int32_t stop = dt_stop_requested();
        DT_TRY(dt_comm_allreduce(world->comm, &stop, 1, DT_TYPE_I32, DT_REDUCE_MAX,
                                 "allreduce of the step"));
        if (stop) {
            return dt_error_agreed(dt_error(DT_STOPPED, "stopped by a signal"));
        }
        dt_sleep_ms(1);
    }
}

/* As seen before MPI says so. */
static bool is_last_started(void)
{
    return dt_launch_number(DT_LAUNCH_RANK) == dt_launch_number(DT_LAUNCH_SIZE) - 1;
}

static void be_mute(void)
{
    dt_stop_block();
    for (;;) {
        pause();
    }
}

static void begin(const char *code)
{
    if (is_last_started() && code == NULL) {
        raise(SIGSTOP);
    } else if (is_last_started()) {
        exit(atoi(code));
    }
}

#ifdef MPICH
/* UCX's own, and the way in which its parts call it. */
void ucs_fatal_error_format(const char *file, unsigned line, const char *function,
                            const char *format, ...);
#endif

/* A dt_request.progress. */
static enum dt_status ends(struct dt_request *request, bool *done)
{
    *done = request->slot != 0;
    return DT_OK;
}

static enum dt_status overtake(struct dt_comm *comm, bool last)
{
    struct dt_request requests[3];
    bool done;
    for (int i = 0; i < 3; i++) {
        dt_comm_request_begin(comm, "a sum", 0, &requests[i]);
        requests[i].progress = ends;
        requests[i].slot = last ? i > 0 : i == 0;
        DT_TRY(dt_comm_test(comm, &requests[i], &done));
    }
    for (int i = 0; i < 3; i++) {
        DT_TRY(dt_comm_wait(comm, &requests[i]));
    }
    return DT_OK;
}

static void stop_itself(void)
{
    raise(SIGSTOP);
}

static enum dt_status fail(enum dt_status status)
{
    return status == DT_OK ? DT_OK : dt_error(status, "the test wants it so");
}

int main(int argc, char **argv)
{
    struct dt_world world;
    const char *how = argc > 1 ? argv[1] : "all", *what = argc > 2 ? argv[2] : "0";
    const enum dt_status code = (enum dt_status)atoi(what);
    if (strcmp(how, "early") == 0) {
        begin(argc > 2 ? what : NULL);
    }
    if (strcmp(how, "mute") == 0) {
        begin(NULL);
        if (dt_launch_rank() == 0) {
            be_mute();
        }
    }
    const enum dt_status opened = dt_world_open(&world);
    if (opened != DT_OK) {
        leave(&world, opened);
    }
    const bool last = world.rank == world.size - 1;
    print_much(&world);
    if (strcmp(how, "linger") == 0 && last) {
        atexit(stop_itself);
    }
    if (strcmp(how, "all") == 0 || strcmp(how, "linger") == 0) {
        leave(&world, dt_world_agree(&world, fail(code)));
    }
    if (strcmp(how, "one") == 0) {
        leave(&world, dt_world_agree(&world, fail(last ? code : DT_OK)));
    }
    if (strcmp(how, "apart") == 0) {
        const enum dt_status agreed = dt_world_agree(&world, fail(code));
        if (last) {
            stop_itself();
        }
        (void)dt_comm_barrier(world.comm, "a barrier after the error");
        leave(&world, agreed);
    }
    if (strcmp(how, "run") == 0) {
        leave(&world, run_until_stopped(&world, what));
    }
    if (strcmp(how, "again") == 0) {
        CHECK(dt_world_agree(&world, fail(last ? code : DT_OK)) == code);
        dt_error_clear(); /* handled */
    }
    if ((strcmp(how, "alone") == 0 || strcmp(how, "again") == 0) && last) {
        leave(&world, fail(code));
    }
    if (strcmp(how, "wrong") == 0 && last) {
        leave(&world, dt_error_agreed(fail(code)));
    }
    if (strcmp(how, "stray") == 0 && last) {
        exit((int)code);
    }
    dt_comm_phase(world.comm, last ? "data load" : "step");
    if (strcmp(how, "stall") == 0 && last) {
        dt_sleep_ms(600000);
    }
    if (strcmp(how, "overtake") == 0) {
        leave(&world, overtake(world.comm, last));
    }
    if (strcmp(how, "freeze") == 0 && last) {
        raise(SIGSTOP);
    }
#ifdef MPICH
    if (strcmp(how, "network") == 0 && last) {
        ucs_fatal_error_format("ep.c", 1, "send", "endpoint %d is gone\n", 7);
    }
#endif
    leave(&world, dt_comm_barrier(world.comm, "the last barrier"));
}
