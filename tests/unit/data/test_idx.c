/* IDX files: good ones in every form, and every bad one with the message it gets. */
#include "base/file.h"
#include "data/idx.h"
#include "tests/lib/folder.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <zlib.h>

static const struct dt_alive nobody; /* waits for a sign of life */
static const struct dt_idx_reader reader = {.alive = &nobody, .refuse = dt_idx_refuse};

/* ---- making files, in temporary memory ---- */

struct bytes {
    uint8_t *at;
    size_t n;
};

static void append(struct bytes *b, const void *more, size_t n)
{
    uint8_t *longer = temporary(b->n + n);
    if (b->n > 0) {
        memcpy(longer, b->at, b->n);
    }
    memcpy(longer + b->n, more, n);
    *b = (struct bytes){longer, b->n + n};
}

/* Header of `n_dims` sizes, then n_payload bytes 0, 1, 2, ... 250, 0, ... */
static struct bytes idx_file(int type, int n_dims, const uint32_t *dims, size_t n_payload)
{
    struct bytes b = {0};
    append(&b, (uint8_t[]){0, 0, (uint8_t)type, (uint8_t)n_dims}, 4);
    for (int i = 0; i < n_dims; i++) {
        append(&b,
               (uint8_t[]){(uint8_t)(dims[i] >> 24), (uint8_t)(dims[i] >> 16),
                           (uint8_t)(dims[i] >> 8), (uint8_t)dims[i]},
               4);
    }
    uint8_t *payload = temporary(n_payload);
    for (size_t i = 0; i < n_payload; i++) {
        payload[i] = (uint8_t)(i % 251);
    }
    append(&b, payload, n_payload);
    return b;
}

static struct bytes images_file(uint32_t n, uint32_t h, uint32_t w)
{
    return idx_file(8, 3, (uint32_t[]){n, h, w}, (size_t)n * h * w);
}

