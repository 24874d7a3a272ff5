/* Memory that runs out while a run is resumed, a checkpoint measured, or weights taken: each
 * allocation of ours and of cJSON fails in turn, on each rank in turn. All ranks end with 71 and
 * one line, never with "damaged" or "the configuration differs", and no checkpoint is passed over;
 * or they did without. The linker puts these allocators in the place of the C library's. */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands/eval.h"
#include "cli/config/config.h"
#include "dist/launch/job.h"
#include "tests/lib/check.h"
#include "tests/lib/failing.h"
#include "tests/lib/wrap.h"
#include "train/hooks/guard.h"
#include "train/hooks/hooks.h"
#include "train/save/run_dir.h"
#include "train/save/state.h"
#include "train/trainer.h"

FAILING(void *, aligned_alloc, (size_t alignment, size_t n), (alignment, n))
FAILING(char *, strdup, (const char *text), (text))
FAILING(DIR *, opendir, (const char *path), (path))
FAILING(FILE *, fopen, (const char *path, const char *mode), (path, mode))

WRAP(int, posix_memalign, void **memory, size_t alignment, size_t n)
{
    return fails() ? ENOMEM : __real_posix_memalign(memory, alignment, n);
}

static const char config_text[] =
    "{\"data\": {\"format\": \"synthetic\", \"train_samples\": 64, \"test_samples\": 16, "
    "\"validation\": 0.25}, "
    "\"model\": {\"input\": [2, 4, 4], \"layers\": [  {\"type\": \"conv2d\", \"filters\": 2, "
    "\"kernel\": 3}, {\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 4}]}, \"train\": "
    "{\"epochs\": 3, \"batch\": {\"global\": 8}}, \"device\": \"cpu\", \"threads\": 1, "
    "\"tensorboard\": true}";

static struct dt_world world;
static struct dt_run_dir run = {.lock = -1};
static char saved[DT_CHECKPOINT_PATH_SIZE];

static enum dt_status never_told(void *context, struct dt_event *event)
{
    (void)context;
    CHECK_FAIL("event %d: %s", event->kind, dt_error_text());
}

static const struct dt_emitter never = {.emit = never_told};

static enum dt_status open_trainer(struct dt_trainer *t)
{
    static struct dt_config config;
    DT_TRY(dt_world_agree(
        &world, dt_config_parse("c.json", config_text, sizeof config_text - 1, NULL, 0, &config)));
    DT_TRY(dt_trainer_open(&world, &config, &dt_config_json, &dt_all_parts, t));
    const enum dt_status s = dt_hooks_open(NULL, t, &never);
    if (s != DT_OK) {
        dt_trainer_close(t);
    }
    return s;
}

static enum dt_status resume(void)
{
    static struct dt_trainer t;
    char used[DT_CHECKPOINT_PATH_SIZE], changes[DT_CHANGES_SIZE];
    DT_TRY(open_trainer(&t));
    const enum dt_status s = dt_trainer_restore(&t, &run, &never, NULL, used, changes);
    if (s == DT_OK) {
        CHECK_TEXT(used, saved);
        CHECK_INT(t.state.step, 2);
    }
    dt_trainer_close(&t);
    return s;
}

static enum dt_status take_weights(void)
{
    static struct dt_trainer t;
    DT_TRY(open_trainer(&t));
    const enum dt_status s = dt_trainer_take_weights(&t, saved, (char[DT_FIT_TEXT_SIZE]){""});
    dt_trainer_close(&t);
    return s;
}

static enum dt_status eval(void)
{
    extern const struct dt_command dt_command_eval;
    const char *file = saved;
    const struct dt_args args = {.command = &dt_command_eval, .values[DT_PATHS] = {&file, 1}};
    return dt_command_eval.together(&world, &args);
}

/* Every failure in turn on rank `victim`; the other ranks learn of it. */
static enum dt_status guard(void)
{
    struct dt_guard *guard;
    DT_TRY(dt_guard_open(&world, &guard));
    dt_guard_close(guard, DT_OK);
    return DT_OK;
}

/* `least`: as many allocations of ours, at least, are none that it could do without. */
static void try_all(const char *what, enum dt_status (*use)(void), int victim, int least)
{
    int n_refused = 0;
    for (long k = 1;; k++) {
        n_calls = 0;
        failing_call = world.rank == victim ? k : 0;
        const enum dt_status s = use();
        int reached = world.rank == victim && n_calls >= k;
        failing_call = 0;
        CHECK_MESSAGE(s == DT_OK || (s == DT_NO_MEMORY && dt_error_text()[0] != '\0'),
                      "%s, allocation %ld on rank %d: status %d, %s", what, k, victim, s,
                      dt_error_text());
        dt_error_clear();
        n_refused += s == DT_NO_MEMORY;
        CHECK_OK(dt_comm_allreduce(world.comm, &reached, 1, DT_TYPE_I32, DT_REDUCE_MAX, "test"));
        if (!reached) {
            CHECK_OK(s);
            if (world.rank == 0) {
                fprintf(stderr, "%s: %d failing allocations of rank %d, all told\n", what,
                        n_refused, victim);
            }
            CHECK(n_refused >= least);
            return;
        }
    }
}

/* After two steps. */
static void save(void)
{
    static struct dt_trainer t;
    static struct dt_step_results results;
    CHECK_OK(open_trainer(&t));
    CHECK_OK(dt_trainer_steps(&t, 1, &results));
    CHECK_OK(dt_trainer_steps(&t, 1, &results));
    CHECK_OK(dt_trainer_save(&t, &run, false, saved));
    CHECK_OK(dt_comm_broadcast(world.comm, saved, sizeof saved, 0, "test"));
    dt_trainer_close(&t);
}

int main(void)
{
    CHECK_OK(dt_world_open(&world));
    CHECK(freopen("/dev/null", "w", stdout) != NULL); /* what eval prints */
    strcpy(run.path, "/tmp/dtrain-test-XXXXXX");
    if (world.rank == 0) {
        CHECK(mkdtemp(run.path) != NULL);
    }
    CHECK_OK(dt_comm_broadcast(world.comm, run.path, sizeof run.path, 0, "test"));
    snprintf(run.checkpoints, sizeof run.checkpoints, "%.1000s/checkpoints", run.path);
    if (world.rank == 0) {
        CHECK(mkdir(run.checkpoints, 0755) == 0);
    }
    save();
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = json_malloc, .free_fn = free});
    for (int victim = 0; victim < world.size; victim++) {
        try_all("eval", eval, victim, 11);
        try_all("resume", resume, victim, 11);
        try_all("weights", take_weights, victim, 11);
        try_all("the watchdog", guard, victim, 2);
    }
    if (world.rank == 0) {
        CHECK(unlink(saved) == 0 && rmdir(run.checkpoints) == 0 && rmdir(run.path) == 0);
    }
    dt_world_exit(&world, DT_OK, true);
}
