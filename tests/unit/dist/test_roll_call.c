/* The roll call names this host's missing ranks before MPI connects them. The test is the launcher:
 * it starts itself again as ranks. */
#include "dist/liveness/roll_call.h"

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/launch/stop.h"
#include "tests/lib/check.h"

/* One letter a rank, of which 0 calls the roll: w waits in MPI, s is stopped, n has not begun (a
 * wrapper, say), '-' is not there; W waits under a wrapper. */
struct roll {
    const char *ranks;
    const char *n_local; /* what the launcher says, or NULL */
    bool certain, elsewhere;
    const char *missing;
};

static const struct roll rolls[] = {
    {"www", "3", false, false, "all ranks wait for each other"},
    {"wws", "3", true, false, "rank 2 (b) is stopped"},
    {"wss", "3", true, false, "rank 1 and 1 more (b) are stopped"},
    {"ww-", "3", true, false, "rank 2 (b) ended before it began"},
    {"wwn", "3", false, false, "rank 2 (b) has not begun"},
    {"wsW", "3", true, false, "rank 1 (b) is stopped"},
    {"wWW", "3", false, false, "all ranks wait for each other"},
    {"w--", "2", true, false, "1 of the 2 ranks of host b ended before they began"},
    {"ww--", "2", false, true,
     "all ranks of host b wait; one on another host, or the network, does not answer"},
    {"ws--", "2", true, false, "rank 1 (b) is stopped"},
    {"ww-", NULL, false, true,
     "all ranks of host b wait; one on another host, or the network, does not answer"},
};

static void set_number(const char *name, size_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", number);
    setenv(name, text, 1);
}

/* This program again, as one rank or what is under it. */
static pid_t start(char kind, size_t i_roll)
{
    char letter[] = {kind, '\0'}, number[32];
    snprintf(number, sizeof number, "%zu", i_roll);
    set_number("PARENT", (size_t)getpid());
    char *args[] = {"test_roll_call", letter, number, NULL};
    pid_t pid;
    CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ) == 0);
    return pid;
}

/* The others take their time to become what they are. */
static int call(const struct roll *roll)
{
    struct dt_roll_call found;
    for (int ms = 0; ms < 20000; ms += 10) {
        dt_roll_call("b", &found);
        if (strcmp(found.missing, roll->missing) == 0) {
            CHECK_INT(found.certain, roll->certain);
            CHECK_INT(found.elsewhere, roll->elsewhere);
            CHECK_INT(found.n_before, 0);
            return 0;
        }
        dt_sleep_ms(10);
    }
    CHECK_FAIL("ranks %s: \"%s\", expected \"%s\"", roll->ranks, found.missing, roll->missing);
}

static int be(char kind, size_t i_roll)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != atoi(getenv("PARENT"))) { /* it has ended already: what is left over would hold
                                                  the test's output open */
        return 0;
    }
    if (kind == 'c') {
        dt_stop_block();
        return call(&rolls[i_roll]);
    }
    if (kind == 'W') {
        start('w', i_roll);
    } else if (kind == 'w') {
        dt_stop_block();
    } else if (kind == 's') {
        raise(SIGSTOP);
    }
    for (;;) {
        pause();
    }
}

static void check_roll(size_t i_roll)
{
    const struct roll *roll = &rolls[i_roll];
    const size_t size = strlen(roll->ranks);
    pid_t ranks[8] = {0};
    int status = -1;
    set_number("PMI_SIZE", size);
    for (size_t i = 0; i < size; i++) {
        set_number("PMI_RANK", i);
        ranks[i] = roll->ranks[i] == '-' ? 0 : start(i == 0 ? 'c' : roll->ranks[i], i_roll);
    }
    CHECK(waitpid(ranks[0], &status, 0) == ranks[0]);
    for (size_t i = 1; i < size; i++) {
        if (ranks[i] > 0) {
            kill(ranks[i], SIGKILL);
            waitpid(ranks[i], NULL, 0);
        }
    }
    CHECK_INT(status, 0);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        return be(argv[1][0], (size_t)atoi(argv[2]));
    }
    unsetenv("SLURM_STEP_NUM_NODES");
    for (size_t i = 0; i < sizeof rolls / sizeof rolls[0]; i++) {
        unsetenv("MPI_LOCALNRANKS");
        if (rolls[i].n_local != NULL) {
            setenv("MPI_LOCALNRANKS", rolls[i].n_local, 1);
        }
        check_roll(i);
    }
    return 0;
}
