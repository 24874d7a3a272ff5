/* JPEG files that break a rule: those that have all their pixels are read, and the pixels are
 * Pillow's of the same file; those that have lost some are refused. And a file with more scans than
 * anybody needs. Files are made from one of 16x8 pixels by replacing bytes. */
#include "base/file.h"
#include "data/dataset.h"
#include "data/formats/picture.h"
#include "data/validation_split.h"
#include "tests/lib/folder.h"

enum { WIDTH = 16, HEIGHT = 8, N_PIXELS = 3 * WIDTH * HEIGHT, SCAN = 293 };

/* Pillow 13.0 wrote it: quality=50, subsampling=0, optimize=True, restart_marker_blocks=1. */
static const uint8_t file[] = {
    255, 216, 255, 224, 0,   16,  74,  70,  73,  70,  0,   1,   1,  0,   0,   1,  0,   1,   0,
    0,   255, 219, 0,   67,  0,   16,  11,  12,  14,  12,  10,  16, 14,  13,  14, 18,  17,  16,
    19,  24,  40,  26,  24,  22,  22,  24,  49,  35,  37,  29,  40, 58,  51,  61, 60,  57,  51,
    56,  55,  64,  72,  92,  78,  64,  68,  87,  69,  55,  56,  80, 109, 81,  87, 95,  98,  103,
    104, 103, 62,  77,  113, 121, 112, 100, 120, 92,  101, 103, 99, 255, 219, 0,  67,  1,   17,
    18,  18,  24,  21,  24,  47,  26,  26,  47,  99,  66,  56,  66, 99,  99,  99, 99,  99,  99,
    99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99, 99,  99,  99, 99,  99,  99,
    99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99, 99,  99,  99, 99,  99,  99,
    99,  99,  99,  99,  99,  99,  255, 192, 0,   17,  8,   0,   8,  0,   16,  3,  1,   17,  0,
    2,   17,  1,   3,   17,  1,   255, 196, 0,   21,  0,   1,   1,  0,   0,   0,  0,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   2,   4,   255, 196, 0,  23,  16,  0,  3,   1,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,  2,   4,   97, 255, 196, 0,
    22,  1,   1,   1,   1,   0,   0,   0,   0,   0,   0,   0,   0,  0,   0,   0,  0,   0,   4,
    2,   5,   255, 196, 0,   22,  17,  0,   3,   0,   0,   0,   0,  0,   0,   0,  0,   0,   0,
    0,   0,   0,   0,   0,   2,   4,   255, 221, 0,   4,   0,   1,  255, 218, 0,  12,  3,   1,
    0,   2,   17,  3,   17,  0,   63,  0,   169, 230, 192, 139, 57, 151, 51,  31, 255, 208, 111,
    54,  16,  179, 142, 153, 143, 255, 217,
};
/* And read it: rows of red, green and blue. */
static const uint8_t pillow[N_PIXELS] = {
    43,  198, 36,  48,  193, 36,  57,  185, 38,  69,  175, 39,  83,  164, 43,  96,  154, 44,  105,
    145, 46,  110, 141, 47,  130, 126, 52,  135, 122, 52,  144, 114, 54,  156, 104, 56,  171, 92,
    59,  183, 83,  60,  192, 74,  62,  197, 70,  63,  47,  202, 48,  51,  198, 48,  62,  190, 51,
    74,  181, 52,  86,  169, 55,  100, 158, 56,  110, 151, 59,  114, 147, 60,  134, 131, 64,  138,
    127, 65,  149, 119, 67,  161, 109, 69,  174, 97,  71,  187, 87,  72,  197, 79,  75,  201, 75,
    76,  52,  209, 68,  57,  205, 69,  66,  196, 70,  78,  187, 72,  93,  175, 75,  105, 165, 77,
    114, 157, 78,  119, 153, 79,  139, 138, 84,  144, 134, 85,  153, 125, 86,  166, 115, 88,  180,
    104, 91,  192, 94,  93,  201, 85,  94,  206, 81,  95,  54,  212, 89,  60,  209, 91,  69,  201,
    92,  81,  191, 94,  95,  180, 97,  107, 168, 98,  117, 161, 100, 122, 157, 101, 141, 141, 105,
    147, 138, 107, 156, 129, 108, 168, 120, 110, 183, 108, 113, 194, 97,  114, 204, 90,  116, 209,
    86,  117, 55,  216, 112, 60,  212, 112, 70,  204, 115, 82,  193, 116, 96,  182, 119, 108, 172,
    120, 117, 164, 122, 123, 161, 124, 142, 145, 128, 148, 140, 129, 158, 132, 131, 169, 122, 132,
    183, 111, 135, 195, 101, 137, 204, 92,  138, 211, 89,  140, 58,  220, 135, 63,  216, 134, 72,
    208, 136, 84,  198, 139, 99,  186, 141, 111, 176, 142, 120, 168, 144, 125, 164, 145, 145, 149,
    152, 150, 145, 151, 159, 136, 152, 172, 126, 155, 186, 115, 157, 198, 105, 158, 207, 97,  160,
    212, 93,  161, 62,  226, 155, 67,  222, 154, 77,  215, 156, 91,  204, 160, 103, 192, 160, 115,
    183, 162, 125, 175, 164, 130, 171, 165, 149, 155, 171, 155, 150, 170, 166, 143, 172, 178, 133,
    176, 190, 121, 176, 202, 111, 178, 212, 104, 180, 218, 99,  181, 67,  232, 166, 72,  228, 167,
    81,  219, 168, 94,  209, 170, 108, 198, 173, 120, 188, 175, 129, 179, 176, 134, 175, 177, 154,
    160, 182, 160, 156, 183, 169, 147, 185, 181, 137, 186, 195, 126, 189, 207, 117, 191, 216, 108,
    193, 222, 103, 193,
};

