#include "cli/text.h"
#include "lab/allreduce.h"
#include "report/page/page.h"

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

/* What the colours and the letters are. */
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
    dt_lab_picture(out, lesson, n_rounds);
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
