/* PNG images as a model sees them: pixels against what a straightforward computation gives for
 * every kind of file, and errors for every kind of damage; and how they are drawn. The files are
 * made here, by libpng's writer. */
#include <zlib.h>

#include "tests/lib/folder.h"
#include "tests/unit/cli/png_sample.h"
#include "view/image.h"

/* Scaling */

/* How much of input pixel i is in output pixel `out` of one axis: the height of a tent over it, as
 * Pillow's BILINEAR has it. */
static double share(int out, int n_out, int i, int n_in)
{
    const double scale = (double)n_in / n_out, half = fmax(scale, 1), at = (out + 0.5) * scale;
    double sum = 0;
    for (int k = 0; k < n_in; k++) {
        sum += fmax(0, 1 - fabs((k + 0.5 - at) / half));
    }
    return fmax(0, 1 - fabs((i + 0.5 - at) / half)) / sum;
}

static double expected_pixel(const uint8_t *rows, int width, int height, struct dt_shape shape,
                             int h, int w)
{
    double sum = 0;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            sum += rows[y * width + x] * share(h, shape.h, y, height) * share(w, shape.w, x, width);
        }
    }
    return sum;
}

static void check_scaling(int width, int height, struct dt_shape shape)
{
    static uint8_t rows[100 * 100], pixels[28 * 28];
    fill(rows, (size_t)width * (size_t)height, 200);
    const struct picture picture = {.width = width, .height = height, .depth = 8, .rows = rows};
    CHECK(!read_picture(&picture, shape, pixels));
    for (int h = 0; h < shape.h; h++) {
        for (int w = 0; w < shape.w; w++) {
            const double expected = expected_pixel(rows, width, height, shape, h, w);
            const int actual = pixels[h * shape.w + w];
            if (!(fabs(actual - expected) < 0.5001)) { /* rounded to nearest */
                CHECK_FAIL("%dx%d to %dx%d: pixel %d,%d is %d, expected %g", width, height, shape.w,
                           shape.h, w, h, actual, expected);
            }
        }
    }
}

static void test_scaling(void)
{
    static uint8_t rows[28 * 28], pixels[28 * 28];
    struct picture same = {.width = 28, .height = 28, .depth = 8, .rows = rows};
    fill(rows, sizeof rows, 200);
    for (int gamma = 0; gamma < 2; gamma++) { /* training images are bytes without a gamma */
        same.gamma = gamma;
        CHECK(!read_picture(&same, mnist, pixels));
        CHECK(memcmp(pixels, rows, sizeof rows) == 0);
    }

    check_scaling(56, 56, mnist);                       /* by 2 */
    check_scaling(100, 100, mnist);                     /* 25 / 7 */
    check_scaling(45, 37, mnist);                       /* other factors each way */
    check_scaling(29, 28, mnist);                       /* by very little */
    check_scaling(8, 8, mnist);                         /* growing */
    check_scaling(1, 2, mnist);                         /* from almost nothing */
    check_scaling(60, 10, mnist);                       /* narrower and higher */
    check_scaling(27, 100, mnist);                      /* the other way about */
    check_scaling(31, 17, (struct dt_shape){1, 5, 9});  /* another input of the model */
    check_scaling(31, 17, (struct dt_shape){1, 1, 1});  /* one pixel */
    check_scaling(28, 28, (struct dt_shape){1, 7, 14}); /* whole factors */

    const uint8_t one = 99;
    CHECK(!read_picture(&(struct picture){.width = 1, .height = 1, .depth = 8, .rows = &one}, mnist,
                        pixels));
    for (size_t i = 0; i < sizeof pixels; i++) {
        CHECK_INT(pixels[i], 99);
    }
}

/* Light and dark */

static void test_inversion(void)
{
    static uint8_t rows[28 * 28], pixels[28 * 28];
    memset(rows, 255, sizeof rows);
    fill(rows + 8 * 28, 12 * 28, 100);
    const struct picture picture = {.width = 28, .height = 28, .depth = 8, .rows = rows};
    CHECK(read_picture(&picture, mnist, pixels)); /* 80 of 108 pixels of the border are white */
    for (size_t i = 0; i < sizeof pixels; i++) {
        CHECK_INT(pixels[i], 255 - rows[i]);
    }
    memset(rows, 127, sizeof rows);
    memset(rows + 29, 255, 26); /* inside the border */
    CHECK(!read_picture(&picture, mnist, pixels));
    CHECK(memcmp(rows, pixels, sizeof rows) == 0);
    const int sides[] = {5, 5 * 28, 5 * 28 + 27, 27 * 28 + 5};
    for (int i = 0; i < 4; i++) {
        rows[sides[i]] = 128;
        CHECK(read_picture(&picture, mnist, pixels));
        CHECK_INT(pixels[sides[i]], 127);
        CHECK_INT(pixels[0], 128);
        CHECK_INT(pixels[29], 0);
        rows[sides[i]] = 127;
    }
}

