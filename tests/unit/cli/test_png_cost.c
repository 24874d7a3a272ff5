/* The cost of reading a PNG file: zlib's inflate and the program's malloc, libpng's too, are called
 * through functions of this file.
 */
#include <dlfcn.h>
#include <zlib.h>

#include "tests/lib/wrap.h"
#include "tests/unit/cli/png_sample.h"

static size_t n_inflated;

int inflate(z_streamp stream, int flush)
{
    static int (*real)(z_streamp, int);
    if (real == NULL) {
        real = (int (*)(z_streamp, int))dlsym(RTLD_NEXT, "inflate");
    }
    const size_t before = stream->avail_out;
    const int result = real(stream, flush);
    n_inflated += before - stream->avail_out;
    return result;
}

static int n_allocations, failing_allocation = -1;

WRAP(void *, malloc, size_t n_bytes)
{
    return n_allocations++ == failing_allocation ? NULL : __real_malloc(n_bytes);
}

/* A text of a thousand times its bytes, before the pixels: what is inflated is the pixels. */
static void test_texts_are_not_inflated(void)
{
    static uint8_t rows[28 * 28], pixels[28 * 28];
    static char text[4 << 20];
    memset(text, 'x', sizeof text - 1);
    fill(rows, sizeof rows, 200);
    n_inflated = 0;
    CHECK(!read_picture(
        &(struct picture){.width = 28, .height = 28, .depth = 8, .rows = rows, .text = text}, mnist,
        pixels));
    CHECK(memcmp(pixels, rows, sizeof rows) == 0);
    CHECK_INT(n_inflated, 28 * 29); /* a filter's number and 28 pixels a row */
}

/* A chunk of a PNG: its length, its type, `n` bytes, and a CRC. */
static void add_chunk(struct file *file, const char *type, const uint8_t *bytes, size_t n)
{
    uint8_t *at = file->bytes + file->n;
    CHECK(file->n + n + 12 <= sizeof file->bytes);
    store_be32(at, n);
    memcpy(at + 4, type, 4);
    memcpy(at + 8, bytes, n);
    store_be32(at + 8 + n, crc32_z(0, at + 4, n + 4));
    file->n += n + 12;
}

/* A megabyte of compressed bytes behind the last row: the image is read, and
 * little of the rest. */
static void test_nothing_after_the_last_row(int interlace)
{
    static uint8_t rows[33 << 20], packed[1 << 20], pixels[28 * 28];
    static struct file file;
    uint8_t head[13] = {[8] = 8, [12] = (uint8_t)interlace};
    uLongf n = sizeof packed;
    memset(rows, 0, sizeof rows);
    CHECK(compress2(packed, &n, rows, sizeof rows, 9) == Z_OK);
    store_be32(head, 28);
    store_be32(head + 4, 28);
    memcpy(file.bytes, "\x89PNG\r\n\x1a\n", 8);
    file.n = 8;
    add_chunk(&file, "IHDR", head, sizeof head);
    add_chunk(&file, "IDAT", packed, n);
    add_chunk(&file, "IEND", head, 0);
    n_inflated = 0;
    pixels[0] = 1;
    decode(&file, mnist, pixels);
    CHECK(pixels[0] == 0);
    CHECK(n_inflated < sizeof rows / 2);
}

/* Each allocation fails in turn, libpng's and zlib's too: the file is not to blame. */
static void test_out_of_memory(void)
{
    static uint8_t rows[28 * 28], pixels[28 * 28];
    static struct file file;
    fill(rows, sizeof rows, 200);
    encode(
        &(struct picture){
            .width = 28, .height = 28, .depth = 8, .interlace = PNG_INTERLACE_ADAM7, .rows = rows},
        &file);
    enum dt_status s = DT_NO_MEMORY;
    int n_failed = 0;
    for (; s == DT_NO_MEMORY; n_failed++) {
        dt_error_clear();
        n_allocations = 0;
        failing_allocation = n_failed;
        s = dt_picture_parse("image.png", file.bytes, file.n, mnist,
                             &(struct dt_picture){.resize = DT_RESIZE_STRETCH, .background = 255},
                             pixels);
        failing_allocation = -1;
        if (s != DT_OK) {
            CHECK_INT(s, DT_NO_MEMORY);
            CHECK_HAS(dt_error_text(), "image.png: out of memory");
        }
    }
    CHECK_OK(s);
    CHECK(n_failed > 5);
}

int main(void)
{
    test_texts_are_not_inflated();
    test_nothing_after_the_last_row(PNG_INTERLACE_NONE);
    test_nothing_after_the_last_row(PNG_INTERLACE_ADAM7);
    test_out_of_memory();
    return 0;
}
