/* A resumed run ends with the bits of one that was never stopped: under every codec, by every way
 * of adding gradients, on so many hosts as MPI pretends. And what compression has left is sent in
 * the end, whoever encodes after a resume. */
#include "cli/config/config.h"
#include "dist/launch/job.h"
#include "dist/strategy/residuals.h"
#include "tests/lib/folder.h"
#include "tests/lib/rig.h"
#include "train/save/run_dir.h"
#include "train/save/state.h"
#include "train/trainer.h"

enum { N_BEFORE = 3, N_AFTER = 3, MAX_SETS = 8 };

/* Two buckets: one of few elements, and one that several ranks of a host carry in slices. */
static const char config_text[] =
    "{\"data\": {\"format\": \"synthetic\", \"train_samples\": 96, \"test_samples\": 8, "
    "\"sharding\": \"global\"}, \"model\": {\"input\": [1, 12, 12], \"layers\": [  {\"type\": "
    "\"flatten\"}, {\"type\": \"dense\", \"units\": 120, \"activation\": \"relu\"}, {\"type\": "
    "\"dense\", \"units\": 4}]}, \"train\": {\"epochs\": 1, \"batch\": {\"global\": 12}, "
    "\"optimizer\": {\"type\": \"sgd\", \"momentum\": 0.9, \"lr\": 0.05}}, \"distributed\": "
    "{\"bucket_mb\": 0, \"check_every\": 1}, \"device\": \"cpu\", \"threads\": 1}";

#define KEY(key, value) "distributed." key "=" value
#define ADDS(name) KEY("allreduce", name)
#define ACROSS(name) ADDS("hierarchical"), KEY("across", name)
#define SENDS(name) KEY("compression.type", name)
#define STOCHASTIC SENDS("int8"), KEY("compression.rounding", "stochastic")

static const char *const codecs[][MAX_SETS] = {
    {SENDS("none")},   {SENDS("fp16")}, {SENDS("bf16")},
    {SENDS("int8")},   {STOCHASTIC},    {STOCHASTIC, KEY("compression.error_feedback", "false")},
    {SENDS("onebit")}, {SENDS("topk")}};

static const char *const ways[][MAX_SETS] = {{ADDS("auto")},
                                             {ADDS("shared_memory")},
                                             {ADDS("mpi")},
                                             {ADDS("ring")},
                                             {ADDS("tree")},
                                             {ADDS("recursive_doubling")},
                                             {ADDS("halving_doubling")},
                                             {ADDS("all_to_all")},
                                             {ADDS("master_worker")},
                                             {ACROSS("ring")},
                                             {ACROSS("tree")},
                                             {ACROSS("recursive_doubling")},
                                             {ACROSS("halving_doubling")},
                                             {ACROSS("all_to_all")},
                                             {ACROSS("master_worker")},
                                             {ADDS("all_to_all"), KEY("order", "priority")},
                                             {ACROSS("all_to_all"), KEY("order", "priority")},
                                             {KEY("strategy", "central")},
                                             {KEY("strategy", "parameter_server")}};

#define N_CODECS ((int)(sizeof codecs / sizeof *codecs))
#define N_WAYS ((int)(sizeof ways / sizeof *ways))
/* none: all ways; fp16 and bf16: all but MPI's and shared memory; those that cannot be added: where
 * all ranks gather all. */
#define N_POSSIBLE (N_WAYS + 2 * (N_WAYS - 2) + 5 * 7)

static struct dt_run_dir run = {.lock = -1}; /* rank 0's */
static char row[512];                        /* for messages */

static int parse(const char *const *codec, const char *const *way, struct dt_config *config)
{
    const char *sets[2 * MAX_SETS];
    int n = 0;
    row[0] = '\0';
    for (int part = 0; part < 2; part++) {
        for (const char *const *set = part == 0 ? codec : way; *set != NULL; set++) {
            sets[n++] = *set;
            snprintf(row + strlen(row), sizeof row - strlen(row), " %s",
                     *set + strlen("distributed."));
        }
    }
    return dt_config_parse("test", config_text, strlen(config_text), sets, n, config) == DT_OK;
}

/* ---- a run, or a part of one */

