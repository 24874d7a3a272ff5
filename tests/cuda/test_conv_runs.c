/* cuda/cudnn/conv_plan.c on fake cuDNN: each kind of convolution in each precision against the
 * reference backend, the choice of the engine, and the error if there is none. */
#include "cuda/cudnn/conv_plan.h"
#include "tests/cuda/case.h"
#include "tests/fakecuda/fake.h"
#include "tests/lib/block_run.h"
#include "tests/lib/layers.h"

#define MAX_ELEMS 20000
#define CUDA_OK(call) CHECK_INT(call, cudaSuccess)

enum { N_PRECISIONS = 3 };
static const double tolerances[N_PRECISIONS] = {1e-5, 2e-3, 2e-2};
/* Workspaces identify the fake engines: one without tensor cores for f32, one with them for the
 * others. */
static const size_t workspaces[N_PRECISIONS] = {77, 1000, 1000};

static cudaStream_t stream;
static struct dt_conv_target target = {.workspace_limit = 8192, .n_engines = 1};
static void *device_in, *device_other, *device_bias, *device_out, *workspace;

static void open_all(void)
{
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_INT(cudnnCreate(&target.handle), CUDNN_STATUS_SUCCESS);
    CHECK_INT(cudnnSetStream(target.handle, stream), CUDNN_STATUS_SUCCESS);
    CUDA_OK(cudaMalloc(&device_in, MAX_ELEMS * sizeof(float)));
    CUDA_OK(cudaMalloc(&device_other, MAX_ELEMS * sizeof(float)));
    CUDA_OK(cudaMalloc(&device_bias, MAX_ELEMS * sizeof(float)));
    CUDA_OK(cudaMalloc(&device_out, MAX_ELEMS * sizeof(float)));
    CUDA_OK(cudaMalloc(&workspace, 8192));
}

static void close_all(void)
{
    CUDA_OK(cudaFree(device_in));
    CUDA_OK(cudaFree(device_other));
    CUDA_OK(cudaFree(device_bias));
    CUDA_OK(cudaFree(device_out));
    CUDA_OK(cudaFree(workspace));
    CHECK_INT(cudnnDestroy(target.handle), CUDNN_STATUS_SUCCESS);
    CUDA_OK(cudaStreamDestroy(stream));
}

/* ---- a convolution and the reference's results, all in canonical order */

struct shape {
    struct dt_shape in;
    int filters, kernel, stride;
    enum dt_padding padding;
};

static struct dt_model model; /* its block 0 */