enum { N_FILE = sizeof file, END = N_FILE - 2, ROOM = N_FILE + 64 };

/* At a byte of the file, some are left out and others put in. */
struct change {
    const char *name;
    size_t at, n_out, n_in;
    uint8_t in[24];
    bool flawed;      /* used all the same */
    const char *text; /* refused; NULL: used */
};

static const struct change changes[] = {
    {"as it is", 0, 0, 0, {0}, false, NULL},
    {"bytes behind the end", N_FILE, 0, 3, {1, 2, 3}, false, NULL},
    {"a comment", 20, 0, 6, {0xff, 0xfe, 0, 4, 'h', 'i'}, false, NULL},
    {"fill bytes before a marker", 279, 0, 4, {0xff, 0xff, 0xff, 0xff}, false, NULL},
    {"zeros before the end", END, 0, 5, {0}, true, NULL},
    {"bytes between segments", 20, 0, 3, {7, 0, 9}, true, NULL},
    {"bytes before the scan", 279, 0, 1, {1}, true, NULL},
    {"JFIF 0.00", 11, 2, 2, {0, 0}, true, NULL},
    {"JFIF 2.01", 11, 1, 1, {2}, true, NULL},
    {"Adobe's marker with an unknown code of colours",
     2,
     18,
     16,
     {0xff, 0xee, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 9},
     true,
     NULL},
    {"parameters of a progressive scan", 291, 1, 1, {0}, true, NULL},
    {"no end", END, 2, 0, {0}, false, "Premature end of JPEG file"},
    {"cut off in the scan", SCAN + 4, N_FILE - SCAN - 4, 0, {0}, false, "Premature end"},
    {"an end in the scan", SCAN + 4, 0, 2, {0xff, 0xd9}, false, "premature end of data segment"},
    {"a restart of another number", SCAN + 9, 1, 1, {0xd3}, false, "instead of RST0"},
    {"no such code", SCAN, 2, 6, {0xff, 0, 0xff, 0, 0xff, 0}, false, "bad Huffman code"},
    {"a segment that is too long", 23, 1, 1, {200}, false, "damaged JPEG: "},
};

static size_t change_file(const struct change *c, uint8_t bytes[ROOM])
{
    const size_t rest = c->at + c->n_out;
    memcpy(bytes, file, c->at);
    memcpy(bytes + c->at, c->in, c->n_in);
    memcpy(bytes + c->at + c->n_in, file + rest, N_FILE - rest);
    return N_FILE - c->n_out + c->n_in;
}

static void check_change(const struct change *c)
{
    uint8_t bytes[ROOM], pixels[N_PIXELS];
    const size_t n = change_file(c, bytes);
    struct dt_picture picture = {.background = 255};
    dt_error_clear();
    const enum dt_status s =
        dt_picture_parse("a.jpg", bytes, n, (struct dt_shape){3, HEIGHT, WIDTH}, &picture, pixels);
    if (s == DT_UNAVAILABLE) {
        printf("skipped: built without libjpeg\n");
        exit(CHECK_SKIP_CODE);
    }
    CHECK_MESSAGE(s == (c->text == NULL ? DT_OK : DT_BAD_DATA), "%s: status %d, '%s'", c->name, s,
                  dt_error_text());
    CHECK_MESSAGE(c->text == NULL || strstr(dt_error_text(), c->text) != NULL, "%s: '%s'", c->name,
                  dt_error_text());
    CHECK_MESSAGE(picture.flawed == c->flawed, "%s: flawed is %d", c->name, picture.flawed);
    for (int i = 0; c->text == NULL && i < N_PIXELS; i++) {
        const int p = pixels[i % 3 * WIDTH * HEIGHT + i / 3];
        CHECK_MESSAGE(p == pillow[i], "%s: byte %d is %d, Pillow's %d", c->name, i, p, pillow[i]);
    }
}