static char warning[1024];

static enum dt_status hear(void *context, struct dt_event *event)
{
    (void)context;
    CHECK(event->kind == DT_EVENT_WARNING);
    snprintf(warning, sizeof warning, "%s", event->warning);
    return DT_OK;
}

/* resume: from the newest checkpoint; there is one if `found`. */
static void open_run(struct dt_world *world, const struct dt_config *config, bool resume,
                     bool found, struct dt_trainer *out)
{
    const struct dt_emitter emitter = {.emit = hear};
    char path[DT_CHECKPOINT_PATH_SIZE] = "", changes[DT_CHANGES_SIZE] = "";
    warning[0] = '\0';
    CHECK_OK(dt_trainer_open(world, config, &dt_config_json, &dt_all_parts, out));
    if (resume) {
        CHECK_OK(dt_trainer_restore(out, &run, &emitter, NULL, path, changes));
        CHECK((path[0] != '\0') == found);
    }
    CHECK_OK(dt_strategy_broadcast(out->strategy));
}

static void take_steps(struct dt_trainer *t, int n)
{
    static struct dt_step_results results;
    for (int i = 0; i < n; i++) {
        CHECK_OK(dt_trainer_steps(t, 1, &results));
    }
    CHECK_OK(dt_strategy_share_weights(t->strategy));
    CHECK_OK(dt_strategy_collect_state(t->strategy));
}

static void save(struct dt_trainer *t)
{
    char path[DT_CHECKPOINT_PATH_SIZE];
    CHECK_OK(dt_trainer_save(t, &run, false, path));
}

static void forget(const struct dt_world *world)
{
    uint64_t *steps = NULL;
    size_t n = 0;
    char path[DT_CHECKPOINT_PATH_SIZE];
    if (world->rank == 0) {
        CHECK_OK(dt_checkpoint_list(run.checkpoints, &steps, &n));
        for (size_t i = 0; i < n; i++) {
            CHECK_OK(dt_checkpoint_path(run.checkpoints, steps[i], path));
            CHECK(unlink(path) == 0);
        }
        free(steps);
    }
}

/* ---- the same bits */

static void check_weights(const struct dt_trainer *t, const float *expected, const char *what)
{
    const size_t n = t->model.arena_elems;
    CHECK_MESSAGE(memcmp(t->network->params, expected, n * sizeof *expected) == 0,
                  "%s, %d hosts: %s has other bits", row, t->world->comm->n_hosts, what);
}

static void test_resume(struct dt_world *world, const struct dt_config *config)
{
    struct dt_trainer t;
    open_run(world, config, true, false, &t);
    float *weights = temporary(t.model.arena_elems * sizeof *weights);
    take_steps(&t, N_BEFORE);
    save(&t);
    take_steps(&t, N_AFTER);
    memcpy(weights, t.network->params, t.model.arena_elems * sizeof *weights);
    dt_trainer_close(&t);

    open_run(world, config, true, true, &t);
    take_steps(&t, N_AFTER);
    check_weights(&t, weights, "a resumed run");
    dt_trainer_close(&t);
    CHECK_TEXT(warning, "");
    forget(world);

    if (config->dist.compression.rounding == DT_ROUNDING_STOCHASTIC) {
        open_run(world, config, false, false, &t);
        take_steps(&t, N_BEFORE + N_AFTER);
        check_weights(&t, weights, "a run that was not asked to resume");
        dt_trainer_close(&t);
    }
}

static void test_all(struct dt_world *world)
{
    struct dt_config config;
    int n_possible = 0;
    for (int c = 0; c < N_CODECS; c++) {
        for (int w = 0; w < N_WAYS; w++) {
            if (parse(codecs[c], ways[w], &config)) {
                test_resume(world, &config);
                n_possible++;
            }
        }
    }
    dt_error_clear();
    CHECK_INT(n_possible, N_POSSIBLE);
}

/* ---- what is left */

