/* Outputs side by side on the cpu backend: channels of each place, or units of each sample. */
#include "cpu/kernels/vector.h"
#include "cpu/layers/parts.h"

/* A place, or a sample without places, is a row. */
struct concat {
    const struct dt_layer_call *call;
    size_t n_rows, n_per_part, n_c; /* n_c: of y */
    size_t n_x[DT_MAX_INPUTS];      /* of the inputs; 0 ends them */
};

static struct concat concat_of(const struct dt_layer_call *call)
{
    const struct dt_shape out = call->block->linear_out;
    const size_t n_places = (size_t)out.h * (size_t)out.w, n_c = (size_t)out.c;
    struct concat concat = {.call = call,
                            .n_rows = (size_t)call->pass->batch->n * n_places,
                            .n_per_part = dt_max_size(1, DT_PART / n_c),
                            .n_c = n_c};
    for (int k = 0; k < DT_MAX_INPUTS && call->x[k] != NULL; k++) {
        concat.n_x[k] = call->n_x[k] / n_places;
    }
    return concat;
}

ALWAYS_INLINE void store_at_most(float *to, vf v, size_t n)
{
    if (n >= VL) {
        store(to, v);
    } else {
        store_first(to, v, (int)n);
    }
}

ALWAYS_INLINE void put_row(size_t n, const float *x, const bool relu, float *y)
{
    for (size_t c = 0; c < n; c += VL) {
        const vf v = load(x + c);
        store_at_most(y + c, relu ? blend(v < 0, (vf){0}, v) : v, n - c); /* NaN stays NaN */
    }
}

ALWAYS_INLINE void take_row(size_t n, const float *y, const float *dy, const bool relu, bool adds,
                            float *dx)
{
    for (size_t c = 0; c < n; c += VL) {
        vf v = load(dy + c);
        v = relu ? only(greater(load(y + c), (vf){0}), v) : v;
        store_at_most(dx + c, adds ? v + load(dx + c) : v, n - c);
    }
}

static void forward_part(void *context, int part, int thread)
{
    const struct concat *concat = context;
    const struct dt_layer_call *call = concat->call;
    const size_t begin = (size_t)part * concat->n_per_part,
                 end = dt_min_size(begin + concat->n_per_part, concat->n_rows);
    float *y = call->y + begin * concat->n_c;
    (void)thread;
    for (size_t row = begin; row < end; row++) {
        for (int k = 0; k < DT_MAX_INPUTS && concat->n_x[k] > 0; y += concat->n_x[k++]) {
            const float *x = call->x[k] + row * concat->n_x[k];
            call->relu ? put_row(concat->n_x[k], x, true, y) : put_row(concat->n_x[k], x, false, y);
        }
    }
}

static void backward_part(void *context, int part, int thread)
{
    const struct concat *concat = context;
    const struct dt_layer_call *call = concat->call;
    const size_t begin = (size_t)part * concat->n_per_part,
                 end = dt_min_size(begin + concat->n_per_part, concat->n_rows);
    size_t at = begin * concat->n_c;
    (void)thread;
    for (size_t row = begin; row < end; row++) {
        for (int k = 0; k < DT_MAX_INPUTS && concat->n_x[k] > 0; at += concat->n_x[k++]) {
            float *dx = call->dx[k] != NULL ? call->dx[k] + row * concat->n_x[k] : NULL;
            if (dx != NULL && call->relu) {
                take_row(concat->n_x[k], call->y + at, call->dy + at, true, call->adds_dx[k], dx);
            } else if (dx != NULL) {
                take_row(concat->n_x[k], NULL, call->dy + at, false, call->adds_dx[k], dx);
            }
        }
    }
}

static enum dt_status run(struct dt_backend *backend, const struct dt_layer_call *call,
                          dt_threads_fn fn)
{
    const struct concat concat = concat_of(call);
    dt_parts_run(backend, call->pass, dt_parts_of(concat.n_rows, concat.n_per_part), fn, &concat);
    return DT_OK;
}

static enum dt_status forward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    return run(backend, call, forward_part);
}

static enum dt_status backward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    return run(backend, call, backward_part);
}

const struct dt_layer_ops DT_KERNEL(concat) = {.forward = forward, .backward = backward};
