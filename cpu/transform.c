/* Pixels on their path to the network, in the order of the cpu backend. */
#include "base/transform.h"

#include "cpu/block.h"

/* A stretch of a row of one channel: n pixels that stand `step` floats apart in x. */
struct stretch {
    const uint8_t *from;
    float scale, offset;
    size_t n, step;
};

/* Grey images have no gaps between pixels: a loop that the compiler vectorizes. */
static void put_forward(const struct stretch *s, float *x)
{
    if (s->step == 1) {
        for (size_t i = 0; i < s->n; i++) {
            x[i] = (float)s->from[i] * s->scale + s->offset;
        }
        return;
    }
    for (size_t i = 0; i < s->n; i++) {
        x[i * s->step] = (float)s->from[i] * s->scale + s->offset;
    }
}

/* From right to left; `from` is the last pixel. */
static void put_mirrored(const struct stretch *s, float *x)
{
    for (size_t i = 0; i < s->n; i++) {
        x[i * s->step] = (float)*(s->from - i) * s->scale + s->offset;
    }
}

static void put_black(size_t n, size_t step, float value, float *x)
{
    for (size_t i = 0; i < n; i++) {
        x[i * step] = value;
    }
}

/* Row y of a channel, `plane` its pixels. */
static void put_row(const struct dt_pixel_transform *t, const struct dt_pose *p,
                    const uint8_t *plane, int y, struct stretch s, float *x)
{
    const size_t w = (size_t)t->shape.w, left = (size_t)p->left, end = (size_t)p->end;
    if (y < p->top || y >= p->bottom || p->left >= p->end) {
        put_black(w, s.step, s.offset, x);
        return;
    }
    put_black(left, s.step, s.offset, x);
    DT_ASSERT(p->left >= 0 && p->end <= t->shape.w && y + p->down >= 0 && y + p->down < t->shape.h);
    s.from = plane + (size_t)(y + p->down) * w +
             (size_t)(p->mirrored ? p->right - p->left : p->right + p->left);
    s.n = end - left;
    (p->mirrored ? put_mirrored : put_forward)(&s, x + left * s.step);
    put_black(w - end, s.step, s.offset, x + end * s.step);
}

void dt_cpu_transform(const struct dt_transform *transform, const uint8_t *pixels, uint32_t epoch,
                      uint32_t id, float *x)
{
    const struct dt_pixel_transform *t = (const struct dt_pixel_transform *)transform;
    const struct dt_pose pose = dt_transform_pose(t, epoch, id);
    const size_t n_c = (size_t)t->shape.c, n_h = (size_t)t->shape.h, n_w = (size_t)t->shape.w;
    for (size_t c = 0; c < n_c; c++) {
        const int k = dt_transform_channel(t, (int)c);
        const struct stretch s = {.scale = t->scale[k], .offset = t->offset[k], .step = n_c};
        for (size_t y = 0; y < n_h; y++) {
            put_row(t, &pose, pixels + c * n_h * n_w, (int)y, s, x + y * n_w * n_c + c);
        }
    }
}
