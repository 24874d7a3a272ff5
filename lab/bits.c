/* Why the bits of a sum of floats depend on the number of ranks, and those of a sum of integers do
 * not: the gradient of one weight, leaf by leaf, added as n ranks add it. */
#include <math.h>

#include "cli/result.h"
#include "dist/compression/codec.h"
#include "dist/compression/fixed_point.h"
#include "lab/golden.h"
#include "lab/training.h"

enum { N_LEAVES = 32, LEAF = DT_LAB_N_POINTS / N_LEAVES, MOST_RANKS = 16 };
#define UNITS_PER_ONE 0x1p40

/* The sum of all leaves by some ranks, each of which adds its own first; then rank by rank. */
struct total {
    float floats;
    double ulps; /* from the exact sum */
    int64_t integer;
    float joined; /* of the digits that ranks added */
};

struct bits_lesson {
    float tiny[2];          /* 1 and 2^-24 twice, added from the left and from the right */
    float leaves[N_LEAVES]; /* the gradient of the slope */
    double formula, exact;  /* their sum: by the data, and of these floats without rounding */
    float ulp;              /* a unit in the sum's last place */
    struct total of[MOST_RANKS + 1]; /* by so many ranks */
    int n_distinct;                  /* sums of floats */
    int64_t overflow;                /* addends too large, of three */
    struct dt_golden golden;
};

/* ---- the sums */

static enum dt_status make_leaves(struct dt_lab_network *net, struct bits_lesson *l)
{
    for (int k = 0; k < N_LEAVES; k++) {
        uint32_t rows[LEAF];
        for (int i = 0; i < LEAF; i++) {
            rows[i] = (uint32_t)(k * LEAF + i);
        }
        const struct dt_batch batch = {.n = LEAF, .rows = rows, .ids = rows};
        DT_TRY(dt_lab_pass(net, &batch, false, NULL));
        l->leaves[k] = *dt_lab_grad(net, "fc1.weight");
        l->exact += (double)l->leaves[k];
    }
    return DT_OK;
}

/* Ranks take neighbouring leaves, as in a training with `deterministic`. */
static struct total add_by_ranks(const struct bits_lesson *l, int n_ranks)
{
    const int n_digits = dt_fixed_n_digits(n_ranks);
    float digits[4 * DT_FIXED_GROUP] = {0}, joined[DT_FIXED_GROUP];
    struct total t = {.floats = 0};
    for (int r = 0; r < n_ranks; r++) {
        float floats = 0, mine[4 * DT_FIXED_GROUP];
        int64_t sums[DT_FIXED_GROUP] = {0};
        for (int k = r * N_LEAVES / n_ranks; k < (r + 1) * N_LEAVES / n_ranks; k++) {
            floats += l->leaves[k];
            (void)dt_fixed_add(1, &l->leaves[k], sums);
        }
        dt_fixed_split(n_digits, DT_FIXED_GROUP, sums, mine);
        for (int i = 0; i < n_digits * DT_FIXED_GROUP; i++) {
            digits[i] += mine[i];
        }
        t.floats += floats;
        t.integer += sums[0];
    }
    (void)dt_fixed_join(n_digits, DT_FIXED_GROUP, digits, joined);
    t.joined = joined[0];
    t.ulps = ((double)t.floats - l->exact) / (double)l->ulp;
    return t;
}

static void add_tiny(float sums[2])
{
    const volatile float one = 1, small = 0x1p-24F; /* added when it runs */
    sums[0] = one + small;
    sums[0] += small;
    sums[1] = small + small;
    sums[1] += one;
}

static void add_all(struct bits_lesson *l)
{
    const float too_large[3] = {2048, -3000, NAN}, sum = (float)l->exact;
    int64_t sums[3] = {0};
    l->ulp = nextafterf(fabsf(sum), INFINITY) - fabsf(sum);
    l->overflow = dt_fixed_add(3, too_large, sums);
    add_tiny(l->tiny);
    for (int n = 1; n <= MOST_RANKS; n++) {
        bool is_new = true;
        l->of[n] = add_by_ranks(l, n);
        for (int before = 1; before < n; before++) {
            is_new = is_new && l->of[before].floats != l->of[n].floats;
        }
        l->n_distinct += is_new;
    }
}

static enum dt_status run(struct bits_lesson *l)
{
    struct dt_dataset points;
    struct dt_lab_network net = {.backend = NULL};
    struct dt_comm *self;
    enum dt_status s;
    DT_TRY(dt_lab_points_open((struct dt_owned){.n = DT_LAB_N_POINTS, .stride = 1}, &points));
    for (int i = 0; i < DT_LAB_N_POINTS; i++) { /* from (0, 0) */
        l->formula -= 2 * (double)points.samples.values[i] * (double)points.samples.targets[i];
    }
    DT_TRY_GOTO(s, dt_comm_open_self(&self), close_points);
    const struct dt_lab_network_spec spec = {
        .model = &dt_lab_line_model, .samples = &points.samples, .comm = self, .capacity = LEAF};
    DT_TRY_GOTO(s, dt_lab_network_open(&spec, &net), close_comm);
    s = make_leaves(&net, l);
    add_all(l);
    dt_lab_network_close(&net);
close_comm:
    dt_comm_close(self);
close_points:
    dt_dataset_close(&points);
    return s;
}

