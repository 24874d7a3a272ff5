/* A process that saves over and over is killed 200 times: at a random moment, and just before or
 * after its k-th system call. Whatever it had acknowledged must be there afterwards, whole. */
#include <poll.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/lib/checkpoint_sample.h"
#include "tests/unit/base/file_faults.h"

#define N_KILLS 200
#define KEEP 2

static struct sample sample;

/* ---- the child ---- */

/* Saves step after step and acknowledges each through the pipe, until it is killed. */
static void save_for_ever(uint64_t step, int acknowledge)
{
    for (;; step++) {
        sample_save(&sample, step, KEEP);
        CHECK(write(acknowledge, &step, sizeof step) == sizeof step);
    }
}

/* ---- the parent ---- */

static uint32_t draw(int kill_number, uint32_t which, uint32_t n)
{
    return dt_rng_words(20, DT_RNG_SYNTHETIC, which, 0, (uint32_t)kill_number, 0).v[0] % n;
}

/* Starts a child, lets it be killed, and returns the last step that it acknowledged, or 0. */
static uint64_t kill_one(uint64_t first_step, int kill_number)
{
    const bool by_call = kill_number % 2 == 1;
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        if (by_call) { /* a save makes about 40 calls */
            set_fault(draw(kill_number, 1, 2) == 1 ? FAULT_KILL_AFTER : FAULT_KILL_BEFORE,
                      (int)draw(kill_number, 0, 90), 0);
        }
        save_for_ever(first_step, ends[1]);
    }
    close(ends[1]);
    if (!by_call) {
        struct pollfd first = {.fd = ends[0], .events = POLLIN};
        poll(&first, 1, -1); /* so that a slow machine does not kill it before it does anything */
        nanosleep(&(struct timespec){.tv_nsec = draw(kill_number, 2, 8000) * 1000}, NULL);
        kill(child, SIGKILL);
    }
    uint64_t step, last = 0;
    while (read(ends[0], &step, sizeof step) == sizeof step) {
        last = step;
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child);
    CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    close(ends[0]);
    return last;
}

int main(void)
{
    uint64_t step = 0;
    int n_unfinished = 0, n_swept = 0;
    sample_open(4, 8, &sample);
    folder_open();
    for (int i = 0; i < N_KILLS; i++) {
        const uint64_t acknowledged = kill_one(step + 1, i);
        const uint64_t found = sample_newest(&sample);
        CHECK_MESSAGE(found >= acknowledged && found >= step,
                      "kill %d: step %llu was acknowledged, the newest is %llu", i,
                      (unsigned long long)acknowledged, (unsigned long long)found);
        step = found;
        const int n_files = count_entries();
        CHECK(n_files <=
              KEEP + 2); /* one not yet pruned, one temporary: leftovers do not pile up */
        n_unfinished += found > (acknowledged > step ? acknowledged : step);
        n_swept += n_files > KEEP;
    }
    printf(
        "%d kills, %llu steps saved, %d kills between saving and telling, %d left a file behind\n",
        N_KILLS, (unsigned long long)step, n_unfinished, n_swept);
    CHECK(n_swept > 0); /* or the kills did not hit */
    sample_save(&sample, step + 1, KEEP);
    CHECK_INT(count_entries(), KEEP);
    folder_remove();
    sample_close(&sample);
    return 0;
}
