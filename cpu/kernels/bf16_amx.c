/* Convolution of bf16 numbers by AMX: direct, as products of tiles. A tile holds 16 rows of 64
 * bytes at most, and one instruction adds the product of 16 positions x 32 channels by 32 channels
 * x 16 filters to 16 x 16 sums. Positions are neighbours in a row of outputs, so their inputs are
 * one pixel's stride apart, and a kernel row is one run of channels for each of them. It sums two
 * rows of outputs by two panels of filters at a time: four tiles of sums, two of inputs and two of
 * weights use all eight. */
#include "cpu/kernels/bf16.h"
#include "cpu/kernels/pool_window.h"

enum {
    FILTERS = DT_BF16_FILTERS,
    DEPTH = DT_BF16_DEPTH,
    POSITIONS = 16,
    TILE = POSITIONS * FILTERS,
    WEIGHTS = DEPTH * FILTERS
};

/* ---- rounding */

/* Rounds 32 numbers, of which the first n exist; zeros for the others. NaNs stay NaNs, and denormal
 * numbers become zero. */
ALWAYS_INLINE void round_32(const float *from, size_t n, uint16_t *to)
{
    const uint32_t there = n < DEPTH ? (1u << n) - 1 : UINT32_MAX;
    const __m512 low = _mm512_maskz_loadu_ps((__mmask16)there, from),
                 high = _mm512_maskz_loadu_ps((__mmask16)(there >> VL), from + VL);
    const __m512bh rounded = _mm512_cvtne2ps_pbh(high, low);
    memcpy(to, &rounded, sizeof rounded);
}

/* Packed: [panel of filters][tap][channel / 32][pair of channels][filter][channel of the pair]. */
static void pack(const struct dt_bf16 *b, const float *weight, uint16_t *packed)
{
    const size_t n_taps = (size_t)b->conv.kernel * (size_t)b->conv.kernel, n_c = (size_t)b->conv.c,
                 channels = dt_bf16_channels(b);
    for (int k0 = 0; k0 < b->conv.k; k0 += FILTERS) {
        const int n = dt_min(FILTERS, b->conv.k - k0);
        for (size_t tap = 0; tap < n_taps; tap++) {
            for (size_t c = 0; c < channels; c += 2, packed += 2 * FILTERS) {
                float pairs[2 * FILTERS] = {0};
                for (int i = 0; i < n; i++) {
                    const float *from = weight + ((size_t)(k0 + i) * n_c + c) * n_taps + tap;
                    pairs[2 * i] = c < n_c ? from[0] : 0;
                    pairs[2 * i + 1] = c + 1 < n_c ? from[n_taps] : 0;
                }
                round_32(pairs, 2 * FILTERS, packed);
            }
        }
    }
}

/* Rounds pixels of n_c channels, padded to whole products of channels. */
static void round_pixels(size_t n_pixels, size_t n_c, const float *x, size_t channels, uint16_t *to)
{
    for (size_t i = 0; i < n_pixels; i++, x += n_c, to += channels) {
        size_t c = 0;
        for (; c + DEPTH <= n_c; c += DEPTH) {
            round_32(x + c, DEPTH, to + c);
        }
        if (c < n_c) {
            round_32(x + c, n_c - c, to + c);
        }
    }
}

/* Rounds into the middle of the padded image; its frame stays zero. */
static void round_image(const struct dt_bf16 *b, const float *x, uint16_t *padded)
{
    const size_t n_c = (size_t)b->conv.c, n_w = (size_t)b->in_w, channels = dt_bf16_channels(b);
    padded += ((size_t)b->top * (size_t)b->conv.w + (size_t)b->left) * channels;
    for (int h = 0; h < b->in_h; h++, x += n_w * n_c, padded += (size_t)b->conv.w * channels) {
        if (channels == n_c) { /* a row is one run */
            round_pixels(1, n_w * n_c, x, n_w * n_c, padded);
        } else {
            round_pixels(n_w, n_c, x, channels, padded);
        }
    }
}

/* ---- sums */

/* In LDTILECFG's layout. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t n_rows[16];
};

/* Tiles 0 to 3 are sums; 4 and 5 inputs, of n positions; 6 and 7 weights. */
static void configure(int n)
{
    struct tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.n_rows[i] = (uint8_t)(i < 6 ? n : DEPTH / 2);
    }
    _tile_loadconfig(&config);
}