static void test_broken_rules(void)
{
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        check_change(&changes[i]);
    }
}

/* ---- scans */

static size_t append(uint8_t *to, size_t n, const uint8_t *bytes, size_t n_bytes)
{
    memcpy(to + n, bytes, n_bytes);
    return n + n_bytes;
}

/* A grey progressive JPEG of 8x8 pixels whose scans change nothing: each is one code of one bit. */
static size_t make_scans(int n_scans, uint8_t *to)
{
    static const uint8_t begin[] = {0xff, 0xd8, 0xff, 0xdb, 0, 67, 0},
                         head[] = {0xff, 0xc2, 0,    11,   8,  0,    8, 0,   8, 1,    1,    0x11,
                                   0,    0xff, 0xc4, 0,    20, 0x00, 1, 0,   0, 0,    0,    0,
                                   0,    0,    0,    0,    0,  0,    0, 0,   0, 0,    0,    0xff,
                                   0xc4, 0,    20,   0x10, 1,  0,    0, 0,   0, 0,    0,    0,
                                   0,    0,    0,    0,    0,  0,    0, 0,   0, 0xff, 0xda, 0,
                                   8,    1,    1,    0,    0,  0,    0, 0x7f};
    uint8_t table[64];
    memset(table, 1, sizeof table);
    size_t n = append(to, append(to, append(to, 0, begin, sizeof begin), table, sizeof table), head,
                      sizeof head);
    for (int i = 1; i < n_scans; i++) {
        const uint8_t k = (uint8_t)(1 + (i - 1) / 14), low = (uint8_t)(13 - (i - 1) % 14),
                      high = low == 13 ? 0 : (uint8_t)(low + 1);
        const uint8_t scan[] = {0xff, 0xda, 0, 8, 1, 1, 0, k, k, (uint8_t)(high << 4 | low), 0x7f};
        n = append(to, n, scan, sizeof scan);
    }
    return append(to, n, (const uint8_t[]){0xff, 0xd9}, 2);
}

static void test_scans(void)
{
    static uint8_t bytes[16384];
    const struct dt_shape shape = {1, 8, 8};
    uint8_t pixels[64];
    struct dt_picture picture = {.background = 255};
    dt_error_clear();
    size_t n = make_scans(DT_PICTURE_MAX_SCANS, bytes);
    CHECK_OK(dt_picture_parse("a.jpg", bytes, n, shape, &picture, pixels));
    CHECK(pixels[0] == 128 && pixels[63] == 128);
    n = make_scans(DT_PICTURE_MAX_SCANS + 1, bytes);
    CHECK_FAILS(dt_picture_parse("a.jpg", bytes, n, shape, &picture, pixels), DT_BAD_DATA,
                "a.jpg: damaged JPEG: more than 500 scans (save it again)");
}

/* ---- counted */

/* Two classes of four images; those of the class "b" are flawed. */
static void write_images(const char *split)
{
    uint8_t bytes[ROOM];
    const char *classes[] = {"a", "b"};
    for (int c = 0; c < 2; c++) {
        CHECK_OK(dt_dir_create(path_of("%s/%s", split, classes[c])));
        const size_t n = change_file(&changes[c * 4], bytes);
        for (int k = 0; k < 4; k++) {
            char name[32];
            snprintf(name, sizeof name, "%s/%s/%d.jpg", split, classes[c], k);
            put_bytes(name, bytes, n);
        }
    }
}

static size_t count_flawed(const struct dt_data_spec *spec, int rank, int size)
{
    struct dt_shard shard = {.global_batch = 8, .rank = rank, .size = size};
    struct dt_dataset data;
    CHECK_OK(dt_dataset_count(spec, DT_SPLIT_TRAIN, &shard.n_total));
    CHECK_OK(dt_dataset_open(spec, DT_SPLIT_TRAIN, dt_shard_owned(&shard), &data));
    const size_t n = data.n_flawed;
    dt_dataset_close(&data);
    return n;
}

/* Each rank counts what it reads: its share, or with validation samples the whole. */
static void test_counts(void)
{
    struct dt_data_spec spec = {
        .row = &dt_images_data, .shape = {3, HEIGHT, WIDTH}, .n_classes = 2};
    snprintf(spec.dir, sizeof spec.dir, "%s", folder);
    write_images("train");
    CHECK_INT(count_flawed(&spec, 0, 1), 4);
    CHECK_INT(count_flawed(&spec, 0, 3) + count_flawed(&spec, 1, 3) + count_flawed(&spec, 2, 3), 4);
    spec.whole = spec.row;
    spec.row = &dt_validation_data;
    spec.validation = 2;
    CHECK_INT(count_flawed(&spec, 1, 2), 4);
}

int main(void)
{
    folder_open();
    test_broken_rules();
    test_scans();
    test_counts();
    folder_remove();
    return 0;
}
