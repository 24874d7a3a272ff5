#include "cli/eval.h"

#include <stdlib.h>
#include <string.h>

#include "cli/data_spec.h"
#include "cli/evaluate.h"
#include "cli/ranks.h"
#include "cli/report.h"
#include "model/checkpoint.h"

#define EVAL_BATCH 256

static enum dt_status load_weights(struct dt_inference *inference, const struct dt_checkpoint_file *file)
{
    const size_t n = inference->model.arena_elems;
    float *arena = calloc(n, sizeof *arena);
    if (arena == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the weights");
    }
    enum dt_status s = dt_checkpoint_get(file, &inference->model, arena, 0, NULL);
    if (s == DT_OK) {
        s = inference->backend->ops->copy_in(inference->backend, inference->network->params, arena, n * sizeof *arena);
    }
    free(arena);
    return s;
}

enum dt_status dt_inference_open(const char *checkpoint, int n_threads, int local_rank, int capacity, struct dt_inference *out)
{
    struct dt_checkpoint_file file = {0};
    *out = (struct dt_inference){0};
    DT_TRY(dt_checkpoint_open(checkpoint, &file));
    enum dt_status s;
    DT_TRY_GOTO(s, dt_config_parse(checkpoint, file.config, strlen(file.config), NULL, 0, &out->config), out);
    DT_TRY_GOTO(s, dt_model_lower(&out->config.model, &out->model), out);
    dt_data_spec_fit(&out->config.data, &out->model);
    n_threads = out->config.threads > 0 ? (int)out->config.threads : n_threads;
    DT_TRY_GOTO(s, dt_backend_open(out->config.device, n_threads, local_rank, &out->backend), out);
    DT_TRY_GOTO(s, dt_network_open(&out->model, out->backend, capacity, &out->network), out);
    s = load_weights(out, &file);
out:
    dt_checkpoint_close(&file);
    if (s != DT_OK) {
        dt_inference_close(out);
    }
    return s;
}

void dt_inference_close(struct dt_inference *inference)
{
    dt_network_close(inference->network);
    if (inference->backend != NULL) {
        inference->backend->ops->close(inference->backend);
    }
    *inference = (struct dt_inference){0};
}

static enum dt_status open_all(struct dt_world *world, const char *checkpoint, const char *data, int n_threads,
                               struct dt_inference *inference, struct dt_evaluator *evaluator)
{
    DT_TRY(dt_inference_open(checkpoint, n_threads, world->local_rank, EVAL_BATCH, inference));
    DT_TRY(dt_data_spec_set_dir(&inference->config.data, data));
    return dt_evaluator_open(world, &inference->config.data, inference->network, evaluator);
}

enum dt_status dt_eval(struct dt_world *world, const char *checkpoint, const char *data)
{
    struct dt_inference inference = {0};
    struct dt_evaluator evaluator = {0};
    struct dt_metrics test = {0};
    int n_threads = 1;
    DT_TRY(dt_ranks_threads(world, 0, &n_threads));
    enum dt_status s = dt_world_agree(world, open_all(world, checkpoint, data, n_threads, &inference, &evaluator));
    if (s == DT_OK) {
        s = dt_evaluator_run(&evaluator, &test);
    }
    if (s == DT_OK && world->rank == 0) {
        const bool classifies = inference.config.model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
        if (classifies) {
            fprintf(stderr, "test loss %.4f\n", dt_metrics_loss(&test));
        }
        dt_report_result(&test, classifies, "");
    }
    if (evaluator.network != NULL) {
        dt_evaluator_close(&evaluator);
    }
    dt_inference_close(&inference);
    return s;
}
