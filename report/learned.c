#include "report/run.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/commands/eval.h"
#include "cli/commands/load.h"
#include "model/checkpoint_dir.h"
#include "train/evaluate.h"
#include "train/trainer.h"

#define BATCH 256

static enum dt_status find_checkpoint(const struct dt_record *r, char path[DT_CHECKPOINT_PATH_SIZE])
{
    char dir[DT_PATH_SIZE + 16];
    uint64_t *steps = NULL;
    size_t n = 0;
    snprintf(dir, sizeof dir, "%s/checkpoints", r->path);
    DT_TRY(dt_checkpoint_list(dir, &steps, &n));
    const enum dt_status s = n > 0 ? dt_checkpoint_path(dir, steps[0], path)
                                   : dt_error(DT_NO_INPUT, "there is no checkpoint");
    free(steps);
    return s;
}

/* The evaluation is for the answers that are noted by the way. */
static enum dt_status evaluate(struct dt_evaluator *evaluator, struct dt_learned *out)
{
    struct dt_metrics test;
    DT_TRY(dt_learned_open(evaluator, out));
    return out->why_not[0] == '\0' ? dt_evaluator_run(evaluator, &test)
                                   : dt_error(DT_CONFIG, "%s", out->why_not);
}

static enum dt_status ask(struct dt_world *world, struct dt_inference *inference, const char *data,
                          struct dt_learned *out)
{
    struct dt_evaluator evaluator = {0};
    DT_TRY(dt_load_data_dir(&inference->config.data, data));
    DT_TRY(dt_evaluator_open(world, &inference->config.data, inference->network, &evaluator));
    const enum dt_status s = evaluate(&evaluator, out);
    if (s != DT_OK) {
        dt_learned_close(out);
    }
    dt_evaluator_close(&evaluator);
    return s;
}

static enum dt_status find_alone(struct dt_world *alone, const struct dt_record *r,
                                 const char *data, struct dt_learned *out)
{
    struct dt_inference inference;
    char path[DT_CHECKPOINT_PATH_SIZE];
    DT_TRY(find_checkpoint(r, path));
    DT_TRY(dt_inference_open(alone, &(struct dt_trained){.file = path}, 1, BATCH, &inference));
    const enum dt_status s = ask(alone, &inference, data, out);
    dt_inference_close(&inference);
    return s;
}

static enum dt_status find(const struct dt_record *r, const char *data, struct dt_learned *out)
{
    struct dt_world alone = {.size = 1, .local_size = 1};
    DT_TRY(dt_comm_open_self(&alone.comm));
    const enum dt_status s = find_alone(&alone, r, data, out);
    dt_comm_close(alone.comm);
    return s;
}

enum dt_status dt_learned_find(const struct dt_record *r, const char *data, struct dt_learned *out)
{
    *out = (struct dt_learned){.why_not = ""};
    const enum dt_status s = find(r, data, out);
    if (s == DT_OK || s == DT_NO_MEMORY || data != NULL) {
        return s;
    }
    snprintf(out->why_not, sizeof out->why_not, "%s", dt_error_text());
    dt_error_clear();
    return DT_OK;
}