/* Kinds of files */

/* As PIL's convert("L"): ITU-R BT.601 of the bytes as they are, in 16 bits of fraction, rounded. */
static int luma(const uint8_t *c)
{
    return (19595 * c[0] + 38470 * c[1] + 7471 * c[2] + 32768) / 65536;
}

#define BYTES(...) ((const uint8_t[]){__VA_ARGS__})

static void check_grey_row(int width, int depth, const uint8_t *row, const uint8_t *expected)
{
    uint8_t pixels[8];
    const struct picture picture = {.width = width, .height = 1, .depth = depth, .rows = row};
    CHECK(!read_picture(&picture, (struct dt_shape){1, 1, width}, pixels));
    CHECK(memcmp(pixels, expected, (size_t)width) == 0);
}

static void test_grey_depths(void)
{
    check_grey_row(8, 1, BYTES(0x49), BYTES(0, 255, 0, 0, 255, 0, 0, 255));
    check_grey_row(4, 2, BYTES(0x12), BYTES(0, 85, 0, 170));
    check_grey_row(2, 4, BYTES(0x3a), BYTES(3 * 17, 10 * 17));
    check_grey_row(3, 16, BYTES(0x12, 0x34, 0, 0xff, 0x80, 0), BYTES(18, 1, 128)); /* by 257 */
}

static void test_colour(void)
{
    static uint8_t rows[5 * 4 * 3], pixels[5 * 4 * 3];
    const struct dt_shape colour = {3, 4, 5}, grey = {1, 4, 5};
    fill(rows, sizeof rows, 200);
    const struct picture rgb = {
        .width = 5, .height = 4, .colour = PNG_COLOR_TYPE_RGB, .depth = 8, .rows = rows};
    CHECK(!read_picture(&rgb, colour, pixels));
    for (int i = 0; i < 60; i++) { /* planes, not interleaved */
        CHECK_INT(pixels[i], rows[i % 20 * 3 + i / 20]);
    }
    CHECK(!read_picture(&rgb, grey, pixels));
    for (int i = 0; i < 20; i++) {
        CHECK_INT(pixels[i], luma(rows + (size_t)i * 3));
    }
    const struct picture flat = {.width = 5, .height = 4, .depth = 8, .rows = rows};
    CHECK(!read_picture(&flat, colour, pixels));
    for (int i = 0; i < 60; i++) {
        CHECK_INT(pixels[i], rows[i % 20]);
    }
}

static void test_palette(void)
{
    uint8_t pixels[4 * 3];
    const png_color colours[] = {{10, 20, 30}, {90, 80, 70}, {1, 2, 3}};
    const struct picture picture = {.width = 4,
                                    .height = 1,
                                    .colour = PNG_COLOR_TYPE_PALETTE,
                                    .depth = 2,
                                    .rows = (const uint8_t[]){0x19}, /* 0 1 2 1 */
                                    .palette = colours,
                                    .n_palette = 3,
                                    .transparent = (const uint8_t[]){255, 0},
                                    .n_transparent = 2};
    CHECK(read_picture(&picture, (struct dt_shape){3, 1, 4},
                       pixels)); /* colour 1 is transparent, the border therefore white */
    const uint8_t expected[] = {245, 0, 254, 0, 235, 0, 253, 0, 225, 0, 252, 0};
    CHECK(memcmp(pixels, expected, sizeof expected) == 0);
}

/* One row of `grey` under these alphas; returns `inverted`. */
static bool read_drawing(const uint8_t *grey, const uint8_t alpha[8], uint8_t pixels[8])
{
    uint8_t row[16];
    for (int i = 0; i < 8; i++) {
        row[2 * i] = grey[i];
        row[2 * i + 1] = alpha[i];
    }
    const struct picture picture = {
        .width = 8, .height = 1, .colour = PNG_COLOR_TYPE_GRAY_ALPHA, .depth = 8, .rows = row};
    return read_picture(&picture, (struct dt_shape){1, 1, 8}, pixels);
}

/* Ink shows on white and is inverted, chalk shows on black: to the model they are the same strokes.
 */
