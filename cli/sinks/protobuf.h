/* libprotobuf-c, which a build may be without (cmake/protobuf.cmake). */
#ifndef DT_CLI_SINKS_PROTOBUF_H
#define DT_CLI_SINKS_PROTOBUF_H

#include "base/status.h"

const char *dt_protobuf_library(void); /* "protobuf-c 1.4.1", or "none"; static */

/* DT_UNAVAILABLE: `what` needs the library, and this build has none. */
enum dt_status dt_protobuf_check(const char *what);

#endif
