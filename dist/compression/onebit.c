/* One bit a number, its sign, of the numbers of matrices: the positive ones of a column share their
 * mean, and the negative ones theirs, as which their sign is read ("two values for each column of
 * the weight matrix", Seide 2014). Columns of a few rows share them with their neighbours. All
 * else, biases and filters of convolutions, is small, reaches every output, and is sent as it is.
 * Of little use without error feedback.
 *
 * Of what a range has of a matrix come the two means of each group of columns (bf16, so that what
 * is left behind is exact in a float), and the bits, low ones first; 1: negative. Zeros between
 * numbers are numbers. */
#include "base/arithmetic.h"
#include "dist/compression/codec.h"

#define LEAST ((size_t)128)   /* numbers of a whole matrix that share means */
#define HEAD ((size_t)4)      /* bytes: the means */
#define AT_ONCE ((size_t)512) /* columns, whose sums stay in the nearest cache */

/* Numbers [begin, end) of the array: of one matrix, or as they are. */
struct part {
    size_t begin, end;
    const struct dt_matrix *matrix; /* NULL: as they are */
    size_t width;                   /* columns of a group */
    size_t n_groups;
    size_t n_bytes;
};

static struct part as_it_is(size_t begin, size_t end)
{
    return (struct part){.begin = begin, .end = end, .n_bytes = (end - begin) * sizeof(float)};
}

static struct part of_matrix(const struct dt_matrix *m, size_t begin, size_t end)
{
    DT_ASSERT(begin >= m->begin && begin < end && end <= m->begin + m->n_rows * m->n_cols);
    const size_t width = (LEAST + m->n_rows - 1) / m->n_rows,
                 n_groups = (m->n_cols + width - 1) / width;
    const struct part plain = as_it_is(begin, end);
    struct part part = {
        .begin = begin, .end = end, .matrix = m, .width = width, .n_groups = n_groups};
    part.n_bytes = HEAD * n_groups + (end - begin + 7) / 8;
    return part.n_bytes < plain.n_bytes ? part : plain;
}

/* The next part of [begin, end); matrices are in the order of the array. */
static struct part next_part(const struct dt_codec *codec, size_t begin, size_t end)
{
    DT_ASSERT(begin < end);
    for (int i = 0; i < codec->layout.n_matrices; i++) {
        const struct dt_matrix *m = &codec->layout.matrices[i];
        const size_t m_end = m->begin + m->n_rows * m->n_cols;
        if (begin < m_end) {
            return begin < m->begin ? as_it_is(begin, dt_min_size(end, m->begin))
                                    : of_matrix(m, begin, dt_min_size(end, m_end));
        }
    }
    return as_it_is(begin, end);
}

static size_t onebit_bytes(const struct dt_codec *codec, size_t begin, size_t n)
{
    size_t n_bytes = 0;
    for (size_t at = begin; at < begin + n;) {
        const struct part part = next_part(codec, at, begin + n);
        n_bytes += part.n_bytes;
        at = part.end;
    }
    return n_bytes;
}

/* The numbers of each sign in some columns, added up and counted. */
struct columns {
    float sums[2][AT_ONCE];
    uint32_t counts[2][AT_ONCE];
};

/* Adds n numbers, one for each column. Without branches, so that the compiler does several at once.
 */
static void add_row(const float *from, size_t n, size_t first, struct columns *to)
{
    DT_ASSERT(first + n <= AT_ONCE);
    for (size_t i = 0; i < n; i++) {
        const uint32_t negative = dt_float_bits(from[i]) >> 31;
        to->sums[0][first + i] += negative != 0 ? 0 : from[i];
        to->sums[1][first + i] += negative != 0 ? from[i] : 0;
        to->counts[1][first + i] += negative;
        to->counts[0][first + i] += 1 - negative;
    }
}

/* Adds the part's share of columns [first, last); `from` begins at the part. */
static void add_columns(const struct part *part, size_t first, size_t last, const float *from,
                        struct columns *to)
{
    const struct dt_matrix *m = part->matrix;
    memset(to, 0, sizeof *to);
    for (size_t row = m->begin + (part->begin - m->begin) / m->n_cols * m->n_cols; row < part->end;
         row += m->n_cols) {
        const size_t begin = dt_max_size(row + first, part->begin),
                     end = dt_min_size(row + last, part->end);
        if (begin < end) {
            add_row(from + (begin - part->begin), end - begin, begin - row - first, to);
        }
    }
}

