/* Batch normalization on the reference backend (Ioffe and Szegedy 2015), with PyTorch's statistics:
 * biased variance where it normalizes, unbiased in the running one. */
#include <math.h>

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

/* running = (1 - momentum) running + momentum new; one value has no variance and changes nothing */
static void follow(const struct channel *ch, double n, double mean, double var)
{
    const double keep = 1.0 - ch->call->layer->momentum;
    const double news[] = {mean, var * n / (n - 1)};
    for (int i = 0; i < 2 && n > 1; i++) {
        float *running = &ch->call->running[i][ch->c];
        *running = (float)(keep * (double)*running + ch->call->layer->momentum * news[i]);
    }
}

static size_t n_bytes(const struct dt_block *block, int capacity)
{
    (void)capacity;
    return (4 * (size_t)block->in.c + 1) * sizeof(double);
}

static void normalize(const struct channel *ch, const double *kept)
{
    const struct dt_layer_call *call = ch->call;
    for (size_t i = 0; i < count(ch); i++) {
        const double x = ((double)call->x[0][at(ch, i)] - kept[0]) * kept[1],
                     y = x * (double)call->weight[ch->c] + (double)call->bias[ch->c];
        call->y[at(ch, i)] = call->relu && y < 0 ? 0.0f : (float)y; /* a NaN stays one */
    }
}

/* kept: (n_c, 2) mean and variance, of which the second becomes 1 / deviation; then the number of
 * values; then room for the sums of the backward pass. */
static enum dt_status forward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    const size_t n_c = (size_t)call->block->in.c;
    double *kept = call->memory, *n = &kept[2 * n_c];
    (void)backend;
    for (size_t c = 0; c < n_c && call->pass->training; c++) {
        const struct channel ch = channel_of(call, c);
        *n = (double)count(&ch);
        measure(&ch, &kept[2 * c], &kept[2 * c + 1]);
    }
    DT_TRY(dt_moments_join(call, kept));
    for (size_t c = 0; c < n_c; c++, kept += 2) {
        const struct channel ch = channel_of(call, c);
        if (call->pass->training && *n > 0) {
            follow(&ch, *n, kept[0], kept[1]);
        } else {
            kept[0] = (double)call->running[0][c];
            kept[1] = (double)call->running[1][c];
        }
        kept[1] = 1.0 / sqrt(kept[1] + call->layer->epsilon);
        normalize(&ch, kept);
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
static void pass_back(const struct channel *ch, const double *kept, double n, double db, double dw)
{
    const struct dt_layer_call *call = ch->call;
    const double scale = kept[1] * (double)call->weight[ch->c];
    for (size_t i = 0; i < count(ch); i++) {
        double x;
        const double dy = gradient(ch, i, kept, &x), dx = scale * (dy - db / n - x * dw / n);
        float *to = &call->dx[0][at(ch, i)];
        *to = (float)(call->adds_dx[0] ? (double)*to + dx : dx);
    }
}

static enum dt_status backward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    const size_t n_c = (size_t)call->block->in.c;
    const double *kept = call->memory, n = kept[2 * n_c];
    double *sums = (double *)call->memory + 2 * n_c + 1;
    (void)backend;
    for (size_t c = 0; c < n_c; c++) {
        const struct channel ch = channel_of(call, c);
        double db = 0, dw = 0;
        for (size_t i = 0; i < count(&ch); i++) {
            double x;
            const double dy = gradient(&ch, i, &kept[2 * c], &x);
            db += dy;
            dw += dy * x;
        }
        call->dbias[c] = (float)((call->pass->accumulate ? (double)call->dbias[c] : 0) + db);
        call->dweight[c] = (float)((call->pass->accumulate ? (double)call->dweight[c] : 0) + dw);
        sums[2 * c] = db;
        sums[2 * c + 1] = dw;
    }
    DT_TRY(dt_sums_join(call, sums));
    for (size_t c = 0; c < n_c && call->dx[0] != NULL; c++) {
        const struct channel ch = channel_of(call, c);
        pass_back(&ch, &kept[2 * c], n, sums[2 * c], sums[2 * c + 1]);
    }
    return DT_OK;
}

const struct dt_layer_ops dt_ref_batch_norm = {
    .n_bytes = n_bytes, .forward = forward, .backward = backward};
