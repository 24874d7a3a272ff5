/* cuda/cudnn/conv_plan.c on fake cuDNN: the choice of the engine for each kind of convolution in
 * each precision, the error if there is none, and what a run takes. test_cuda_blocks.c has the
 * results of every kind, beside the reference's. */
#include "cuda/cudnn/conv_plan.h"
#include "tests/cuda/case.h"
#include "tests/fakecuda/fake.h"
#include "tests/lib/block_run.h"
#include "tests/lib/layers.h"

#define MAX_ELEMS 20000
#define CUDA_OK(call) CHECK_INT(call, cudaSuccess)

enum { N_PRECISIONS = 3 };
/* Workspaces identify the fake engines: one without tensor cores for f32, one with them for the
 * others. */
static const size_t workspaces[N_PRECISIONS] = {77, 1000, 1000};

static cudaStream_t stream;
static struct dt_conv_target target = {.workspace_limit = 8192, .n_engines = 1};
static void *device_in, *device_other, *device_out, *workspace;

static void open_all(void)
{
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_INT(cudnnCreate(&target.handle), CUDNN_STATUS_SUCCESS);
    CHECK_INT(cudnnSetStream(target.handle, stream), CUDNN_STATUS_SUCCESS);
    CUDA_OK(cudaMalloc(&device_in, MAX_ELEMS * sizeof(float)));
    CUDA_OK(cudaMalloc(&device_other, MAX_ELEMS * sizeof(float)));
    CUDA_OK(cudaMalloc(&device_out, MAX_ELEMS * sizeof(float)));
    CUDA_OK(cudaMalloc(&workspace, 8192));
}

static void close_all(void)
{
    CUDA_OK(cudaFree(device_in));
    CUDA_OK(cudaFree(device_other));
    CUDA_OK(cudaFree(device_out));
    CUDA_OK(cudaFree(workspace));
    CHECK_INT(cudnnDestroy(target.handle), CUDNN_STATUS_SUCCESS);
    CUDA_OK(cudaStreamDestroy(stream));
}

/* ---- a convolution, and the reference's result in cuDNN's order, channels innermost */

enum { N = 3 };
static struct dt_model model; /* its block 0 */
static struct buffer x, filter, y;

