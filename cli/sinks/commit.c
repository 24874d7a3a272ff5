#include "cli/sinks/commit.h"

#include "dt_commit.h" /* written by the build: cmake/commit.cmake */

const char dt_commit[] = DTRAIN_COMMIT;
