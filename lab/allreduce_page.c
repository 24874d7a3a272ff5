/* The pages of `lab allreduce` and `lab reduce`. A round is drawn as SVG: the ranks on an ellipse,
 * or in a column in a narrow window, each with its vector, whose pieces have a stripe for every
 * rank in their sum; an arrow for each message. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/text.h"
#include "lab/allreduce.h"
#include "report/page/page.h"

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

/* Draws the stripe of one rank in every piece whose sum includes it. */
static void draw_stripe(FILE *out, const struct dt_replay *p, int width, const float *sets,
                        int rank)
{
    const double cell = (double)width / p->n_pieces, height = (double)STRIP / p->size;
    bool any = false;
    for (int begin = 0, end; begin < p->n_pieces; begin = end + 1) {
        for (end = begin; end < p->n_pieces && ((unsigned)sets[end] >> rank & 1) != 0; end++) {
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

/* The vectors after n_rounds rounds, with the last round's messages. */
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

/* ---- the pages */

struct rounds_page {
    const struct dt_lesson *lesson;
    int n_reduce;                     /* of lab reduce */
    const struct dt_lab_proof *proof; /* of lab allreduce, as are the rows */
    const struct dt_lab_row *rows;
    int n_rows;
};

/* Hues all round; neighbours differ in lightness, too. */
static void put_colors(FILE *out, const struct rounds_page *page)
{
    const int size = page->lesson->replay->size;
    fputs("<style>\n", out);
    for (int rank = 0; rank < size; rank++) {
        fprintf(out, ".c%d{fill:hsl(%d 62%% calc(var(--fill) + %d%%))}\n", rank,
                (210 + 360 * rank / size) % 360, rank % 2 * 8);
    }
    fputs("</style>\n", out);
}

static void put_head(FILE *out, const struct dt_lesson *lesson)
{
    const struct dt_replay *p = lesson->replay;
    char n_elems[32];
    fprintf(out, "<h1>Allreduce: %s</h1>\n<p>%d rank%s, %s floats each: %s.</p>\n",
            p->algorithm->name, p->size, p->size == 1 ? "" : "s",
            dt_count_text((double)p->n_elems, n_elems, sizeof n_elems), p->algorithm->meaning);
}

static void put_markers(FILE *out)
{
    fputs("<svg class=\"defs\" aria-hidden=\"true\"><defs>", out);
    for (int i = 0; i < 2; i++) {
        fprintf(out,
                "<marker id=\"%s\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"5.5\" "
                "markerHeight=\"5.5\" orient=\"auto\"><path d=\"M0 0L10 5L0 10z\"/></marker>",
                i == 0 ? "add" : "replace");
    }
    fputs("</defs></svg>\n", out);
}

/* The legend of colours and letters. */
static void put_key(FILE *out, const struct dt_lesson *lesson)
{
    const struct dt_replay *p = lesson->replay;
    char name[DT_LAB_WORD];
    fputs("<div class=\"key\">", out);
    for (int rank = 0; rank < p->size; rank++) {
        fprintf(out,
                "<span><svg viewBox=\"0 0 8 8\" aria-hidden=\"true\"><rect class=\"c%d\" "
                "width=\"8\" height=\"8\"/></svg>%s</span>",
                rank, dt_lab_rank(lesson, rank, name));
    }
    fputs("</div>\n<p>A piece of a vector has a stripe for each rank whose numbers are in it: when "
          "it has all, it is the sum.",
          out);
    if (!lesson->numbers && p->size <= DT_LAB_MAX_LETTERS && p->size > 1) {
        fputs(p->n_pieces > 1 ? " a0 is piece 0 of A's vector, ab0 is a0 + b0."
                              : " a is A's vector, ab is a + b.",
              out);
    }
    fputs(" What arrives is added (+) or takes the place of what was there (=).</p>\n", out);
}

/* remark: what has come about in it, or "". */
static void put_round(FILE *out, const struct dt_lesson *lesson, int n_rounds, const char *remark)
{
    char sentence[DT_LAB_WORD];
    int n = 0;
    const struct dt_transfer *t =
        n_rounds > 0 ? dt_replay_transfers(lesson->replay, n_rounds - 1, &n) : NULL;
    fputs("<section class=\"round\"><h2>", out);
    fprintf(out, n_rounds > 0 ? "Round %d of %d" : "At first", n_rounds, lesson->replay->n_rounds);
    fprintf(out, "</h2>%s\n", remark);
    draw_round(out, lesson, (struct layout){lesson->replay->size, false}, n_rounds);
    draw_round(out, lesson, (struct layout){lesson->replay->size, true}, n_rounds);
    fputs("<ol>", out);
    for (int i = 0; i < n; i++) {
        fprintf(out, "<li class=\"%s\">%s</li>", t[i].adds ? "add" : "replace",
                dt_lab_sentence(lesson, &t[i], sentence));
    }
    fputs("</ol></section>\n", out);
}

static void put_proof(FILE *out, const struct dt_lab_proof *proof)
{
    const uint64_t counted[] = {proof->sent.messages, proof->sent.elements * sizeof(float)};
    const uint64_t formula[] = {proof->formula.messages, proof->formula.elements * sizeof(float)};
    fprintf(out,
            "<h2 class=\"part\">Proof</h2>\n<p>Run with whole numbers: all ranks have the same: "
            "<b>%s</b>; it is the exact sum: <b>%s</b>",
            proof->equal ? "yes" : "NO", proof->exact ? "yes" : "NO");
    for (int i = 0; i < 2; i++) {
        char a[32], b[32];
        fprintf(out, "; %s sent: %s, by the formula %s: <b>%s</b>", i == 0 ? "messages" : "bytes",
                dt_count_text((double)counted[i], a, sizeof a),
                dt_count_text((double)formula[i], b, sizeof b),
                counted[i] == formula[i] ? "equal" : "NOT EQUAL");
    }
    fputs(".</p>\n", out);
}

static void put_rows(FILE *out, const struct dt_algorithm *this, const struct dt_lab_row *rows,
                     int n_rows)
{
    fputs("<h2 class=\"part\">All algorithms, for as many ranks and numbers</h2>\n"
          "<div class=\"wide\"><table>\n"
          "<thead><tr><th>algorithm</th><th>rounds</th><th>messages</th><th>bytes in "
          "all</th><th>busiest rank</th><th>time (µs)</th></tr></thead>\n<tbody>\n",
          out);
    for (int i = 0; i < n_rows; i++) {
        const struct dt_simulation *s = &rows[i].simulation;
        char a[32], b[32], c[32];
        fprintf(out,
                "<tr%s><td>%s</td><td>%d</td><td>%s</td><td>%s</td><td>%s</td><td>%.1f</td></tr>\n",
                rows[i].algorithm == this ? " class=\"this\"" : "", rows[i].algorithm->name,
                rows[i].n_rounds, dt_count_text((double)s->all.messages, a, sizeof a),
                dt_count_text((double)s->all.bytes, b, sizeof b),
                dt_count_text((double)s->busiest_rank_bytes, c, sizeof c), s->seconds * 1e6);
    }
    fputs("</tbody></table></div>\n<p>Busiest rank: the bytes that it sends and receives. Time: "
          "simulated with " DT_LAB_COSTS ".</p>\n",
          out);
}

/* The rounds, one at a time where the script runs. */
static void put_rounds(FILE *out, const struct rounds_page *page)
{
    const struct dt_replay *p = page->lesson->replay;
    char reduced[80];
    snprintf(reduced, sizeof reduced, "<p>Reduce is done: the sum is on the root, %g on A.</p>",
             (double)*dt_replay_state(p, page->n_reduce, 0));
    fputs("<nav hidden><button>Back</button><button>Next</button><button>Play</button>"
          "<input type=\"range\" min=\"0\" value=\"0\" aria-label=\"round\"></nav>\n",
          out);
    for (int i = 0; i <= p->n_rounds; i++) {
        put_round(out, page->lesson, i, i > 0 && i == page->n_reduce ? reduced : "");
    }
}

/* A dt_page_fn. */
static void put_allreduce(FILE *out, const void *context)
{
    const struct rounds_page *page = context;
    put_head(out, page->lesson);
    put_colors(out, page);
    put_markers(out);
    put_key(out, page->lesson);
    put_rounds(out, page);
    put_proof(out, page->proof);
    put_rows(out, page->lesson->replay->algorithm, page->rows, page->n_rows);
}

enum dt_status dt_lab_page(const char *path, const struct dt_lesson *lesson,
                           const struct dt_lab_proof *proof, const struct dt_lab_row *rows,
                           int n_rows)
{
    const struct rounds_page page = {
        .lesson = lesson, .proof = proof, .rows = rows, .n_rows = n_rows};
    char title[80];
    snprintf(title, sizeof title, "%s over %d ranks", lesson->replay->algorithm->name,
             lesson->replay->size);
    return dt_page_write(
        path, &(struct dt_page){
                  .title = title, .class = "rounds", .body = put_allreduce, .context = &page});
}

/* A dt_page_fn. */
static void put_reduce(FILE *out, const void *context)
{
    const struct rounds_page *page = context;
    const struct dt_replay *p = page->lesson->replay;
    fprintf(out,
            "<h1>Reduce and allreduce</h1>\n<p>[1, 2, 3, 4, 5] on five ranks, which a %s adds "
            "up.</p>\n",
            p->algorithm->name);
    put_colors(out, page);
    put_markers(out);
    put_key(out, page->lesson);
    put_rounds(out, page);
    fprintf(out,
            "<p class=\"verdict\">Reduce, after round %d: the sum is on the root, %g on A. "
            "Allreduce, after round %d: it is everywhere,",
            page->n_reduce, (double)*dt_replay_state(p, page->n_reduce, 0), p->n_rounds);
    for (int rank = 0; rank < p->size; rank++) {
        fprintf(out, " %g", (double)p->data[rank][0]);
    }
    fputs(".</p>\n", out);
}

enum dt_status dt_lab_reduce_page(const char *path, const struct dt_lesson *lesson, int n_reduce)
{
    const struct rounds_page page = {.lesson = lesson, .n_reduce = n_reduce};
    return dt_page_write(path, &(struct dt_page){.title = "Reduce and allreduce",
                                                 .class = "rounds",
                                                 .body = put_reduce,
                                                 .context = &page});
}