/* Rank 0: of each element, over all workers. */
static void sum_left(struct dt_trainer *t, double *sums, double *largest)
{
    const size_t n = t->model.arena_elems;
    float *rows;
    *largest = 0;
    CHECK_OK(dt_residuals_alloc(t->strategy, &rows));
    CHECK_OK(dt_residuals_collect(t->strategy, rows));
    for (size_t i = 0; i < n && t->world->rank == 0; i++) {
        sums[i] = 0;
        for (int w = 0; w < t->roles.n_workers; w++) {
            sums[i] += (double)rows[(size_t)w * n + i];
            *largest = fmax(*largest, fabs((double)rows[(size_t)w * n + i]));
        }
    }
    free(rows);
}

/* After a resume as much is left as before, and a step that sends everything leaves nothing. */
static void test_handed_over(struct dt_world *before, const char *const *from, struct dt_world *now,
                             const char *const *to, bool dropped)
{
    static const char *const some[] = {SENDS("topk"), KEY("compression.ratio", "0.01"), NULL};
    static const char *const all[] = {SENDS("topk"), KEY("compression.ratio", "1"), NULL};
    static double was[1 << 16], is[1 << 16];
    struct dt_config config;
    struct dt_trainer t;
    double largest = 0;
    if (before->comm != NULL) {
        CHECK(parse(some, from, &config));
        open_run(before, &config, false, false, &t);
        CHECK(t.model.arena_elems <= sizeof was / sizeof *was);
        take_steps(&t, N_BEFORE);
        sum_left(&t, was, &largest);
        CHECK(before->rank != 0 || largest > 0);
        save(&t);
        dt_trainer_close(&t);
    }
    if (now->comm != NULL) {
        CHECK(parse(all, to, &config));
        open_run(now, &config, true, true, &t);
        CHECK((strstr(warning, "residuals of compression, now without error feedback (dropped; the "
                               "run continues)") != NULL) == (dropped && now->rank == 0));
        CHECK(dropped || warning[0] == '\0');
        sum_left(&t, is, &largest);
        for (size_t i = 0; i < t.model.arena_elems && now->rank == 0 && !dropped; i++) {
            CHECK_NEAR(is[i], was[i], 1e-5 * fabs(was[i]) + 1e-7);
        }
        take_steps(&t, 1);
        sum_left(&t, is, &largest);
        CHECK_MESSAGE(largest == 0, "%s, %d hosts: %g is left of an element", row,
                      now->comm->n_hosts, largest);
        dt_trainer_close(&t);
    }
    forget(before);
}

static void test_residuals(struct dt_world *world)
{
    static const char *const gathers[] = {ADDS("all_to_all"), NULL},
                             *const hosts[] = {ACROSS("all_to_all"), NULL},
                             *const servers[] = {KEY("strategy", "parameter_server"), NULL},
                             *const central[] = {KEY("strategy", "central"), NULL};
    const bool one = world->comm->n_hosts ==
                     1; /* where the ranks of a host add in shared memory, and nothing is encoded */
    struct dt_world fewer, alone;
    CHECK_OK(dt_world_open_first(world, world->size - 1, &fewer));
    CHECK_OK(dt_world_open_first(world, 1, &alone));
    test_handed_over(world, gathers, world, hosts, one);
    test_handed_over(world, central, world, hosts, one);
    test_handed_over(world, servers, world, hosts, one);
    test_handed_over(&fewer, gathers, world, hosts, one);
    test_handed_over(&fewer, gathers, world, gathers, false);
    test_handed_over(world, gathers, &fewer, gathers, false);
    test_handed_over(world, gathers, &alone, gathers, true);
    if (!one) {
        test_handed_over(world, hosts, world, hosts, false);
        test_handed_over(world, hosts, world, gathers, false);
        test_handed_over(world, hosts, world, servers, false);
        test_handed_over(world, hosts, &fewer, gathers, false);
    }
    dt_world_close(&fewer);
    dt_world_close(&alone);
}

int main(void)
{
    struct dt_world world = {0};
    CHECK_OK(dt_world_open(&world));
    if (world.rank == 0) {
        folder_open();
        snprintf(run.path, sizeof run.path, "%s", folder);
        snprintf(run.checkpoints, sizeof run.checkpoints, "%s", folder);
    }
    test_all(&world);
    test_residuals(&world);
    if (world.rank == 0) {
        folder_remove();
    }
    dt_world_exit(&world, DT_OK, true);
}
