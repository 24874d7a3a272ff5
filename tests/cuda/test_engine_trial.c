/* cuda/cudnn/conv_plan.c and engine_trial.c on fake cuDNN, whose engines' durations a test sets on
 * the clock of its events: the engines of a plan, the one kept, those rejected, the end of a trial
 * that cannot succeed, and what a run takes. test_cuda_blocks.c has the results. In bf16 fake cuDNN
 * lists 4 (1000 bytes of workspace), which turns NaN into numbers, twice 4 with other tiles, 5
 * (5000), 6 (77), 6 with other tiles. */
#include "cuda/cudnn/engine_trial.h"
#include "tests/cuda/case.h"
#include "tests/fakecuda/fake.h"
#include "tests/lib/layers.h"

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
    struct dt_model_spec spec = {
        .input = {3, 8, 8}, .n_layers = 2, .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    spec.layers[0] = (struct dt_layer_spec)CONV(4, 3, 1, VALID, NONE);
    spec.layers[1] = (struct dt_layer_spec)LAYER(FLATTEN);
    CHECK_OK(dt_model_lower(&spec, &model));
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_INT(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    CHECK_INT(cudnnSetStream(handle, stream), CUDNN_STATUS_SUCCESS);
    const struct dt_conv_target target = {
        .handle = handle, .workspace_limit = workspace_limit, .n_engines = n_engines};
    plan = NULL;
    return dt_conv_plan_open(&target, kind, &model.blocks[0], 2, precision, &plan);
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

static enum dt_status try_engines(double limit_s, bool timed)
{
    return dt_engine_trial(
        plan, &(struct dt_engine_trial_spec){.stream = stream, .limit_s = limit_s, .timed = timed});
}

/* Checks that the trial keeps this one, and leaves no memory, no error and no work behind. */
static void keeps(int64_t number, double us_min, double us_max)
{
    const long n_bytes = fake_counts().n_live_bytes;
    CHECK_OK(try_engines(LIMIT_S, true));
    const struct dt_engine *kept = &plan->engines[plan->used];
    CHECK_INT(kept->number, number);
    CHECK_MESSAGE(kept->us >= us_min && kept->us <= us_max, "engine %d took %g us",
                  (int)kept->number, kept->us);
    CHECK_INT(fake_counts().n_live_bytes, n_bytes);
    CHECK_INT(dt_error_text()[0], 0);
    CUDA_OK(cudaGetLastError());
    CUDA_OK(cudaStreamQuery(stream));
}

/* Checks that this engine runs. */
static void check_run(size_t n_workspace)
{
    void *memory[DT_CONV_N_OPERANDS], *workspace;
    CHECK_INT(plan->engines[plan->used].workspace_bytes, n_workspace);
    for (int i = 0; i < DT_CONV_N_OPERANDS; i++) {
        CUDA_OK(cudaMalloc(&memory[i], plan->n_bytes[i]));
        CUDA_OK(cudaMemsetAsync(memory[i], 0, plan->n_bytes[i], stream));
    }
    CUDA_OK(cudaMalloc(&workspace, n_workspace));
    CHECK_OK(dt_conv_plan_run(plan, memory[0], memory[1], memory[3], memory[2], workspace));
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaFree(workspace));
    for (int i = 0; i < DT_CONV_N_OPERANDS; i++) {
        CUDA_OK(cudaFree(memory[i]));
    }
}

static void set_times(long of_4, long of_5, long of_6)
{
    fake_options.engine_ms[4] = of_4;
    fake_options.engine_ms[5] = of_5;
    fake_options.engine_ms[6] = of_6;
}

/* Finds the fastest, whichever it is, for each kind of convolution; fake CUDA adds a millisecond
 * per work item. */
static void fastest(void)
{
    for (int kind = 0; kind < DT_CONV_N_KINDS; kind++) {
        for (int i = kind == DT_CONV_FORWARD_RELU ? 1 : 0; i < 3; i++) {
            static const size_t workspaces[] = {1000, 5000, 77};
            set_times(i == 0 ? 7 : 9, i == 1 ? 7 : 9, i == 2 ? 7 : 8);
            open_plan((enum dt_conv_kind)kind, DT_MAX_ENGINES);
            CHECK_INT(plan->n_engines, 5);
            keeps(4 + i, 8000, 8500);
            check_run(workspaces[i]);
            close_plan();
        }
    }
}

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

/* The fastest, and the first, turn NaN into a number: both are rejected. */
static void nans_pass(void)
{
    set_times(1, 9, 8);
    open_plan(DT_CONV_FORWARD_RELU, DT_MAX_ENGINES);
    keeps(6, 9000, 9500);
    close_plan();
    open_plan(DT_CONV_FORWARD_RELU, DT_MAX_ENGINES);
    CHECK_OK(try_engines(LIMIT_S, false));
    CHECK_INT(plan->engines[plan->used].number, 5);
    CHECK_NEAR(plan->engines[plan->used].us, 0, 0);
    close_plan();
    open_plan(DT_CONV_FORWARD_RELU, 1);
    CHECK_FAILS(try_engines(LIMIT_S, false), DT_UNAVAILABLE, "engine 4 takes a NaN for a number");
    close_plan();
}

/* Last in the list and the only one that cuDNN does not refuse. */
static void product_is_refused(void)
{
    fake_options.n_refused_plans = 9;
    open_plan(DT_CONV_FORWARD_RELU, DT_MAX_ENGINES);
    CHECK_INT(plan->n_engines, 1);
    for (int timed = 0; timed < 2; timed++) {
        CHECK_FAILS(try_engines(LIMIT_S, timed), DT_UNAVAILABLE, "engine 0 is the plain implicit");
        dt_error_clear();
    }
    close_plan();
}

/* The tail in place, which works on the result, costs a millisecond of the clock. */
static void tail_is_timed(void)
{
    const struct dt_gpu_tail tail = {.linear = {4, 6, 6}, .pooled = {4, 6, 6}};
    open_plan(DT_CONV_FORWARD, DT_MAX_ENGINES);
    CHECK_OK(dt_engine_trial(plan, &(struct dt_engine_trial_spec){.stream = stream,
                                                                  .limit_s = LIMIT_S,
                                                                  .timed = true,
                                                                  .tail = &tail,
                                                                  .n = 2,
                                                                  .type = DT_GPU_BF16}));
    CHECK_NEAR(plan->engines[plan->used].us, 2000, 500);
    close_plan();
}

/* The host's time to load an engine does not count as the GPU's. */
static void slow_to_load(void)
{
    fake_options.engine_load_ms = 30;
    open_plan(DT_CONV_FORWARD, 2);
    CHECK_OK(try_engines(0.2, true)); /* 18 times 30 ms */
    close_plan();
}

static void first_of_equals(void)
{
    open_plan(DT_CONV_FORWARD, DT_MAX_ENGINES);
    keeps(4, 1000, 1500);
    close_plan();
}

/* With a fixed choice, however slow, the first; it is only tried in a graph. */
static void alone(void)
{
    set_times(9, 1, 1);
    open_plan(DT_CONV_FORWARD, 1);
    CHECK_OK(try_engines(LIMIT_S, false));
    const struct dt_engine *kept = &plan->engines[plan->used];
    CHECK(kept->number == 4 && kept->us == 0 && !kept->unrecorded);
    check_run(1000);
    close_plan();
}

/* What no graph can have is passed over, and kept only where it is the only choice. */
static void unrecordable(void)
{
    fake_options.unrecordable_engines = 1L << 4;
    set_times(1, 9, 8);
    open_plan(DT_CONV_FORWARD, DT_MAX_ENGINES);
    keeps(6, 9000, 9500);
    CHECK(!plan->engines[plan->used].unrecorded);
    close_plan();
    for (int timed = 0; timed < 2; timed++) {
        fake_options.unrecordable_engines = timed ? ALL_ENGINES : 1L << 4;
        open_plan(DT_CONV_FORWARD, timed ? DT_MAX_ENGINES : 1);
        CHECK_OK(try_engines(LIMIT_S, timed));
        const struct dt_engine *kept = &plan->engines[plan->used];
        CHECK(kept->number == 4 && kept->us == 0 && kept->unrecorded);
        check_run(1000);
        close_plan();
    }
}

static void failing_are_passed_over(void)
{
    for (int engine = 4; engine <= 6; engine++) {
        fake_options.failing_engines = 1L << engine;
        set_times(engine == 4 ? 1 : 3, engine == 5 ? 1 : 4, engine == 6 ? 1 : 5);
        open_plan(DT_CONV_INPUT_GRADIENT, DT_MAX_ENGINES);
        keeps(engine == 4 ? 5 : 4, 4000, 5500);
        close_plan();
    }
}

static void none_runs(void)
{
    fake_options.failing_engines = ALL_ENGINES;
    open_plan(DT_CONV_FORWARD, DT_MAX_ENGINES);
    CHECK_FAILS(try_engines(LIMIT_S, true), DT_INTERNAL, "cuDNN: ");
    CHECK_HAS(dt_error_text(), "cudnnBackendExecute");
    close_plan();
}

/* Ends by itself, and names the engine; no waiting call follows. */
static void endless(void)
{
    fake_options.endless_engines =
        1L << 4; /* the first: even on a slow machine it is the one that stalls */
    open_plan(DT_CONV_FILTER_GRADIENT, DT_MAX_ENGINES);
    CHECK_FAILS(try_engines(0.2, true), DT_STALLED,
                "the GPU does not finish the gradient of the filter by cuDNN's engine 4");
    _exit(0);
}

static void out_of_memory_at(long n)
{
    set_times(9, 1, 1);
    open_plan(DT_CONV_FORWARD, DT_MAX_ENGINES);
    fake_options.fail_malloc_at = fake_counts().n_mallocs + n;
    keeps(4, 0, 0);
    check_run(1000);
    close_plan();
}

static void no_memory(void)
{
    for (int n = 1; n <= 1 + DT_CONV_N_OPERANDS; n++) {
        out_of_memory_at(n);
    }
}

/* A fault of the GPU is not blamed on the engine. */
static void broken_gpu(void)
{
    open_plan(DT_CONV_FORWARD, DT_MAX_ENGINES);
    fake_options.fail_launch_at = fake_counts().n_enqueued + 7;
    CHECK_FAILS(try_engines(LIMIT_S, true), DT_INTERNAL, "illegal memory access");
    _exit(0);
}

/* ---- the engines of a plan */

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

/* cuDNN offers engines and then refuses them: the next admissible one is used; the last resort
 * needs no workspace. */
static void check_refused(long n_refused, size_t limit, size_t wanted_workspace)
{
    precision = DT_PRECISION_F32;
    fake_options.n_refused_plans = n_refused;
    workspace_limit = limit;
    open_plan(DT_CONV_FORWARD, 1);
    check_run(wanted_workspace);
    close_plan();
}

static void workspace_above_the_limit(void)
{
    check_refused(0, 10, 0);
}

static void second_mode(void)
{
    check_refused(3, 8192, 77);
}

static void last_mode(void)
{
    check_refused(4, 8192, 0);
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
        const long n = fake_n_descriptors();
        void *workspace = runs[i].workspace > 0 ? at + runs[i].workspace : NULL;
        CHECK_INT(dt_conv_plan_run(plan, at + runs[i].x, at + 16384, NULL, at + 32768, workspace),
                  runs[i].status);
        CHECK_INT(fake_n_descriptors() - n, runs[i].n_created);
        CHECK(runs[i].status == DT_OK || strstr(dt_error_text(), "cudnnBackendExecute") != NULL);
        dt_error_clear();
    }
    CUDA_OK(cudaFree(at));
    close_plan();
}

int main(void)
{
    WORKS(by_precision);
    WORKS(workspace_above_the_limit);
    WORKS(second_mode);
    WORKS(last_mode);
    WORKS(no_engine);
    WORKS(pointers);
    WORKS(fastest);
    WORKS(first_engines);
    WORKS(nans_pass);
    WORKS(product_is_refused);
    WORKS(tail_is_timed);
    WORKS(slow_to_load);
    WORKS(first_of_equals);
    WORKS(alone);
    WORKS(unrecordable);
    WORKS(failing_are_passed_over);
    WORKS(none_runs);
    WORKS(endless);
    WORKS(no_memory);
    WORKS(broken_gpu);
    return 0;
}
