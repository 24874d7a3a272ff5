/* An assertion of a library fails with one line and SIGABRT in a build that checks them, and does
 * nothing, its condition neither evaluated, in the builds that users have. */
#undef NDEBUG
#include "base/assert.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"

#ifdef DTRAIN_ASSERT
static const bool checked = true;
#else
static const bool checked = false;
#endif

/* Calls `run` in a child; returns how it ended, and what it printed on stderr. */
static int in_child(void (*run)(void), char *text, size_t size)
{
    int ends[2], status = 0;
    const int opened = pipe(ends);
    assert(opened == 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        run();
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n; (n = read(ends[0], text + used, size - 1 - used)) > 0;) {
        used += (size_t)n;
    }
    text[used] = '\0';
    close(ends[0]);
    const pid_t ended = waitpid(child, &status, 0);
    assert(child > 0 && ended == child);
    return status;
}

static void in_library(void)
{
    (void)dt_error(DT_OK, "no error");
}

static void with_effect(void)
{
    int n = 0;
    DT_ASSERT(++n == 2);
    if (n != 0) {
        fputs("evaluated\n", stderr);
    }
}

static void holds(void)
{
    DT_ASSERT(sizeof(char) == 1);
}

static void check(void (*run)(void), const char *file, const char *condition)
{
    char text[512], end[128];
    const int status = in_child(run, text, sizeof text);
    if (!checked) {
        assert(WIFEXITED(status) && WEXITSTATUS(status) == 0 && text[0] == '\0');
        return;
    }
    snprintf(end, sizeof end, ": DT_ASSERT(%s) failed\n", condition);
    const char *found = strstr(text, end), *name = strstr(text, file);
    assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert(name != NULL && found > name && found[strlen(end)] == '\0');
    assert(strchr(text, '\n') == found + strlen(end) - 1); /* one line */
}

int main(void)
{
    char text[512];
    check(in_library, "base/status.c:", "status != DT_OK");
    check(with_effect, "test_assert.c:", "++n == 2");
    const int status = in_child(holds, text, sizeof text);
    assert(WIFEXITED(status) && WEXITSTATUS(status) == 0 && text[0] == '\0');
    printf("assertions are %s\n", checked ? "checked" : "compiled out");
    return 0;
}