static void open_one(void)
{
    static const uint32_t rows[N];
    static const struct dt_batch batch = {.n = N, .rows = rows, .ids = rows};
    const struct dt_model_spec spec = {.input = {3, 12, 12},
                                       .n_layers = 2,
                                       .layers = {CONV(7, 5, 2, SAME, NONE), LAYER(FLATTEN)},
                                       .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    open_all();
    CHECK_OK(dt_model_lower(&spec, &model));
    const struct dt_block *b = &model.blocks[0];
    const struct dt_param *weight = &model.params[b->weight];
    struct block_case c = {.model = &model,
                           .capacity = N,
                           .passes = BLOCK_FORWARD,
                           .pass = {.batch = &batch, .training = true},
                           .params = buffer_uniform(model.arena_elems, 0.2f),
                           .grads = buffer_open(0),
                           .x = buffer_uniform(N * dt_shape_elems(b->in), 1),
                           .dy = buffer_open(0)};
    for (size_t i = 0; i < model.params[b->bias].n_elems; i++) {
        c.params.data[model.params[b->bias].offset + i] = 0;
    }
    struct block_results out = block_on_ref(&c);
    struct buffer canonical = buffer_of(c.params.data + weight->offset, weight->n_elems);
    x = turned(&c.x, b->in, true);
    y = turned(&out.y, b->linear_out, true);
    filter = turned(&canonical, (struct dt_shape){b->in.c, b->kernel, b->kernel}, true);
    CHECK(x.n <= MAX_ELEMS && y.n <= MAX_ELEMS && filter.n <= MAX_ELEMS);
    BUFFERS_CLOSE(&canonical);
    block_results_close(&out);
    block_case_close(&c);
}

static struct dt_conv_plan *opened(enum dt_precision precision)
{
    struct dt_conv_plan *plan;
    open_one();
    CHECK_OK(dt_conv_plan_open(&target, DT_CONV_FORWARD, &model.blocks[0], N, precision, &plan));
    return plan;
}

static void close_one(void)
{
    BUFFERS_CLOSE(&x, &filter, &y);
    close_all();
}

static void check_result(void)
{
    struct buffer result = buffer_open(y.n);
    CUDA_OK(cudaMemcpyAsync(result.data, device_out, y.n * sizeof(float), cudaMemcpyDeviceToHost,
                            stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    compare("fake cuDNN", "y", &result, &y);
    BUFFERS_CLOSE(&result);
}

static void run_plan(struct dt_conv_plan *plan)
{
    CUDA_OK(
        cudaMemcpyAsync(device_in, x.data, x.n * sizeof(float), cudaMemcpyHostToDevice, stream));
    CUDA_OK(cudaMemcpyAsync(device_other, filter.data, filter.n * sizeof(float),
                            cudaMemcpyHostToDevice, stream));
    CHECK_OK(dt_conv_plan_run(plan, device_in, device_other, NULL, device_out, workspace));
    check_result();
}

/* ---- the engine, and the variant pack */

static void engines(void)
{
    open_one();
    target.n_engines = DT_FIRST_ENGINES;
    for (int i = 0; i < DT_CONV_N_KINDS * N_PRECISIONS; i++) {
        struct dt_conv_plan *plan;
        const enum dt_conv_kind kind = (enum dt_conv_kind)(i / N_PRECISIONS);
        const enum dt_precision precision = (enum dt_precision)(i % N_PRECISIONS);
        CHECK_OK(dt_conv_plan_open(&target, kind, &model.blocks[0], N, precision, &plan));
        CHECK_INT(plan->engines[0].workspace_bytes, workspaces[precision]);
        CHECK(precision == DT_PRECISION_F32 || plan->engines[3].workspace_bytes == 5000);
        dt_conv_plan_close(plan);
    }
    close_one();
}

/* cuDNN offers engines and then refuses them: the next admissible one is used; the last resort
 * needs no workspace. */
static void check_refused(long n_refused, size_t wanted_workspace)
{
    fake_options.n_refused_plans = n_refused;
    struct dt_conv_plan *plan = opened(DT_PRECISION_F32);
    CHECK_INT(plan->engines[plan->used].workspace_bytes, wanted_workspace);
    run_plan(plan);
    dt_conv_plan_close(plan);
    close_one();
}

static void workspace_above_the_limit(void)
{
    target.workspace_limit = 10;
    check_refused(0, 0);
}

static void second_mode(void)
{
    check_refused(3, 77);
}

static void last_mode(void)
{
    check_refused(4, 0);
}

static void no_engine(void)
{
    struct dt_conv_plan *plan = NULL;
    fake_options.n_refused_plans = 1000;
    open_one();
    CHECK_INT(dt_conv_plan_open(&target, DT_CONV_FILTER_GRADIENT, &model.blocks[0], 3,
                                DT_PRECISION_BF16, &plan),
              DT_UNAVAILABLE);
    CHECK(plan == NULL);
    CHECK_HAS(dt_error_text(), "block conv1: cuDNN ");
    CHECK_HAS(
        dt_error_text(),
        "gradient of the filter in bf16, 3 samples of 3x12x12, 7 filters 5x5, stride 2, to 6x6: "
        "CUDNN_STATUS_NOT_SUPPORTED");
    close_one(); /* and no descriptor remains */
}

/* The same pointers: nothing is created. Others: one pack. A recorded graph gives the same
 * result. */
static void same_pointers(void)
{
    struct dt_conv_plan *plan = opened(DT_PRECISION_F32);
    run_plan(plan);
    const long n_descriptors = fake_n_descriptors();
    run_plan(plan);
    CHECK_INT(fake_n_descriptors(), n_descriptors);

    void *const swapped = device_in;
    device_in = device_other;
    device_other = swapped;
    run_plan(plan);
    CHECK_INT(fake_n_descriptors(), n_descriptors + 1);

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_OK(cudaMemsetAsync(device_out, 0, y.n * sizeof(float), stream));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_OK(dt_conv_plan_run(plan, device_in, device_other, NULL, device_out, workspace));
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaGraphLaunch(exec, stream));
    check_result();
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    dt_conv_plan_close(plan);
    close_one();
}

/* ---- pointers that cuDNN, or the fake, refuses */

static void misaligned(void)
{
    struct dt_conv_plan *plan = opened(DT_PRECISION_F32);
    CHECK_FAILS(
        dt_conv_plan_run(plan, (char *)device_in + 8, device_other, NULL, device_out, workspace),
        DT_INTERNAL, "cudnnBackendExecute");
    dt_conv_plan_close(plan);
    close_one();
}

static void no_workspace(void)
{
    struct dt_conv_plan *plan = opened(DT_PRECISION_F32);
    CHECK_INT(dt_conv_plan_run(plan, device_in, device_other, NULL, device_out, NULL), DT_INTERNAL);
    dt_conv_plan_close(plan);
    close_one();
}

int main(void)
{
    WORKS(engines);
    WORKS(second_mode);
    WORKS(last_mode);
    WORKS(no_engine);
    WORKS(same_pointers);
    WORKS(misaligned);
    WORKS(no_workspace);
    WORKS(workspace_above_the_limit);
    return 0;
}
