/* Assertions: what a header promises about arguments, the order of calls and results, checked while
 * dtrain runs.
 *
 * They are for bugs of dtrain alone: input, files, other ranks and the system can be wrong in a
 * correct program, and are errors (base/status.h). A build checks them where CMake's DTRAIN_ASSERT
 * or DTRAIN_SANITIZE is set. Where it does not, the compiler still reads the condition, so that it
 * stays valid, but nothing evaluates it: a condition must have no effect. */
#ifndef DT_BASE_ASSERT_H
#define DT_BASE_ASSERT_H

#if defined DTRAIN_ASSERT && !defined __CUDA_ARCH__ /* a GPU has no stderr */
#include <stdio.h>
#include <stdlib.h>

/* One line, then SIGABRT. */
#define DT_ASSERT(condition)                                                                   \
    ((condition) ? (void)0                                                                     \
                 : (void)(fprintf(stderr, "%s:%d: DT_ASSERT(%s) failed\n", __FILE__, __LINE__, \
                                  #condition),                                                 \
                          abort()))
#else
#define DT_ASSERT(condition) ((void)sizeof((condition) ? 1 : 0))
#endif

#endif
