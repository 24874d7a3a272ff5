/* Images of other sizes than the model's, against what Pillow makes of them (stretched, fitted in,
 * cropped): images of sharp edges that shrink and grow, and a photo that libjpeg scales at first.
 */
#include "data/formats/picture.h"
#include "tests/lib/fixture.h"

enum { MOST = 1 << 16 };

struct sizes {
    int mode, channels, height, width;
    struct dt_shape shape;
    int background;
};

/* The image of scripts/make-resize-fixtures.py as PPM or PGM. */
static size_t make_pnm(const struct sizes *s, uint8_t *file)
{
    size_t n = (size_t)sprintf((char *)file, "P%d %d %d 255\n", s->channels == 1 ? 5 : 6, s->width,
                               s->height);
    for (int y = 0; y < s->height; y++) {
        for (int x = 0; x < s->width; x++) {
            for (int c = 0; c < s->channels; c++) {
                file[n++] = (uint8_t)(7 * x + 11 * y + 40 * c + (x * x + 3 * y) / 16 * 5);
            }
        }
    }
    return n;
}

/* `most`: how far a pixel may be off. On average none is off by more than 1. */
static void check_case(const struct sizes *s, const uint8_t *file, size_t n, const float *expected,
                       double most)
{
    static uint8_t pixels[MOST];
    struct dt_picture picture = {.resize = (enum dt_resize)s->mode,
                                 .background = (uint8_t)s->background};
    const size_t n_pixels = dt_shape_elems(s->shape);
    double sum = 0, worst = 0;
    CHECK_OK(dt_picture_parse("image", file, n, s->shape, &picture, pixels));
    for (size_t i = 0; i < n_pixels; i++) {
        const double off = fabs((double)pixels[i] - (double)expected[i]);
        sum += off;
        worst = fmax(worst, off);
    }
    printf("mode %d, %dx%d to %dx%d: mean difference %.3f, largest %g\n", s->mode, s->height,
           s->width, s->shape.h, s->shape.w, sum / (double)n_pixels, worst);
    CHECK_MESSAGE(sum <= (double)n_pixels && worst <= most, "mode %d, %dx%d to %dx%d", s->mode,
                  s->height, s->width, s->shape.h, s->shape.w);
}

static bool has_jpeg(const uint8_t *file, size_t n)
{
    static uint8_t pixels[MOST];
    struct dt_picture picture = {.resize = DT_RESIZE_STRETCH};
    const enum dt_status s =
        dt_picture_parse("image", file, n, (struct dt_shape){3, 4, 4}, &picture, pixels);
    dt_error_clear();
    return s != DT_UNAVAILABLE;
}

int main(void)
{
    static float values[MOST];
    static uint8_t file[MOST], jpeg[MOST];
    FILE *fixtures = fixture_open("resize.txt");
    size_t n_jpeg = 0;
    int n_cases = 0;
    char name[64];
    for (;;) {
        const long at = ftell(fixtures);
        if (!fixture_next(fixtures, "", name, values, 1)) {
            break;
        }
        const int n_values = strcmp(name, "jpeg") == 0 ? 1 + (int)values[0] : 8;
        CHECK_INT(fseek(fixtures, at, SEEK_SET), 0);
        CHECK(fixture_next(fixtures, "", name, values, n_values));
        if (n_values != 8) {
            n_jpeg = (size_t)values[0];
            for (size_t i = 0; i < n_jpeg; i++) {
                jpeg[i] = (uint8_t)values[i + 1];
            }
            if (!has_jpeg(jpeg, n_jpeg)) {
                break;
            }
            continue;
        }
        const int *const v =
            (const int[]){(int)values[0], (int)values[1], (int)values[2], (int)values[3],
                          (int)values[4], (int)values[5], (int)values[6], (int)values[7]};
        const struct sizes s = {v[0], v[1], v[2], v[3], {v[4], v[5], v[6]}, v[7]};
        CHECK(fixture_next(fixtures, "pixels", name, values, (int)dt_shape_elems(s.shape)));
        const size_t n = n_jpeg > 0 ? n_jpeg : make_pnm(&s, file);
        check_case(&s, n_jpeg > 0 ? jpeg : file, n, values, n_jpeg > 0 ? 6 : 1);
        n_cases++;
    }
    CHECK(n_cases >= 18);
    fclose(fixtures);
    return 0;
}