static void test_drawn_on_nothing(void)
{
    const uint8_t strokes[] = {0, 9, 255, 128, 0, 0, 77, 0}, nothing[8] = {0};
    const uint8_t ink[8] = {0}, chalk[] = {255, 255, 255, 255, 255, 255, 255, 255};
    const uint8_t pencil[] = {100, 100, 100, 100, 100, 100, 100, 100},
                  silver[] = {200, 200, 200, 200, 200, 200, 200, 200};
    const uint8_t card[] = {10, 0, 240, 240, 240, 0, 240, 10},
                  corners[] = {0, 255, 255, 255, 255, 255, 255, 0};
    uint8_t pixels[8];
    CHECK(read_drawing(ink, strokes, pixels));
    CHECK(memcmp(pixels, strokes, sizeof strokes) == 0);
    CHECK(!read_drawing(chalk, strokes, pixels));
    CHECK(memcmp(pixels, strokes, sizeof strokes) == 0);
    CHECK(read_drawing(pencil, strokes, pixels));
    CHECK(pixels[0] == 0 && pixels[2] == 155 && pixels[3] == 78); /* 155 * 128 / 255 */
    CHECK(!read_drawing(silver, strokes, pixels));
    CHECK(pixels[0] == 0 && pixels[2] == 200 && pixels[3] == 100);
    CHECK(read_drawing(card, corners, pixels)); /* as much to be seen on either: white */
    CHECK(pixels[0] == 0 && pixels[1] == 255 && pixels[2] == 15 && pixels[7] == 0);
    CHECK(read_drawing(ink, nothing, pixels));
    CHECK(memcmp(pixels, nothing, sizeof nothing) == 0);
}

static void test_transparency(void)
{
    uint8_t pixels[9];
    const uint8_t rgb_alpha[] = {9, 8, 7, 255, 9, 8, 7, 0, 100, 0, 200, 64};
    const struct picture rgb = {
        .width = 3, .height = 1, .colour = PNG_COLOR_TYPE_RGB_ALPHA, .depth = 8, .rows = rgb_alpha};
    CHECK(read_picture(&rgb, (struct dt_shape){3, 1, 3}, pixels));
    const uint8_t expected[] = {
        246, 0, 39, 247, 0, 64, 248, 0, 14}; /* the last: white but for a quarter of the colour */
    CHECK(memcmp(pixels, expected, sizeof expected) == 0);
    CHECK(read_picture(&rgb, (struct dt_shape){1, 1, 3}, pixels));
    CHECK_NEAR(pixels[2], 64 / 255.0 * (255 - luma(rgb_alpha + 8)), 0.51);

    const struct picture key = {.width = 3,
                                .height = 1,
                                .depth = 8,
                                .rows = (const uint8_t[]){5, 77, 6},
                                .transparent_grey = 77};
    CHECK(!read_picture(&key, (struct dt_shape){1, 1, 3}, pixels));
    CHECK(pixels[0] == 5 && pixels[1] == 255 && pixels[2] == 6);
}

/* In training every transparent image lies on white, whatever it has; alone it may lie on black.
 * Two pixels each; the palette has white, see-through and grey 180. */
static void test_backgrounds(void)
{
    enum { GREY = PNG_COLOR_TYPE_GRAY, GA = PNG_COLOR_TYPE_GRAY_ALPHA };
    enum { RGBA = PNG_COLOR_TYPE_RGB_ALPHA, INDEX = PNG_COLOR_TYPE_PALETTE };
    static const png_color palette[] = {{255, 255, 255}, {0, 0, 0}, {180, 180, 180}};
    static const struct {
        int colour, depth, key; /* key: the transparent grey */
        uint8_t rows[16], on_white[2];
        bool transparent, on_black; /* on_black: if it may be */
    } cases[] = {
        {GA, 8, 0, {180, 255, 9, 0}, {180, 255}, true, true},
        {GA, 8, 0, {70, 255, 9, 0}, {70, 255}, true, false},
        {GA, 8, 0, {180, 255, 9, 255}, {180, 9}, false, false},
        {GA, 16, 0, {180, 180, 255, 255, 9, 9, 0, 0}, {180, 255}, true, true},
        {RGBA, 8, 0, {180, 180, 180, 255, 9, 9, 9, 0}, {180, 255}, true, true},
        {RGBA, 8, 0, {180, 180, 180, 255, 0, 0, 0, 51}, {180, 204}, true, true},
        {RGBA, 16, 0, {180, 180, 180, 180, 180, 180, 255, 255}, {180, 255}, true, true},
        {INDEX, 8, 0, {2, 1}, {180, 255}, true, true},
        {INDEX, 2, 0, {0x90}, {180, 255}, true, true},
        {GREY, 8, 9, {180, 9}, {180, 255}, true, true},
        {GREY, 16, 9 * 257, {180, 180, 9, 9}, {180, 255}, true, true},
    };
    static struct file file;
    for (int i = 0; i < 2 * (int)(sizeof cases / sizeof *cases); i++) {
        const struct picture made = {.width = 2,
                                     .height = 1,
                                     .colour = cases[i / 2].colour,
                                     .depth = cases[i / 2].depth,
                                     .rows = cases[i / 2].rows,
                                     .palette = cases[i / 2].colour == INDEX ? palette : NULL,
                                     .n_palette = 3,
                                     .transparent = (const uint8_t[]){255, 0, 255},
                                     .n_transparent = cases[i / 2].colour == INDEX ? 3 : 0,
                                     .transparent_grey = cases[i / 2].key};
        struct dt_picture picture = {.background = 255, .may_be_black = i % 2 == 1};
        const bool black = picture.may_be_black && cases[i / 2].on_black;
        uint8_t pixels[2];
        encode(&made, &file);
        CHECK_OK(dt_picture_parse("a.png", file.bytes, file.n, (struct dt_shape){1, 1, 2}, &picture,
                                  pixels));
        CHECK_INT(picture.transparent, cases[i / 2].transparent);
        CHECK_INT(picture.background == 0, black);
        CHECK_INT(pixels[0], cases[i / 2].on_white[0]);
        CHECK_INT(pixels[1], black ? 0 : cases[i / 2].on_white[1]);
    }
}

