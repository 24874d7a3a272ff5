#include "cli/sinks/protobuf.h"

#include <protobuf-c/protobuf-c.h>
#include <stdio.h>

const char *dt_protobuf_library(void)
{
    static char text[32];
    snprintf(text, sizeof text, "protobuf-c %s", protobuf_c_version());
    return text;
}

enum dt_status dt_protobuf_check(const char *what)
{
    (void)what;
    return DT_OK;
}
