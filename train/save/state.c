#include "train/save/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/liveness/table.h"
#include "dist/strategy/residuals.h"
#include "model/layers/layers.h"
#include "train/save/saved.h"

/* The weights, their average, if the run has one, and the optimizer's state, in memory of the
 * program's own: the backend's itself, or copies. NULL: there is none. */
enum { PARAMS, AVERAGE, STATES, N_ARENAS = STATES + 2 };
struct host_arenas {
    float *of[N_ARENAS];
    int n; /* the first n of them are read or written */
    bool copies;
};

/* Where the backend has them. */
static struct host_arenas backend_arenas(const struct dt_trainer *t)
{
    struct host_arenas arenas = {.of = {t->network->params, t->ema.average}};
    for (int i = 0; i < t->strategy->optimizer.n_states; i++) {
        arenas.of[STATES + i] = t->strategy->optimizer.states[i];
    }
    return arenas;
}

static void close_arenas(struct host_arenas *host)
{
    for (int i = 0; host->copies && i < host->n; i++) {
        free(host->of[i]);
    }
}

static enum dt_status open_arenas(const struct dt_trainer *t, int n, struct host_arenas *out)
{
    const struct host_arenas backend = backend_arenas(t);
    *out = backend;
    out->n = n;
    out->copies = !t->backend->host_memory;
    bool complete = true;
    for (int i = 0; out->copies && i < n; i++) {
        out->of[i] = backend.of[i] != NULL ? calloc(t->model.arena_elems, sizeof(float)) : NULL;
        complete = complete && (backend.of[i] == NULL || out->of[i] != NULL);
    }
    if (!complete) {
        close_arenas(out);
        dt_error(DT_NO_MEMORY, "out of memory for a checkpoint");
        return DT_NO_MEMORY; /* spelled out: clang-tidy cannot know it of dt_error */
    }
    return DT_OK;
}

static enum dt_status copy(const struct dt_trainer *t, bool out, const struct host_arenas *host)
{
    const struct dt_backend_ops *ops = t->backend->ops;
    const struct host_arenas backend = backend_arenas(t);
    const size_t n_bytes = t->model.arena_elems * sizeof(float);
    for (int i = 0; host->copies && i < host->n; i++) {
        if (host->of[i] != NULL) {
            DT_TRY(out ? ops->copy_out(t->backend, host->of[i], backend.of[i], n_bytes)
                       : ops->copy_in(t->backend, backend.of[i], host->of[i], n_bytes));
        }
    }
    return DT_OK;
}

static enum dt_status reorder(const struct dt_trainer *t, bool to_file, struct host_arenas *host)
{
    for (int i = 0; i < host->n; i++) {
        DT_TRY(host->of[i] != NULL ? dt_model_reorder(&t->model, to_file, host->of[i]) : DT_OK);
    }
    return DT_OK;
}

/* Arenas in host memory are reordered in place and back: a copy would cost as much memory as they
 * do. */
static enum dt_status save_reordered(struct dt_trainer *t, const struct dt_run_dir *run,
                                     struct host_arenas *host, const float *buffers,
                                     const float *residuals, bool best, char *path)
{
    struct dt_checkpoint checkpoint = {.state = t->state,
                                       .config = t->written.text,
                                       .class_names = t->set.data.class_names,
                                       .arena = host->of[PARAMS],
                                       .n_optimizer_states = t->strategy->optimizer.n_states,
                                       .optimizer = {host->of[STATES], host->of[STATES + 1]},
                                       .buffers = buffers,
                                       .residuals = residuals};
    checkpoint.ema = t->ema.begun ? host->of[AVERAGE] : NULL;
    checkpoint.state.optimizer_steps = t->strategy->optimizer.n_steps;
    checkpoint.state.compression_draws = dt_residuals_draws(t->strategy);
    DT_ASSERT(checkpoint.state.optimizer_steps == checkpoint.state.step);
    DT_ASSERT(checkpoint.state.world_size >= 1 &&
              checkpoint.state.global_batch >= checkpoint.state.world_size);
    DT_ASSERT(checkpoint.state.step_in_epoch <= t->schedule.steps_per_epoch);
    DT_ASSERT(checkpoint.state.n_correct <= checkpoint.state.n_samples);
    DT_ASSERT(checkpoint.state.best_epoch <= checkpoint.state.epoch &&
              checkpoint.state.stop_epoch <= checkpoint.state.epoch);
    DT_ASSERT(checkpoint.state.lr_reductions <= checkpoint.state.lr_reduced_epoch);
    DT_TRY(reorder(t, true, host));
    const enum dt_status saved =
        best ? dt_checkpoint_save_best(run->checkpoints, &t->model, &checkpoint, path)
             : dt_checkpoint_save(run->checkpoints, (int)t->config.checkpoint_keep, &t->model,
                                  &checkpoint, path);
    const enum dt_status reordered = reorder(t, false, host);
    return saved != DT_OK ? saved : reordered;
}