/* libpng's simplified interface misread those of 16 bits. */
static void check_interlaced(int colour, int depth, int n_channels)
{
    static uint8_t rows[28 * 28 * 8], flat[3 * 28 * 28], interlaced[3 * 28 * 28];
    const struct dt_shape shape = {n_channels < 3 ? 1 : 3, 28, 28};
    fill(rows, (size_t)(28 * 28 * n_channels * depth / 8), 200);
    struct picture picture = {
        .width = 28, .height = 28, .colour = colour, .depth = depth, .rows = rows};
    const bool inverted = read_picture(&picture, shape, flat);
    picture.interlace = PNG_INTERLACE_ADAM7;
    CHECK(read_picture(&picture, shape, interlaced) == inverted);
    CHECK(memcmp(flat, interlaced, dt_shape_elems(shape)) == 0);
}

static void test_interlaced(void)
{
    for (int depth = 8; depth <= 16; depth += 8) {
        check_interlaced(PNG_COLOR_TYPE_GRAY, depth, 1);
        check_interlaced(PNG_COLOR_TYPE_GRAY_ALPHA, depth, 2);
        check_interlaced(PNG_COLOR_TYPE_RGB, depth, 3);
        check_interlaced(PNG_COLOR_TYPE_RGB_ALPHA, depth, 4);
    }
}

/* Damage */

/* It must be refused, with one line that begins with the name and has `text`. */
static void check_refused(const uint8_t *bytes, size_t n, const char *text)
{
    uint8_t pixels[28 * 28];
    uint8_t *copy =
        malloc(n + (n == 0)); /* exact, so that the sanitizers find a read past the end */
    CHECK(copy != NULL);
    if (n > 0) {
        memcpy(copy, bytes, n);
    }
    dt_error_clear();
    CHECK_INT(dt_picture_parse("image.png", copy, n, mnist,
                               &(struct dt_picture){.resize = DT_RESIZE_STRETCH, .background = 255},
                               pixels),
              DT_BAD_DATA);
    CHECK(strncmp(dt_error_text(), "image.png: ", 11) == 0);
    CHECK_HAS(dt_error_text(), text);
    CHECK(strchr(dt_error_text(), '\n') == NULL);
    free(copy);
}

static void make_sample(struct file *file)
{
    static uint8_t rows[28 * 28];
    fill(rows, sizeof rows, 200);
    encode(&(struct picture){.width = 28, .height = 28, .depth = 8, .rows = rows}, file);
}

static void set_size(struct file *file, uint32_t width, uint32_t height)
{
    store_be32(file->bytes + 16, width);
    store_be32(file->bytes + 20, height);
    store_be32(file->bytes + 29, (uint32_t)crc32_z(0, file->bytes + 12, 17));
}

static void test_truncated(void)
{
    static struct file file;
    uint8_t pixels[28 * 28];
    make_sample(&file);
    for (size_t n = 0; n < file.n; n++) {
        check_refused(file.bytes, n, n < 8 ? "no PNG, JPEG, PPM or PGM file" : "truncated PNG");
    }
    memcpy(file.bytes + file.n, "more", 4);
    file.n += 4;
    CHECK(!decode(&file, mnist, pixels)); /* text behind the end is nobody's business */
}

