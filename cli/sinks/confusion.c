#include "cli/sinks/confusion.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CELL_W 46 /* pixels: six digits */
#define CELL_H 22
#define DIGIT_W 3 /* of a digit's dots, which are DOT pixels wide and high */
#define DIGIT_H 5
#define DOT 2

/* Rows from the top, three dots each, the left one the highest bit. */
static const uint16_t digits[10] = {075557, 026227, 071747, 071717, 055711,
                                    074717, 074757, 071111, 075757, 075717};

struct color {
    uint8_t r, g, b;
};
static const struct color black = {20, 20, 20}, white = {255, 255, 255}, grey = {225, 225, 225},
                          line = {205, 205, 205};
static const struct color right = {31, 97, 165}, wrong = {196, 60, 40};

struct canvas {
    int width, height;
    struct color *pixels;
};

static void fill(struct canvas *c, int x, int y, int width, int height, struct color color)
{
    for (int row = y; row < y + height; row++) {
        for (int column = x; column < x + width; column++) {
            c->pixels[(size_t)row * (size_t)c->width + (size_t)column] = color;
        }
    }
}

static void draw_digit(struct canvas *c, int x, int y, int digit, struct color color)
{
    for (int dot = 0; dot < DIGIT_W * DIGIT_H; dot++) {
        if ((digits[digit] >> (DIGIT_W * DIGIT_H - 1 - dot) & 1) != 0) {
            fill(c, x + dot % DIGIT_W * DOT, y + dot / DIGIT_W * DOT, DOT, DOT, color);
        }
    }
}

/* In the middle of a cell. */
static void draw_number(struct canvas *c, int row, int column, double number, struct color color)
{
    char text[32];
    snprintf(text, sizeof text, "%.0f", fmin(number, 999999));
    const int n = (int)strlen(text), step = (DIGIT_W + 1) * DOT;
    int x = column * CELL_W + (CELL_W - n * step + DOT) / 2;
    for (int i = 0; i < n; i++, x += step) {
        draw_digit(c, x, row * CELL_H + (CELL_H - DIGIT_H * DOT) / 2, text[i] - '0', color);
    }
}

/* From white to `full`. */
static struct color shade(struct color full, double share)
{
    const double rest = 1 - share;
    return (struct color){(uint8_t)(full.r * share + 255 * rest),
                          (uint8_t)(full.g * share + 255 * rest),
                          (uint8_t)(full.b * share + 255 * rest)};
}

static void draw_cell(struct canvas *c, int row, int column, double count, struct color color,
                      bool dark)
{
    fill(c, column * CELL_W, row * CELL_H, CELL_W - 1, CELL_H - 1, color);
    if (count >= 0) {
        draw_number(c, row, column, count, dark ? white : black);
    }
}

/* A share of the label's samples shows by its square root: rare mistakes are what one looks for. */
static void draw_label(struct canvas *c, int n, int label, const double *counts)
{
    double sum = 0;
    for (int said = 0; said < n; said++) {
        sum += counts[said];
    }
    draw_cell(c, label + 1, 0, label, grey, false);
    for (int said = 0; said < n; said++) {
        const double share = counts[said] > 0 ? sqrt(counts[said] / sum) : 0;
        draw_cell(c, label + 1, said + 1, counts[said] > 0 ? counts[said] : -1,
                  shade(said == label ? right : wrong, share), share > 0.6);
    }
}

bool dt_confusion_draw(int n, const double *counts, struct dt_png *out)
{
    struct canvas c = {.width = (n + 1) * CELL_W, .height = (n + 1) * CELL_H};
    c.pixels = calloc((size_t)c.width * (size_t)c.height, sizeof *c.pixels);
    if (c.pixels == NULL) {
        return false;
    }
    fill(&c, 0, 0, c.width, c.height, line);
    draw_cell(&c, 0, 0, -1, grey, false);
    for (int k = 0; k < n; k++) {
        draw_cell(&c, 0, k + 1, k, grey, false);
        draw_label(&c, n, k, counts + (size_t)k * (size_t)n);
    }
    const bool made = dt_png_make(c.width, c.height, 3, &c.pixels[0].r, out);
    free(c.pixels);
    return made;
}
