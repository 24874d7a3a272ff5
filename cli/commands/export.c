/* `dtrain export`: a trained model for other programs. */
#include "cli/commands/eval.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/commands/model_table.h"
#include "cli/commands/onnx.h"
#include "cli/result.h"
#include "cli/sinks/protobuf.h"

/* The range of inputs in training: data/dataset.h. */
static const char *input_text(const struct dt_config *config)
{
    return config->data.format == DT_DATA_LINEAR || config->data.scale[0].n > 0
               ? "values as they are"
               : "pixel values / 255";
}

/* The model to write; the arena is in the file's order (dt_model_reorder). */
struct trained_model {
    struct dt_config config;
    struct dt_model model;
    float *arena, *buffers;
    const char *class_names; /* of the checkpoint, or NULL */
    struct dt_part *files;   /* the table of the files that were written */
};

static enum dt_status write_onnx(const struct trained_model *m, const char *path)
{
    char kind[48];
    struct dt_file_part part = {0};
    uint8_t *bytes = NULL;
    const struct dt_data_spec *data = &m->config.data;
    DT_TRY(dt_onnx_make(&m->model, m->arena, m->buffers,
                        data->scale[0].n > 0 ? &data->scale[0] : &data->normalize, &data->scale[1],
                        input_text(&m->config), m->class_names, &bytes, &part.n_bytes));
    part.bytes = bytes;
    const enum dt_status s = dt_file_write(path, &part, 1);
    free(bytes);
    if (s == DT_OK) {
        snprintf(kind, sizeof kind, "ONNX opset %d", dt_onnx_opset(&m->model));
        dt_doc_row(m->files, dt_t(path), dt_n((double)part.n_bytes), dt_t(kind),
                   dt_t(input_text(&m->config)));
    }
    return s;
}

/* Checkpoints have PyTorch's names, shapes and order already. */
static enum dt_status write_safetensors(const struct trained_model *m, const char *path)
{
    char kind[80], *header = NULL;
    struct dt_tensor tensors[2 * DT_MAX_PARAMS];
    struct dt_file_part parts[2 * DT_MAX_PARAMS + 1];
    const int n_params = m->model.n_params, n = n_params + m->model.n_buffers;
    cJSON *metadata = cJSON_CreateObject();
    cJSON_AddStringToObject(metadata, "format", "pt"); /* as PyTorch's own writer says */
    if (m->class_names != NULL) {
        cJSON_AddStringToObject(metadata, "class_names", m->class_names);
    }
    for (int i = 0; i < n; i++) {
        tensors[i] = i < n_params
                         ? dt_checkpoint_tensor(&m->model.params[i], -1, m->arena)
                         : dt_checkpoint_tensor(&m->model.buffers[i - n_params], -1, m->buffers);
        parts[i + 1] = (struct dt_file_part){tensors[i].bytes, tensors[i].n_bytes};
    }
    DT_TRY(dt_safetensors_make_header(tensors, n, metadata, &header, &parts[0].n_bytes));
    parts[0].bytes = header;
    const enum dt_status s = dt_file_write(path, parts, (size_t)n + 1);
    free(header);
    if (s == DT_OK) {
        snprintf(kind, sizeof kind, "%d tensors for PyTorch's load_state_dict", n);
        const char *input = m->config.data.normalize.n > 0  ? "normalized pixels"
                            : m->config.data.scale[0].n > 0 ? "normalized values"
                                                            : input_text(&m->config);
        dt_doc_row(m->files, dt_t(path), dt_n((double)m->model.n_parameters * sizeof(float)),
                   dt_t(kind), dt_t(input));
    }
    return s;
}

static const struct format {
    const char *suffix;
    enum dt_status (*write)(const struct trained_model *model, const char *path);
} formats[] = {{".onnx", write_onnx}, {".safetensors", write_safetensors}};

/* The format of the file's suffix, or NULL. */
static const struct format *find_format(const char *path)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const size_t n = strlen(path), n_suffix = strlen(formats[i].suffix);
        if (n > n_suffix && strcmp(path + n - n_suffix, formats[i].suffix) == 0) {
            return &formats[i];
        }
    }
    return NULL;
}

/* Checks before the work that each file can be written. */
static enum dt_status try_files(const struct dt_values *files)
{
    for (int i = 0; i < files->n; i++) {
        if (find_format(files->texts[i])->write == write_onnx) {
            DT_TRY(dt_protobuf_check("export to ONNX"));
        }
        DT_TRY(dt_file_try(files->texts[i], NULL));
    }
    return DT_OK;
}

