/* Test cases that each run in a process of their own, so that each may set fake CUDA's options, and
 * may end the process. */
#ifndef DT_TESTS_FAKECUDA_CASE_H
#define DT_TESTS_FAKECUDA_CASE_H

#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/check.h"

static inline void run_case(const char *name, void (*body)(void))
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        body();
        exit(0);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_MESSAGE(status == 0, "%s: ended with status %#x", name, status);
}

#define WORKS(body) run_case(#body, body)

#endif
