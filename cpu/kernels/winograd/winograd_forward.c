/* Winograd's products, and the whole convolution; winograd_kernel.h explains the method. */
#include "cpu/kernels/winograd/winograd_kernel.h"

/* ---- the matrix products */

/* T tiles by V vectors of filters of one frequency, kept in registers. */
ALWAYS_INLINE void gemm_block(const int T, const int V, const struct dt_winograd *w, const float *v,
                              const float *u, float *m)
{
    vf sum[GEMM_ROWS][GEMM_VECTORS];
    const int depth = dt_winograd_depth(w);
    const size_t v_tile = w->v_tile, m_tile = w->m_tile, m_block = w->m_block;
    const float *far = v + 3 * v_tile;
    UNROLLED(i, T) {
        UNROLLED(j, V) {
            sum[i][j] = (vf){0};
        }
    }
    UNROLL_4
    for (int c = 0; c < depth; c++) {
        vf filters[GEMM_VECTORS];
        UNROLLED(j, V) {
            filters[j] = load(u + j * VL);
        }
        UNROLLED(i, T) {
            const float pixel = (i < 3 ? v : far)[(size_t)(i % 3) * v_tile + (size_t)c];
            UNROLLED(j, V) {
                sum[i][j] += pixel * filters[j];
            }
        }
        u += V * VL;
    }
    UNROLLED(i, T) {
        UNROLLED(j, V) {
            store(m + (size_t)i * m_tile + (size_t)j * m_block, sum[i][j]);
        }
    }
}

#define GEMM_BLOCK(label, T, V)   \
    label:                        \
    gemm_block(T, V, w, v, u, m); \
    break;
#if GEMM_VECTORS == 4
#define GEMM_MIDDLE(T) GEMM_BLOCK(case 2, T, 2) GEMM_BLOCK(case 3, T, 3)
#else
#define GEMM_MIDDLE(T)
#endif
#define GEMM_CASE(T)                             \
    case T:                                      \
        switch (n_vectors) {                     \
            GEMM_BLOCK(case 1, T, 1)             \
            GEMM_MIDDLE(T)                       \
            GEMM_BLOCK(default, T, GEMM_VECTORS) \
        }                                        \
        break;

static void gemm_rows(int n_rows, int n_vectors, const struct dt_winograd *w, const float *v,
                      const float *u, float *m)
{
    switch (n_rows) {
        GEMM_CASE(1)
        GEMM_CASE(2)
        GEMM_CASE(3)
        GEMM_CASE(4)
        GEMM_CASE(5)
        GEMM_CASE(6)
    }
}

/* One frequency and panel of filters. The multiply-adds of a block start while the previous block's
 * are still running, unless they wait for an address: so each address follows from the one before,
 * without a division. */
static void panel_products(const struct dt_winograd *w, int n_tiles, int n_vectors, const float *v,
                           const float *u, float *m)
{
    const int n_blocks = (n_tiles + GEMM_ROWS - 1) / GEMM_ROWS, n_least = n_tiles / n_blocks,
              n_longer = n_tiles % n_blocks;
    for (int b = 0; b < n_blocks; b++) { /* as even as possible */
        const int n_rows = n_least + (b < n_longer);
        gemm_rows(n_rows, n_vectors, w, v, u, m);
        v += (size_t)n_rows * w->v_tile;
        m += (size_t)n_rows * w->m_tile;
    }
}

void DT_KERNEL(winograd_products)(const struct dt_winograd *w, int begin, int end, int n_tiles,
                                  const float *v, const float *u, float *m)
{
    for (int f = begin; f < end && n_tiles > 0; f++) {
        const float *v_f = v + (size_t)f * w->v_freq, *u_f = u + (size_t)f * w->u_freq;
        for (int k0 = 0; k0 < w->k; k0 += PANEL) {
            const int n_vectors = panel_vectors(w->k, k0);
            panel_products(w, n_tiles, n_vectors, v_f, u_f,
                           m + (size_t)(k0 / VL) * w->m_block + (size_t)f * VL);
            u_f += (size_t)dt_winograd_depth(w) * (size_t)n_vectors * VL;
        }
    }
}

/* ---- the whole convolution */

struct forward {
    const struct dt_winograd *w;
    const struct dt_conv_outputs *out;
    const float *x, *packed;
    float *v, *m;                 /* a group's transforms and products */
    float *v_uniform, *m_uniform; /* of the area outside of tiles */
    float *background;            /* per image: outputs that see only the background, before ReLU */
    uint64_t *pixels;             /* the classes of the current image's pixels */
    float *edge;                  /* inputs of a tile that crosses the edge */
    struct dt_winograd_area *tile; /* of the current image */
    bool all;                      /* they cover all of it, and none needs care */
    int n_images, image, n_tiles, next;
    uint32_t not_finite;
};

static void share_scratch(struct forward *f, float *scratch)
{
    const size_t n_group = (size_t)f->w->group, v_tile = f->w->v_tile, m_tile = f->w->m_tile;
    f->v = scratch;
    f->m = f->v + n_group * v_tile;
    f->v_uniform = f->m + n_group * m_tile;
    f->m_uniform = f->v_uniform + v_tile;
    f->background = f->m_uniform + m_tile;
    f->pixels = (uint64_t *)(void *)(f->background + DT_WINOGRAD_MAX_IMAGES * f->w->background);
    f->edge = (float *)(f->pixels + dt_winograd_pixel_words(f->w));
    const int n_seen = dt_winograd_seen(f->w);
    f->tile = (struct dt_winograd_area *)(f->edge + (size_t)(n_seen * n_seen) * (size_t)f->w->c);
}

