/* The bits of a sum of floats depend on the number of ranks; those of a sum of integers do not. The
 * lesson adds the gradient of one weight, micro-batch by micro-batch ("leaf"), as n ranks do. */
#include <math.h>

#include "cli/result.h"
#include "dist/compression/codec.h"
#include "dist/compression/fixed_point.h"
#include "lab/golden.h"
#include "lab/training.h"

enum { N_LEAVES = 32, LEAF = DT_LAB_N_POINTS / N_LEAVES, MOST_RANKS = 16 };
#define UNITS_PER_ONE 0x1p40

/* The sum of all leaves by some ranks: each adds its own leaves, then the ranks' sums are added. */
struct total {
    float floats;
    int64_t integer;
    float joined; /* the integer as a float, from the sums of its digits over the ranks */
};

struct bits_lesson {
    float tiny[2];          /* 1 + 2^-24 + 2^-24, added from the left and from the right */
    float leaves[N_LEAVES]; /* the gradient of the slope */
    double formula, exact;  /* their sum: from the data; and of these floats, without rounding */
    float ulp;              /* a unit in the sum's last place */
    struct total of[MOST_RANKS + 1]; /* by so many ranks */
    int n_distinct;                  /* different sums of floats */
    struct dt_golden golden;
};

/* ---- the sums */

/* Ranks have adjacent leaves, as in a training with `deterministic`. */
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
    return t;
}

static void add_tiny(float sums[2])
{
    const volatile float one = 1, small = 0x1p-24F; /* volatile: added at run time */
    sums[0] = one + small;
    sums[0] += small;
    sums[1] = small + small;
    sums[1] += one;
}

/* Passes through the leaves from the line y = 0, and adds their gradients. */
static enum dt_status run(struct dt_lab_network *net, const struct dt_samples *points, void *lesson)
{
    struct bits_lesson *l = lesson;
    for (int k = 0; k < N_LEAVES; k++) {
        uint32_t rows[LEAF];
        const struct dt_batch batch = {.n = LEAF, .rows = rows, .ids = rows};
        for (int i = 0; i < LEAF; i++) {
            rows[i] = (uint32_t)(k * LEAF + i);
            l->formula -= 2 * (double)points->values[rows[i]] * (double)points->targets[rows[i]];
        }
        DT_TRY(dt_lab_pass(net, &batch, false, NULL));
        l->leaves[k] = *dt_lab_grad(net, "fc1.weight");
        l->exact += (double)l->leaves[k];
    }
    l->ulp = nextafterf(fabsf((float)l->exact), INFINITY) - fabsf((float)l->exact);
    add_tiny(l->tiny);
    for (int n = 1; n <= MOST_RANKS; n++) {
        bool is_new = true;
        l->of[n] = add_by_ranks(l, n);
        for (int before = 1; before < n; before++) {
            is_new = is_new && l->of[before].floats != l->of[n].floats;
        }
        l->n_distinct += is_new;
    }
    return DT_OK;
}

static void check(struct bits_lesson *l)
{
    const struct total *one = &l->of[1];
    const float too_large[3] = {2048, -3000, NAN};
    int64_t sums[3] = {0};
    dt_golden_number(&l->golden, (double)l->tiny[0], 1, 0, "1 + 2^-24 + 2^-24");
    dt_golden_number(&l->golden, (double)l->tiny[1], 1 + 0x1p-23, 0, "2^-24 + 2^-24 + 1");
    dt_golden_number(&l->golden, l->exact, l->formula, 1e-5 * fabs(l->formula),
                     "the gradient by the data");
    dt_golden_figure(&l->golden, l->n_distinct > 1, "floats give another sum at other ranks");
    for (int n = 1; n <= MOST_RANKS; n++) {
        dt_golden_figure(&l->golden, l->of[n].integer == one->integer,
                         "%d ranks have the integer of one", n);
        dt_golden_number(&l->golden, (double)l->of[n].joined, (double)(float)l->exact, 0,
                         "the sum of the digits of %d ranks", n);
    }
    dt_golden_number(&l->golden, (double)one->integer / UNITS_PER_ONE, l->exact, 0x1p-37,
                     "the integer in units of 2^-40");
    dt_golden_number(&l->golden, (double)dt_fixed_add(3, too_large, sums), 3, 0,
                     "addends that no sum holds");
}

/* ---- the document */

static void add_sums(struct dt_doc *doc, const struct bits_lesson *l)
{
    double ranks[MOST_RANKS], floats[MOST_RANKS], integers[MOST_RANKS];
    struct dt_part *chart = dt_doc_series(doc, "Distance from the exact sum", "ranks", "ulps");
    struct dt_part *table = dt_doc_table(
        doc, "Sums", "ranks::0|sum of floats::6|bits|ulps::2|sum of integers:2⁻⁴⁰:0|as a float");
    for (int i = 0; i < MOST_RANKS; i++) {
        const struct total *t = &l->of[i + 1];
        ranks[i] = i + 1;
        floats[i] = ((double)t->floats - l->exact) / (double)l->ulp;
        integers[i] = ((double)t->joined - l->exact) / (double)l->ulp;
        dt_doc_row(table, dt_n(ranks[i]), dt_n((double)t->floats),
                   dt_t(dt_doc_print(doc, "%08x", dt_float_bits(t->floats))), dt_n(floats[i]),
                   dt_n((double)t->integer),
                   dt_t(dt_doc_print(doc, "%08x", dt_float_bits(t->joined))));
    }
    dt_doc_caption(chart, "An ulp, a unit in the last place of the sum, is %.3g.", (double)l->ulp);
    dt_doc_plot(chart, "sum of floats", DT_DOTS, MOST_RANKS, ranks, floats);
    dt_doc_plot(chart, "sum of integers, rounded to a float once", DT_LINE, MOST_RANKS, ranks,
                integers);
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
    add_sums(doc, l);
    dt_doc_text(doc,
                "Floats: %d different sums at 1 to %d ranks, all of them right to %.1g. Each "
                "addition rounds, and another number of ranks adds other pairs. A training "
                "continues from these sums, so its weights drift apart, bit by bit.",
                l->n_distinct, MOST_RANKS, 8 * (double)l->ulp / fabs(l->exact));
    dt_doc_text(
        doc, "Integers do not round, so every order gives the same sum. In units of 2⁻⁴⁰ a float "
             "from 2⁻¹⁷ on is exact; 64 bits hold 4095 addends below 2¹¹. A larger addend or a "
             "NaN ends the training. Between ranks an integer travels as digits to "
             "the base 2²⁰, in floats: their sums stay below 2²⁴, so every allreduce adds them "
             "exactly.");
    dt_doc_text(doc, "In a training: `\"distributed\": {\"deterministic\": true}`.");
    return doc;
}

static enum dt_status lab_bits(const struct dt_args *args)
{
    struct bits_lesson lesson = {.exact = 0};
    DT_TRY(dt_lab_line_run(run, &lesson));
    check(&lesson);
    return dt_golden_show(&lesson.golden, args, tell(&lesson));
}

const struct dt_command dt_command_lab_bits = {
    .word = "lab bits",
    .meaning = "why do 1 GPU and 4 give different results?",
    .minutes = 5,
    .usage = "dtrain lab bits" DT_RESULT_USAGE,
    .examples = "  dtrain lab bits\n",
    .more = "Adds the gradient of one weight as 1 to 16 ranks do, in floats and in integers.",
    .options = {DT_RESULT_OPTIONS},
    .alone = lab_bits,
};
