/* Convolution, backward: to the data and to the weights, for the output gradients that are not zero.
 *
 * In H W C order one window row is one run of kernel * c floats, the "segment". A nonzero gradient g of filter k at some position
 * adds g * weight[k][r] to the segment of dx, and g * segment of x to dw[k][r], for every window row r: both are a few vectors kept
 * in registers while a list is walked, the list of a position for dx, the list of a filter for dw. Where few gradients are zero, or
 * segments are short, dw is a plain matrix product instead (and dx a forward convolution: cpu_block_backward.c). */
#include "cpu/cpu_list.h"
#include "cpu/cpu_tile.h"

void DT_KERNEL(conv_pack_backward)(const struct dt_conv *conv, const float *weight, float *packed)
{
    const size_t segment = dt_conv_segment(conv, VL), n_c = (size_t)conv->c, n = (size_t)conv->kernel;
    for (size_t k = 0; k < (size_t)conv->k; k++) {
        for (size_t r = 0; r < n; r++) {
            float *to = packed + (k * n + r) * segment;
            memset(to, 0, segment * sizeof(float));
            for (size_t s = 0; s < n; s++) {
                for (size_t c = 0; c < n_c; c++) {
                    to[s * n_c + c] = weight[((k * n_c + c) * n + r) * n + s];
                }
            }
        }
    }
}

/* One filter's window row over all slices; `to` is its element of the first column and channel. */
static void store_row(const struct dt_conv *conv, int n_slices, const float *dw, bool accumulate, float *to)
{
    const size_t n_c = (size_t)conv->c, n = (size_t)conv->kernel, slice = dt_conv_packed_backward_elems(conv, VL);
    for (size_t s = 0; s < n; s++) {
        for (size_t c = 0; c < n_c; c++) {
            const float *from = dw + s * n_c + c;
            float sum = accumulate ? to[c * n * n + s] : 0.0f;
            for (int i = 0; i < n_slices; i++) {
                sum += from[(size_t)i * slice];
            }
            to[c * n * n + s] = sum;
        }
    }
}

void DT_KERNEL(conv_store_gradient)(const struct dt_conv *conv, int n_slices, const float *dw, bool accumulate, float *grads)
{
    const size_t segment = dt_conv_segment(conv, VL), n = (size_t)conv->kernel, filter = (size_t)conv->c * n * n;
    for (size_t k = 0; k < (size_t)conv->k; k++) {
        for (size_t r = 0; r < n; r++) {
            store_row(conv, n_slices, dw + (k * n + r) * segment, accumulate, grads + k * filter + r * n);
        }
    }
}

/* Bits of up to 64 floats that are not zero. */
static uint64_t nonzero_bits(const float *x, int n)
{
    uint64_t bits = 0;
    for (int i = 0; i < n; i += VL) {
        bits |= nonzero_lanes(load(x + i)) << i;
    }
    return n < 64 ? bits & (((uint64_t)1 << n) - 1) : bits;
}

/* Lists one row of dy by position, and unless `by_filter` is false by filter. */
ALWAYS_INLINE void list_row(const struct dt_conv *conv, const float *dy, size_t x_begin, const bool by_filter,
                            const struct dt_conv_lists *lists)
{
    const size_t n_positions = (size_t)conv->out_h * (size_t)conv->out_w, x_step = (size_t)conv->stride * (size_t)conv->c;
    uint32_t n = 0;
    for (int q = 0; q < conv->out_w; q++, dy += conv->k) {
        lists->row_begin[q] = n;
        for (int k0 = 0; k0 < conv->k; k0 += 64) {
            const int width = conv->k - k0 < 64 ? conv->k - k0 : 64;
            for (uint64_t bits = nonzero_bits(dy + k0, width); bits != 0; bits &= bits - 1) {
                const int k = k0 + __builtin_ctzll(bits);
                lists->row[n++] = (struct dt_entry){k, dy[k]};
                if (by_filter) {
                    const size_t at = (size_t)k * n_positions + lists->n_of_filter[k]++;
                    lists->of_filter[at] = (struct dt_entry){(int32_t)(x_begin + (size_t)q * x_step), dy[k]};
                }
            }
        }
    }
    lists->row_begin[conv->out_w] = n;
}

