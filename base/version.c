#include "base/status.h"

const char dt_version[] = DTRAIN_VERSION; /* the build defines it */