/* A compiler barrier: the compiler does not see which memory tiles read and write. */
#define TILES_SEE_MEMORY() __asm__ volatile("" ::: "memory")

/* Parameters shared by all blocks of an image. */
struct image {
    int kernel;
    size_t run;   /* channels per position and kernel row */
    size_t pixel; /* distance between the inputs of neighbouring positions */
    size_t row;   /* of the padded image */
    size_t panel; /* of packed weights */
};

/* Sums, starting with the bias, two rows of positions, whose windows begin at upper and lower, by
 * one or two panels of filters: sum [row][panel][position][filter]. */
ALWAYS_INLINE void sum_block(const bool two, const struct image *image, const uint16_t *upper,
                             const uint16_t *lower, const uint16_t *weights, const float *bias,
                             float *sum)
{
    const uint16_t *second = two ? weights + image->panel : weights;
    const size_t step = image->pixel * sizeof(uint16_t);
    TILES_SEE_MEMORY();
    _tile_loadd(0, bias, 0);
    _tile_loadd(2, bias, 0);
    if (two) {
        _tile_loadd(1, bias + FILTERS, 0);
        _tile_loadd(3, bias + FILTERS, 0);
    }
    for (int r = 0; r < image->kernel; r++, upper += image->row, lower += image->row) {
        for (size_t d = 0; d < image->run; d += DEPTH, weights += WEIGHTS, second += WEIGHTS) {
            _tile_loadd(6, weights, 64);
            _tile_loadd(4, upper + d, step);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(5, lower + d, step);
            _tile_dpbf16ps(2, 5, 6);
            if (two) {
                _tile_loadd(7, second, 64);
                _tile_dpbf16ps(1, 4, 7);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
    }
    _tile_stored(0, sum, 64);
    _tile_stored(2, sum + 2 * TILE, 64);
    if (two) {
        _tile_stored(1, sum + TILE, 64);
        _tile_stored(3, sum + 3 * TILE, 64);
    }
    TILES_SEE_MEMORY();
}

/* ---- outputs */

/* A block of sums: its first output and its extents. */
struct block {
    int p, q, k;
    int n_rows, n_columns, n_filters;
};

ALWAYS_INLINE vf sum_at(const float *sum, int row, int panel, int column)
{
    return load(sum + (2 * row + panel) * TILE + column * FILTERS);
}

static void put_outputs(const struct dt_conv *conv, const struct dt_conv_outputs *out,
                        const struct block *b, const float *sum)
{
    const size_t n_k = (size_t)conv->k;
    for (int row = 0; row < b->n_rows; row++) {
        float *y =
            out->y + ((size_t)(b->p + row) * (size_t)conv->out_w + (size_t)b->q) * n_k + b->k;
        for (int i = 0; i < b->n_columns; i++, y += n_k) {
            for (int k = 0; k < b->n_filters; k += FILTERS) {
                const vf v = sum_at(sum, row, k / FILTERS, i);
                store_lanes(y + k, out->relu ? larger((vf){0}, v) : v,
                            dt_min(FILTERS, b->n_filters - k)); /* NaN stays NaN */
            }
        }
    }
}

/* Returns zeros in the lanes of filters whose outputs are finite, and NaNs in others. */
ALWAYS_INLINE vf put_windows(const int n_filters, const struct pool_target *to, size_t k,
                             size_t pixel, int n_columns, int panel, const float *sum)
{
    vf check = {0};
    for (int i = 0; i < n_columns; i += 2) {
        const vf top[2] = {sum_at(sum, 0, panel, i), sum_at(sum, 0, panel, i + 1)};
        const vf bottom[2] = {sum_at(sum, 1, panel, i), sum_at(sum, 1, panel, i + 1)};
        pool_window(n_filters, to, k, top, bottom, (size_t)(i / 2) * pixel,
                    (size_t)i * to->bitmask_pixel);
        check += ((top[0] + top[1]) + (bottom[0] + bottom[1])) * 0.0f;
    }
    return check;
}

/* Returns true if all of them are finite. */
static bool put_pooled(const struct dt_conv *conv, const struct dt_conv_outputs *out,
                       const struct block *b, const float *sum)
{
    const size_t n_k = (size_t)conv->k,
                 at = ((size_t)(b->p / 2) * (size_t)(conv->out_w / 2) + (size_t)(b->q / 2)) * n_k;
    const size_t bitmask_at =
        ((size_t)b->p * (size_t)conv->out_w + (size_t)b->q) * dt_nonzero_words(conv->k);
    const struct pool_target to = pool_target(out, conv->k, conv->out_w, at, bitmask_at);
    bool finite = true;
    for (int k = 0; k < b->n_filters; k += FILTERS) {
        const int n = dt_min(FILTERS, b->n_filters - k);
        const size_t first = (size_t)(b->k + k);
        const vf check = n == FILTERS
                             ? put_windows(FILTERS, &to, first, n_k, b->n_columns, k / FILTERS, sum)
                             : put_windows(n, &to, first, n_k, b->n_columns, k / FILTERS, sum);
        finite = finite && nonzero_lanes((vf)((vi)check & first_lanes(n))) == 0;
    }
    return finite;
}

/* ---- the whole convolution */

/* Prefetches a block's share of the memory that the next call writes, while there is still much to
 * compute. */
static void fetch_next(const struct dt_conv_outputs *out, size_t n_elems, size_t block,
                       size_t n_blocks)
{
    for (size_t i = n_elems * block / n_blocks;
         out->next != NULL && i < n_elems * (block + 1) / n_blocks; i += 16) {
        __builtin_prefetch(out->next + i, 1, 2);
    }
}

static bool do_block(const struct dt_conv *conv, const struct image *image, const uint16_t *padded,
                     const uint16_t *packed, const struct dt_conv_outputs *out,
                     const struct block *b)
{
    float sum[4 * TILE] __attribute__((aligned(64)));
    const size_t row = (size_t)conv->stride * image->row;
    const uint16_t *upper = padded + (size_t)b->p * row + (size_t)b->q * image->pixel,
                   *lower = b->n_rows == 2 ? upper + row : upper;
    if (b->n_filters > FILTERS) {
        sum_block(true, image, upper, lower, packed, out->bias + b->k, sum);
    } else {
        sum_block(false, image, upper, lower, packed, out->bias + b->k, sum);
    }
    if (out->pool) {
        return put_pooled(conv, out, b, sum);
    }
    put_outputs(conv, out, b, sum);
    return true;
}

/* Cuts rows into strips as even as possible; a last one that does not fit begins earlier. A pool's
 * windows stay whole. */
static bool forward(const struct dt_bf16 *bf16, const float *x, const uint16_t *packed,
                    const struct dt_conv_outputs *out, uint16_t *padded)
{
    const struct dt_conv *conv = &bf16->conv;
    const int unit = out->pool ? 2 : 1, n_rows = conv->out_h / unit * unit,
              n_columns = conv->out_w / unit * unit;
    const int n_strips = (n_columns + POSITIONS - 1) / POSITIONS,
              width = (n_columns / unit + n_strips - 1) / n_strips * unit;
    const size_t channels = dt_bf16_channels(bf16);
    const struct image image = {.kernel = conv->kernel,
                                .run = (size_t)conv->kernel * channels,
                                .pixel = (size_t)conv->stride * channels,
                                .row = (size_t)conv->w * channels,
                                .panel =
                                    (size_t)(conv->kernel * conv->kernel) * channels * FILTERS};
    const size_t n_elems = (size_t)(n_rows / unit) * (size_t)(n_columns / unit) * (size_t)conv->k;
    const size_t n_blocks = (size_t)((conv->k + 2 * FILTERS - 1) / (2 * FILTERS)) *
                            (size_t)((n_rows + 1) / 2) * (size_t)n_strips;
    size_t block = 0;
    bool finite = true;
    round_image(bf16, x, padded);
    configure(width);
    for (int k = 0; k < conv->k; k += 2 * FILTERS) {
        for (int p = 0; p < n_rows; p += 2) {
            for (int strip = 0; strip < n_strips; strip++) {
                const struct block b = {.p = p,
                                        .q = dt_min(strip * width, n_columns - width),
                                        .k = k,
                                        .n_rows = dt_min(2, n_rows - p),
                                        .n_columns = width,
                                        .n_filters = dt_min(2 * FILTERS, conv->k - k)};
                fetch_next(out, n_elems, block++, n_blocks);
                finite = do_block(conv, &image, padded,
                                  packed + (size_t)(k / FILTERS) * image.panel, out, &b) &&
                         finite;
            }
        }
    }
    _tile_release(); /* the system need not save unused tiles when it switches threads */
    return finite;
}

const struct dt_bf16_kernels dt_cpu_bf16_amx = {.pack = pack, .forward = forward};
