/* Compressed gradients on four ranks: bytes saved against accuracy lost, without and with error
 * feedback. */
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "cli/args.h"
#include "cli/text.h"
#include "dist/compression/error_feedback.h"
#include "lab/compression.h"
#include "report/page/chart.h"
#include "report/page/layout.h"

/* ---- claims */

/* Variance of the share, by the normal approximation. */
static double variance(double share)
{
    return share * (1 - share) / DT_COMPRESSION_N_TEST;
}

double dt_compression_margin(double share)
{
    return 1.96 * sqrt(variance(share));
}

int dt_compression_relation(double share, double other)
{
    const double chance = 1.96 * sqrt(variance(share) + variance(other));
    return share > other + chance ? 1 : share < other - chance ? -1 : 0;
}

/* " fp16, bf16": the types with this relation to none; "" if there are none. */
static void list_types(const struct dt_compression_lesson *l, int feedback, int relation,
                       char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (int type = DT_COMPRESSION_NONE + 1; type < DT_N_COMPRESSION_TYPES && n < size; type++) {
        const double none = l->ways[DT_COMPRESSION_NONE].outcomes[0].accuracy;
        if (dt_compression_relation(l->ways[type].outcomes[feedback].accuracy, none) == relation) {
            n += (size_t)snprintf(text + n, size - n, "%s %s", n > 0 ? "," : "",
                                  dt_compression_names[type]);
        }
    }
}

void dt_compression_print_claims(FILE *out, const struct dt_compression_lesson *l)
{
    static const char *const words[] = {"worse:", "no difference to be seen:", "better:"};
    char types[80];
    for (int feedback = 0; feedback < 2; feedback++) {
        for (int relation = -1; relation <= 1; relation++) {
            list_types(l, feedback, relation, types, sizeof types);
            if (types[0] != '\0') {
                fprintf(out, "  %s error feedback, %s%s\n", feedback == 1 ? "with" : "without",
                        words[relation + 1], types);
            }
        }
    }
}

/* ---- the page */

/* Where the names stand, above or below their dots, so that none covers another. */
static const struct {
    const char *text;
    bool above;
} notes[DT_N_COMPRESSION_TYPES] = {
    [DT_COMPRESSION_NONE] = {"none", true},     [DT_COMPRESSION_FP16] = {"fp16, bf16", false},
    [DT_COMPRESSION_BF16] = {"", false},        [DT_COMPRESSION_INT8] = {"int8", true},
    [DT_COMPRESSION_ONEBIT] = {"onebit", true}, [DT_COMPRESSION_TOPK] = {"topk", true},
};

/* In per cent; none has nothing to feed back, and is in both series. */
static double accuracy(const struct dt_compression_lesson *l, int type, int feedback)
{
    return 100 * l->ways[type].outcomes[type == DT_COMPRESSION_NONE ? 0 : feedback].accuracy;
}

static double margin(const struct dt_compression_lesson *l, int type, int feedback)
{
    return 100 * dt_compression_margin(accuracy(l, type, feedback) / 100);
}

static void draw_series(const struct dt_chart *chart, const struct dt_compression_lesson *l,
                        int feedback)
{
    double x[DT_N_COMPRESSION_TYPES], y[DT_N_COMPRESSION_TYPES];
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        x[type] = l->ways[type].expected;
        y[type] = accuracy(l, type, feedback);
    }
    dt_chart_line(chart, feedback == 1 ? "s1" : "s0", DT_N_COMPRESSION_TYPES, x, y);
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        const double m = margin(l, type, feedback);
        dt_chart_line(chart, feedback == 1 ? "s1" : "s0", 2, (double[]){x[type], x[type]},
                      (double[]){y[type] - m, y[type] + m});
        dt_chart_dot(chart, feedback == 1 ? "d1" : "d0", x[type], y[type]);
    }
}