static enum dt_status write_files(const struct dt_args *args, const struct dt_values *files,
                                  struct trained_model *m)
{
    struct dt_doc *doc = dt_doc_open("export", "Exported model");
    enum dt_status s = DT_OK;
    m->files = dt_doc_table(doc, "Files", "file|size::B|format|input");
    for (int i = 0; s == DT_OK && i < files->n; i++) {
        s = find_format(files->texts[i])->write(m, files->texts[i]);
    }
    dt_model_tell_uneven(doc, &m->model);
    s = s == DT_OK ? dt_result_show(args, doc) : s;
    dt_doc_close(doc);
    return s;
}

static enum dt_status export_model(const struct dt_args *args, const struct dt_trained *from,
                                   const struct dt_values *files)
{
    struct trained_model m = {.arena = NULL};
    struct dt_checkpoint_file file = {0};
    enum dt_status s;
    DT_TRY_GOTO(s, dt_trained_open(from, &m.config, &m.model, &file), out);
    m.arena = calloc(m.model.arena_elems, sizeof *m.arena);
    m.buffers = calloc(m.model.buffer_elems + 1, sizeof *m.buffers);
    DT_TRY_GOTO(s,
                m.arena != NULL && m.buffers != NULL
                    ? dt_trained_weights(from, &file, &m.model, m.arena)
                    : dt_error(DT_NO_MEMORY, "out of memory for the weights"),
                out);
    dt_checkpoint_get_buffers(&file, &m.model, m.buffers);
    m.class_names = from->config == NULL ? file.class_names : NULL;
    s = write_files(args, files, &m);
out:
    free(m.arena);
    free(m.buffers);
    dt_checkpoint_close(&file);
    return s;
}

static enum dt_status check(const struct dt_args *args)
{
    DT_TRY(dt_trained_check(args, 1, " FILE.onnx"));
    const struct dt_values files = dt_trained_words(args);
    for (int i = 0; i < files.n; i++) {
        if (find_format(files.texts[i]) == NULL) {
            return dt_error(DT_USAGE,
                            "export: expected FILE.onnx or FILE.safetensors, got '%.200s' (dtrain "
                            "export RUN FILE.onnx)",
                            files.texts[i]);
        }
    }
    return DT_OK;
}

/* Rank 0 writes the files, each whole or not at all. Agreed. DT_UNAVAILABLE: ONNX
 * (cli/commands/onnx.h) of a build without libprotobuf-c. */
static enum dt_status run(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    struct dt_trained trained;
    const struct dt_values files = dt_trained_words(args);
    DT_TRY(dt_trained_find(world, args, &config, &trained));
    DT_TRY(dt_world_agree(world, world->rank == 0 ? try_files(&files) : DT_OK));
    return dt_world_agree(world, world->rank == 0 ? export_model(args, &trained, &files) : DT_OK);
}

const struct dt_command dt_command_export = {
    .word = "export",
    .meaning = "write a trained model for other programs, as ONNX or for PyTorch",
    .usage = "dtrain export (RUN | --config FILE --weights FILE) FILE...\n"
             "      [--ema] [--set KEY.PATH=VALUE]..." DT_RESULT_USAGE,
    .examples = "  dtrain export runs/night model.onnx\n"
                "  dtrain export runs/night:last model.safetensors\n",
    .more = DT_RUN_WORD
    " The suffix of FILE says the format: `.onnx` or `.safetensors`. The input is floats N C H W "
    "with any N, pixels from 0 to 1, or the numbers of a table as they are; the output is logits, "
    "whose softmax is the probabilities, or targets. ONNX is of the oldest opset, from 13 on, that "
    "has "
    "the model's operators. The safetensors file has the weights alone, with the names, "
    "shapes and order of PyTorch: "
    "`model.load_state_dict(load_file(FILE))` takes it for a module with members `conv1`, "
    "`fc1` and so on, numbered in the order of the layers. Its input is normalized "
    "already, where `data.normalize` or `data.scale` is set, and so are targets. Class names of a "
    "run are in the metadata of both, "
    "as `class_names`, with / between them.",
    .options = {DT_TRAINED_OPTIONS, DT_RESULT_OPTIONS},
    .check = check,
    .needs_no_ranks = true,
    .together = run,
};