static enum dt_status read_buffers(const struct dt_trainer *t, float **out)
{
    *out = calloc(t->model.buffer_elems + 1, sizeof **out);
    if (*out == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for running statistics");
    }
    DT_TRY(dt_buffers_get(t->network, *out));
    return dt_buffers_reorder(&t->model, true, *out);
}

static enum dt_status write_checkpoint(struct dt_trainer *t, const struct dt_run_dir *run,
                                       const float *residuals, bool best, char *path)
{
    DT_ASSERT(t->world->rank == 0);
    struct host_arenas host;
    float *buffers = NULL;
    DT_TRY(open_arenas(t, N_ARENAS, &host));
    enum dt_status s = copy(t, true, &host);
    s = s == DT_OK ? read_buffers(t, &buffers) : s;
    if (s == DT_OK) {
        s = save_reordered(t, run, &host, buffers, residuals, best, path);
    }
    free(buffers);
    close_arenas(&host);
    dt_comm_phase(t->world->comm, "saved a checkpoint"); /* the usual limit again */
    return s;
}

enum dt_status dt_trainer_save(struct dt_trainer *t, const struct dt_run_dir *run, bool best,
                               char path[DT_CHECKPOINT_PATH_SIZE])
{
    char written[DT_CHECKPOINT_PATH_SIZE] = "";
    float *residuals = NULL;
    enum dt_status s;
    dt_comm_phase(t->world->comm, DT_PHASE_SAVING);
    DT_TRY_GOTO(s, dt_world_agree(t->world, dt_residuals_alloc(t->strategy, &residuals)), done);
    DT_TRY_GOTO(s, dt_residuals_collect(t->strategy, residuals), done);
    DT_TRY_GOTO(s,
                dt_world_agree(t->world, t->world->rank == 0
                                             ? write_checkpoint(t, run, residuals, best, written)
                                             : DT_OK),
                done);
    memcpy(path, written, sizeof written);
done:
    dt_comm_phase(t->world->comm, "training");
    free(residuals);
    return s;
}

/* Rank 0's state while it reads a checkpoint. */
struct restore {
    struct dt_trainer *trainer;
    const struct dt_run_dir *run;
    const struct dt_emitter *emitter;
    char *changes;
    float *residuals;   /* room for all workers', if the run has some */
    bool has_residuals; /* they have been read */
};

static void warn(const struct restore *r, const char *text)
{
    r->emitter->emit(r->emitter->context,
                     &(struct dt_event){.kind = DT_EVENT_WARNING, .warning = text});
}

static void on_damaged(void *context, const char *text)
{
    char warning[DT_ERROR_TEXT_SIZE + 32];
    snprintf(warning, sizeof warning, "%s; passing it over", text);
    warn(context, warning);
}

static enum dt_status check_saved(void *context, const char *path,
                                  const struct dt_checkpoint_file *file)
{
    const struct restore *r = context;
    struct dt_config config;
    struct dt_model model;
    return dt_saved_check(r->trainer->written.format, path, file, &config, &model);
}

