#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/terminal.h"
#include "dist/launch/launch.h"
#include "dist/launch/stream.h"

/* Whether the argument is an option of mpirun that labels or redirects the output: only mpirun can
 * do that. */
static bool is_output_option(const char *argument)
{
    argument += argument[0] == '-' && argument[1] == '-';
    return strcmp(argument, "-l") == 0 || strncmp(argument, "-prepend", 8) == 0 ||
           strncmp(argument, "-outfile", 8) == 0 || strncmp(argument, "-errfile", 8) == 0;
}

static bool forwards_plainly(void)
{
    size_t n = 0;
    char *words = dt_terminal_launcher_words(&n);
    bool plain = words != NULL;
    for (size_t at = 0; at < n && plain; at += strlen(words + at) + 1) {
        plain = !is_output_option(words + at);
    }
    free(words);
    return plain;
}

/* A pipe without a reader cannot be opened for writing. */
static int open_pipe(const char *path)
{
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENXIO) {
        fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    }
    if (fd >= 0) {
        fcntl(fd, F_SETFL, 0);
    }
    return fd;
}

static bool appends(pid_t launcher, int stream)
{
    char path[48], line[64];
    unsigned flags = 0;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", (int)launcher, stream);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL &&
           sscanf(line, "flags: %o", &flags) != 1) {
    }
    if (file != NULL) {
        fclose(file);
    }
    return (flags & O_APPEND) != 0;
}

/* A copy of mpirun's open file, which shares its position with mpirun. If ptrace_scope forbids the
 * copy, a file that mpirun appends to can be opened for appending as well. */
static int open_file(pid_t launcher, int stream, const char *path)
{
    const int process = (int)syscall(SYS_pidfd_open, launcher, 0);
    int fd = (int)syscall(SYS_pidfd_getfd, process, stream, 0);
    if (fd < 0 && appends(launcher, stream)) {
        fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    }
    if (process >= 0) {
        close(process);
    }
    return fd;
}

static void connect_stream(pid_t launcher, int stream)
{
    const bool first = dt_launch_number(DT_LAUNCH_RANK) == 0;
    char path[48];
    struct stat info;
    int fd = -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)launcher, stream);
    if (stat(path, &info) == 0 && S_ISFIFO(info.st_mode) && first) {
        fd = open_pipe(path);
    } else if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
        fd = open_file(launcher, stream, path);
    }
    if (fd >= 0) {
        dup2(fd, stream);
        close(fd);
    }
}

void dt_output_open(void)
{
    const pid_t launcher = dt_terminal_launcher();
    if (launcher > 0 && forwards_plainly()) {
        connect_stream(launcher, STDOUT_FILENO);
        connect_stream(launcher, STDERR_FILENO);
    }
    dt_stream_open();
}

bool dt_output_failed(enum dt_status s)
{
    if (s != DT_OK) {
        dt_text_print(stderr, "dtrain: %s", dt_error_text());
        dt_error_clear();
    }
    return s != DT_OK;
}

enum dt_status dt_output_write(const struct dt_run_dir *dir, const char *name, dt_file_put_fn put,
                               const void *context)
{
    char *text = NULL;
    size_t n = 0;
    if (dt_file_collect(name, put, context, &text, &n) != DT_OK) {
        return dt_error(DT_IO, "%s/%s: not written, out of memory", dir->path, name);
    }
    const enum dt_status s = dt_run_dir_write(dir, name, text);
    free(text);
    return s;
}

enum dt_status dt_output_new(const char *path, const char *text, const char *cure)
{
    bool replaces = false;
    DT_TRY(dt_file_try(path, &replaces));
    return replaces ? dt_error(DT_CANT_CREATE, "%s: exists already (remove it, or %s)", path, cure)
                    : dt_file_write(path, &(struct dt_file_part){text, strlen(text)}, 1);
}

static bool reader_is_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

enum dt_status dt_output_check(void)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && !reader_is_gone()) {
        return dt_error(DT_IO, "standard output cannot be written (is the disk full?)");
    }
    return DT_OK;
}
