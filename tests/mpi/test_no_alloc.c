/* Nothing is allocated inside a step after the first. This program's own malloc counts; with one
 * rank every call in the process counts, with more only those from our code, since what MPI does
 * inside its collectives is its own business. */
#include <errno.h>
#include <malloc.h>

#include "cli/config/config.h"
#include "dist/launch/job.h"
#include "tests/lib/check.h"
#include "train/events.h"
#include "train/hooks/audit.h"
#include "train/trainer.h"

#if defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
#define CAN_COUNT 0
#else
#define CAN_COUNT 1
#endif

static bool counting, count_all;
static unsigned long n_calls;

#if CAN_COUNT
extern char __executable_start, etext;
extern void *__libc_malloc(size_t n_bytes);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *memory, size_t n_bytes);
extern void *__libc_memalign(size_t alignment, size_t n_bytes);

static void count(const void *caller)
{
    const char *c = caller;
    if (counting && (count_all || (c >= &__executable_start && c < &etext))) {
        n_calls++;
    }
}

void *malloc(size_t n_bytes)
{
    count(__builtin_return_address(0));
    return __libc_malloc(n_bytes);
}

void *calloc(size_t n, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *memory, size_t n_bytes)
{
    count(__builtin_return_address(0));
    return __libc_realloc(memory, n_bytes);
}

void *aligned_alloc(size_t alignment, size_t n_bytes)
{
    count(__builtin_return_address(0));
    return __libc_memalign(alignment, n_bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t n_bytes)
{
    count(__builtin_return_address(0));
    *memory = __libc_memalign(alignment, n_bytes);
    return *memory != NULL ? 0 : ENOMEM;
}
#endif

/* Gradients are measured, samples audited, replicas compared. */
static const char config_text[] =
    "{\"data\": {\"format\": \"synthetic\", \"train_samples\": 600, \"test_samples\": 32}, "
    "\"model\": {\"input\": [1, 12, 12], \"layers\": [{\"type\": \"conv2d\", \"filters\": 8, "
    "\"kernel\": 3, \"activation\": \"relu\"}, {\"type\": \"max_pool2d\", \"size\": 2}, "
    "{\"type\": \"dropout\", \"rate\": 0.25}, {\"type\": \"flatten\"}, {\"type\": \"dense\", "
    "\"units\": 10}], \"loss\": \"softmax_cross_entropy\"}, \"train\": {\"epochs\": 3, \"batch\": "
    "{\"per_rank\": 8}, \"accumulate\": 2, \"optimizer\": {\"type\": \"adam\", \"lr\": 0.001}}, "
    "\"distributed\": {\"check_every\": 2}, \"log\": {\"every_steps\": 2, \"audit\": true}}";

/* A branch, and statistics over all ranks. */
static const char layers[] =
    "model.layers=[{\"type\": \"conv2d\", \"filters\": 8, \"kernel\": 3}, {\"type\": "
    "\"batch_norm\", \"sync\": true, \"activation\": \"relu\", \"name\": \"a\"}, {\"type\": "
    "\"layer_norm\"}, {\"type\": \"concat\", \"inputs\": [\"a\"]}, {\"type\": "
    "\"global_avg_pool\"}, {\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 10}]";

static enum dt_status hear(void *n_audits, struct dt_event *event)
{
    *(int *)n_audits += event->kind == DT_EVENT_AUDIT;
    return DT_OK;
}

static void steps(struct dt_trainer *trainer, int n)
{
    static struct dt_step_results results;
    for (int i = 0; i < n; i++) {
        CHECK_INT(dt_trainer_steps(trainer, 1, &results), DT_OK);
        CHECK_INT(dt_replicas_after_step(trainer), DT_OK);
    }
}

static void test_device(struct dt_world *world, const char *device, const char *clip,
                        const char *allreduce)
{
    static struct dt_config config;
    static struct dt_trainer trainer;
    char set[32];
    int n_audits = 0;
    const struct dt_emitter emitter = {.emit = hear, .context = &n_audits};
    const char *sets[] = {set, clip, allreduce};
    snprintf(set, sizeof set, "device=%s", device);
    if (dt_config_parse("test", config_text, strlen(config_text), sets, 3, &config) != DT_OK ||
        dt_trainer_open(world, &config, &dt_config_json, &dt_all_parts, &trainer) != DT_OK ||
        dt_audit_open(&trainer, &emitter) != DT_OK || dt_trainer_open_run(&trainer) != DT_OK) {
        CHECK_FAIL("%s", dt_error_text());
    }
    steps(&trainer, 2);
    n_calls = 0;
    counting = true;
    steps(&trainer, 12);
    counting = false;
    CHECK_INT(n_calls, 0);
    CHECK_INT(n_audits, world->rank == 0 ? 14 : 0);
    counting = true;
    free(malloc(1)); /* the counter counts */
    counting = false;
    CHECK_INT(n_calls, 1);
    CHECK_INT(dt_strategy_share_weights(trainer.strategy), DT_OK);
    dt_trainer_close(&trainer);
}

int main(void)
{
    struct dt_world world = {0};
    if (!CAN_COUNT) {
        fprintf(stderr, "skipped: malloc cannot be replaced in this build\n");
        return CHECK_SKIP_CODE;
    }
    CHECK_INT(dt_world_open(&world), DT_OK);
    count_all = world.size == 1;
    test_device(&world, "ref", "train.optimizer.clip_norm=1", "distributed.allreduce=auto");
    test_device(&world, "cpu", "train.optimizer.clip_norm=1", "distributed.allreduce=auto");
    /* The ranks of the host step together. */
    test_device(&world, "cpu", "train.optimizer.clip_norm=0", "distributed.allreduce=auto");
    test_device(&world, "cpu", "train.optimizer.clip_norm=0", "distributed.allreduce=ring");
    test_device(&world, "cpu", "train.optimizer.clip_norm=0", "distributed.allreduce=all_to_all");
    test_device(&world, "cpu", "train.optimizer.clip_norm=0", "distributed.compression.type=fp16");
    test_device(&world, "cpu", "train.optimizer.clip_norm=0", "distributed.compression.type=topk");
    test_device(&world, "cpu", "distributed.order=priority", "distributed.allreduce=auto");
    test_device(&world, "cpu", "distributed.order=priority", "distributed.allreduce=ring");
    test_device(&world, "cpu", "train.optimizer.clip_norm=0", "distributed.strategy=central");
    test_device(&world, "ref", layers, "distributed.allreduce=auto");
    test_device(&world, "cpu", layers, "distributed.allreduce=ring");
    if (world.size > 1) {
        test_device(&world, "cpu", "train.optimizer.clip_norm=0",
                    "distributed.strategy=parameter_server");
    }
    dt_world_exit(&world, DT_OK, true);
}
