/* A run with a validation set (data.validation): the evaluations of its epochs are of that set, and
 * the test set is evaluated once, when the run ends well: with the weights of the best checkpoint
 * where there is one, else with the last ones. */
#include "train/hooks/hooks.h"

#include <stdlib.h>

#include "checkpoint/checkpoint.h"
#include "data/validation_split.h"
#include "model/layers/layers.h"
#include "train/events.h"
#include "train/hooks/learned.h"
#include "train/hooks/weights/ema.h"
#include "train/hooks/weights/statistics.h"

struct hook {
    struct dt_hook hook; /* first */
    size_t n_test;
};

static enum dt_status begin_run(struct dt_hook *hook, struct dt_trainer *t,
                                struct dt_run_event *start)
{
    DT_ASSERT(start->n_validation == 0);
    (void)t;
    start->n_validation = start->n_test;
    start->n_test = ((struct hook *)hook)->n_test;
    return DT_OK;
}

static enum dt_status end_epoch(struct dt_hook *hook, struct dt_trainer *t,
                                struct dt_epoch_event *epoch)
{
    DT_ASSERT(epoch->validation.n_samples == 0);
    (void)hook;
    (void)t;
    epoch->validation = epoch->test;
    epoch->test = (struct dt_metrics){0};
    return DT_OK;
}

/* ---- the end */

static enum dt_status copy_arena(struct dt_trainer *t, float *arena, float *to)
{
    DT_TRY(dt_model_reorder(&t->model, false, arena));
    return t->backend->ops->copy_in(t->backend, to, arena, t->model.arena_elems * sizeof *arena);
}

/* And their average, where the file has it. */
static enum dt_status copy_weights(struct dt_trainer *t, const struct dt_checkpoint_file *file)
{
    struct dt_ema *ema = dt_ema_of(t);
    float *arena = calloc(t->model.arena_elems, sizeof *arena);
    if (arena == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the weights of the best epoch");
    }
    enum dt_status s;
    DT_TRY_GOTO(s, dt_checkpoint_get(file, &t->model, arena, 0, NULL), out);
    DT_TRY_GOTO(s, copy_arena(t, arena, t->network->params), out);
    DT_TRY_GOTO(s, dt_buffers_load(t->network, file), out);
    if (ema != NULL) {
        ema->begun = dt_checkpoint_has_ema(file, &t->model);
    }
    if (ema != NULL && ema->begun) {
        dt_checkpoint_get_ema(file, &t->model, arena);
        s = copy_arena(t, arena, ema->average);
    }
out:
    free(arena);
    return s;
}

static enum dt_status read_weights(struct dt_trainer *t, const char *path)
{
    struct dt_checkpoint_file file;
    DT_TRY(dt_checkpoint_open(path, &file));
    const enum dt_status s = copy_weights(t, &file);
    dt_checkpoint_close(&file);
    return s;
}

/* The weights of the best epoch, where a checkpoint has them: rank 0 knows. */
static enum dt_status take_best(struct dt_trainer *t, struct dt_end_event *end)
{
    const bool reads =
        t->world->rank == 0 && end->best.epoch > 0 && end->best_checkpoint[0] != '\0';
    int32_t there = reads;
    DT_TRY(dt_comm_broadcast(t->world->comm, &there, sizeof there, 0,
                             "broadcast of whether there is a best checkpoint"));
    if (!there) {
        return DT_OK;
    }
    DT_TRY(dt_world_agree(t->world, reads ? read_weights(t, end->best_checkpoint) : DT_OK));
    DT_ASSERT(end->tested_epoch == 0);
    end->tested_epoch = end->best.epoch;
    DT_TRY(dt_statistics_share(t));
    DT_TRY(dt_ema_broadcast(t));
    return dt_strategy_broadcast(t->strategy);
}

/* The same weights on the validation set, too: both results then belong together. */
static enum dt_status validate(struct dt_trainer *t, struct dt_end_event *end)
{
    if (end->tested_epoch > 0) {
        DT_TRY(dt_evaluator_run(&t->evaluator, &end->validation));
        DT_TRY(dt_ema_evaluate(t, &t->evaluator, &end->averaged_validation));
    }
    end->validation_top5 = dt_learned_has_top5(end->learned) ? end->learned->n_top5 : 0;
    return DT_OK;
}

/* Who notes the answers has those of the test set in the end. */
static enum dt_status test(struct dt_trainer *t, struct dt_end_event *end)
{
    const struct dt_data_spec spec = dt_validation_none(&t->config.data);
    struct dt_evaluator evaluator;
    dt_comm_phase(t->world->comm, "data load");
    const enum dt_status opened = dt_evaluator_open(t->world, &spec, t->network, &evaluator);
    enum dt_status s = dt_world_agree(t->world, opened);
    if (s == DT_OK) {
        evaluator.answers = t->evaluator.answers;
        s = dt_evaluator_run(&evaluator, &end->test);
        s = s == DT_OK ? dt_ema_evaluate(t, &evaluator, &end->averaged) : s;
    }
    if (opened == DT_OK) {
        dt_evaluator_close(&evaluator);
    }
    return s == DT_OK ? dt_trainer_check_loss(t, "test loss", &end->test, t->state.step) : s;
}

static enum dt_status end_run(struct dt_hook *hook, struct dt_trainer *t, enum dt_status status,
                              struct dt_end_event *end)
{
    (void)hook;
    if (end->test.n_samples > 0) { /* there was no step left, and so no epoch to tell of */
        end->validation = end->test;
    }
    end->averaged_validation = end->averaged;
    end->test = end->averaged = (struct dt_metrics){0};
    if (status != DT_OK) {
        return DT_OK;
    }
    DT_TRY(take_best(t, end));
    DT_TRY(dt_strategy_share_weights(t->strategy));
    DT_TRY(validate(t, end));
    return test(t, end);
}

/* ---- open and close */

static const struct dt_hook_ops ops = {
    .run_begin = begin_run, .epoch_end = end_epoch, .run_end = end_run};

/* Not at the end of a long run, and without a row of them. */
static enum dt_status check_files(const struct dt_data_spec *spec, size_t *n_test)
{
    struct dt_dataset none;
    DT_TRY(dt_dataset_count(spec, DT_SPLIT_TEST, n_test));
    const struct dt_owned no_rows = {.first = (uint32_t)*n_test, .stride = 1};
    DT_TRY(dt_dataset_open(spec, DT_SPLIT_TEST, no_rows, &none));
    dt_dataset_close(&none);
    return DT_OK;
}

enum dt_status dt_validation_open(struct dt_trainer *t)
{
    struct hook *w;
    if (t->config.data.validation <= 0) {
        return DT_OK;
    }
    DT_TRY(dt_hook_open(t, &ops, sizeof *w, "the validation", (void **)&w));
    return dt_world_agree(t->world, check_files(&t->config.data, &w->n_test));
}