/* V vectors of the segments of one row of dx, from one row of dy. `valid`: the last vector's lanes that belong to the segment. */
ALWAYS_INLINE void data_row(const int V, const struct dt_conv *conv, const struct dt_conv_lists *lists, const float *weight,
                            size_t weight_stride, vi valid, float *dx)
{
    const size_t x_step = (size_t)conv->stride * (size_t)conv->c;
    for (int q = 0; q < conv->out_w; q++, dx += x_step) {
        const struct dt_entry *entry = lists->row + lists->row_begin[q], *end = lists->row + lists->row_begin[q + 1];
        if (entry == end) {
            continue;
        }
        list_add(V, entry, end, weight, weight_stride, true, valid, dx);
    }
}

/* V vectors of window row r of every filter's gradient; dw and x begin there. */
ALWAYS_INLINE void weight_row(const int V, const struct dt_conv *conv, const struct dt_conv_lists *lists, const float *x, float *dw,
                              size_t dw_stride)
{
    const size_t n_positions = (size_t)conv->out_h * (size_t)conv->out_w;
    for (int k = 0; k < conv->k; k++, dw += dw_stride) {
        const struct dt_entry *entry = lists->of_filter + (size_t)k * n_positions, *end = entry + lists->n_of_filter[k];
        if (entry == end) {
            continue;
        }
        list_add(V, entry, end, x, 1, true, first_lanes(VL), dw);
    }
}

/* dx: where the windows of this row of dy begin. */
static void backward_data_row(const struct dt_conv *conv, const struct dt_conv_lists *lists, const float *packed, float *dx)
{
    const size_t segment = dt_conv_segment(conv, VL), stride = segment * (size_t)conv->kernel;
    const int n_last = conv->kernel * conv->c - (int)(segment - VL);
    for (int r = 0; r < conv->kernel; r++) {
        for (size_t at = 0; at < segment;) {
            const int n = list_piece((segment - at) / VL);
            const vi valid = first_lanes(at + (size_t)n * VL == segment ? n_last : VL);
            const float *w = packed + (size_t)r * segment + at;
            float *to = dx + (size_t)r * (size_t)conv->w * (size_t)conv->c + at;
#define DATA_ROW(V) data_row(V, conv, lists, w, stride, valid, to)
            LIST_EACH_PIECE(n, DATA_ROW)
            at += (size_t)n * VL;
        }
    }
}

static void backward_weights(const struct dt_conv *conv, const struct dt_conv_lists *lists, const float *x, float *dw)
{
    const size_t segment = dt_conv_segment(conv, VL), stride = segment * (size_t)conv->kernel;
    for (int r = 0; r < conv->kernel; r++) {
        for (size_t at = 0; at < segment;) {
            const int n = list_piece((segment - at) / VL);
            const float *from = x + (size_t)r * (size_t)conv->w * (size_t)conv->c + at;
            float *to = dw + (size_t)r * segment + at;
#define WEIGHT_ROW(V) weight_row(V, conv, lists, from, to, stride)
            LIST_EACH_PIECE(n, WEIGHT_ROW)
            at += (size_t)n * VL;
        }
    }
}

static void backward_bias(const struct dt_conv *conv, const struct dt_conv_lists *lists, float *db)
{
    const size_t n_positions = (size_t)conv->out_h * (size_t)conv->out_w;
    for (int k = 0; k < conv->k; k++) {
        const struct dt_entry *entry = lists->of_filter + (size_t)k * n_positions;
        float sum = 0;
        for (uint32_t i = 0; i < lists->n_of_filter[k]; i++) {
            sum += entry[i].value;
        }
        db[k] += sum;
    }
}