/* Residuals are kept as long as a rank encodes. */
static void take_residuals(struct restore *r, const char *path,
                           const struct dt_checkpoint_file *file, const struct dt_config *before)
{
    const struct dt_trainer *t = r->trainer;
    const bool found = dt_checkpoint_has_residuals(file), room = r->residuals != NULL;
    const bool expected = before->dist.compression.type != DT_COMPRESSION_NONE &&
                          before->dist.compression.error_feedback;
    char warning[DT_CHECKPOINT_PATH_SIZE + 160];
    if (found && room) {
        dt_checkpoint_get_residuals(file, t->state.world_size, r->residuals);
        r->has_residuals = dt_residuals_settle(t->strategy, r->residuals);
    }
    if (found && !r->has_residuals) {
        snprintf(
            warning, sizeof warning,
            "%s: residuals of compression, now without error feedback (dropped; the run continues)",
            path);
        warn(r, warning);
    } else if (!found && expected && room) {
        snprintf(warning, sizeof warning,
                 "%s: has no residuals of compression (an older dtrain saved it; the run continues "
                 "from 0)",
                 path);
        warn(r, warning);
    }
}

/* The average continues where the file has one, and else begins with the next step. */
static void take_average(const struct restore *r, const char *path,
                         const struct dt_checkpoint_file *file)
{
    const struct dt_trainer *t = r->trainer;
    const bool found = dt_checkpoint_has_ema(file, &t->model), wanted = t->ema.average != NULL;
    char warning[DT_CHECKPOINT_PATH_SIZE + 128];
    if (found != wanted) {
        snprintf(warning, sizeof warning, "%s: %s", path,
                 found ? "has an average of the weights, but train.ema is off (dropped; the run "
                         "continues)"
                       : "has no average of the weights (train.ema begins with the next step's)");
        warn(r, warning);
    }
}

/* A best checkpoint that is in no folder, or in another run's, is none. One of a later step stays
 * the best: it was better than what this state knows. */
static void check_best(struct restore *r)
{
    struct dt_checkpoint_state *state = &r->trainer->state;
    char path[DT_CHECKPOINT_PATH_SIZE], warning[DT_CHECKPOINT_PATH_SIZE + 96];
    bool there = false;
    if (state->best_epoch == 0 || dt_checkpoint_best_path(r->run->checkpoints, path) != DT_OK ||
        dt_file_exists(path, &there) != DT_OK || there) {
        dt_error_clear();
        return;
    }
    snprintf(warning, sizeof warning,
             "%s: not there any more (the run continues; the next epoch is the best at first)",
             path);
    warn(r, warning);
    state->best_epoch = 0;
    state->best_value = 0;
}

/* Weights of another model: what they lack is as it was drawn. */
static enum dt_status fit(struct dt_trainer *t, struct host_arenas *host, float **buffers,
                          struct dt_checkpoint_file *file, char *text)
{
    DT_TRY(read_buffers(t, buffers));
    DT_TRY(copy(t, true, host));
    DT_TRY(reorder(t, true, host));
    return dt_weights_fit(file, &t->model, host->of[PARAMS], *buffers, text);
}

/* The first n arenas: PARAMS alone, with AVERAGE, or with the optimizer's state. `text`: of
 * dt_weights_fit; NULL: all tensors have to be there. */
static enum dt_status load_arenas(struct dt_trainer *t, struct dt_checkpoint_file *file, int n,
                                  char *text)
{
    struct host_arenas host;
    float *buffers = NULL;
    DT_TRY(open_arenas(t, n, &host));
    enum dt_status s = text != NULL ? fit(t, &host, &buffers, file, text) : DT_OK;
    s = s == DT_OK
            ? dt_checkpoint_get(file, &t->model, host.of[PARAMS],
                                n > STATES ? t->strategy->optimizer.n_states : 0, &host.of[STATES])
            : s;
    if (s == DT_OK && n > AVERAGE && host.of[AVERAGE] != NULL) {
        t->ema.begun = dt_checkpoint_has_ema(file, &t->model);
    }
    if (s == DT_OK && n > AVERAGE && t->ema.begun) {
        dt_checkpoint_get_ema(file, &t->model, host.of[AVERAGE]);
    }
    s = s == DT_OK ? reorder(t, false, &host) : s;
    s = s == DT_OK ? copy(t, false, &host) : s;
    close_arenas(&host);
    s = s == DT_OK ? dt_buffers_load(t->network, file) : s;
    free(buffers);
    return s;
}

