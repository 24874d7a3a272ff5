/* `dtrain export`: a trained model for other programs. */
#include "cli/commands/eval.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/commands/onnx.h"
#include "cli/sinks/protobuf.h"

/* The range of inputs in training: data/dataset.h. */
static const char *input_text(const struct dt_config *config)
{
    return config->data.format == DT_DATA_LINEAR ? "values as they are"
                                                 : "pixels from 0 to 1, 255 of a file being 1";
}

static enum dt_status write_onnx(const struct dt_config *config, const struct dt_model *model,
                                 const float *arena, const char *path)
{
    char size[DT_BYTES_TEXT_SIZE];
    struct dt_file_part part = {0};
    uint8_t *bytes = NULL;
    DT_TRY(dt_onnx_make(model, arena, &config->data.normalize, input_text(config), &bytes,
                        &part.n_bytes));
    part.bytes = bytes;
    const enum dt_status s = dt_file_write(path, &part, 1);
    free(bytes);
    if (s == DT_OK) {
        dt_text_print(stdout, "%s: %s, ONNX opset %d; input: %s", path,
                      dt_bytes_text((double)part.n_bytes, size), dt_onnx_opset(model),
                      input_text(config));
    }
    return s;
}

static enum dt_status export_onnx(const struct dt_trained *from, const char *path)
{
    struct dt_checkpoint_file file = {0};
    struct dt_config config;
    struct dt_model model;
    float *arena = NULL;
    enum dt_status s;
    DT_TRY_GOTO(s, dt_trained_open(from, &config, &model, &file), out);
    arena = calloc(model.arena_elems, sizeof *arena);
    DT_TRY_GOTO(s,
                arena != NULL ? dt_trained_weights(from, &file, &model, arena)
                              : dt_error(DT_NO_MEMORY, "out of memory for the weights"),
                out);
    s = write_onnx(&config, &model, arena, path);
out:
    free(arena);
    dt_checkpoint_close(&file);
    return s;
}

static enum dt_status check(const struct dt_args *args)
{
    DT_TRY(dt_trained_check(args));
    return dt_args_has(args, DT_OPTION_ONNX)
               ? DT_OK
               : dt_error(DT_USAGE, "export: --onnx FILE is required (dtrain export --onnx FILE "
                                    "--checkpoint FILE)");
}

/* Rank 0 writes the ONNX file (cli/commands/onnx.h), whole or not at all. Agreed. DT_UNAVAILABLE: a
 * build without libprotobuf-c. */
static enum dt_status run(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    struct dt_trained trained;
    DT_TRY(dt_trained_find(world, args, &config, &trained));
    DT_TRY(dt_world_agree(world, dt_protobuf_check("export --onnx")));
    return dt_world_agree(world, world->rank == 0
                                     ? export_onnx(&trained, dt_args_text(args, DT_OPTION_ONNX))
                                     : DT_OK);
}

const struct dt_command dt_command_export = {
    .word = "export",
    .meaning = "write a trained model for other runtimes, as ONNX",
    .usage = "dtrain export --onnx FILE (--checkpoint FILE | --config FILE --weights FILE)\n"
             "      [--ema] [--set KEY.PATH=VALUE]...",
    .examples = "  dtrain export --onnx model.onnx \\\n"
                "      --checkpoint runs/night/checkpoints/step-000000001416.safetensors\n",
    .more = "As ONNX of opset 13, or 20 with gelu. The input is floats N C H W with any N, pixels "
            "from 0 to 1; the "
            "output is logits, whose softmax is the probabilities.",
    .options = {DT_TRAINED_OPTIONS, [DT_OPTION_ONNX] = {DT_TAKEN}},
    .check = check,
    .together = run,
};