/* The mean of one sign of `n` columns. */
static uint16_t mean_of(const float *sums, const uint32_t *counts, size_t n)
{
    float sum = 0;
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) {
        sum += sums[i];
        count += counts[i];
    }
    return dt_bf16_of(count > 0 ? sum / (float)count : 0);
}

static void encode_means(const struct part *part, const float *from, uint8_t *bytes)
{
    const size_t n_cols = part->matrix->n_cols,
                 n_at_once = AT_ONCE / part->width * part->width; /* whole groups */
    DT_ASSERT(n_at_once >= part->width);
    struct columns columns;
    for (size_t first = 0; first < n_cols; first += n_at_once) {
        const size_t last = dt_min_size(first + n_at_once, n_cols);
        add_columns(part, first, last, from, &columns);
        for (size_t col = 0; col < last - first; col += part->width) {
            const size_t n = dt_min_size(part->width, last - first - col);
            for (int negative = 0; negative < 2; negative++) {
                const uint16_t mean =
                    mean_of(columns.sums[negative] + col, columns.counts[negative] + col, n);
                memcpy(bytes, &mean, sizeof mean);
                bytes += sizeof mean;
            }
        }
    }
}

static void encode_bits(const float *from, size_t n, uint8_t *bits)
{
    for (size_t at = 0; at < n; at += 8) {
        uint32_t byte = 0;
        for (size_t i = at; i < dt_min_size(at + 8, n); i++) {
            byte |= dt_float_bits(from[i]) >> 31 << (i - at);
        }
        bits[at / 8] = (uint8_t)byte;
    }
}

/* Adds n numbers of one row, the first of which is bit `bit`. */
static void decode_row(const struct part *part, const uint8_t *means, const uint8_t *bits,
                       size_t bit, size_t col, size_t n, float *to)
{
    for (size_t i = 0; i < n; i++) {
        const size_t group = part->width == 1 ? col + i : (col + i) / part->width;
        DT_ASSERT(group < part->n_groups);
        uint32_t both;
        memcpy(&both, means + group * HEAD, sizeof both);
        const uint32_t negative = bits[(bit + i) / 8] >> (bit + i) % 8 & 1u;
        to[i] += dt_float_of_bits(both << 16 * (1 - negative) & 0xFFFF0000u);
    }
}

static void decode_part(const struct part *part, const uint8_t *bytes, float *to)
{
    const size_t n_cols = part->matrix->n_cols;
    for (size_t at = part->begin; at < part->end;) {
        const size_t col = (at - part->matrix->begin) % n_cols,
                     n = dt_min_size(n_cols - col, part->end - at);
        decode_row(part, bytes, bytes + HEAD * part->n_groups, at - part->begin, col, n,
                   to + (at - part->begin));
        at += n;
    }
}

static void onebit_encode(const struct dt_codec *codec, uint64_t draw, const float *from,
                          size_t begin, size_t n, uint8_t *bytes)
{
    (void)draw;
    for (size_t at = begin; at < begin + n;) {
        const struct part part = next_part(codec, at, begin + n);
        if (part.matrix != NULL) {
            encode_means(&part, from, bytes);
            encode_bits(from, part.end - at, bytes + HEAD * part.n_groups);
        } else {
            memcpy(bytes, from, part.n_bytes);
        }
        from += part.end - at;
        bytes += part.n_bytes;
        at = part.end;
    }
}

static void add_plain(const uint8_t *bytes, size_t n, float *to)
{
    for (size_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, bytes + i * sizeof x, sizeof x);
        to[i] += x;
    }
}

static void onebit_decode_add(const struct dt_codec *codec, const uint8_t *bytes, size_t begin,
                              size_t n, float *to)
{
    for (size_t at = begin; at < begin + n;) {
        const struct part part = next_part(codec, at, begin + n);
        if (part.matrix != NULL) {
            decode_part(&part, bytes, to);
        } else {
            add_plain(bytes, part.end - at, to);
        }
        to += part.end - at;
        bytes += part.n_bytes;
        at = part.end;
    }
}

const struct dt_codec_ops dt_onebit_codec = {.summable = false,
                                             .bytes = onebit_bytes,
                                             .encode = onebit_encode,
                                             .decode_add = onebit_decode_add};
