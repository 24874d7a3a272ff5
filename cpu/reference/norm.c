/* Batch normalization on the reference backend (Ioffe and Szegedy 2015), with PyTorch's statistics:
 * biased variance where it normalizes, unbiased in the running one. */
#include <math.h>
#include <string.h>

#include "model/layers/layers.h"

/* Sums over all elements of a channel: of the samples and of their places. */
struct channel {
    const struct dt_layer_call *call;
    size_t c, n_places, n_channels;
};

static struct channel channel_of(const struct dt_layer_call *call, size_t c)
{
    const struct dt_shape s = call->block->in;
    return (struct channel){call, c, (size_t)s.h * (size_t)s.w, (size_t)s.c};
}

static size_t count(const struct channel *ch)
{
    return (size_t)ch->call->pass->batch->n * ch->n_places;
}

/* Where element i of the channel lies. */
static size_t at(const struct channel *ch, size_t i)
{
    return (i / ch->n_places * ch->n_channels + ch->c) * ch->n_places + i % ch->n_places;
}

static void measure(const struct channel *ch, double *mean, double *var)
{
    const size_t n = count(ch);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)ch->call->x[0][at(ch, i)];
    }
    *mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)ch->call->x[0][at(ch, i)] - *mean;
        squares += d * d;
    }
    *var = squares / (double)n;
}

/* running = (1 - momentum) running + momentum new */
static void follow(const struct channel *ch, double mean, double var)
{
    const double n = (double)count(ch), keep = 1.0 - ch->call->layer->momentum;
    float *const *running = ch->call->running;
    const double unbiased = n > 1 ? var * n / (n - 1) : var;
    running[0][ch->c] =
        (float)(keep * (double)running[0][ch->c] + ch->call->layer->momentum * mean);
    running[1][ch->c] =
        (float)(keep * (double)running[1][ch->c] + ch->call->layer->momentum * unbiased);
}

static size_t n_bytes(const struct dt_block *block, int capacity)
{
    (void)capacity;
    return 2 * (size_t)block->in.c * sizeof(double);
}

static enum dt_status forward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    (void)backend;
    double *kept = call->memory;
    for (size_t c = 0; c < (size_t)call->block->in.c; c++, kept += 2) {
        const struct channel ch = channel_of(call, c);
        double mean = (double)call->running[0][c], var = (double)call->running[1][c];
        if (call->pass->training && count(&ch) > 0) {
            measure(&ch, &mean, &var);
            follow(&ch, mean, var);
        }
        kept[0] = mean;
        kept[1] = 1.0 / sqrt(var + call->layer->epsilon);
        for (size_t i = 0; i < count(&ch); i++) {
            const double x = ((double)call->x[0][at(&ch, i)] - mean) * kept[1],
                         y = x * (double)call->weight[c] + (double)call->bias[c];
            call->y[at(&ch, i)] = call->relu && y < 0 ? 0.0f : (float)y; /* a NaN stays one */
        }
    }
    return DT_OK;
}

/* The gradient behind the ReLU, and the normalized x. */
static double gradient(const struct channel *ch, size_t i, const double *kept, double *x)
{
    const struct dt_layer_call *call = ch->call;
    *x = ((double)call->x[0][at(ch, i)] - kept[0]) * kept[1];
    return call->relu && !(call->y[at(ch, i)] > 0) ? 0 : (double)call->dy[at(ch, i)];
}

/* dx = weight / deviation (dy - mean of dy - x mean of dy x) */
static void pass_back(const struct channel *ch, const double *kept, double db, double dw)
{
    const struct dt_layer_call *call = ch->call;
    const double n = (double)count(ch), scale = kept[1] * (double)call->weight[ch->c];
    for (size_t i = 0; i < count(ch); i++) {
        double x;
        const double dy = gradient(ch, i, kept, &x), dx = scale * (dy - db / n - x * dw / n);
        float *to = &call->dx[0][at(ch, i)];
        *to = (float)(call->adds_dx[0] ? (double)*to + dx : dx);
    }
}

static enum dt_status backward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    (void)backend;
    const double *kept = call->memory;
    for (size_t c = 0; c < (size_t)call->block->in.c; c++, kept += 2) {
        const struct channel ch = channel_of(call, c);
        double db = 0, dw = 0;
        for (size_t i = 0; i < count(&ch); i++) {
            double x;
            const double dy = gradient(&ch, i, kept, &x);
            db += dy;
            dw += dy * x;
        }
        call->dbias[c] = (float)((call->pass->accumulate ? (double)call->dbias[c] : 0) + db);
        call->dweight[c] = (float)((call->pass->accumulate ? (double)call->dweight[c] : 0) + dw);
        if (call->dx[0] != NULL) {
            pass_back(&ch, kept, db, dw);
        }
    }
    return DT_OK;
}

const struct dt_layer_ops dt_ref_batch_norm = {
    .n_bytes = n_bytes, .forward = forward, .backward = backward};
