/* Batch normalization on the cpu backend. Threads take parts of the rows, always the same ones, so
 * the bits do not depend on their number; the parts' sums are added in double, in order. */
#include <math.h>

#include "cpu/block.h"
#include "model/layers/layers.h"

#define PART                                                                             \
    ((size_t)1 << 15) /* elements: in a core's own cache, so that reading twice is cheap \
                       */

/* One call. */
struct norm {
    const struct dt_cpu *cpu;
    const struct dt_layer_call *call;
    struct dt_norm rows;                                  /* all of them */
    size_t n_per_part, n_parts, n_c;                      /* n_c: whole vectors */
    float *mean, *inverse, *scale, *bias, *per_x, *fixed; /* (n_c); inverse: of the deviation */
    float *parts[2];                                      /* (n_parts, n_c) sums */
    double *sums; /* (channels, 2), of all parts and ranks; behind them the number of rows, from
                     forward to backward */
};

static size_t vectors_of(const struct dt_block *block)
{
    return dt_round_up((size_t)block->in.c, DT_MAX_VECTOR);
}

static size_t rows_of(const struct dt_block *block, int n)
{
    return (size_t)n * (size_t)block->in.h * (size_t)block->in.w;
}

static size_t rows_per_part(const struct dt_block *block)
{
    return dt_max_size(1, PART / (size_t)block->in.c);
}

static size_t parts_of(const struct dt_block *block, int n)
{
    const size_t most = rows_per_part(block);
    return (rows_of(block, n) + most - 1) / most;
}

/* Whole vectors of them. */
static size_t sums_of(const struct dt_block *block)
{
    return dt_round_up(2 * (size_t)block->in.c + 1, DT_MAX_VECTOR);
}

static size_t n_bytes(const struct dt_block *block, int capacity)
{
    return (6 + 2 * parts_of(block, capacity)) * vectors_of(block) * sizeof(float) +
           sums_of(block) * sizeof(double);
}

static struct norm norm_of(struct dt_backend *backend, const struct dt_layer_call *call)
{
    const struct dt_block *b = call->block;
    const int n = call->pass->batch->n;
    const size_t n_c = vectors_of(b);
    double *sums = call->memory;
    float *memory = (float *)(sums + sums_of(b));
    struct norm norm = {.cpu = (const struct dt_cpu *)backend,
                        .call = call,
                        .n_per_part = rows_per_part(b),
                        .n_parts = parts_of(b, n),
                        .n_c = n_c,
                        .mean = memory,
                        .inverse = memory + n_c,
                        .scale = memory + 2 * n_c,
                        .bias = memory + 3 * n_c,
                        .per_x = memory + 4 * n_c,
                        .fixed = memory + 5 * n_c,
                        .sums = sums};
    norm.parts[0] = memory + 6 * n_c;
    norm.parts[1] = norm.parts[0] + norm.n_parts * n_c;
    norm.rows = (struct dt_norm){.n_rows = rows_of(b, n),
                                 .n_c = b->in.c,
                                 .relu = call->relu,
                                 .adds = call->adds_dx[0],
                                 .mean = norm.mean,
                                 .scale = norm.scale,
                                 .bias = norm.bias,
                                 .per_x = norm.per_x,
                                 .fixed = norm.fixed,
                                 .x = call->x[0],
                                 .dy = call->dy,
                                 .y = call->y,
                                 .dx = call->dx[0]};
    return norm;
}

static size_t rows_in(const struct norm *norm, size_t part)
{
    const size_t left = norm->rows.n_rows - part * norm->n_per_part;
    return left < norm->n_per_part ? left : norm->n_per_part;
}

static struct dt_norm part_of(const struct norm *norm, int part)
{
    struct dt_norm rows = norm->rows;
    const size_t at = (size_t)part * norm->n_per_part * (size_t)rows.n_c;
    rows.n_rows = rows_in(norm, (size_t)part);
    rows.x += at;
    rows.y += at;
    rows.dy += at;
    rows.dx = rows.dx != NULL ? rows.dx + at : NULL;
    return rows;
}

static void run(const struct norm *norm, dt_threads_fn fn)
{
    const struct dt_pass *pass = norm->call->pass;
    dt_threads_run(norm->cpu->threads, (int)norm->n_parts, fn, (void *)norm);
    if (pass->poll != NULL) {
        pass->poll(pass->context);
    }
}

static void measure_part(void *context, int part, int thread)
{
    const struct norm *norm = context;
    const struct dt_norm rows = part_of(norm, part);
    const size_t at = (size_t)part * norm->n_c;
    (void)thread;
    norm->cpu->kernels->norm_measure(rows.n_rows, rows.n_c, rows.x, norm->parts[0] + at,
                                     norm->parts[1] + at);
}

static void apply_part(void *context, int part, int thread)
{
    const struct norm *norm = context;
    const struct dt_norm rows = part_of(norm, part);
    (void)thread;
    norm->cpu->kernels->norm_apply(&rows);
}

