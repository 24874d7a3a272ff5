/* Dense layers forward, a panel of inputs at a time: its weights, transposed, stay in the
 * first-level cache. */
#include "cpu/kernels/transpose.h"
#include "cpu/kernels/walk.h"

void DT_KERNEL(dense_forward)(int part, int n_parts, int n, int n_in, int n_out, const float *x,
                              const float *weight, const float *bias, float *y, float *panel)
{
    const int first = (int)((int64_t)tile_count(n) * part / n_parts),
              last = (int)((int64_t)tile_count(n) * (part + 1) / n_parts);
    for (int i = tile_begin(n, first); i < tile_begin(n, last); i++) {
        memcpy(y + (size_t)i * (size_t)n_out, bias, (size_t)n_out * sizeof(float));
    }
    struct product p = {
        .a_stride = (size_t)n_in, .b = panel, .b_step = WALK_COLUMNS, .c_stride = (size_t)n_out};
    for (int at = 0; at < n_in; at += WALK_DEPTH) {
        p.depth = dt_min(WALK_DEPTH, n_in - at);
        for (int j = 0; j < n_out; j += WALK_COLUMNS) {
            p.n_columns = dt_min(WALK_COLUMNS, n_out - j);
            transpose_matrix(p.n_columns, p.depth, weight + (size_t)j * (size_t)n_in + at,
                             (size_t)n_in, panel, p.b_step);
            for (int tile = first; tile < last; tile++) {
                const int begin = tile_begin(n, tile), end = tile_begin(n, tile + 1);
                if (j + WALK_COLUMNS >= n_out && at + WALK_DEPTH < n_in) {
                    ask_for(x + at + WALK_DEPTH, (size_t)n_in, begin, end, WALK_DEPTH);
                    const int rows = dt_min(n_out, WALK_COLUMNS), per = rows / (last - first) + 1;
                    ask_for(weight + at + WALK_DEPTH, (size_t)n_in, (tile - first) * per,
                            dt_min(rows, (tile - first + 1) * per), WALK_DEPTH);
                }
                p.a = x + (size_t)begin * (size_t)n_in + at;
                p.c = y + (size_t)begin * (size_t)n_out + j;
                product_rows(end - begin, &p);
            }
        }
    }
}