static void draw(FILE *out, const struct dt_compression_lesson *l)
{
    double least = 100;
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        least = fmin(least, fmin(accuracy(l, type, 0), accuracy(l, type, 1)));
    }
    const double low = 10 * floor(least / 10 - 0.5), apart = (100 - low) / 20;
    const struct dt_chart chart = {out,
                                   "accuracy by bytes sent",
                                   {"bytes that a rank sends a step", 800, 2e5, true},
                                   {"accuracy, %", low, 100, false}};
    dt_chart_begin(&chart);
    draw_series(&chart, l, 0);
    draw_series(&chart, l, 1);
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        const double a = accuracy(l, type, 0), b = accuracy(l, type, 1);
        dt_chart_note(&chart, "dark", l->ways[type].expected,
                      notes[type].above ? fmax(a, b) + apart : fmin(a, b) - apart,
                      notes[type].text);
    }
    dt_chart_end(&chart);
}

static void put_table(FILE *out, const struct dt_compression_lesson *l)
{
    char bytes[32];
    dt_table_begin(out,
                   "type|bytes of n numbers|a rank sends|times fewer|accuracy|with error feedback");
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        char fed_back[32] = "";
        if (type != DT_COMPRESSION_NONE) {
            snprintf(fed_back, sizeof fed_back, "%.1f ± %.1f %%", accuracy(l, type, 1),
                     margin(l, type, 1));
        }
        dt_table_row(out, "%s|%s|%s|%.1f|%.1f ± %.1f %%|%s", dt_compression_names[type],
                     dt_compression_formulas[type],
                     dt_count_text(l->ways[type].expected, bytes, sizeof bytes),
                     l->ways[DT_COMPRESSION_NONE].expected / l->ways[type].expected,
                     accuracy(l, type, 0), margin(l, type, 0), fed_back);
    }
    dt_table_end(out);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_compression_lesson *l = context;
    fprintf(out,
            "<h1>How few bytes do gradients need?</h1>\n"
            "<p>%d ranks, each of which sends %zu gradients to the others in every step: bytes, "
            "counted, against the accuracy of %d test images after %d epochs. Upright lines, and ± "
            "in the table: 95 of 100 such test sets come so near.</p>\n"
            "<div class=\"cards\"><div class=\"card\"><h2>Without and with error "
            "feedback</h2><p>Blue: without; what an encoding loses is lost. Orange: with error "
            "feedback it is added to the next step's gradients.</p>\n",
            DT_LAB_RANKS, l->whole.n_gradients, DT_COMPRESSION_N_TEST, DT_LAB_N_EPOCHS);
    draw(out, l);
    fputs("</div></div>\n", out);
    put_table(out, l);
    fputs("<p>Compared with none, by more than the chance of the test set explains; each is one "
          "training from one seed:</p>\n<pre style=\"white-space:pre-wrap\">",
          out);
    dt_compression_print_claims(out, l);
    fputs("</pre>\n", out);
}

/* ---- the lesson */

#define RATE 0.2
#define RATIO 0.01
#define N_ENCODINGS 20
#define N_ENCODED 1000

/* ---- the trainings */

static struct dt_compression_spec spec_of(int type, bool error_feedback)
{
    return (struct dt_compression_spec){
        .type = (enum dt_compression_type)type, .ratio = RATIO, .error_feedback = error_feedback};
}

static enum dt_status train(struct dt_world *world, const struct dt_lab_images *images,
                            const struct dt_compression_spec *spec, struct dt_lab_outcome *out)
{
    const struct dt_lab_distributed training = {
        .dist = {.allreduce = DT_ALLREDUCE_ALL_TO_ALL, .compression = *spec}, .rate = RATE};
    return dt_lab_distributed_run(world, images, &training, out);
}

static enum dt_status train_all(struct dt_world *world, const struct dt_lab_images *images,
                                struct dt_compression_lesson *l)
{
    const struct dt_compression_spec whole = {.type = DT_COMPRESSION_TOPK, .ratio = 1};
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        for (int feedback = 0; feedback < (type == DT_COMPRESSION_NONE ? 1 : 2); feedback++) {
            const struct dt_compression_spec spec = spec_of(type, feedback == 1);
            DT_TRY(train(world, images, &spec, &l->ways[type].outcomes[feedback]));
        }
    }
    return train(world, images, &whole, &l->whole);
}

static enum dt_status run(struct dt_world *world, struct dt_compression_lesson *l)
{
    struct dt_lab_images images;
    enum dt_status s = dt_world_agree(world, dt_lab_images_open(DT_COMPRESSION_N_TEST, 1, &images));
    s = s == DT_OK ? train_all(world, &images, l) : s;
    dt_lab_images_close(&images);
    return s;
}

