/* --version */
#ifndef DT_CLI_VERSION_H
#define DT_CLI_VERSION_H

#include <stdio.h>

/* Several lines: version and commit, build type and compiler, the MPI it is linked with, the
 * instruction set chosen here, the libraries for GPUs or why there are none. The build defines what
 * this alone needs: DTRAIN_BUILD_TYPE and DTRAIN_COMPILER. */
void dt_version_print(FILE *out);

#endif
