/* What this program is: for --version, the banner and the files of a run. */
#ifndef DT_CLI_VERSION_H
#define DT_CLI_VERSION_H

#include <stdio.h>

/* The build defines what version.c alone needs: DTRAIN_VERSION, DTRAIN_BUILD_TYPE, DTRAIN_COMPILER, and dt_commit.h. */
extern const char dt_version[]; /* "0.1.0" */

/* Several lines: version and commit, build type and compiler, the MPI it is linked with, the instruction set chosen here, the
 * libraries for GPUs or why there are none. */
void dt_version_print(FILE *out);

#endif