/* ---- error feedback alone */

/* Numbers of 4 to 8 in steps of 1 / 2^16: a float holds every sum that occurs, so rounding loses
 * nothing. */
static float input(uint32_t encoding, uint32_t i)
{
    const struct dt_rng4 draw = dt_philox4x32((struct dt_rng4){{i, encoding, 0, 0}}, 1, 0);
    const float size = 4 + (float)(draw.v[0] >> 14) / 65536;
    return draw.v[1] % 2 == 1 ? -size : size;
}

/* True if sent plus residual equals the input, for every number. */
static bool prove(struct dt_error_feedback *feedback)
{
    static float values[N_ENCODED], bytes[N_ENCODED];
    static double in[N_ENCODED], sent[N_ENCODED];
    size_t n_equal = 0;
    for (uint32_t i = 0; i < N_ENCODED; i++) {
        in[i] = sent[i] = 0;
    }
    for (uint32_t encoding = 0; encoding < N_ENCODINGS; encoding++) {
        for (uint32_t i = 0; i < N_ENCODED; i++) {
            values[i] = input(encoding, i);
            in[i] += (double)values[i];
        }
        dt_error_feedback_encode(feedback, encoding, 0, N_ENCODED, values, bytes);
        for (uint32_t i = 0; i < N_ENCODED; i++) {
            sent[i] += (double)values[i];
        }
    }
    for (uint32_t i = 0; i < N_ENCODED; i++) {
        n_equal += sent[i] + (double)feedback->left[i] == in[i];
    }
    return n_equal == N_ENCODED;
}

static enum dt_status prove_all(struct dt_compression_lesson *l)
{
    const struct dt_codec_layout layout = {.n_matrices = 1,
                                           .matrices = {{.n_rows = N_ENCODED / 10, .n_cols = 10}}};
    for (int type = DT_COMPRESSION_NONE + 1; type < DT_N_COMPRESSION_TYPES; type++) {
        const struct dt_compression_spec spec = spec_of(type, true);
        struct dt_error_feedback feedback;
        struct dt_codec codec;
        DT_TRY(dt_codec_open(dt_all_rows.codecs, &spec, &layout, &codec));
        DT_TRY(dt_error_feedback_open(&codec, 0, N_ENCODED, &feedback));
        l->ways[type].nothing_lost = prove(&feedback);
        dt_error_feedback_close(&feedback);
    }
    return DT_OK;
}

/* ---- expected results */

static void check_outcome(struct dt_golden *golden, const char *name,
                          const struct dt_lab_outcome *outcome, double expected)
{
    for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
        dt_golden_number(golden, outcome->sent[rank], expected, 0,
                         "%s: bytes that rank %d sends a step", name, rank);
    }
    dt_golden_fact(golden,
                   outcome->hashes[1] == outcome->hashes[0] &&
                       outcome->hashes[2] == outcome->hashes[0] &&
                       outcome->hashes[3] == outcome->hashes[0],
                   "%s: all ranks end with the same weights, to the bit", name);
}

static void check_way(struct dt_compression_lesson *l, int type)
{
    struct dt_compression_way *way = &l->ways[type];
    const struct dt_codec *codec = &way->outcomes[0].codec;
    const char *name = dt_compression_names[type];
    char what[120];
    way->expected = (DT_LAB_RANKS - 1) * (double)dt_codec_bytes(codec, 0, l->whole.n_floats);
    check_outcome(&l->golden, name, &way->outcomes[0], way->expected);
    if (type != DT_COMPRESSION_NONE) {
        snprintf(what, sizeof what, "%s with error feedback", name);
        check_outcome(&l->golden, what, &way->outcomes[1], way->expected);
        dt_golden_fact(&l->golden, way->nothing_lost,
                       "%s: what was sent and what is left add up to what came in", name);
    }
    if (type == DT_COMPRESSION_ONEBIT || type == DT_COMPRESSION_TOPK) {
        dt_golden_fact(
            &l->golden,
            dt_compression_relation(way->outcomes[1].accuracy, way->outcomes[0].accuracy) > 0,
            "%s is better with error feedback", name);
    }
}

