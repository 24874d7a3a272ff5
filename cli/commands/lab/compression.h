/* `dtrain lab compression`: what is told and what is drawn of it. */
#ifndef DT_CLI_COMMANDS_LAB_COMPRESSION_H
#define DT_CLI_COMMANDS_LAB_COMPRESSION_H

#include "cli/commands/lab/distributed.h"
#include "cli/commands/lab/golden.h"

struct dt_compression_way {
    struct dt_lab_outcome outcomes[2]; /* without error feedback and with; none has the first alone */
    double expected;                   /* bytes a step, by the codec */
    bool nothing_lost;                 /* by error feedback over many encodings; none has none */
};

struct dt_compression_lesson {
    struct dt_compression_way ways[DT_N_COMPRESSION_TYPES];
    struct dt_lab_outcome whole; /* topk that sends them all */
    struct dt_golden golden;
};

enum dt_status dt_compression_page(const char *path, const struct dt_compression_lesson *lesson);

#endif