static void lower(const struct shape *s)
{
    struct dt_model_spec spec = {.input = s->in, .n_layers = 2, .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    spec.layers[0] = (struct dt_layer_spec)LAYER(CONV2D, .size = s->filters, .kernel = s->kernel,
                                                 .stride = s->stride, .padding = s->padding);
    spec.layers[1] = (struct dt_layer_spec)LAYER(FLATTEN);
    CHECK_OK(dt_model_lower(&spec, &model));
}

static struct values {
    struct buffer x, filter, y, dy, dfilter, dx;
    struct buffer bias, relu; /* bias, and y with bias and relu */
} expected;

static void close_expected(void)
{
    BUFFERS_CLOSE(&expected.x, &expected.filter, &expected.y, &expected.dy, &expected.dfilter,
                  &expected.dx, &expected.bias, &expected.relu);
}

/* Inputs scaled so that all results are about as large as 1, and the reference's results; the first
 * bias is NaN, which relu must pass on. */
static void compute_expected(int n)
{
    static const uint32_t rows[64];
    const struct dt_block *b = &model.blocks[0];
    const struct dt_batch batch = {.n = n, .rows = rows, .ids = rows};
    const struct dt_param *weight = &model.params[b->weight];
    const size_t n_places = (size_t)(b->linear_out.h * b->linear_out.w),
                 n_channels = (size_t)b->linear_out.c, n_y = (size_t)n * n_places * n_channels;
    struct block_case c = {.model = &model,
                           .capacity = n,
                           .passes = BLOCK_TRAINING,
                           .pass = {.batch = &batch, .training = true},
                           .params = buffer_open(model.arena_elems),
                           .grads = buffer_open(model.arena_elems),
                           .x = buffer_uniform((size_t)n * dt_shape_elems(b->in), 1),
                           .dy = buffer_uniform(n_y, 2 / sqrtf((float)n * (float)n_places)),
                           .want_dx = true};
    expected.filter =
        buffer_uniform(weight->n_elems, 2 / sqrtf((float)(b->in.c * b->kernel * b->kernel)));
    memcpy(c.params.data + weight->offset, expected.filter.data, weight->n_elems * sizeof(float));
    struct block_results r = block_on_ref(&c);
    expected.x = c.x;
    expected.y = r.y;
    expected.dy = c.dy;
    expected.dx = r.dx;
    expected.dfilter = buffer_open(weight->n_elems);
    memcpy(expected.dfilter.data, r.grads.data + weight->offset, weight->n_elems * sizeof(float));
    expected.bias = buffer_uniform(n_channels, 1);
    expected.bias.data[0] = NAN;
    expected.relu = buffer_open(n_y);
    for (size_t i = 0; i < n_y; i++) {
        const float sum = r.y.data[i] + expected.bias.data[i / n_places % n_channels];
        expected.relu.data[i] = sum < 0 ? 0 : sum;
    }
    CHECK(c.x.n <= MAX_ELEMS && n_y <= MAX_ELEMS && weight->n_elems <= MAX_ELEMS);
    BUFFERS_CLOSE(&c.params, &c.grads, &r.grads, &r.eval_y);
}

/* ---- to the device and back, where channels are innermost */

static void put(void *device, const struct buffer *values, struct dt_shape shape,
                enum dt_precision precision)
{
    static uint16_t halves[MAX_ELEMS];
    const bool half = precision == DT_PRECISION_BF16;
    struct buffer hwc = turned(values, shape, true);
    for (size_t i = 0; i < hwc.n; i++) {
        halves[i] = to_bf16(hwc.data[i]);
    }
    CUDA_OK(cudaMemcpyAsync(device, half ? (const void *)halves : hwc.data,
                            hwc.n * (half ? sizeof *halves : sizeof *hwc.data),
                            cudaMemcpyHostToDevice, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    BUFFERS_CLOSE(&hwc);
}

/* Largest difference from the expected values, relative if they are above 1. */
static double distance(const struct buffer *right, struct dt_shape shape,
                       enum dt_precision precision)
{
    static uint16_t halves[MAX_ELEMS];
    const bool half = precision == DT_PRECISION_BF16;
    struct buffer hwc = buffer_open(right->n);
    double largest = 0;
    CUDA_OK(cudaMemcpyAsync(half ? (void *)halves : hwc.data, device_out,
                            hwc.n * (half ? sizeof *halves : sizeof *hwc.data),
                            cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < hwc.n && half; i++) {
        hwc.data[i] = from_bf16(halves[i]);
    }
    struct buffer result = turned(&hwc, shape, false);
    for (size_t i = 0; i < result.n; i++) {
        const double a = (double)result.data[i], e = (double)right->data[i],
                     error = isnan(a) && isnan(e) ? 0 : fabs(a - e) / (1 + fabs(e));
        largest = isnan(error) ? (double)INFINITY : fmax(largest, error);
    }
    BUFFERS_CLOSE(&hwc, &result);
    return largest;
}

/* ---- the comparison */

static double run_plan(struct dt_conv_plan *plan, enum dt_conv_kind kind,
                       enum dt_precision precision)
{
    const struct dt_block *b = &model.blocks[0];
    const struct dt_shape in = b->in, out = b->linear_out, filter = {in.c, b->kernel, b->kernel};
    const bool forward = kind == DT_CONV_FORWARD || kind == DT_CONV_FORWARD_RELU,
               by_filter = kind != DT_CONV_FILTER_GRADIENT;
    put(device_in, forward ? &expected.x : &expected.dy, forward ? in : out, precision);
    put(device_other, by_filter ? &expected.filter : &expected.x, by_filter ? filter : in,
        precision);
    put(device_bias, &expected.bias, (struct dt_shape){out.c, 1, 1}, precision);
    CHECK_OK(dt_conv_plan_run(plan, device_in, device_other,
                              kind == DT_CONV_FORWARD_RELU ? device_bias : NULL, device_out,
                              workspace));
    switch (kind) {
    case DT_CONV_FORWARD_RELU:
        return distance(&expected.relu, out, precision);
    case DT_CONV_FORWARD:
        return distance(&expected.y, out, precision);
    case DT_CONV_INPUT_GRADIENT:
        return distance(&expected.dx, in, precision);
    case DT_CONV_FILTER_GRADIENT:
        return distance(&expected.dfilter, filter, precision);
    }
    return NAN;
}

static double check_shape(const struct shape *s, int n, enum dt_conv_kind kind,
                          enum dt_precision precision)
{
    struct dt_conv_plan *plan;
    const bool second = kind == DT_CONV_FORWARD_RELU &&
                        precision != DT_PRECISION_F32; /* the first engine drops NaNs */
    struct dt_conv_target several = target;
    several.n_engines = 2;
    CHECK_OK(dt_conv_plan_open(&several, kind, &model.blocks[0], n, precision, &plan));
    plan->used = second;
    CHECK_INT(plan->engines[plan->used].workspace_bytes, second ? 5000 : workspaces[precision]);
    const double error = run_plan(plan, kind, precision);
    CHECK_MESSAGE(
        error <= tolerances[precision],
        "%dx%dx%d, %d filters of %d, stride %d, batch %d, kind %d, precision %d: off by %g",
        s->in.c, s->in.h, s->in.w, s->filters, s->kernel, s->stride, n, (int)kind, (int)precision,
        error);
    dt_conv_plan_close(plan);
    return error;
}

static const struct shape grid[] = {
    {{1, 28, 28}, 6, 5, 1, DT_PADDING_SAME}, {{3, 10, 12}, 8, 3, 1, DT_PADDING_VALID},
    {{3, 12, 12}, 7, 5, 2, DT_PADDING_SAME}, {{3, 15, 17}, 5, 3, 2, DT_PADDING_SAME},
    {{4, 7, 9}, 6, 2, 1, DT_PADDING_SAME},   {{16, 8, 8}, 10, 8, 1, DT_PADDING_VALID},
    {{1, 5, 5}, 1, 5, 1, DT_PADDING_VALID},  {{7, 11, 9}, 13, 3, 3, DT_PADDING_VALID},
    {{16, 6, 6}, 33, 1, 2, DT_PADDING_SAME}, {{2, 9, 4}, 3, 4, 3, DT_PADDING_SAME},
};

static void test_results(void)
{
    static const int batches[] = {1, 3};
    double largest[N_PRECISIONS] = {0};
    for (size_t i = 0; i < sizeof grid / sizeof grid[0]; i++) {
        lower(&grid[i]);
        for (int j = 0; j < 2; j++) {
            compute_expected(batches[j]);
            for (int kind = 0; kind < DT_CONV_N_KINDS; kind++) {
                for (int precision = 0; precision < N_PRECISIONS; precision++) {
                    const double error = check_shape(&grid[i], batches[j], (enum dt_conv_kind)kind,
                                                     (enum dt_precision)precision);
                    largest[precision] = error > largest[precision] ? error : largest[precision];
                }
            }
            close_expected();
        }
    }
    printf("largest error: f32 %.2g, tf32 %.2g, bf16 %.2g\n", largest[0], largest[1], largest[2]);
    CHECK(largest[DT_PRECISION_TF32] > 1e-5 &&
          largest[DT_PRECISION_BF16] > 1e-3); /* bf16 must round */
}

/* ---- the engine, and the variant pack */

static void open_one(void)
{
    open_all();
    lower(&grid[2]);
    compute_expected(3);
}

static void close_one(void)
{
    close_expected();
    close_all();
}

/* cuDNN offers engines and then refuses them: the next admissible one is used; the last resort
 * needs no workspace. */
static void check_refused(long n_refused, size_t wanted_workspace)
{
    struct dt_conv_plan *plan;
    fake_options.n_refused_plans = n_refused;
    open_one();
    CHECK_OK(
        dt_conv_plan_open(&target, DT_CONV_FORWARD, &model.blocks[0], 3, DT_PRECISION_F32, &plan));
    CHECK_INT(plan->engines[plan->used].workspace_bytes, wanted_workspace);
    CHECK(run_plan(plan, DT_CONV_FORWARD, DT_PRECISION_F32) <= tolerances[DT_PRECISION_F32]);
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
    struct dt_conv_plan *plan;
    open_one();
    CHECK_OK(
        dt_conv_plan_open(&target, DT_CONV_FORWARD, &model.blocks[0], 3, DT_PRECISION_F32, &plan));
    const double first = run_plan(plan, DT_CONV_FORWARD, DT_PRECISION_F32);
    const long n_descriptors = fake_n_descriptors();
    CHECK_NEAR(run_plan(plan, DT_CONV_FORWARD, DT_PRECISION_F32), first, 0);
    CHECK_INT(fake_n_descriptors(), n_descriptors);

    void *const swapped = device_in;
    device_in = device_other;
    device_other = swapped;
    CHECK_NEAR(run_plan(plan, DT_CONV_FORWARD, DT_PRECISION_F32), first, 0);
    CHECK_INT(fake_n_descriptors(), n_descriptors + 1);

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_OK(cudaMemsetAsync(device_out, 0, expected.y.n * sizeof(float), stream));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_OK(dt_conv_plan_run(plan, device_in, device_other, NULL, device_out, workspace));
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaGraphLaunch(exec, stream));
    CHECK_NEAR(distance(&expected.y, model.blocks[0].linear_out, DT_PRECISION_F32), first, 0);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    dt_conv_plan_close(plan);
    close_one();
}

/* ---- pointers that cuDNN, or the fake, refuses */

static struct dt_conv_plan *opened(enum dt_precision precision)
{
    struct dt_conv_plan *plan;
    open_one();
    CHECK_OK(dt_conv_plan_open(&target, DT_CONV_FORWARD, &model.blocks[0], 3, precision, &plan));
    return plan;
}

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

static void host_pointer(void)
{
    struct dt_conv_plan *plan = opened(DT_PRECISION_F32);
    dt_conv_plan_run(plan, expected.x.data, device_other, NULL, device_out, workspace);
}

static void short_input(void)
{
    struct dt_conv_plan *plan = opened(DT_PRECISION_F32);
    dt_conv_plan_run(plan, (char *)device_in + MAX_ELEMS * sizeof(float) - 1024, device_other, NULL,
                     device_out, workspace);
}

static void short_workspace(void)
{
    struct dt_conv_plan *plan = opened(DT_PRECISION_TF32);
    dt_conv_plan_run(plan, device_in, device_other, NULL, device_out,
                     (char *)workspace + 8192 - 999);
}

static void in_place(void)
{
    struct dt_conv_plan *plan = opened(DT_PRECISION_F32);
    dt_conv_plan_run(plan, device_in, device_other, NULL, device_in, workspace);
}

static void workspace_in_the_way(void)
{
    struct dt_conv_plan *plan = opened(DT_PRECISION_F32);
    dt_conv_plan_run(plan, device_in, device_other, NULL, device_out, (char *)device_out + 16);
}

static void leaks_a_plan(void)
{
    opened(DT_PRECISION_F32);
    close_one();
}

int main(void)
{
    WORKS(second_mode);
    WORKS(last_mode);
    WORKS(no_engine);
    WORKS(same_pointers);
    WORKS(misaligned);
    WORKS(no_workspace);
    WORKS(workspace_above_the_limit);
    ENDS(host_pointer, "cudnnBackendExecute, x: ");
    ENDS(short_input,
         "cudnnBackendExecute, x: 5184 bytes at byte 78976 of device memory of 80000 bytes");
    ENDS(short_workspace, "cudnnBackendExecute, workspace: 1000 bytes");
    ENDS(in_place, "the result, y, overlaps x");
    ENDS(workspace_in_the_way, "y overlaps the workspace");
    ENDS(leaks_a_plan, "not closed at exit: cuDNN descriptor");
    open_all();
    test_results();
    close_all();
    return 0;
}