static enum dt_status read_best(struct dt_trainer *t, const char *path)
{
    struct dt_checkpoint_file file;
    DT_TRY(dt_checkpoint_open(path, &file));
    const enum dt_status s = load_arenas(t, &file, AVERAGE + 1, NULL);
    dt_checkpoint_close(&file);
    return s;
}

enum dt_status dt_trainer_take_best(struct dt_trainer *t, const char *path)
{
    DT_TRY(dt_world_agree(t->world, t->world->rank == 0 ? read_best(t, path) : DT_OK));
    DT_TRY(dt_statistics_share(t));
    DT_TRY(dt_ema_broadcast(t));
    return dt_strategy_broadcast(t->strategy);
}

/* Going back in time would leave two futures in one folder, and the next --resume would take
 * the wrong one. */
static enum dt_status check_is_newest(const struct dt_run_dir *run, const char *path, uint64_t step)
{
    uint64_t *steps = NULL;
    size_t n_steps = 0;
    DT_TRY(dt_checkpoint_list(run->checkpoints, &steps, &n_steps));
    const uint64_t newest = n_steps > 0 ? steps[0] : 0;
    free(steps);
    if (newest > step) {
        return dt_error(
            DT_CANT_CREATE,
            "%s: %s has a later checkpoint, of step %llu (resume from it, or take another --run)",
            path, run->path, (unsigned long long)newest);
    }
    return DT_OK;
}

/* Everything that must fit before a weight is touched. `path`: NULL for the newest one. */
static enum dt_status check_all(const struct restore *r, const char *path, const char *path_used,
                                const struct dt_checkpoint_file *file, struct dt_config *saved)
{
    const struct dt_trainer *t = r->trainer;
    struct dt_model model;
    DT_TRY(dt_saved_check(t->written.format, path_used, file, saved, &model));
    DT_TRY(dt_saved_fits(t, path_used, file));
    if (path != NULL) {
        DT_TRY(check_is_newest(r->run, path_used, file->state.step));
    }
    return DT_OK;
}

/* The number of the next step, were all steps of this epoch like those to come. */
static uint64_t next_step(const struct dt_trainer *t, const struct dt_checkpoint_state *saved)
{
    return dt_saved_used_up(t, saved) ? t->schedule.steps_per_epoch
           : t->config.sharding == DT_SHARDING_GLOBAL
               ? (uint64_t)saved->n_samples / t->state.global_batch
               : saved->step_in_epoch;
}

/* A key that the checkpoint lacks has its default there. */
static enum dt_status find_changes(const struct restore *r, const struct dt_config *saved)
{
    const struct dt_written_config *now = &r->trainer->written;
    char *before = now->format->write(saved);
    const enum dt_status s =
        before == NULL ? dt_error(DT_NO_MEMORY, "out of memory for the checkpoint's configuration")
                       : now->format->compare(before, now->text, "", r->changes,
                                              DT_CHANGES_SIZE - DT_CHANGES_NUMBERS);
    free(before);
    return s;
}

