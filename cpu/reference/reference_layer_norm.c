/* Normalization of a sample's features on the reference backend (Ba, Kiros and Hinton 2016). */
#include <math.h>

#include "model/layers/layers.h"

/* One sample. */
struct sample {
    const struct dt_layer_call *call;
    size_t begin;
    double *kept; /* mean, and 1 / deviation */
};

static struct sample sample_of(const struct dt_layer_call *call, int i)
{
    return (struct sample){call, (size_t)i * call->n_elems, (double *)call->memory + 2 * i};
}

/* Images are C H W here, and H W C in the arena. */
static size_t param_at(const struct dt_layer_call *call, size_t i)
{
    const struct dt_shape s = call->block->in;
    const size_t n_places = (size_t)s.h * (size_t)s.w;
    return i % n_places * (size_t)s.c + i / n_places;
}

static size_t n_bytes(const struct dt_block *block, int capacity)
{
    (void)block;
    return 2 * (size_t)capacity * sizeof(double);
}

static void measure(const struct sample *s)
{
    const float *x = s->call->x[0] + s->begin;
    const double n = (double)s->call->n_elems;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < s->call->n_elems; i++) {
        sum += (double)x[i];
    }
    for (size_t i = 0; i < s->call->n_elems; i++) {
        const double d = (double)x[i] - sum / n;
        squares += d * d;
    }
    s->kept[0] = sum / n;
    s->kept[1] = 1.0 / sqrt(squares / n + s->call->layer->epsilon);
}

static double normalized(const struct sample *s, size_t i)
{
    return ((double)s->call->x[0][s->begin + i] - s->kept[0]) * s->kept[1];
}

static enum dt_status forward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    (void)backend;
    for (int k = 0; k < call->pass->batch->n; k++) {
        const struct sample s = sample_of(call, k);
        measure(&s);
        for (size_t i = 0; i < call->n_elems; i++) {
            const size_t p = param_at(call, i);
            const double y = normalized(&s, i) * (double)call->weight[p] + (double)call->bias[p];
            call->y[s.begin + i] = call->relu && y < 0 ? 0.0f : (float)y; /* a NaN stays one */
        }
    }
    return DT_OK;
}

/* The gradient behind the ReLU. */
static double gradient(const struct sample *s, size_t i)
{
    const struct dt_layer_call *call = s->call;
    return call->relu && !(call->y[s->begin + i] > 0) ? 0 : (double)call->dy[s->begin + i];
}

/* dx = (g - mean of g - x mean of g x) / deviation, where g = weight dy, and x is normalized. */
static void pass_back(const struct sample *s)
{
    const struct dt_layer_call *call = s->call;
    const double n = (double)call->n_elems;
    double sum = 0, product = 0;
    for (size_t i = 0; i < call->n_elems; i++) {
        const double g = gradient(s, i) * (double)call->weight[param_at(call, i)];
        sum += g;
        product += g * normalized(s, i);
    }
    for (size_t i = 0; i < call->n_elems; i++) {
        const double g = gradient(s, i) * (double)call->weight[param_at(call, i)],
                     dx = s->kept[1] * (g - sum / n - normalized(s, i) * product / n);
        float *to = &call->dx[0][s->begin + i];
        *to = (float)(call->adds_dx[0] ? (double)*to + dx : dx);
    }
}

static enum dt_status backward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    (void)backend;
    for (size_t i = 0; i < call->n_elems; i++) {
        const size_t p = param_at(call, i);
        double db = 0, dw = 0;
        for (int k = 0; k < call->pass->batch->n; k++) {
            const struct sample s = sample_of(call, k);
            db += gradient(&s, i);
            dw += gradient(&s, i) * normalized(&s, i);
        }
        call->dbias[p] = (float)((call->pass->accumulate ? (double)call->dbias[p] : 0) + db);
        call->dweight[p] = (float)((call->pass->accumulate ? (double)call->dweight[p] : 0) + dw);
    }
    for (int k = 0; k < call->pass->batch->n && call->dx[0] != NULL; k++) {
        const struct sample s = sample_of(call, k);
        pass_back(&s);
    }
    return DT_OK;
}

const struct dt_layer_ops dt_ref_layer_norm = {
    .n_bytes = n_bytes, .forward = forward, .backward = backward};
