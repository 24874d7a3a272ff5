#include "dist/liveness/roll_call.h"

#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "dist/launch/launch.h"
#include "dist/launch/launcher.h"
#include "dist/launch/stop.h"

/* The state of a rank; of several processes (a wrapper and its program) the last of these
 * counts. */
enum seen { ABSENT, NOT_BEGUN, STOPPED, WAITING, N_SEEN };

struct roll {
    int size, n_local; /* ranks of the job, and of this host; 0: unknown */
    pid_t launcher;    /* 0: it cannot be seen, nor can the other ranks */
    enum seen *seen;   /* of each rank */
};

static enum seen look_at(const struct dt_process *process)
{
#define BIT_OF(name) | UINT64_C(1) << (name - 1)
    const uint64_t stop_signals = 0 DT_STOP_SIGNAL_LIST(BIT_OF);
    if (process->state == 'T' || process->state == 't') {
        return STOPPED;
    }
    return (process->signals & stop_signals) == stop_signals ? WAITING : NOT_BEGUN;
}

static bool look_at_all(struct roll *roll)
{
    struct dt_process process;
    DIR *proc = opendir("/proc");
    if (proc == NULL) {
        return false;
    }
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        const pid_t pid = (pid_t)atoi(entry->d_name);
        const int rank = pid > 0 ? dt_process_rank(pid) : -1;
        if (rank >= 0 && rank < roll->size && dt_launcher_of(pid, rank) == roll->launcher &&
            dt_process_read(pid, &process)) {
            const enum seen seen = look_at(&process);
            roll->seen[rank] = seen > roll->seen[rank] ? seen : roll->seen[rank];
        }
    }
    closedir(proc);
    return true;
}

/* "rank 2 and 1 more (host b) are stopped" */
static void name_missing(const struct roll *roll, const char *host, enum seen what, const char *is,
                         const char *are, char *text, size_t n_text)
{
    int first = -1, n = 0;
    for (int rank = 0; rank < roll->size; rank++) {
        if (roll->seen[rank] == what) {
            first = first < 0 ? rank : first;
            n++;
        }
    }
    if (n == 1) {
        snprintf(text, n_text, "rank %d (%s) %s", first, host, is);
    } else {
        snprintf(text, n_text, "rank %d and %d more (%s) %s", first, n - 1, host, are);
    }
}

static void judge(const struct roll *roll, const char *host, struct dt_roll_call *out)
{
    int n[N_SEEN] = {0};
    for (int rank = 0; rank < roll->size; rank++) {
        n[roll->seen[rank]]++;
    }
    const int n_gone =
        roll->launcher > 0 && roll->n_local > 0 ? roll->n_local - (roll->size - n[ABSENT]) : 0;
    out->gone = n_gone > 0 && n[STOPPED] == 0;
    out->certain = n[STOPPED] > 0 || out->gone;
    out->elsewhere = !out->certain && n[NOT_BEGUN] == 0 && n[ABSENT] > 0;
    if (n[STOPPED] > 0) {
        name_missing(roll, host, STOPPED, "is stopped", "are stopped", out->missing,
                     sizeof out->missing);
    } else if (n_gone > 0 && roll->n_local == roll->size) {
        name_missing(roll, host, ABSENT, "ended before it began", "ended before they began",
                     out->missing, sizeof out->missing);
    } else if (n_gone > 0) {
        snprintf(out->missing, sizeof out->missing,
                 "%d of the %d ranks of host %s ended before they began", n_gone, roll->n_local,
                 host);
    } else if (n[NOT_BEGUN] > 0) {
        name_missing(roll, host, NOT_BEGUN, "has not begun", "have not begun", out->missing,
                     sizeof out->missing);
    } else if (out->elsewhere) {
        snprintf(out->missing, sizeof out->missing,
                 "all ranks of host %s wait; one on another host, or the network, does not answer",
                 host);
    } else {
        snprintf(out->missing, sizeof out->missing, "all ranks wait for each other");
    }
}

void dt_roll_call(const char *host, struct dt_roll_call *out)
{
    *out = (struct dt_roll_call){.missing = "nobody else can be seen"};
    const char *n_hosts = getenv("SLURM_STEP_NUM_NODES");
    const int rank = dt_launch_number(DT_LAUNCH_RANK),
              n_local = dt_launch_number(DT_LAUNCH_LOCAL_SIZE);
    struct roll roll = {.size = dt_launch_number(DT_LAUNCH_SIZE)};
    roll.n_local = n_local > 0                                    ? n_local
                   : n_hosts != NULL && strcmp(n_hosts, "1") == 0 ? roll.size
                                                                  : 0;
    roll.seen = rank < 0 || rank >= roll.size ? NULL : calloc((size_t)roll.size, sizeof *roll.seen);
    if (roll.seen == NULL) {
        return;
    }
    roll.launcher = dt_launcher_of(getpid(), rank);
    if (roll.launcher != getpid() &&
        look_at_all(&roll)) { /* what it was started with can be read */
        roll.seen[rank] = WAITING;
        judge(&roll, host, out);
    }
    for (int i = 0; i < rank; i++) {
        out->n_before += roll.seen[i] == WAITING;
    }
    free(roll.seen);
}
