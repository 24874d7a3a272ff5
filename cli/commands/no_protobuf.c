/* Stands in for the functions that need libprotobuf-c, in a build without it. */
#include "cli/commands/onnx.h"
#include "cli/sinks/protobuf.h"
#include "cli/sinks/sinks.h"

const char *dt_protobuf_library(void)
{
    return "none";
}

enum dt_status dt_protobuf_check(const char *what)
{
    return dt_error(DT_UNAVAILABLE,
                    "%s: this dtrain was built without libprotobuf-c (install libprotobuf-c-dev "
                    "and protobuf-c-compiler, and build it again)",
                    what);
}

enum dt_status dt_tensorboard_take(struct dt_sinks *sinks, const struct dt_event *event)
{
    (void)sinks, (void)event;
    return DT_OK;
}

enum dt_status dt_onnx_make(const struct dt_model *model, const float *arena, const float *buffers,
                            const struct dt_normalize *of_input,
                            const struct dt_normalize *of_output, const char *input_text,
                            const char *class_names, uint8_t **bytes, size_t *n_bytes)
{
    (void)model, (void)arena, (void)buffers, (void)of_input, (void)of_output, (void)input_text,
        (void)class_names, (void)bytes, (void)n_bytes;
    return dt_protobuf_check("export to ONNX");
}