/* dw and db as a matrix product of all of dy with x: tiles of window row r's elements times filters, summed over the positions. */
static void backward_weights_dense(const struct dt_conv *conv, const float *x, const float *dy, float *dw)
{
    const size_t segment = dt_conv_segment(conv, VL), row = (size_t)conv->w * (size_t)conv->c, n = (size_t)conv->kernel;
    const int n_elements = conv->kernel * conv->c, width = TILE_VECTORS * VL;
    float sums[TILE_ROWS * TILE_VECTORS * VL];
    struct tile tile = {.a_row = (size_t)conv->stride * row,
                        .a_step = (size_t)conv->stride * (size_t)conv->c,
                        .a_stride = 1,
                        .b_step = (size_t)conv->k,
                        .n_rows = conv->out_h,
                        .n_k = conv->out_w,
                        .c = sums,
                        .c_stride = (size_t)width};
    for (int k0 = 0; k0 < conv->k; k0 += width) {
        tile.b = dy + k0;
        tile.n_columns = conv->k - k0 < width ? conv->k - k0 : width;
        for (size_t r = 0; r < n; r++) {
            for (int i = 0; i < tile_count(n_elements); i++) {
                const int begin = tile_begin(n_elements, i), end = tile_begin(n_elements, i + 1);
                float *to = dw + ((size_t)k0 * n + r) * segment;
                tile.a = x + r * row + begin;
                tile_run(end - begin, &tile);
                for (int k = 0; k < tile.n_columns; k++, to += n * segment) {
                    for (int e = begin; e < end; e++) {
                        to[e] += sums[(e - begin) * width + k];
                    }
                }
            }
        }
    }
}

static void backward_bias_dense(const struct dt_conv *conv, const float *dy, float *db)
{
    for (int i = 0; i < conv->out_h * conv->out_w; i++, dy += conv->k) {
        for (int k = 0; k < conv->k; k++) {
            db[k] += dy[k];
        }
    }
}

size_t DT_KERNEL(count_nonzero)(size_t n_elems, const float *x)
{
    size_t n = 0;
    for (size_t i = 0; i < n_elems; i += 64) {
        n += (size_t)__builtin_popcountll(nonzero_bits(x + i, n_elems - i < 64 ? (int)(n_elems - i) : 64));
    }
    return n;
}

/* Whether walking lists is less work than the whole product, in vector operations: `listing` is what an entry costs by itself. */
static bool lists_pay(const struct dt_conv *conv, size_t n_entries)
{
    const size_t listing = 28, n_rows = (size_t)conv->kernel, n_positions = (size_t)conv->out_h * (size_t)conv->out_w;
    const size_t whole = n_positions * n_rows * n_rows * (size_t)conv->c * (((size_t)conv->k + VL - 1) / VL);
    return n_entries * (n_rows * dt_conv_segment(conv, VL) / VL + listing) < whole;
}

void DT_KERNEL(conv_backward)(const struct dt_conv *conv, const float *x, const float *dy, size_t n_nonzero, const float *packed,
                              const struct dt_conv_lists *lists, float *dw, float *db, float *dx)
{
    const size_t row = (size_t)conv->w * (size_t)conv->c, dy_row = (size_t)conv->out_w * (size_t)conv->k;
    const bool by_filter = lists_pay(conv, n_nonzero);
    memset(lists->n_of_filter, 0, (size_t)conv->k * sizeof lists->n_of_filter[0]);
    for (int p = 0; p < conv->out_h && (by_filter || dx != NULL); p++) {
        const size_t begin = (size_t)(p * conv->stride) * row;
        if (by_filter) {
            list_row(conv, dy + (size_t)p * dy_row, begin, true, lists);
        } else {
            list_row(conv, dy + (size_t)p * dy_row, begin, false, lists);
        }
        if (dx != NULL) {
            backward_data_row(conv, lists, packed, dx + begin);
        }
    }
    if (by_filter) {
        backward_weights(conv, lists, x, dw);
        backward_bias(conv, lists, db);
    } else {
        backward_weights_dense(conv, x, dy, dw);
        backward_bias_dense(conv, dy, db);
    }
}
