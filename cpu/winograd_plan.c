#include "cpu/kernels/kernels.h"

#define CACHE_FLOATS \
    ((size_t)3       \
     << 15)          /* 384 KB per group: its images and all frequencies' weights share one cache */
#define FEW_TILES 24 /* fewer at a time reuse the loaded weights too little */
#define FEW_GRADIENTS 16 /* of tiles at a time: fewer load and store sums too often */
#define ENOUGH_TILES                                                                           \
    64                /* in images at a time: uniform parts leave the last group partly filled \
                       */
#define MANY_IMAGES 8 /* more at a time would leave too few for other threads */
#define PAD 16        /* floats that put neighbours on different cache sets */

/* Compares the vector operations of one image: the products and both transforms, weighted by their
 * cost in multiply-adds. */
static bool pays(const struct dt_winograd *w, int vector)
{
    const double n_freqs = (double)w->rows * w->columns * DT_WINOGRAD_FREQS,
                 c_vectors = dt_cut_count(w->c, vector), k_vectors = dt_cut_count(w->k, vector);
    const int kernel = dt_winograd_kernel(w);
    const double winograd =
        n_freqs * (dt_winograd_parts(w) * (w->c * k_vectors + 8 * c_vectors) + 8 * k_vectors);
    return winograd < (double)(kernel * kernel) * w->out_h * w->out_w * w->c * k_vectors;
}

void dt_winograd_plan(struct dt_winograd *w, int vector)
{
    const size_t n_vector = (size_t)vector, n_k = dt_round_up((size_t)w->k, n_vector),
                 n_depth = (size_t)dt_winograd_depth(w);
    w->rows = dt_cut_count(w->out_h, DT_WINOGRAD_TILE);
    w->columns = dt_cut_count(w->out_w, DT_WINOGRAD_TILE);
    w->used = pays(w, vector);
    w->u_freq = n_k * n_depth + PAD;
    w->v_freq = dt_round_up(n_depth, n_vector);
    w->v_freq += w->wider > 0 ? n_vector : 0; /* a part's last vector may begin before its end */
    w->v_tile = DT_WINOGRAD_FREQS * w->v_freq + 2 * PAD;
    w->m_block = DT_WINOGRAD_FREQS * n_vector + PAD;
    w->m_tile = n_k / n_vector * w->m_block;
    w->background = n_k;
    const int n_tiles = w->rows * w->columns;
    w->images = (int)dt_min_size((size_t)dt_cut_count(ENOUGH_TILES, n_tiles), MANY_IMAGES);
    const size_t n_fit = CACHE_FLOATS / (w->v_tile + w->m_tile);
    const int most = n_fit < FEW_TILES ? FEW_TILES : (int)dt_min_size(n_fit, DT_WINOGRAD_MAX_GROUP);
    w->group = dt_cut_count(w->images * n_tiles,
                            dt_cut_count(w->images * n_tiles, most)); /* all of about one size */
    w->skips_uniform = true;
}

/* The same for the gradient; its last transform is made once, for all images. */
static double gradient_work(const struct dt_winograd *w, int n_images, int vector)
{
    const double n_tiles = (double)n_images * w->rows * w->columns,
                 c_vectors = dt_cut_count(w->c, vector), k_vectors = dt_cut_count(w->k, vector);
    return DT_WINOGRAD_FREQS / (double)n_images *
           (n_tiles * (w->c * k_vectors + 8 * c_vectors + 8 * k_vectors) + 3 * w->c * k_vectors);
}

void dt_winograd_plan_gradient(struct dt_winograd_gradient *g, int n_images, int vector)
{
    struct dt_winograd *w = &g->w;
    const size_t n_vector = (size_t)vector;
    w->rows = dt_cut_count(w->out_h, DT_WINOGRAD_TILE);
    w->columns = dt_cut_count(w->out_w, DT_WINOGRAD_TILE);
    g->work = gradient_work(w, n_images, vector);
    w->used = g->work < 9.0 * w->out_h * w->out_w * w->c * dt_cut_count(w->k, vector);
    w->v_tile = dt_round_up((size_t)w->c, n_vector);
    g->g_tile = dt_round_up((size_t)w->k, n_vector);
    const int n_tiles = n_images * w->rows * w->columns;
    const size_t n_fit = CACHE_FLOATS / (DT_WINOGRAD_FREQS * (w->v_tile + g->g_tile));
    const int most =
        n_fit < FEW_GRADIENTS ? FEW_GRADIENTS : (int)dt_min_size(n_fit, DT_WINOGRAD_MAX_GROUP);
    g->group = dt_cut_count(n_tiles, dt_cut_count(n_tiles, most));
    w->v_freq = (size_t)g->group * w->v_tile + PAD;
    g->g_freq = (size_t)g->group * g->g_tile + PAD;
    g->u_freq = (size_t)w->c * g->g_tile + PAD;
}
