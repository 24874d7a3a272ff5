#include "cli/commands/sbatch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define LOOK_MS 20

extern char **environ;

/* A file without a name: unlike a pipe it takes all of the script at once, whether or not anybody reads it. */
static enum dt_status hold(const char *script, size_t n, FILE **out)
{
    *out = tmpfile();
    if (*out == NULL || fwrite(script, 1, n, *out) != n || fflush(*out) != 0 || lseek(fileno(*out), 0, SEEK_SET) != 0) {
        return dt_error_errno(DT_IO, "no temporary file for sbatch");
    }
    return DT_OK;
}

/* With the script as stdin, stderr for all that it says, and no signal blocked. An error's number, or 0. */
static int start(int script, pid_t *child)
{
    static char program[] = "sbatch", option[] = "--test-only";
    char *const words[] = {program, option, NULL};
    sigset_t none;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, script, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    const int error = posix_spawnp(child, program, &files, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

static enum dt_status wait_for(pid_t child)
{
    const double begin = dt_clock_s();
    int state = 0;
    while (waitpid(child, &state, WNOHANG) == 0) {
        if (dt_clock_s() - begin > DT_SBATCH_LIMIT_S) {
            kill(child, SIGKILL);
            waitpid(child, &state, 0);
            return dt_error(DT_UNAVAILABLE,
                            "sbatch --test-only: no answer within %.0f s (ask your cluster's controller: scontrol ping)",
                            DT_SBATCH_LIMIT_S);
        }
        dt_sleep_ms(LOOK_MS);
    }
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) {
        return dt_error(DT_UNAVAILABLE, "sbatch --test-only refuses the script, as it says above (change the options)");
    }
    return DT_OK;
}

enum dt_status dt_sbatch_test(const char *script, size_t n, bool *found)
{
    FILE *file = NULL;
    pid_t child = 0;
    enum dt_status s = hold(script, n, &file);
    const int error = s == DT_OK ? start(fileno(file), &child) : 0;
    if (file != NULL) {
        fclose(file);
    }
    *found = s == DT_OK && error == 0;
    errno = error;
    if (s != DT_OK || error == ENOENT) {
        return s;
    }
    return error != 0 ? dt_error_errno(DT_UNAVAILABLE, "sbatch does not start") : wait_for(child);
}
