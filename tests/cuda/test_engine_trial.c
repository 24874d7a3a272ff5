/* cuda/cudnn/conv_plan.c and engine_trial.c on fake cuDNN, whose engines' durations a test sets on
 * the clock of its events: the engines of a plan, the one kept, those rejected, the end of a trial
 * that cannot succeed, and what a run takes. test_cuda_blocks.c has the results. In bf16 fake cuDNN
 * lists 4 (1000 bytes of workspace), which turns NaN into numbers, twice 4 with other tiles, 5
 * (5000), 6 (77), 6 with other tiles. */
#include "cuda/cudnn/engine_trial.h"
#include "tests/fakecuda/fake.h"
#include "tests/lib/check.h"
#include "tests/lib/layers.h"

#include <sys/wait.h>
#include <unistd.h>

#define CUDA_OK(call) CHECK_INT(call, cudaSuccess)
#define ALL_ENGINES 0xffL
#define LIMIT_S 60

static cudaStream_t stream;
static cudnnHandle_t handle;
static struct dt_conv_plan *plan;
static size_t workspace_limit = 8192;
static enum dt_precision precision = DT_PRECISION_BF16;

static enum dt_status try_plan(enum dt_conv_kind kind, int n_engines)
{
    static struct dt_model model;
    const struct dt_model_spec spec = {.input = {3, 8, 8},
                                       .layers = {CONV(4, 3, 1, VALID, NONE), LAYER(FLATTEN)},
                                       .n_layers = 2,
                                       .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    CHECK_OK(dt_model_lower(&spec, &model));
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_INT(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    CHECK_INT(cudnnSetStream(handle, stream), CUDNN_STATUS_SUCCESS);
    const struct dt_conv_spec conv = {.kind = kind,
                                      .block = &model.blocks[0],
                                      .batch = 2,
                                      .precision = precision,
                                      .handle = handle,
                                      .workspace_limit = workspace_limit,
                                      .n_engines = n_engines};
    plan = NULL;
    return dt_conv_plan_open(&conv, &plan);
}

static void open_plan(enum dt_conv_kind kind, int n_engines)
{
    CHECK_OK(try_plan(kind, n_engines));
}

static void close_plan(void)
{
    dt_conv_plan_close(plan);
    CHECK_INT(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
    CUDA_OK(cudaStreamDestroy(stream));
}

/* Checks that the engine in use runs. */
static void check_run(void)
{
    static const size_t workspaces[FAKE_N_ENGINES] = {[4] = 1000, 5000, 77};
    const struct dt_engine *used = &plan->engines[plan->used];
    void *memory[DT_CONV_N_OPERANDS], *workspace;
    CHECK_INT(used->workspace_bytes, workspaces[used->number]);
    for (int i = 0; i < DT_CONV_N_OPERANDS; i++) {
        CUDA_OK(cudaMalloc(&memory[i], plan->n_bytes[i]));
        CUDA_OK(cudaMemsetAsync(memory[i], 0, plan->n_bytes[i], stream));
    }
    CUDA_OK(cudaMalloc(&workspace, used->workspace_bytes));
    CHECK_OK(dt_conv_plan_run(plan, memory[0], memory[1], memory[3], memory[2], workspace));
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaFree(workspace));
    for (int i = 0; i < DT_CONV_N_OPERANDS; i++) {
        CUDA_OK(cudaFree(memory[i]));
    }
}

/* ---- trials */

static const struct trial {
    const char *name;
    struct fake_options options;
    enum dt_conv_kind kind;
    int n_engines;  /* to choose from; 0: all */
    double limit_s; /* 0: LIMIT_S */
    bool untimed, f32;
    size_t workspace_limit; /* 0: 8192 */
    /* What comes of it: an error; or the engine that is kept, its time on the clock, to which fake
     * CUDA adds a millisecond per work item, and whether no graph can have it. */
    enum dt_status status;
    const char *why;
    int64_t number;
    double us;
    bool unrecorded;
} * trial;

#define FIXED .n_engines = 1, .untimed = true
#define RELU .kind = DT_CONV_FORWARD_RELU
#define TIMES(of_4, of_5, of_6) .engine_ms = {[4] = of_4, of_5, of_6}
#define KEEPS(number_, us_) .number = (number_), .us = (us_)
#define FAILS(status_, text) .status = DT_##status_, .why = (text)

static const struct trial trials[] = {
    {"the first of equals", KEEPS(4, 1000)},
    {"a fixed choice, however slow", {TIMES(9, 1, 1)}, FIXED, KEEPS(4, 0)},
    {"the host's time to load, 18 times 30 ms, is not the GPU's",
     {.engine_load_ms = 30},
     .n_engines = 2,
     .limit_s = 0.2,
     KEEPS(4, 1000)},
    /* 4, the fastest and the first, turns NaN into a number. */
    {"NaNs pass", {TIMES(1, 9, 8)}, RELU, KEEPS(6, 9000)},
    {"NaNs pass, untimed", {TIMES(1, 9, 8)}, RELU, .untimed = true, KEEPS(5, 0)},
    {"no NaN passes",
     {TIMES(1, 9, 8)},
     RELU,
     FIXED,
     FAILS(UNAVAILABLE, "engine 4 takes a NaN for a number")},
    /* It is last in the list, and here the only one that cuDNN does not refuse. */
    {"the plain product",
     {.n_refused_plans = 9},
     RELU,
     FAILS(UNAVAILABLE, "engine 0 is the plain implicit")},
    {"the plain product, untimed",
     {.n_refused_plans = 9},
     RELU,
     .untimed = true,
     FAILS(UNAVAILABLE, "engine 0 is the plain implicit")},
    /* What no graph can have is passed over, and kept only where it is the only choice. */
    {"unrecordable", {.unrecordable_engines = 1L << 4, TIMES(1, 9, 8)}, KEEPS(6, 9000)},
    {"unrecordable, fixed",
     {.unrecordable_engines = 1L << 4},
     FIXED,
     KEEPS(4, 0),
     .unrecorded = true},
    {"all are unrecordable",
     {.unrecordable_engines = ALL_ENGINES},
     KEEPS(4, 0),
     .unrecorded = true},
    {"4 fails", {.failing_engines = 1L << 4, TIMES(1, 4, 5)}, KEEPS(5, 5000)},
    {"5 fails", {.failing_engines = 1L << 5, TIMES(3, 1, 5)}, KEEPS(4, 4000)},
    {"6 fails", {.failing_engines = 1L << 6, TIMES(3, 4, 1)}, KEEPS(4, 4000)},
    /* cuDNN offers engines and then refuses them: the next admissible one is used; the last resort
     * needs no workspace. */
    {"workspace above the limit", .f32 = true, .workspace_limit = 10, FIXED, KEEPS(0, 0)},
    {"the second mode", {.n_refused_plans = 3}, .f32 = true, FIXED, KEEPS(6, 0)},
    {"the last mode", {.n_refused_plans = 4}, .f32 = true, FIXED, KEEPS(0, 0)},
    {"none runs", {.failing_engines = ALL_ENGINES}, FAILS(INTERNAL, ": cudnnBackendExecute")},
    /* It ends by itself; no waiting call follows. The first stalls also on a slow machine. */
    {"endless",
     {.endless_engines = 1L << 4},
     .kind = DT_CONV_FILTER_GRADIENT,
     .limit_s = 0.2,
     FAILS(STALLED, "the GPU does not finish the gradient of the filter by cuDNN's engine 4")},
    {"a fault of the GPU, and not of the engine",
     {.fail_launch_at = 7},
     FAILS(INTERNAL, "illegal memory access")},
    {"no memory, first", {.fail_malloc_at = 1, TIMES(9, 1, 1)}, KEEPS(4, 0)},
    {"no memory, second", {.fail_malloc_at = 2, TIMES(9, 1, 1)}, KEEPS(4, 0)},
    {"no memory, third", {.fail_malloc_at = 3, TIMES(9, 1, 1)}, KEEPS(4, 0)},
    {"no memory, fourth", {.fail_malloc_at = 4, TIMES(9, 1, 1)}, KEEPS(4, 0)},
    {"no memory, fifth", {.fail_malloc_at = 5, TIMES(9, 1, 1)}, KEEPS(4, 0)},
};

/* A trial that works leaves no memory, no error and no work behind. */
static void run_trial(void)
{
    fake_options = trial->options;
    precision = trial->f32 ? DT_PRECISION_F32 : DT_PRECISION_BF16;
    workspace_limit = trial->workspace_limit > 0 ? trial->workspace_limit : 8192;
    open_plan(trial->kind, trial->n_engines > 0 ? trial->n_engines : DT_MAX_ENGINES);
    CHECK(trial->options.n_refused_plans == 0 || plan->n_engines == 1);
    const long n_bytes = fake_counts().n_live_bytes;
    const enum dt_status status = dt_engine_trial(
        plan,
        &(struct dt_engine_trial_spec){.stream = stream,
                                       .limit_s = trial->limit_s > 0 ? trial->limit_s : LIMIT_S,
                                       .timed = !trial->untimed});
    CHECK_INT(status, trial->status);
    if (status == DT_OK) {
        const struct dt_engine *kept = &plan->engines[plan->used];
        CHECK_INT(kept->number, trial->number);
        CHECK_NEAR(kept->us, trial->us + (trial->us > 0 ? 250 : 0), trial->us > 0 ? 250 : 0);
        CHECK(kept->unrecorded == trial->unrecorded);
        CHECK_INT(fake_counts().n_live_bytes, n_bytes);
        CHECK_INT(dt_error_text()[0], 0);
        CUDA_OK(cudaGetLastError());
        CUDA_OK(cudaStreamQuery(stream));
        check_run();
    } else {
        CHECK_HAS(dt_error_text(), trial->why);
    }
    if (status == DT_STALLED || trial->options.fail_launch_at > 0) {
        _exit(0);
    }
    close_plan();
}

/* Finds the fastest, whichever it is, for each kind of convolution. */
static void fastest(void)
{
    static struct trial each = {.us = 8000};
    trial = &each;
    for (int kind = 0; kind < DT_CONV_N_KINDS; kind++) {
        for (int i = kind == DT_CONV_FORWARD_RELU ? 1 : 0; i < 3; i++) {
            each.options =
                (struct fake_options){TIMES(i == 0 ? 7 : 9, i == 1 ? 7 : 9, i == 2 ? 7 : 8)};
            each.kind = (enum dt_conv_kind)kind;
            each.number = 4 + i;
            run_trial();
        }
    }
}

/* The tail in place, which works on the result, costs a millisecond of the clock. */
static void tail_is_timed(void)
{
    const struct dt_gpu_tail tail = {.b = {.linear_out = {4, 6, 6}, .pool_out = {4, 6, 6}},
                                     .n = 2,
                                     .type = DT_GPU_BF16,
                                     .y_type = DT_GPU_BF16};
    open_plan(DT_CONV_FORWARD, DT_MAX_ENGINES);
    CHECK_OK(dt_engine_trial(
        plan, &(struct dt_engine_trial_spec){
                  .stream = stream, .limit_s = LIMIT_S, .timed = true, .tail = &tail}));
    CHECK_NEAR(plan->engines[plan->used].us, 2000, 500);
    close_plan();
}

/* ---- the engines of a plan */

/* The first four as cuDNN lists them, of which three are one engine; then one of each other
 * number. */
static void first_engines(void)
{
    static const int numbers[] = {4, 4, 4, 5, 6}, places[] = {4, 5, 6, 7, 8};
    for (int n = 1; n <= DT_MAX_ENGINES; n++) {
        open_plan(DT_CONV_FORWARD, n);
        CHECK_INT(plan->n_engines, n < 5 ? n : 5);
        for (int i = 0; i < plan->n_engines; i++) {
            plan->used = i;
            CHECK_INT(plan->engines[plan->used].number, numbers[i]);
            CHECK_INT(plan->engines[plan->used].place, places[i]);
        }
        close_plan();
    }
}

/* Without tensor cores in f32. */
static void by_precision(void)
{
    static const size_t workspaces[] = {77, 1000, 1000};
    for (int i = 0; i < DT_CONV_N_KINDS * 3; i++) {
        precision = (enum dt_precision)(i % 3);
        open_plan((enum dt_conv_kind)(i / 3), DT_FIRST_ENGINES);
        CHECK_INT(plan->engines[0].workspace_bytes, workspaces[i % 3]);
        CHECK(precision == DT_PRECISION_F32 || plan->engines[3].workspace_bytes == 5000);
        close_plan();
    }
}

static void no_engine(void)
{
    fake_options.n_refused_plans = 1000;
    CHECK_FAILS(try_plan(DT_CONV_FILTER_GRADIENT, DT_MAX_ENGINES), DT_UNAVAILABLE,
                "block conv1: cuDNN ");
    CHECK_HAS(dt_error_text(),
              "gradient of the filter in bf16, 2 samples of 3x8x8, 4 filters 3x3, stride 1, to "
              "6x6: CUDNN_STATUS_NOT_SUPPORTED");
    CHECK(plan == NULL);
    close_plan(); /* and no descriptor remains */
}

/* The same pointers: nothing is created. Others: one pack. Wrong ones: an error. */
static void pointers(void)
{
    char *at;
    open_plan(DT_CONV_FORWARD, 1);
    CUDA_OK(cudaMalloc((void **)&at, 1 << 16));
    CUDA_OK(cudaMemsetAsync(at, 0, 1 << 16, stream));
    const struct {
        size_t x, workspace;
        int n_created;
        enum dt_status status;
    } runs[] = {{0, 4096, 1, DT_OK},
                {0, 4096, 0, DT_OK},
                {8192, 4096, 1, DT_OK},
                {8, 4096, 1, DT_INTERNAL},
                {0, 0, 1, DT_INTERNAL}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        const long n = fake_counts().n_descriptors;
        void *workspace = runs[i].workspace > 0 ? at + runs[i].workspace : NULL;
        CHECK_INT(dt_conv_plan_run(plan, at + runs[i].x, at + 16384, NULL, at + 32768, workspace),
                  runs[i].status);
        CHECK_INT(fake_counts().n_descriptors - n, runs[i].n_created);
        CHECK(runs[i].status == DT_OK || strstr(dt_error_text(), "cudnnBackendExecute") != NULL);
        dt_error_clear();
    }
    CUDA_OK(cudaFree(at));
    close_plan();
}

/* Runs the case in a process of its own: it sets fake CUDA's options, and may end the process. */
static void run_case(const char *name, void (*body)(void))
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        body();
        exit(0);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_MESSAGE(status == 0, "%s: ended with status %#x", name, status);
}

#define WORKS(body) run_case(#body, body)

int main(void)
{
    WORKS(by_precision);
    WORKS(first_engines);
    WORKS(no_engine);
    WORKS(pointers);
    WORKS(fastest);
    WORKS(tail_is_timed);
    for (trial = trials; trial < trials + sizeof trials / sizeof trials[0]; trial++) {
        run_case(trial->name, run_trial);
    }
    return 0;
}
