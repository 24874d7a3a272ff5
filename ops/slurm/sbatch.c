#include "ops/slurm/sbatch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

#define LOOK_MS 20

/* Stores the script in an unnamed file: unlike a pipe it takes all of it at once, even without a
 * reader. */
static enum dt_status hold(const char *script, size_t n, FILE **out)
{
    *out = tmpfile();
    if (*out == NULL || fwrite(script, 1, n, *out) != n || fflush(*out) != 0 ||
        lseek(fileno(*out), 0, SEEK_SET) != 0) {
        return dt_error_errno(DT_IO, "no temporary file for sbatch");
    }
    return DT_OK;
}

/* Finds the program on the PATH, and skips folders that cannot be searched or do not exist:
 * posix_spawnp stops at some of them, and reports others as a program without permission. */
static bool find_program(char path[DT_PATH_SIZE])
{
    const char *part = getenv("PATH");
    struct stat info;
    for (size_t n; part != NULL; part = part[n] == ':' ? part + n + 1 : NULL) {
        n = strcspn(part, ":");
        const int n_path = snprintf(path, DT_PATH_SIZE, "%.*s/sbatch", (int)n, part);
        if (n > 0 && n_path < DT_PATH_SIZE && stat(path, &info) == 0 && S_ISREG(info.st_mode) &&
            access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Starts it with the script as stdin, all output to stderr, and no signal blocked. Returns an error
 * number, or 0. */
static int start(const char *path, int script, pid_t *child)
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
    const int error = posix_spawn(child, path, &files, &attributes, words, environ);
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
                            "sbatch --test-only: no answer within %.0f s (ask your cluster's "
                            "controller: scontrol ping)",
                            DT_SBATCH_LIMIT_S);
        }
        dt_sleep_ms(LOOK_MS);
    }
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) {
        return dt_error(
            DT_UNAVAILABLE,
            "sbatch --test-only refuses the script, as it says above (change the options)");
    }
    return DT_OK;
}

enum dt_status dt_sbatch_test(const char *script, size_t n, bool *found)
{
    FILE *file = NULL;
    pid_t child = 0;
    char path[DT_PATH_SIZE];
    *found = find_program(path);
    if (!*found) {
        return DT_OK;
    }
    const enum dt_status s = hold(script, n, &file);
    const int error = s == DT_OK ? start(path, fileno(file), &child) : 0;
    if (file != NULL) {
        fclose(file);
    }
    errno = error;
    if (s != DT_OK) {
        return s;
    }
    return error != 0 ? dt_error_errno(DT_UNAVAILABLE, "sbatch does not start") : wait_for(child);
}
