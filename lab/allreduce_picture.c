/* Draws one round as SVG: the ranks on an ellipse, or in a column in a narrow window, each with its
 * vector, whose pieces have a stripe for every rank in their sum; an arrow for each message. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/allreduce.h"

#define WIDTH 960
#define STRIP 34    /* height of a vector */
#define ABOVE 24    /* height of the name above it */
#define BELOW 20    /* height of the labels below it */
#define CHARACTER 7 /* width of a label's character */
#define PI 3.14159265358979323846
#define COLUMN_WIDTH \
    340 /* about the width of a telephone in pixels, so that letters keep their size */
#define COLUMN_CARD 200
#define COLUMN_ROW 100

struct layout {
    int size; /* ranks */
    bool column;
};

struct point {
    double x, y;
};

static int height_of(struct layout l)
{
    return l.column ? l.size * COLUMN_ROW : l.size <= 8 ? 600 : 720;
}

static int card_width(struct layout l)
{
    return l.column ? COLUMN_CARD : l.size <= 4 ? 216 : l.size <= 8 ? 168 : 96;
}

/* The middle of a rank's card, the first at the top, clockwise. */
static struct point centre_of(struct layout l, int rank)
{
    const int size = l.size;
    if (l.column) {
        return (struct point){COLUMN_CARD / 2.0 + 2, (rank + 0.5) * COLUMN_ROW};
    }
    const double angle = 2 * PI * rank / size - (size == 2 ? PI : PI / 2);
    const double radius = size > 1 ? 1 : 0;
    return (struct point){WIDTH / 2.0 + radius * (size > 8 ? 410 : 350) * cos(angle),
                          height_of(l) / 2.0 + radius * (height_of(l) / 2.0 - 60) * sin(angle)};
}

/* The point where the line from a card's middle towards `to` leaves the card, plus `gap`. */
static struct point edge_of(struct layout l, int rank, struct point to, double gap)
{
    const struct point c = centre_of(l, rank);
    const double half_w = card_width(l) / 2.0 + gap, half_h = (ABOVE + STRIP + BELOW) / 2.0 + gap;
    const double dx = to.x - c.x, dy = to.y - c.y;
    const double t = fmin(half_w / fmax(fabs(dx), 1e-9), half_h / fmax(fabs(dy), 1e-9));
    return (struct point){c.x + dx * t, c.y + dy * t};
}

/* ---- arrows */

static void draw_label(FILE *out, const struct dt_lesson *lesson, const struct dt_transfer *t,
                       struct point at)
{
    char content[DT_LAB_WORD];
    if (lesson->replay->size > DT_LAB_MAX_LETTERS || t->begin == t->end) {
        return;
    }
    dt_lab_content(lesson, t, content);
    const double width = CHARACTER * (double)(strlen(content) + 2) + 12;
    fprintf(out,
            "<rect class=\"tag\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"22\" rx=\"11\"/>",
            at.x - width / 2, at.y - 11, width);
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"what\">%s %s</text>", at.x, at.y + 4,
            t->adds ? "+" : "=", content);
}

/* An arrow's bend to its left, relative to its length: opposite arrows stay apart, and arrows round
 * the ellipse avoid the cards between their ends. */
static double bend_of(int size, const struct dt_transfer *t)
{
    const int clockwise = (t->to - t->from + size) % size;
    return clockwise > 1 && 2 * clockwise < size ? -0.06 : 0.14;
}

static struct point along(struct point from, struct point bend, struct point to, double t)
{
    const double a = (1 - t) * (1 - t), b = 2 * t * (1 - t), c = t * t;
    return (struct point){a * from.x + b * bend.x + c * to.x, a * from.y + b * bend.y + c * to.y};
}

struct curve {
    struct point from, bend, to;
};

/* Arrows run on the right of the column, the further out the more ranks they pass; upward ones
 * outside of downward ones. */