static void sum_part(void *context, int part, int thread)
{
    const struct norm *norm = context;
    const struct dt_norm rows = part_of(norm, part);
    const size_t at = (size_t)part * norm->n_c;
    (void)thread;
    norm->cpu->kernels->norm_sum(&rows, norm->parts[0] + at, norm->parts[1] + at);
}

static void backward_part(void *context, int part, int thread)
{
    const struct norm *norm = context;
    const struct dt_norm rows = part_of(norm, part);
    (void)thread;
    norm->cpu->kernels->norm_backward(&rows);
}

/* Mean and biased variance of a channel, from those of the parts (Chan, Golub and LeVeque 1979). */
static void add_parts(const struct norm *norm, size_t c, double *mean, double *var)
{
    const double n = (double)norm->rows.n_rows;
    double sum = 0, squares = 0;
    for (size_t p = 0; p < norm->n_parts; p++) {
        sum += (double)rows_in(norm, p) * (double)norm->parts[0][p * norm->n_c + c];
    }
    *mean = sum / n;
    for (size_t p = 0; p < norm->n_parts; p++) {
        const double d = (double)norm->parts[0][p * norm->n_c + c] - *mean;
        squares += (double)norm->parts[1][p * norm->n_c + c] + (double)rows_in(norm, p) * d * d;
    }
    *var = squares / n;
}

static void follow(float *running, double momentum, double value)
{
    *running = (float)((1.0 - momentum) * (double)*running + momentum * value);
}

/* Mean and biased variance of each channel as sums. */
static enum dt_status measure(const struct norm *norm)
{
    const size_t n_c = (size_t)norm->rows.n_c;
    if (!norm->call->pass->training) {
        return DT_OK;
    }
    run(norm, measure_part);
    for (size_t c = 0; c < n_c; c++) {
        add_parts(norm, c, &norm->sums[2 * c], &norm->sums[2 * c + 1]);
    }
    norm->sums[2 * n_c] = (double)norm->rows.n_rows;
    return dt_moments_join(norm->call, norm->sums);
}

/* The running variance is unbiased, the one that normalizes is not: as in PyTorch. One value has
 * no variance, so the running statistics stay as they are. */
static void prepare(const struct norm *norm)
{
    const struct dt_layer_call *call = norm->call;
    const double n = norm->sums[2 * norm->rows.n_c], momentum = call->layer->momentum;
    for (size_t c = 0; c < (size_t)norm->rows.n_c; c++) {
        double mean = (double)call->running[0][c], var = (double)call->running[1][c];
        if (call->pass->training && n > 0) {
            mean = norm->sums[2 * c];
            var = norm->sums[2 * c + 1];
        }
        if (call->pass->training && n > 1) {
            follow(&call->running[0][c], momentum, mean);
            follow(&call->running[1][c], momentum, var * n / (n - 1));
        }
        norm->mean[c] = (float)mean;
        norm->inverse[c] = (float)(1.0 / sqrt(var + call->layer->epsilon));
        norm->scale[c] = norm->inverse[c] * call->weight[c];
        norm->bias[c] = call->bias[c];
    }
}

static enum dt_status forward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    const struct norm norm = norm_of(backend, call);
    DT_TRY(measure(&norm));
    prepare(&norm);
    run(&norm, apply_part);
    return DT_OK;
}

/* This rank's gradients. */
static void add_gradients(const struct norm *norm)
{
    const struct dt_layer_call *call = norm->call;
    for (size_t c = 0; c < (size_t)norm->rows.n_c; c++) {
        double sum = 0, product = 0;
        for (size_t p = 0; p < norm->n_parts; p++) {
            sum += (double)norm->parts[0][p * norm->n_c + c];
            product += (double)norm->parts[1][p * norm->n_c + c];
        }
        call->dbias[c] = (call->pass->accumulate ? call->dbias[c] : 0.0f) + (float)sum;
        call->dweight[c] = (call->pass->accumulate ? call->dweight[c] : 0.0f) +
                           (float)(product * (double)norm->inverse[c]);
        norm->sums[2 * c] = sum;
        norm->sums[2 * c + 1] = product;
    }
}

/* dx = dy scale + (x - mean) per_x + fixed */
static void prepare_backward(const struct norm *norm)
{
    const double n = norm->sums[2 * norm->rows.n_c];
    for (size_t c = 0; c < (size_t)norm->rows.n_c; c++) {
        const double inverse = (double)norm->inverse[c], scale = (double)norm->scale[c];
        norm->per_x[c] = (float)(-scale * inverse * inverse * norm->sums[2 * c + 1] / n);
        norm->fixed[c] = (float)(-scale * norm->sums[2 * c] / n);
    }
}

static enum dt_status backward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    const struct norm norm = norm_of(backend, call);
    run(&norm, sum_part);
    add_gradients(&norm);
    DT_TRY(dt_sums_join(call, norm.sums));
    prepare_backward(&norm);
    if (call->dx[0] != NULL) {
        run(&norm, backward_part);
    }
    return DT_OK;
}

const struct dt_layer_ops DT_KERNEL(batch_norm) = {
    .n_bytes = n_bytes, .forward = forward, .backward = backward};
