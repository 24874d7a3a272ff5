/* A rank's main function: as cli/main.c and cli/commands/train_command.c, without a command line,
 * and with events in place of what people see. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dist/launch/job.h"
#include "dist/liveness/heartbeat.h"
#include "tests/lib/wrap.h"
#include "tests/simulate/sim.h"
#include "train/hooks/hooks.h"
#include "train/hooks/inject.h"
#include "train/save/saver.h"
#include "train/train.h"
#include "train/trainer.h"

/* ---- configurations as one word: all ranks have the plan's */

static char *write_word(const struct dt_config *config)
{
    (void)config;
    return strdup(sim.differ && sim.now->number > 0 ? "another plan" : "plan");
}

static enum dt_status read_word(const char *name, const char *text, struct dt_config *out)
{
    *out = sim.plan->config;
    return strcmp(text, "plan") == 0 ? DT_OK : dt_error(DT_CONFIG, "%s: is \"%s\"", name, text);
}

static enum dt_status compare_words(const char *before, const char *now, const char *path,
                                    char *text, size_t size)
{
    (void)path;
    snprintf(text, size, "%s", strcmp(before, now) == 0 ? "" : "name was of another plan");
    return DT_OK;
}

static const struct dt_config_format format = {
    .write = write_word, .read = read_word, .compare = compare_words};

/* ---- events, on rank 0 */

static enum dt_status hear(void *context, struct dt_event *event)
{
    (void)context;
    if (event->kind == DT_EVENT_SAVE && event->save->error != NULL) {
        sim.n_save_failures++;
        sim_trace("cannot save: %s", event->save->error);
    } else if (event->kind == DT_EVENT_SAVE) {
        const char *name = strstr(event->save->path, "step-");
        sim.saved_step = name != NULL ? strtoull(name + 5, NULL, 10) : sim.saved_step;
        sim_trace("has saved step %llu", (unsigned long long)sim.saved_step);
    } else if (event->kind == DT_EVENT_STEP) {
        sim_trace("step %llu", (unsigned long long)event->step->step);
    } else if (event->kind == DT_EVENT_END) {
        snprintf(sim.digest, sizeof sim.digest, "%s",
                 event->end->weights != NULL ? event->end->weights : "");
    } else if (event->kind == DT_EVENT_RUN) {
        const char *name = strstr(event->run->resumed_from, "step-");
        sim.resumed_step = name != NULL ? strtoull(name + 5, NULL, 10) : 0;
        sim_trace("begins after step %llu", (unsigned long long)sim.resumed_step);
    } else if (event->kind == DT_EVENT_WARNING) {
        sim_trace("warns: %s", event->warning);
    }
    return sim.plan->wide ? sim_hook_call() : DT_OK;
}

/* Faults that the trainer itself can put into its steps. */
static struct dt_faults faults_of_steps(void)
{
    struct dt_faults faults = {.n = 0};
    if (sim.plan->wide && sim.plan->n_ranks == 1) { /* no replica differs by it */
        faults.faults[faults.n++] = (struct dt_fault){.kind = DT_FAULT_FLIP,
                                                      .first_step = 2,
                                                      .last_step = 2,
                                                      .tensor = "fc2.weight",
                                                      .text = "fault"};
    }
    for (int i = 0; i < sim.plan->n_faults && sim.faulty; i++) {
        const struct sim_fault *fault = &sim.plan->faults[i];
        if (!fault->off && (fault->kind == SIM_NAN || fault->kind == SIM_FLIP)) {
            sim.struck[i] = true;
            faults.faults[faults.n++] =
                (struct dt_fault){.kind = fault->kind == SIM_NAN ? DT_FAULT_NAN : DT_FAULT_FLIP,
                                  .rank = fault->rank,
                                  .first_step = fault->step,
                                  .last_step = fault->step,
                                  .tensor = "fc2.weight",
                                  .text = "fault"};
        }
    }
    return faults;
}

static enum dt_status open_hooks(const void *faults, struct dt_trainer *t,
                                 const struct dt_emitter *emitter)
{
    DT_TRY(dt_hooks_open(faults, t, emitter));
    return sim.plan->wide ? sim_hook_open(t) : DT_OK;
}

WRAP(enum dt_status, dt_trainer_save, struct dt_trainer *t, const struct dt_run_dir *run, bool best,
     char path[DT_CHECKPOINT_PATH_SIZE])
{
    const enum dt_status s = __real_dt_trainer_save(t, run, best, path);
    sim.stalled_saving = sim.stalled_saving || s == DT_STALLED;
    return s;
}

/* As bench and sweep do: some of the ranks, each alone, and signs of life between them. */
static enum dt_status use_parts(struct dt_world *world)
{
    struct dt_world part, own;
    double mine[1] = {0}, sum[1];
    struct dt_heartbeat beat = {
        .comm = world->comm, .name = "signs of life", .n = 1, .mine = mine, .sum = sum};
    DT_TRY(dt_world_open_first(world, 1 + (int)(sim.plan->seed % (uint64_t)world->size), &part));
    dt_world_close(&part);
    DT_TRY(dt_world_open_alone(world, &own));
    dt_world_close(&own);
    DT_TRY(dt_heartbeat_start(&beat));
    for (int i = 0; i < 20; i++) {
        dt_sleep_ms(1);
        dt_heartbeat_show(&beat);
    }
    return dt_heartbeat_finish(&beat);
}

static enum dt_status train(struct dt_world *world)
{
    const struct dt_faults faults = faults_of_steps();
    const struct dt_config *config = &sim.plan->config;
    struct dt_folder_saver saver = {
        .saver = {.ops = &dt_folder_saver_ops}, .run_dir = sim.run_dir, .resume = sim.resume};
    const struct dt_train_options options = {.format = &format,
                                             .parts = &dt_all_parts,
                                             .saver = &saver.saver,
                                             .hooks = {open_hooks, &faults}};
    dt_comm_set_timeout(world->comm, config->timeout_s);
    saver.checkpoint = sim.plan->wide && sim.plan->seed % 2 == 0 ? sim.run_dir : NULL;
    DT_TRY(sim.plan->wide ? use_parts(world) : DT_OK);
    return dt_train(world, config, &options, &(struct dt_emitter){.emit = hear});
}

/* As in cli/main.c. */
static void print_error_of(const struct dt_world *world, enum dt_status status, bool agreed)
{
    char line[SIM_LINE_SIZE];
    if (agreed || status == DT_STALLED || world->size == 1) {
        snprintf(line, sizeof line, "dtrain: %s", dt_error_text());
    } else {
        snprintf(line, sizeof line, "dtrain: rank %d (%s): %s", world->rank, world->host,
                 dt_error_text());
    }
    sim_say(line);
}

void sim_rank_main(void)
{
    struct dt_world world = {0};
    enum dt_status s = dt_world_open(&world);
    sim.now->open_points = sim.now->n_points;
    s = s == DT_OK ? train(&world) : s;
    sim.now->leaves = true;
    const bool agreed = s == DT_OK || dt_error_is_agreed();
    if (s != DT_OK && s != DT_STOPPED && dt_world_speaks(&world, agreed)) {
        print_error_of(&world, s, agreed);
    }
    sim_trace("leaves with status %d%s", (int)s, agreed ? ", agreed" : "");
    sim.now->code = (int)s;
    free(world.reports); /* the end of the process would */
    world.reports = NULL;
    dt_world_exit(&world, s, agreed);
}