static struct curve curve_in_column(struct layout l, const struct dt_transfer *t)
{
    const double out = 30 + 120.0 * abs(t->to - t->from) / fmax(l.size - 1, 1),
                 side = t->to > t->from ? 9 : 0;
    const struct point a = centre_of(l, t->from), b = centre_of(l, t->to);
    const double edge = a.x + card_width(l) / 2.0;
    return (struct curve){{edge + 3, a.y + 2 + side},
                          {edge + out + (side > 0 ? 0 : 30), (a.y + b.y) / 2},
                          {edge + 5, b.y + 2 - side}};
}

static struct curve curve_of(struct layout l, const struct dt_transfer *t)
{
    if (l.column) {
        return curve_in_column(l, t);
    }
    const double part = bend_of(l.size, t);
    const struct point a = centre_of(l, t->from), b = centre_of(l, t->to);
    const struct point bend = {(a.x + b.x) / 2 + part * (b.y - a.y),
                               (a.y + b.y) / 2 - part * (b.x - a.x)};
    return (struct curve){edge_of(l, t->from, bend, 3), bend, edge_of(l, t->to, bend, 5)};
}

static const char *kind_of(const struct dt_transfer *t)
{
    return t->adds ? "add" : "replace";
}

static void draw_arrow(FILE *out, struct layout l, const struct dt_transfer *t)
{
    const struct curve c = curve_of(l, t);
    fprintf(out, "<g class=\"%s\"><path class=\"arrow\" pathLength=\"1\" marker-end=\"url(#%s)\" ",
            kind_of(t), kind_of(t));
    fprintf(out, "d=\"M%.1f %.1fQ%.1f %.1f %.1f %.1f\"/></g>\n", c.from.x, c.from.y, c.bend.x,
            c.bend.y, c.to.x, c.to.y);
}

/* A label sits on its arrow, nearer to the start; that of a rank's own input at the corner of its
 * card. */
static struct point place_of(struct layout l, const struct dt_transfer *t)
{
    const struct curve c = curve_of(l, t);
    const struct point card = centre_of(l, t->to);
    return t->from != t->to ? along(c.from, c.bend, c.to, 0.38)
                            : (struct point){card.x + card_width(l) / 2.0 - 20,
                                             card.y - (ABOVE + STRIP + BELOW) / 2.0};
}