static void check(struct dt_compression_lesson *l)
{
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        check_way(l, type);
    }
    dt_golden_fact(&l->golden,
                   l->whole.hashes[0] == l->ways[DT_COMPRESSION_NONE].outcomes[0].hashes[0],
                   "topk of ratio 1 ends with the weights of none, to the bit");
}

/* ---- the text */

static void print_accuracy(double share)
{
    printf(" %5.1f +-%.1f %%", 100 * share, 100 * dt_compression_margin(share));
}

static void print_way(const struct dt_compression_lesson *l, int type)
{
    const struct dt_compression_way *way = &l->ways[type];
    char bytes[32];
    printf("%-7s %-24s %8s %7.1f", dt_compression_names[type],
           type == DT_COMPRESSION_TOPK ? "8 k, the k largest" : dt_compression_formulas[type],
           dt_count_text(way->outcomes[0].sent[0], bytes, sizeof bytes),
           l->ways[DT_COMPRESSION_NONE].expected / way->expected);
    print_accuracy(way->outcomes[0].accuracy);
    if (type != DT_COMPRESSION_NONE) {
        print_accuracy(way->outcomes[1].accuracy);
    }
    putchar('\n');
}

static void print_lesson(const struct dt_compression_lesson *l)
{
    char floats[32], gradients[32], n_test[32];
    printf("How few bytes do gradients need? %d ranks, each sends its %s numbers (n:\n%s "
           "gradients, and zeros that align them) to the "
           "other %d; %d epochs of\nSGD at rate %g. topk sends %g %% of them.\n\n",
           DT_LAB_RANKS, dt_count_text((double)l->whole.n_floats, floats, sizeof floats),
           dt_count_text((double)l->whole.n_gradients, gradients, sizeof gradients),
           DT_LAB_RANKS - 1, DT_LAB_N_EPOCHS, RATE, 100 * RATIO);
    printf("%-32s %8s %7s %13s %13s\n%-32s %8s %7s %13s %13s\n", "", "a rank", "times", "accuracy",
           "with error", "        bytes for n numbers", "sends", "fewer", "", "feedback");
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        print_way(l, type);
    }
    printf("  of onebit's n numbers d are weights of a dense layer, in c groups of columns\n"
           "  accuracy: of %s test images; +-: 95 of 100 such test sets come so near\n"
           "\nCompared with none, by more than the chance of the test set explains:\n",
           dt_count_text(DT_COMPRESSION_N_TEST, n_test, sizeof n_test));
    dt_compression_print_claims(stdout, l);
    printf("Each is one training from one seed: another may differ by more.\n"
           "\nWithout error feedback what a codec loses is lost in every step, and always of\n"
           "the same kind. With it a rank keeps what was lost and adds it to the next step's\n"
           "gradients, so it arrives late, but it arrives: over %d encodings what was sent\n"
           "and what is left add up to exactly what came in.\n\n"
           "Encodings can be added only where each number stands for itself (fp16, bf16),\n"
           "with any allreduce. All others take all_to_all: every rank gets every encoding\n"
           "and adds them in one order, so all end with the same weights, to the bit.\n\n",
           N_ENCODINGS);
}

static enum dt_status lab_compression(struct dt_world *world, const struct dt_args *args)
{
    static struct dt_compression_lesson lesson;
    enum dt_status s = DT_OK;
    DT_TRY(dt_lab_need_ranks(world, "compression", DT_LAB_RANKS));
    DT_TRY(run(world, &lesson));
    if (world->rank == 0) {
        s = prove_all(&lesson);
        check(&lesson);
        print_lesson(&lesson);
        s = s == DT_OK ? dt_golden_tell(&lesson.golden, args, "Compression", put_body, &lesson) : s;
    }
    return dt_world_agree(world, s);
}

const struct dt_command dt_command_lab_compression = {
    .word = "lab compression",
    .meaning = "how few bytes do gradients need, and at what price?",
    .minutes = 10,
    .usage = "mpirun -np 4 dtrain lab compression [--html FILE]",
    .examples = "  mpirun -np 4 dtrain lab compression\n",
    .more = "Trains on four ranks with uncompressed gradients, and with each codec, without and "
            "with error feedback, and prints the bytes that a rank sends per step, and the "
            "accuracy.",
    .options = {[DT_OPTION_HTML] = {DT_TAKEN}},
    .together = lab_compression,
};
