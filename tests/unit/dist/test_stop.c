/* Signals: kept pending while MPI starts, noticed afterwards, and obeyed at once by those who
 * insist, also as process 1 of a container. */
#include "dist/launch/launch.h"
#include "dist/launch/stop.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/lib/check.h"

/* Runs `child` in a process of its own; its exit code, or 1000 + the signal that ended it. */
static int run(void (*child)(int signal_number), int signal_number)
{
    fflush(NULL);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        child(signal_number);
        _exit(0);
    }
    int state;
    CHECK_INT(waitpid(pid, &state, 0), pid);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 1000 + WTERMSIG(state);
}

static void hangup_is_ignored(int signal_number)
{
    dt_stop_block();
    raise(SIGHUP);
    dt_stop_install();
    raise(SIGHUP);
    CHECK(!dt_stop_requested());
    raise(signal_number);
    CHECK_INT(dt_stop_signal(), signal_number);
}

/* As nohup does: UCX calls dt_stop_note_hangup before main. */
static void start_with_hangup_ignored(int signal_number)
{
    (void)signal_number;
    signal(SIGHUP, SIG_IGN);
    execl("/proc/self/exe", "test_stop", "ignored", NULL);
    _exit(1);
}

static void early_signal(int signal_number)
{
    dt_stop_block();
    raise(signal_number);
    CHECK(!dt_stop_requested());
    dt_stop_install();
    CHECK(dt_stop_requested());
    CHECK_INT(dt_stop_signal(), signal_number);
}

static void handler_replaced_by_mpi(int signal_number)
{
    dt_stop_block();
    signal(signal_number, SIG_IGN); /* as MPI_Init does with SIGUSR1 */
    dt_stop_install();
    CHECK(!dt_stop_requested());
    raise(signal_number);
    CHECK_INT(dt_stop_signal(), signal_number);
}

static void second_signal_later(int signal_number)
{
    dt_stop_block();
    dt_stop_install();
    raise(SIGTERM);
    dt_sleep_ms(2100);
    raise(signal_number);
}

static void at_once(int signal_number)
{
    dt_stop_block();
    dt_stop_at_once(dt_launch_leave);
    dt_stop_block(); /* as when the world is opened */
    dt_stop_install();
    raise(signal_number);
}

static void at_once_with_one_pending(int signal_number)
{
    dt_stop_block();
    raise(signal_number);
    dt_stop_at_once(dt_launch_leave);
}

static void at_once_after_one(int signal_number)
{
    dt_stop_block();
    dt_stop_install();
    raise(signal_number);
    dt_stop_at_once(dt_launch_leave);
}

/* Its child is process 1 of a namespace, as a container's program is without an init. */
static void as_process_1(int signal_number)
{
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0 && unshare(CLONE_NEWPID) != 0) {
        printf("process 1: not tried, no right to make a namespace\n");
        return;
    }
    CHECK_INT(run(at_once, signal_number), 128 + signal_number);
}

#define NUMBER_OF(name) name,
static const int signals[] = {DT_STOP_SIGNAL_LIST(NUMBER_OF)};

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        hangup_is_ignored(SIGTERM);
        return 0;
    }
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        const int number = signals[i];
        CHECK_INT(run(at_once, number), 1000 + number);
        CHECK_INT(run(at_once_with_one_pending, number), 1000 + number);
        CHECK_INT(run(at_once_after_one, number), 1000 + number);
        CHECK_INT(run(early_signal, number), 0);
        CHECK_INT(run(handler_replaced_by_mpi, number), 0);
        CHECK_INT(run(as_process_1, number), 0);
    }
    CHECK_INT(run(start_with_hangup_ignored, 0), 0);
    CHECK_INT(run(second_signal_later, SIGINT), 130);
    CHECK_INT(run(second_signal_later, SIGTERM), 143);
    CHECK_INT(run(second_signal_later, SIGUSR1),
              0); /* the batch system's reminder is not impatience */
    CHECK_INT(run(second_signal_later, SIGXCPU), 0); /* the kernel repeats it every second */
    return 0;
}