static enum dt_status read_checkpoint(struct restore *r, const char *path, char *path_used)
{
    DT_ASSERT(r->trainer->world->rank == 0);
    struct dt_trainer *t = r->trainer;
    struct dt_checkpoint_file file = {0};
    struct dt_config saved;
    if (path != NULL) {
        DT_TRY(dt_saved_find(path, false, path_used));
        DT_TRY(dt_checkpoint_open(path_used, &file));
    } else {
        const struct dt_checkpoint_judge judge = {
            .check = check_saved, .on_damaged = on_damaged, .context = r};
        DT_TRY(dt_checkpoint_newest(r->run->checkpoints, &judge, path_used, &file));
        if (path_used[0] == '\0') {
            return DT_OK;
        }
    }
    enum dt_status s = check_all(r, path, path_used, &file, &saved);
    s = s == DT_OK ? find_changes(r, &saved) : s;
    if (s == DT_OK) {
        s = load_arenas(t, &file, N_ARENAS, NULL);
    }
    if (s == DT_OK) {
        const struct dt_checkpoint_state now = t->state;
        take_residuals(r, path_used, &file, &saved);
        take_average(r, path_used, &file);
        t->state = file.state;
        DT_ASSERT(t->state.optimizer_steps == t->state.step && t->state.seed == now.seed &&
                  t->state.n_train == now.n_train);
        t->state.world_size = now.world_size;
        t->state.global_batch = now.global_batch;
        t->state.bright_borders = now.bright_borders;
        t->state.data_hash = now.data_hash;
        t->state.step_in_epoch = next_step(t, &file.state);
        t->state.shuffle_rounds = now.shuffle_rounds;
        t->strategy->optimizer.n_steps = file.state.optimizer_steps;
        dt_monitor_forget(&saved, &t->config, &t->state);
        dt_saved_tell_changes(t, &saved, &file.state, r->changes);
        check_best(r);
    }
    dt_checkpoint_close(&file);
    return s;
}

/* Broadcasts what rank 0 has read. */
static enum dt_status give_out(struct restore *r, char path_used[DT_CHECKPOINT_PATH_SIZE])
{
    struct dt_trainer *t = r->trainer;
    struct dt_comm *comm = t->world->comm;
    DT_TRY(dt_comm_broadcast(comm, path_used, DT_CHECKPOINT_PATH_SIZE, 0,
                             "broadcast of the checkpoint's path"));
    DT_TRY(dt_comm_broadcast(comm, &t->state, sizeof t->state, 0,
                             "broadcast of where the run stands"));
    DT_TRY(dt_comm_broadcast(comm, &r->has_residuals, sizeof r->has_residuals, 0,
                             "broadcast of what there is"));
    if (t->config.sharding == DT_SHARDING_GLOBAL) {
        t->set.loader.shard.used = (size_t)t->state.n_samples;
    }
    DT_ASSERT(t->state.step_in_epoch <= t->schedule.steps_per_epoch);
    DT_ASSERT(t->state.world_size == (uint64_t)t->roles.n_workers);
    dt_residuals_set_draws(t->strategy, t->state.compression_draws);
    DT_TRY(dt_ema_broadcast(t));
    return r->has_residuals ? dt_residuals_give_out(t->strategy, r->residuals) : DT_OK;
}

enum dt_status dt_trainer_restore(struct dt_trainer *t, const struct dt_run_dir *run,
                                  const struct dt_emitter *emitter, const char *path,
                                  char path_used[DT_CHECKPOINT_PATH_SIZE],
                                  char changes[DT_CHANGES_SIZE])
{
    struct restore r = {.trainer = t, .run = run, .emitter = emitter, .changes = changes};
    enum dt_status s;
    memset(path_used, 0, DT_CHECKPOINT_PATH_SIZE);
    DT_TRY_GOTO(s, dt_world_agree(t->world, dt_residuals_alloc(t->strategy, &r.residuals)), done);
    DT_TRY_GOTO(s,
                dt_world_agree(t->world,
                               t->world->rank == 0 ? read_checkpoint(&r, path, path_used) : DT_OK),
                done);
    s = give_out(&r, path_used);
done:
    free(r.residuals);
    return s;
}

static enum dt_status read_weights(struct dt_trainer *t, const char *path, char *text)
{
    DT_ASSERT(t->world->rank == 0);
    struct dt_checkpoint_file file;
    DT_TRY(dt_weights_open(path, &file));
    const enum dt_status s = load_arenas(t, &file, PARAMS + 1, text);
    dt_checkpoint_close(&file);
    return s == DT_CONFIG ? DT_BAD_DATA : s;
}

enum dt_status dt_trainer_take_weights(struct dt_trainer *t, const char *path,
                                       char text[DT_FIT_TEXT_SIZE])
{
    text[0] = '\0';
    return dt_world_agree(t->world, t->world->rank == 0 ? read_weights(t, path, text) : DT_OK);
}