static struct bytes gzip_of(struct bytes raw, int level)
{
    struct bytes b = {0};
    z_stream z = {.next_in = raw.at, .avail_in = (uInt)raw.n};
    CHECK_INT(deflateInit2(&z, level, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    const uLong bound = deflateBound(&z, (uLong)raw.n);
    z.next_out = b.at = temporary(bound);
    z.avail_out = (uInt)bound;
    CHECK_INT(deflate(&z, Z_FINISH), Z_STREAM_END);
    b.n = z.total_out;
    CHECK_INT(deflateEnd(&z), Z_OK);
    return b;
}

/* ---- expectations ---- */

/* The path of a file of these bytes, in memory. */
static const char *file_of(struct bytes b)
{
    static char path[64];
    static int fd = -1;
    fd = fd < 0 ? memfd_create("idx", 0) : fd;
    CHECK_INT(ftruncate(fd, 0), 0);
    CHECK_INT(pwrite(fd, b.at, b.n, 0), b.n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

static enum dt_status parse(struct bytes b, int wanted, struct dt_idx *out)
{
    dt_error_clear();
    return dt_idx_open(file_of(b), wanted, 0, 0, 1, &reader, out);
}

static void expect_bad(struct bytes b, int wanted, const char *text)
{
    struct dt_idx idx;
    CHECK_FAILS(parse(b, wanted, &idx), DT_BAD_DATA, text);
    CHECK(strncmp(dt_error_text(), "/proc/self/fd/", 14) == 0);
    CHECK(idx.data == NULL);
    dt_error_clear();
}

static struct bytes text_file(const char *text)
{
    struct bytes b = {0};
    append(&b, text, strlen(text));
    return b;
}

/* ---- good files ---- */

static void test_images_in_every_form(void)
{
    const struct bytes raw = images_file(5, 3, 2);
    const struct bytes files[] = {raw, gzip_of(raw, 9), gzip_of(raw, 0)};
    for (int i = 0; i < 3; i++) {
        struct dt_idx idx;
        CHECK_OK(parse(files[i], 3, &idx));
        CHECK_INT(idx.n_dims, 3);
        CHECK_INT(idx.dims[0], 5);
        CHECK_INT(idx.dims[1], 3);
        CHECK_INT(idx.dims[2], 2);
        CHECK_INT(idx.n_item_bytes, 6);
        CHECK_INT(idx.n_rows, 5);
        CHECK_INT(memcmp(idx.data, raw.at + 16, 30), 0);
        dt_idx_close(&idx);
    }
}

static void test_labels_and_channels(void)
{
    struct dt_idx idx;
    struct bytes labels = idx_file(8, 1, (uint32_t[]){7}, 7);
    CHECK_OK(parse(labels, 1, &idx));
    CHECK_INT(idx.n_rows, 7);
    CHECK_INT(idx.n_item_bytes, 1);
    CHECK_INT(idx.data[6], 6);
    dt_idx_close(&idx);
    struct bytes colour = idx_file(8, 4, (uint32_t[]){2, 3, 4, 5}, 120);
    CHECK_OK(parse(colour, 3, &idx));
    CHECK_INT(idx.n_dims, 4);
    CHECK_INT(idx.n_item_bytes, 60);
    CHECK_INT(idx.data[119], 119);
    dt_idx_close(&idx);
}

/* Rows first, first + stride, ... below the limit; for items smaller and larger than what is read
 * at a time. */
static void check_kept_rows(struct bytes file, const uint8_t *payload, size_t n, size_t n_item,
                            size_t limit, uint32_t first, uint32_t stride)
{
    struct dt_idx idx;
    CHECK_OK(dt_idx_open(file_of(file), 3, limit, first, stride, &reader, &idx));
    const size_t n_limit = limit > 0 && limit < n ? limit : n;
    size_t kept = 0;
    for (size_t row = first; row < n_limit; row += stride) {
        CHECK_INT(memcmp(idx.data + kept++ * n_item, payload + row * n_item, n_item), 0);
    }
    CHECK_INT(idx.n_rows, kept);
    CHECK_INT(idx.dims[0], n);
    dt_idx_close(&idx);
}

static void test_strided_rows(void)
{
    static const uint32_t shapes[][3] = {{1000, 7, 5}, {40, 61, 59}, {3, 300, 300}};
    static const size_t limits[] = {0, 1, 2, 37, 5000};
    for (int s = 0; s < 3; s++) {
        const size_t n = shapes[s][0], n_item = (size_t)shapes[s][1] * shapes[s][2];
        const struct bytes raw = images_file(shapes[s][0], shapes[s][1], shapes[s][2]),
                           gz = gzip_of(raw, 6);
        for (int l = 0; l < 5; l++) {
            for (uint32_t stride = 1; stride <= 5; stride++) {
                for (uint32_t first = 0; first < stride; first++) {
                    check_kept_rows(raw, raw.at + 16, n, n_item, limits[l], first, stride);
                    check_kept_rows(gz, raw.at + 16, n, n_item, limits[l], first, stride);
                }
            }
        }
        check_kept_rows(raw, raw.at + 16, n, n_item, 0, UINT32_MAX, UINT32_MAX);
    }
}

/* ---- bad headers ---- */

static void test_truncated_headers(void)
{
    for (size_t n = 0; n < 16; n++) {
        char text[64];
        struct bytes file = images_file(2, 3, 4);
        snprintf(text, sizeof text, "header truncated: %zu bytes, need 16", n);
        file.n = n;
        expect_bad(gzip_of(file, 6), 3, text);
        expect_bad(file, 3, n == 0 ? "empty file" : text);
        if (n < 8) {
            struct bytes labels = idx_file(8, 1, (uint32_t[]){3}, 3);
            snprintf(text, sizeof text, "header truncated: %zu bytes, need 8", n);
            labels.n = n;
            expect_bad(labels, 1, n == 0 ? "empty file" : text);
        }
    }
    struct bytes colour = idx_file(8, 4, (uint32_t[]){2, 3, 4, 5}, 0);
    colour.n = 19;
    expect_bad(colour, 3, "header truncated: 19 bytes, need 20");
}

static void test_other_files(void)
{
    expect_bad(text_file("<!DOCTYPE html><html><body>404</body></html>"), 3,
               "not an IDX3 ubyte file, raw or gzip (magic 0x3c21444f; looks like HTML) (a "
               "download that failed? fetch it again)");
    expect_bad(text_file("\n\n  <HTML>"), 1,
               "not an IDX1 ubyte file, raw or gzip (magic 0x0a0a2020; looks like HTML)");
    expect_bad(text_file("\x89PNG\r\n\x1a\n...."), 3, "(magic 0x89504e47; looks like a PNG image)");
    expect_bad(text_file("PK\x03\x04........"), 3, "looks like a zip archive");
    expect_bad(text_file("some text"), 3, "not an IDX3 ubyte file, raw or gzip (magic 0x736f6d65)");
    expect_bad(gzip_of(text_file("<html>"), 6), 3, "looks like HTML");
    struct bytes swapped = {0};
    append(&swapped, (uint8_t[]){3, 8, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5, 6}, 18);
    expect_bad(swapped, 3, "(magic 0x03080000; little-endian, IDX is big-endian)");
}

static void test_wrong_kind(void)
{
    expect_bad(idx_file(8, 1, (uint32_t[]){30}, 30), 3,
               "holds labels (magic 0x00000801), but images are expected here");
    expect_bad(images_file(2, 2, 2), 1,
               "holds images (magic 0x00000803), but labels are expected here");
    expect_bad(idx_file(0x0d, 3, (uint32_t[]){1, 1, 1}, 4), 3,
               "element type 0x0d (float) is not supported, expected 0x08 (save "
               "numpy.rint(255 * images).astype(numpy.uint8) if they are 0 to 1");
    expect_bad(idx_file(0x09, 3, (uint32_t[]){1, 1, 1}, 1), 3,
               "element type 0x09 (signed byte) is not supported");
    expect_bad(idx_file(0x0a, 3, (uint32_t[]){1, 1, 1}, 1), 3,
               "element type 0x0a (unknown) is not supported");
    expect_bad(idx_file(0xff, 3, (uint32_t[]){1, 1, 1}, 1), 3,
               "element type 0xff (unknown) is not supported");
    expect_bad(idx_file(8, 2, (uint32_t[]){2, 2}, 4), 3,
               "2 dimensions, but images have 3 (N H W) or 4 (N C H W)");
    expect_bad(idx_file(8, 0, NULL, 4), 1, "0 dimensions, but labels have 1");
    struct bytes many = idx_file(8, 3, (uint32_t[]){1, 1, 1}, 1100);
    many.at[3] = 255;
    expect_bad(many, 3, "255 dimensions");
}

static void test_impossible_sizes(void)
{
    expect_bad(idx_file(8, 3, (uint32_t[]){UINT32_MAX, 65536, 65536}, 0), 3,
               "4294967295 x 65536 x 65536 items is impossible for a 16-byte file");
    expect_bad(idx_file(8, 4, (uint32_t[]){UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}, 0), 3,
               "is impossible");
    expect_bad(idx_file(8, 4, (uint32_t[]){0, UINT32_MAX, UINT32_MAX, UINT32_MAX}, 0), 3, "0 x ");
    expect_bad(idx_file(8, 3, (uint32_t[]){0, 28, 28}, 0), 3,
               "0 x 28 x 28 items: there is nothing in it");
    expect_bad(idx_file(8, 3, (uint32_t[]){5, 0, 28}, 0), 3,
               "5 x 0 x 28 items: there is nothing in it");
    expect_bad(idx_file(8, 3, (uint32_t[]){1, 70000, 1}, 70000), 3, "too many or too large");
    expect_bad(gzip_of(idx_file(8, 1, (uint32_t[]){1000000}, 3), 6), 1,
               "1000000 items is impossible for a");
}

/* ---- bad data ---- */

static void test_wrong_length(void)
{
    struct bytes file = images_file(4, 5, 6);
    file.n -= 7;
    expect_bad(file, 3, "header says 4 x 5 x 6 = 120 bytes, file has 113");
    file = images_file(4, 5, 6);
    append(&file, "seventeen letters", 17);
    expect_bad(gzip_of(file, 6), 3, "expands past the 136 bytes its header declares");
    expect_bad(file, 3, "17 extra bytes after the data");
    file = images_file(40, 5, 6);
    file.n -= 100;
    expect_bad(gzip_of(file, 6), 3, "header says 40 x 5 x 6 = 1200 bytes, it expands to 1100");
}

/* Not protected by the CRC: header fields (time, compressor, system, a remark), and the padding of
 * the last byte before the trailer. */
static bool unprotected_bit(size_t bit, size_t n_bytes)
{
    const size_t byte = bit / 8;
    return bit == 3 * 8 || (byte >= 4 && byte <= 9) || byte == n_bytes - 9;
}

/* A gzip file cut anywhere, or with any one bit turned, is refused, or has lost nothing. */
static void test_damaged_gzip(void)
{
    const struct bytes raw = images_file(50, 7, 9), whole = gzip_of(raw, 6);
    struct dt_idx idx;
    for (size_t n = 1; n < whole.n; n++) {
        CHECK_FAILS(parse((struct bytes){whole.at, n}, 3, &idx), DT_BAD_DATA,
                    n < 2 ? "header truncated: " : "unexpected end of file (");
    }
    for (size_t bit = 0; bit < 8 * whole.n; bit++) {
        whole.at[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (parse(whole, 3, &idx) == DT_OK) {
            CHECK(unprotected_bit(bit, whole.n));
            CHECK_INT(memcmp(idx.data, raw.at + 16, raw.n - 16), 0);
            dt_idx_close(&idx);
        }
        whole.at[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    struct bytes damaged = {0};
    append(&damaged, whole.at, whole.n);
    damaged.at[damaged.n - 6] ^= 1;
    expect_bad(damaged, 3, "damaged gzip data: incorrect data check");
}

static void test_after_the_first_member(void)
{
    const struct bytes raw = images_file(5, 7, 9);
    struct bytes twice = gzip_of(raw, 6), trailing = gzip_of(raw, 6);
    append(&twice, trailing.at, trailing.n);
    expect_bad(twice, 3, "expands past the 331 bytes its header declares");
    append(&trailing, "", 1); /* a NUL */
    expect_bad(trailing, 3, "extra data after the end of the gzip data");
}

/* 64 KiB that would expand to 64 MiB are stopped one byte past what their header declares. */
static void test_bomb(void)
{
    struct bytes zeros = images_file(1, 1, 1);
    const size_t n = (size_t)64 << 20;
    append(&zeros, temporary(n - zeros.n), n - zeros.n);
    struct bytes bomb = gzip_of(zeros, 9);
    CHECK(bomb.n < n / 1000);
    expect_bad(bomb, 3, "expands past the 17 bytes its header declares");
}

/* ---- through the file system ---- */

static const char *write_file(const char *name, struct bytes b)
{
    const struct dt_file_part part = {b.at, b.n};
    CHECK_OK(dt_file_write_atomic(folder, name, &part, 1));
    return path_of("%s", name);
}

static void test_open_and_peek(void)
{
    const struct bytes raw = images_file(500, 8, 9), gz = gzip_of(raw, 6);
    for (int gzip = 0; gzip < 2; gzip++) { /* by content: each has the other's name */
        const char *path = write_file(gzip ? "images" : "images.gz", gzip ? gz : raw);
        struct dt_idx idx;
        CHECK_OK(dt_idx_open(path, 3, 100, 1, 3, &reader, &idx));
        CHECK_INT(idx.n_rows, 33);
        CHECK_INT(memcmp(idx.data + 72, raw.at + 16 + 4 * 72, 72), 0);
        dt_idx_close(&idx);
        CHECK_OK(dt_idx_peek(path, 3, &reader, &idx));
        CHECK_INT(idx.dims[0], 500);
        CHECK_INT(idx.dims[2], 9);
        CHECK(idx.data == NULL);
        CHECK_FAILS(dt_idx_peek(path, 1, &reader, &idx), DT_BAD_DATA, "holds images");
        CHECK(strncmp(dt_error_text(), path, strlen(path)) == 0);
        dt_error_clear();
        unlink(path);
    }
    struct dt_idx idx;
    struct bytes cut = {raw.at, 10000};
    CHECK_FAILS(
        dt_idx_peek(write_file("cut", cut), 3, &reader, &idx), DT_BAD_DATA,
        "header says 500 x 8 x 9 = 36000 bytes, file has 9984"); /* without reading it all */
    unlink(write_file("cut", cut));
    CHECK_FAILS(dt_idx_peek(write_file("empty", (struct bytes){0}), 3, &reader, &idx), DT_BAD_DATA,
                "empty file");
    unlink(write_file("empty", (struct bytes){0}));
    CHECK_FAILS(dt_idx_open("/dev/null", 3, 0, 0, 1, &reader, &idx), DT_NO_INPUT, "");
    dt_error_clear();
}

static void test_plain_refusal(void)
{
    const struct dt_idx_reader plain = {.alive = &nobody};
    struct bytes png = text_file("\x89PNG\r\n");
    struct dt_idx idx;
    CHECK_FAILS(dt_idx_open(file_of(png), 3, 0, 0, 1, &plain, &idx), DT_BAD_DATA,
                ": not an IDX3 ubyte file (magic 0x89504e47)");
}

int main(void)
{
    folder_open();
    test_images_in_every_form();
    test_labels_and_channels();
    test_strided_rows();
    test_truncated_headers();
    test_other_files();
    test_wrong_kind();
    test_impossible_sizes();
    test_wrong_length();
    test_damaged_gzip();
    test_after_the_first_member();
    test_bomb();
    test_open_and_peek();
    test_plain_refusal();
    folder_close();
    return 0;
}
