/* Outputs side by side on the reference backend: channels of an image, or units. */
#include "model/layers/layers.h"

/* Images are C H W, so an input is one piece of each sample. */
struct piece {
    const struct dt_layer_call *call;
    int k;
    size_t n, begin; /* elements, and where they begin in y */
};

static struct piece piece_of(const struct dt_layer_call *call, int k)
{
    struct piece piece = {.call = call, .k = k, .n = call->n_x[k]};
    for (int i = 0; i < k; i++) {
        piece.begin += call->n_x[i];
    }
    return piece;
}

/* Where element i of all samples of the input lies in y. */
static size_t at(const struct piece *p, size_t i)
{
    return i / p->n * p->call->n_elems + p->begin + i % p->n;
}

static size_t count(const struct piece *p)
{
    return (size_t)p->call->pass->batch->n * p->n;
}

static enum dt_status forward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    (void)backend;
    for (int k = 0; k < DT_MAX_INPUTS && call->x[k] != NULL; k++) {
        const struct piece piece = piece_of(call, k);
        for (size_t i = 0; i < count(&piece); i++) {
            const float x = call->x[k][i];
            call->y[at(&piece, i)] = call->relu && x < 0 ? 0.0f : x; /* a NaN stays one */
        }
    }
    return DT_OK;
}

static enum dt_status backward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    (void)backend;
    for (int k = 0; k < DT_MAX_INPUTS && call->x[k] != NULL; k++) {
        const struct piece piece = piece_of(call, k);
        float *dx = call->dx[k];
        for (size_t i = 0; dx != NULL && i < count(&piece); i++) {
            const size_t j = at(&piece, i);
            const float dy = call->relu && !(call->y[j] > 0) ? 0.0f : call->dy[j];
            dx[i] = call->adds_dx[k] ? dx[i] + dy : dy;
        }
    }
    return DT_OK;
}

const struct dt_layer_ops dt_ref_concat = {.forward = forward, .backward = backward};