static void check(struct bits_lesson *l)
{
    const struct total *one = &l->of[1];
    dt_golden_number(&l->golden, (double)l->tiny[0], 1, 0, "1 + 2^-24 + 2^-24");
    dt_golden_number(&l->golden, (double)l->tiny[1], 1 + 0x1p-23, 0, "2^-24 + 2^-24 + 1");
    dt_golden_number(&l->golden, l->exact, l->formula, 1e-5 * fabs(l->formula),
                     "the gradient by the data");
    dt_golden_fact(&l->golden, l->n_distinct > 1, "floats give another sum at other ranks");
    for (int n = 1; n <= MOST_RANKS; n++) {
        dt_golden_fact(&l->golden, l->of[n].integer == one->integer,
                       "%d ranks have the integer of one", n);
        dt_golden_number(&l->golden, (double)l->of[n].joined, (double)(float)l->exact, 0,
                         "the sum of the digits of %d ranks", n);
    }
    dt_golden_number(&l->golden, (double)one->integer / UNITS_PER_ONE, l->exact, 0x1p-37,
                     "the integer in units of 2^-40");
    dt_golden_number(&l->golden, (double)l->overflow, 3, 0, "addends that no sum holds");
}

/* ---- the document */

static void draw_sums(struct dt_doc *doc, const struct bits_lesson *l)
{
    double ranks[MOST_RANKS], floats[MOST_RANKS], integers[MOST_RANKS];
    for (int i = 0; i < MOST_RANKS; i++) {
        ranks[i] = i + 1;
        floats[i] = l->of[i + 1].ulps;
        integers[i] = ((double)l->of[i + 1].joined - l->exact) / (double)l->ulp;
    }
    struct dt_part *chart = dt_doc_series(doc, "Distance from the exact sum", "ranks", "ulps");
    dt_doc_caption(chart, "An ulp, a unit in the last place of the sum, is %.3g.", (double)l->ulp);
    dt_doc_line(
        chart,
        &(struct dt_line){
            .name = "sum of floats", .stroke = DT_DOTS, .n = MOST_RANKS, .x = ranks, .y = floats});
    dt_doc_plot(chart, "sum of integers, rounded to a float once", DT_LINE, MOST_RANKS, ranks,
                integers);
}

static void fill_table(struct dt_doc *doc, const struct bits_lesson *l)
{
    struct dt_part *table = dt_doc_table(
        doc, "Sums", "ranks::0|sum of floats::6|bits|ulps::2|sum of integers:2⁻⁴⁰:0|as a float");
    for (int n = 1; n <= MOST_RANKS; n++) {
        const struct total *t = &l->of[n];
        dt_doc_row(table, dt_n(n), dt_n((double)t->floats),
                   dt_t(dt_doc_print(doc, "%08x", dt_float_bits(t->floats))), dt_n(t->ulps),
                   dt_n((double)t->integer),
                   dt_t(dt_doc_print(doc, "%08x", dt_float_bits(t->joined))));
    }
}

static struct dt_doc *tell(const struct bits_lesson *l)
{
    struct dt_doc *doc = dt_doc_open("lab bits", "The same bits at any number of ranks");
    dt_doc_text(doc,
                "A float has 24 bits: (1 + 2⁻²⁴) + 2⁻²⁴ is %.9g, and 1 + (2⁻²⁴ + 2⁻²⁴) is %.9g.",
                (double)l->tiny[0], (double)l->tiny[1]);
    dt_doc_text(doc,
                "The gradient of a weight over %d points, in %d leaves of %d. Each rank adds its "
                "own leaves, then the ranks' sums are added. Exact: %.12g.",
                DT_LAB_N_POINTS, N_LEAVES, LEAF, l->exact);
    draw_sums(doc, l);
    fill_table(doc, l);
    dt_doc_text(doc,
                "Floats: %d different sums at 1 to %d ranks, all of them right to %.1g. Each "
                "addition rounds, and other ranks add other pairs. A training continues from these "
                "sums, and its weights drift apart, bit by bit.",
                l->n_distinct, MOST_RANKS, 8 * (double)l->ulp / fabs(l->exact));
    dt_doc_text(
        doc, "Integers do not round, so every order gives the same sum. In units of 2⁻⁴⁰ a float "
             "from 2⁻¹⁷ on is exact; 64 bits hold 4095 addends below 2¹¹. A larger addend or a "
             "NaN is found, and ends the training. Between ranks an integer travels as digits to "
             "the base 2²⁰, in floats: their sums stay below 2²⁴, so every allreduce adds them "
             "exactly.");
    dt_doc_text(doc, "In a training: `\"distributed\": {\"deterministic\": true}`.");
    return doc;
}

static enum dt_status lab_bits(const struct dt_args *args)
{
    struct bits_lesson lesson = {.exact = 0};
    DT_TRY(run(&lesson));
    check(&lesson);
    return dt_golden_show(&lesson.golden, args, tell(&lesson));
}

const struct dt_command dt_command_lab_bits = {
    .word = "lab bits",
    .meaning = "why do 1 GPU and 4 give different results?",
    .minutes = 5,
    .usage = "dtrain lab bits [--html FILE]",
    .examples = "  dtrain lab bits\n",
    .more = "Adds the gradient of one weight as 1 to 16 ranks do, in floats and in integers.",
    .options = {DT_RESULT_OPTIONS},
    .alone = lab_bits,
};