/* Draws labels last, so that no arrow crosses them. */
static void draw_transfers(FILE *out, const struct dt_lesson *lesson, struct layout l,
                           const struct dt_transfer *t, int n)
{
    for (int i = 0; i < n; i++) {
        if (t[i].from != t[i].to) {
            draw_arrow(out, l, &t[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        fprintf(out, "<g class=\"%s\">", kind_of(&t[i]));
        draw_label(out, lesson, &t[i], place_of(l, &t[i]));
        fputs("</g>\n", out);
    }
}

/* ---- cards */

static bool holds(const float *sets, int piece, int rank)
{
    return ((unsigned)sets[piece] >> rank & 1) != 0;
}

/* Draws the stripe of one rank in every piece whose sum includes it. */
static void draw_stripe(FILE *out, const struct dt_replay *p, int width, const float *sets,
                        int rank)
{
    const double cell = (double)width / p->n_pieces, height = (double)STRIP / p->size;
    bool any = false;
    for (int begin = 0, end; begin < p->n_pieces; begin = end + 1) {
        for (end = begin; end < p->n_pieces && holds(sets, end, rank); end++) {
        }
        if (end > begin) {
            fprintf(out, any ? "" : "<path class=\"c%d\" d=\"", rank);
            fprintf(out, "M%.1f %.1fH%.1fv%.2fH%.1fz", begin * cell, rank * height, end * cell,
                    height, begin * cell);
            any = true;
        }
    }
    fputs(any ? "\"/>" : "", out);
}

/* Draws lines between the pieces, and the pieces' names if a sum's name fits. */
static void draw_pieces(FILE *out, const struct dt_lesson *lesson, int width, const float *state)
{
    const struct dt_replay *p = lesson->replay;
    const double cell = (double)width / p->n_pieces;
    char name[DT_LAB_WORD];
    for (int i = 0; i < p->n_pieces; i++) {
        if (i > 0) {
            fprintf(out, "<path class=\"cut\" stroke-width=\"%d\" d=\"M%.1f 0v%d\"/>",
                    p->size <= 8 ? 2 : 1, i * cell, STRIP);
        }
        dt_lab_cell(lesson, i, state[i], name);
        if (name[0] != '\0' && CHARACTER * (p->size + 2) + 4 <= cell) {
            fprintf(out, "<text x=\"%.1f\" y=\"%d\" class=\"piece\">%s</text>", (i + 0.5) * cell,
                    STRIP + 15, name);
        }
    }
}

/* Draws a frame around the pieces that changed in the round. */
static void draw_change(FILE *out, const struct dt_replay *p, int width,
                        const struct dt_transfer *t)
{
    const double cell = (double)width / p->n_pieces;
    if (t->end > t->begin) {
        fprintf(out, "<rect class=\"new %s\" x=\"%.1f\" y=\"0\" width=\"%.1f\" height=\"%d\"/>",
                kind_of(t), t->begin * cell, (t->end - t->begin) * cell, STRIP);
    }
}

static void draw_card(FILE *out, const struct dt_lesson *lesson, struct layout l, int n_rounds,
                      int rank)
{
    const struct dt_replay *p = lesson->replay;
    const float *state = dt_replay_state(p, n_rounds, rank),
                *sets = dt_replay_state(lesson->sets, n_rounds, rank);
    const struct point c = centre_of(l, rank);
    const int width = card_width(l);
    char name[DT_LAB_WORD];
    int n = 0;
    const struct dt_transfer *t = n_rounds > 0 ? dt_replay_transfers(p, n_rounds - 1, &n) : NULL;
    fprintf(out, "<g transform=\"translate(%.1f %.1f)\">", c.x - width / 2.0,
            c.y - (ABOVE + STRIP + BELOW) / 2.0 + ABOVE);
    fprintf(out,
            "<text class=\"rank\" y=\"-7\">%s</text><rect class=\"vector\" width=\"%d\" "
            "height=\"%d\"/>",
            dt_lab_rank(lesson, rank, name), width, STRIP);
    for (int i = 0; i < p->size; i++) {
        draw_stripe(out, p, width, sets, i);
    }
    draw_pieces(out, lesson, width, state);
    for (int i = 0; i < n; i++) {
        if (t[i].to == rank) {
            draw_change(out, p, width, &t[i]);
        }
    }
    fputs("</g>\n", out);
}

static void draw_round(FILE *out, const struct dt_lesson *lesson, struct layout l, int n_rounds)
{
    const struct dt_replay *p = lesson->replay;
    int n = 0;
    const struct dt_transfer *t = n_rounds > 0 ? dt_replay_transfers(p, n_rounds - 1, &n) : NULL;
    fprintf(out,
            "<svg class=\"%s\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"the vectors after "
            "%d of %d rounds\">\n",
            l.column ? "column" : "ellipse", l.column ? COLUMN_WIDTH : WIDTH, height_of(l),
            n_rounds, p->n_rounds);
    for (int rank = 0; rank < p->size; rank++) {
        draw_card(out, lesson, l, n_rounds, rank);
    }
    draw_transfers(out, lesson, l, t, n);
    fputs("</svg>\n", out);
}

void dt_lab_picture(FILE *out, const struct dt_lesson *lesson, int n_rounds)
{
    draw_round(out, lesson, (struct layout){lesson->replay->size, false}, n_rounds);
    draw_round(out, lesson, (struct layout){lesson->replay->size, true}, n_rounds);
}