static void test_wrong_bytes(void)
{
    static struct file file;
    uint8_t pixels[28 * 28];
    make_sample(&file);
    CHECK(memcmp(file.bytes + 37, "IDAT", 4) == 0);
    for (size_t i = 0; i < file.n - 12;
         i++) { /* all but IEND: signature, lengths, names, contents, CRCs */
        for (int bit = 0; bit < 8; bit += 7) {
            file.bytes[i] ^= (uint8_t)(1 << bit);
            check_refused(file.bytes, file.n, "PNG");
            file.bytes[i] ^= (uint8_t)(1 << bit);
        }
    }
    file.bytes[29] ^= 1;
    check_refused(file.bytes, file.n, "CRC error");
    file.bytes[29] ^= 1;
    CHECK(!decode(&file, mnist, pixels));
}

static void test_impossible_sizes(void)
{
    static struct file file;
    make_sample(&file);
    set_size(&file, 0, 28);
    check_refused(file.bytes, file.n, "damaged PNG");
    set_size(&file, 0x7fffffff, 0x7fffffff);
    check_refused(file.bytes, file.n, "PNG");
    set_size(&file, 5000, 28);
    check_refused(file.bytes, file.n, "5000x28 pixels, at most 4096x4096 are read");
    set_size(&file, 28, 4097);
    check_refused(file.bytes, file.n, "28x4097 pixels");
    set_size(&file, 4096, 4096); /* would be fine, but for the missing rows */
    check_refused(file.bytes, file.n, "Not enough image data");
    set_size(&file, 28, 28);
    store_be32(file.bytes + 33, 0x7fffffff); /* the length of the chunk after the header */
    check_refused(file.bytes, file.n, "truncated PNG");
}

static void test_foreign_files(void)
{
    static const char text[] = "This is a text, not an image.\n";
    check_refused((const uint8_t *)text, sizeof text - 1, "no PNG, JPEG, PPM or PGM file");
}

static void test_files(void)
{
    static struct file file;
    uint8_t pixels[28 * 28];
    make_sample(&file);
    folder_open();
    const char *path = path_of("image.png");
    put_bytes("image.png", file.bytes, file.n);
    CHECK_OK(dt_picture_read(
        path, mnist, &(struct dt_picture){.resize = DT_RESIZE_STRETCH, .background = 255}, pixels));
    put_bytes("image.png", file.bytes, 100);
    CHECK_FAILS(dt_picture_read(
                    path, mnist,
                    &(struct dt_picture){.resize = DT_RESIZE_STRETCH, .background = 255}, pixels),
                DT_BAD_DATA, path);
    put("image.png", "");
    CHECK_FAILS(dt_picture_read(
                    path, mnist,
                    &(struct dt_picture){.resize = DT_RESIZE_STRETCH, .background = 255}, pixels),
                DT_BAD_DATA, path);
    CHECK(unlink(path) == 0);
    CHECK_FAILS(dt_picture_read(
                    path, mnist,
                    &(struct dt_picture){.resize = DT_RESIZE_STRETCH, .background = 255}, pixels),
                DT_NO_INPUT, path);
    CHECK_FAILS(dt_picture_read(
                    folder, mnist,
                    &(struct dt_picture){.resize = DT_RESIZE_STRETCH, .background = 255}, pixels),
                DT_NO_INPUT, folder);
    folder_close();
}

/* Drawing */

static void check_drawn(const uint8_t *pixels, struct dt_shape shape, const char *expected)
{
    dt_digit_draw(print_begin(), pixels, shape);
    CHECK_TEXT(print_end(), expected);
}

static void test_drawing(void)
{
    static uint8_t pixels[2 * 81];
    check_drawn((const uint8_t[]){0, 28, 29, 254, 255, 128}, (struct dt_shape){1, 2, 3},
                "      ..\n  %%@@==\n");
    check_drawn((const uint8_t[]){255, 0, 255, 0, 255, 255}, (struct dt_shape){3, 1, 2},
                "  @@--\n"); /* means 255 and 85 */
    char expected[] =
        "                                                        \n"; /* 81 columns: each third is
                                                                         drawn */
    pixels[3] = pixels[79] = 255;
    memcpy(expected + 4, "@@", 2);
    check_drawn(pixels, (struct dt_shape){1, 2, 81}, expected);
}

int main(void)
{
    test_scaling();
    test_inversion();
    test_grey_depths();
    test_colour();
    test_palette();
    test_drawn_on_nothing();
    test_transparency();
    test_backgrounds();
    test_interlaced();
    test_truncated();
    test_wrong_bytes();
    test_impossible_sizes();
    test_foreign_files();
    test_files();
    test_drawing();
    return 0;
}
