#include "dist/launch/stop.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void (*last_act)(int signal_number); /* of a process that ends at once; NULL: it does not */
static volatile sig_atomic_t stop_signal;
static volatile time_t stopped_at_s; /* written by the handler alone */
static bool noted_hangup, ignores_hangup;

sigset_t dt_stop_signals(void)
{
#define ADD_SIGNAL(name) sigaddset(&set, name);
    sigset_t set;
    sigemptyset(&set);
    DT_STOP_SIGNAL_LIST(ADD_SIGNAL)
    return set;
}

void dt_stop_note_hangup(void)
{
    struct sigaction before;
    if (!noted_hangup) {
        noted_hangup = true;
        ignores_hangup = sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
    }
}

void dt_stop_block(void)
{
    if (last_act != NULL) {
        return;
    }
    dt_stop_note_hangup();
    const sigset_t set = dt_stop_signals();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* The first signal sets the flag; a second one, more than a second later, ends the process. A
 * launcher may deliver the first one twice at once. */
static void on_signal(int signal_number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (stop_signal == 0) {
        stop_signal = signal_number;
        stopped_at_s = now.tv_sec;
    } else if ((signal_number == SIGTERM || signal_number == SIGINT) &&
               now.tv_sec - stopped_at_s > 1) {
        _exit(128 + signal_number);
    }
}

static void leave(int signal_number)
{
    last_act(signal_number);
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    const sigset_t set = dt_stop_signals();
    sigaction(signal_number, &usual, NULL);
    raise(signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + signal_number); /* process 1 of a container gets no signal that it does not catch */
}

void dt_stop_install(void)
{
#define CATCH_SIGNAL(name) sigaction(name, &action, NULL);
    const sigset_t set = dt_stop_signals();
    struct sigaction action = {
        .sa_handler = last_act != NULL ? leave : on_signal, .sa_flags = SA_RESTART, .sa_mask = set};
    DT_STOP_SIGNAL_LIST(CATCH_SIGNAL)
    if (ignores_hangup) {
        signal(SIGHUP, SIG_IGN);
    }
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void dt_stop_at_once(void (*last)(int signal_number))
{
    last_act = last;
    dt_stop_install();
    if (stop_signal != 0) {
        raise(stop_signal);
    }
}

bool dt_stop_requested(void)
{
    return stop_signal != 0;
}

int dt_stop_signal(void)
{
    return stop_signal;
}
