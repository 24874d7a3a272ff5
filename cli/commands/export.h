/* `dtrain export`: a trained model for other programs. */
#ifndef DT_CLI_COMMANDS_EXPORT_H
#define DT_CLI_COMMANDS_EXPORT_H

#include "cli/commands/eval.h"

/* Rank 0 writes the ONNX file `path` (cli/commands/onnx.h), whole or not at all. Every rank calls
 * it; agreed. DT_UNAVAILABLE: a build without libprotobuf-c. */
enum dt_status dt_export_onnx(struct dt_world *world, const struct dt_trained *from,
                              const char *path);

#endif