static const float *image_of(const struct forward *f)
{
    return f->x + (size_t)f->image * dt_winograd_image_elems(f->w);
}

static void note_finite(struct forward *f, int image, bool finite)
{
    f->not_finite |= finite ? 0 : 1u << image;
}

static float *background_of(const struct forward *f, int image)
{
    return f->background + (size_t)image * f->w->background;
}

/* Lists tiles for all outputs of the current image. */
static void list_all(struct forward *f)
{
    const struct dt_winograd *w = f->w;
    f->n_tiles = 0;
    for (int top = 0; top < w->out_h; top += M) {
        for (int left = 0; left < w->out_w; left += M) {
            f->tile[f->n_tiles++] = (struct dt_winograd_area){.image = f->image,
                                                              .top = top,
                                                              .left = left,
                                                              .bottom = dt_min(top + M, w->out_h),
                                                              .right = dt_min(left + M, w->out_w)};
        }
    }
}

/* Fills the uniform parts of the current image and lists its tiles. Without a common pixel, its
 * background is zeros. */
static void cover_image(struct forward *f)
{
    const struct dt_winograd *w = f->w;
    const float *x = image_of(f),
                *background = w->skips_uniform ? DT_KERNEL(winograd_common)(w, x) : NULL;
    bool finite = true;
    f->all = background == NULL && w->plain;
    if (f->all) {
        list_all(f);
        return;
    }
    if (background == NULL) {
        background = memset(f->edge, 0, (size_t)w->c * sizeof(float));
    }
    DT_KERNEL(winograd_uniform)(w, background, f->v_uniform + ONE_ONE * w->v_freq);
    DT_KERNEL(winograd_products)(w, ONE_ONE, ONE_ONE + 1, 1, f->v_uniform, f->packed, f->m_uniform);
    for (size_t k = 0; k < w->background; k += VL) {
        store(background_of(f, f->image) + k,
              uniform_output(f->m_uniform + k / VL * w->m_block, load(f->out->bias + k)));
    }
    f->n_tiles = DT_KERNEL(winograd_cover)(w, f->out, f->image, x, background, f->m_uniform,
                                           f->pixels, f->tile, &finite);
    note_finite(f, f->image, finite);
}

/* The next tile, of this image or of a later one; NULL: none. */
static const struct dt_winograd_area *next_tile(struct forward *f)
{
    while (f->next == f->n_tiles) {
        if (f->image + 1 == f->n_images) {
            return NULL;
        }
        f->image++;
        f->next = 0;
        cover_image(f);
    }
    return &f->tile[f->next++];
}

/* Transforms as many of the next tiles as fit, and returns their number. One with faint outputs
 * takes the next slot too, without its large pixels. *more: there may be others. */
static int fill_slots(struct forward *f, struct dt_winograd_area *slot, bool *more)
{
    const struct dt_winograd *w = f->w;
    const size_t n_seen = (size_t)dt_winograd_seen(w);
    int n = 0;
    while (n < w->group) {
        const struct dt_winograd_area *tile = next_tile(f);
        *more = tile != NULL;
        if (tile == NULL) {
            break;
        }
        if (tile->faint != 0 && n + 1 == w->group) {
            f->next--;
            break;
        }
        slot[n] = *tile;
        float *v = f->v + (size_t)n++ * w->v_tile;
        if (f->all) {
            DT_KERNEL(winograd_tile_input)(w, image_of(f), tile, v);
        } else {
            size_t row;
            const float *from = DT_KERNEL(winograd_tile)(w, image_of(f), tile, f->edge, &row);
            DT_KERNEL(winograd_input)(w, from, row, v);
        }
        if (tile->faint != 0) {
            DT_KERNEL(winograd_faint)(w, image_of(f), tile, f->edge);
            DT_KERNEL(winograd_input)
            (w, f->edge, n_seen * (size_t)w->c, f->v + (size_t)n++ * w->v_tile);
        }
    }
    return n;
}

uint32_t DT_KERNEL(winograd_forward)(const struct dt_winograd *w, int n_images, const float *x,
                                     const float *packed, const struct dt_conv_outputs *out,
                                     float *scratch)
{
    struct forward f = {
        .w = w, .out = out, .x = x, .packed = packed, .n_images = n_images, .image = -1};
    struct dt_winograd_area slot[DT_WINOGRAD_MAX_GROUP];
    bool more = true;
    share_scratch(&f, scratch);
    while (more) {
        const int n = fill_slots(&f, slot, &more);
        DT_KERNEL(winograd_products)(w, 0, N_FREQS, n, f.v, packed, f.m);
        for (int i = 0; i < n; i += slot[i].faint != 0 ? 2 : 1) {
            const float *m = f.m + (size_t)i * w->m_tile;
            note_finite(&f, slot[i].image,
                        DT_KERNEL(winograd_output)(w, out, &slot[i], false, m,
                                                   background_of(&f, slot[i].image)));
        }
    }
    return f.not_finite;
}
