/* Test cases that each run in a process of their own, so that each may set fake CUDA's options, and
 * may end the process. */
#ifndef DT_TESTS_FAKECUDA_CASE_H
#define DT_TESTS_FAKECUDA_CASE_H

#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/check.h"

/* ends: a part of the line with which the process must end with status 1; NULL: it must succeed. */
static inline void run_case(const char *name, void (*body)(void), const char *ends)
{
    int fds[2];
    CHECK_INT(pipe(fds), 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        body();
        exit(0);
    }
    close(fds[1]);
    char text[4096];
    size_t n_text = 0;
    for (ssize_t n; (n = read(fds[0], text + n_text, sizeof text - 1 - n_text)) > 0;) {
        n_text += (size_t)n;
    }
    text[n_text] = '\0';
    close(fds[0]);
    int status;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_MESSAGE(ends != NULL || status == 0, "%s: ended with status %#x: %s", name, status, text);
    CHECK_MESSAGE(ends == NULL ||
                      (WIFEXITED(status) && WEXITSTATUS(status) == 1 && strstr(text, ends) != NULL),
                  "%s: ended with status %#x and \"%s\", not with \"%s\"", name, status, text,
                  ends);
}

#define WORKS(body) run_case(#body, body, NULL)
#define ENDS(body, line) run_case(#body, body, line)

#endif
