/* Why the bits of a sum of floats depend on the number of ranks, and those of a sum of integers do
 * not: the gradient of one weight, leaf by leaf, added as n ranks add it. */
#include <math.h>
#include <stdio.h>

#include "dist/compression/codec.h"
#include "dist/compression/fixed_point.h"
#include "lab/golden.h"
#include "lab/training.h"
#include "report/page/chart.h"
#include "report/page/layout.h"

enum { N_LEAVES = 32, LEAF = DT_LAB_N_POINTS / N_LEAVES, MOST_RANKS = 16, N_SHOWN = 8 };
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

static const int shown[N_SHOWN] = {1, 2, 3, 4, 5, 8, 12, 16};

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

/* ---- text and page */

static void print_lesson(const struct bits_lesson *l)
{
    printf("Why the bits of a sum depend on the number of ranks. A float has 24 bits:\n\n"
           "  (1 + 2^-24) + 2^-24 = %.9g\n  1 + (2^-24 + 2^-24) = %.9g\n",
           (double)l->tiny[0], (double)l->tiny[1]);
    printf("\nThe gradient of a weight over %d points, in %d leaves of %d; each rank adds its\n"
           "own leaves, then the ranks' sums are added. Exact: %.12g. An ulp, a\n"
           "unit in the last place, is %.3g.\n\n%5s  %-14s%-10s%7s   %s\n",
           DT_LAB_N_POINTS, N_LEAVES, LEAF, l->exact, (double)l->ulp, "ranks", "sum of floats",
           "bits", "ulps", "sum of integers, in units of 2^-40");
    for (int i = 0; i < N_SHOWN; i++) {
        const struct total *t = &l->of[shown[i]];
        printf("%5d  %-14.6f%08x  %+7.2f   %lld\n", shown[i], (double)t->floats,
               dt_float_bits(t->floats), t->ulps, (long long)t->integer);
    }
    printf("\n%d different sums of floats at 1 to %d ranks, all of them right to %.1g: each\n"
           "addition rounds, and other ranks add other pairs. A training continues from\n"
           "them, and its weights drift apart, bit by bit.\n",
           l->n_distinct, MOST_RANKS, 8 * (double)l->ulp / fabs(l->exact));
    puts("\nIntegers do not round, so any order gives the same sum; in units of 2^-40 a\n"
         "float from 2^-17 up is exact. 64 bits hold 4095 addends below 2^11; one that is\n"
         "not, or a NaN, is found, and ends the training.\n");
    printf("Between ranks the integer travels as digits to the base 2^20, in floats; their\n"
           "sums stay below 2^24, so floats add them exactly, by every algorithm:\n"
           "%08x at 1 to %d ranks. In a training: \"deterministic\": true.\n\n",
           dt_float_bits(l->of[MOST_RANKS].joined), MOST_RANKS);
}

static void draw_sums(FILE *out, const struct bits_lesson *l)
{
    double most = 1;
    for (int n = 1; n <= MOST_RANKS; n++) {
        most = fmax(most, ceil(fabs(l->of[n].ulps)));
    }
    const struct dt_chart chart = {out,
                                   "distance of the sums from the exact one over the ranks",
                                   {"ranks", 0, MOST_RANKS + 1, false},
                                   {"ulps from the exact sum", -most, most, false}};
    const double error = ((double)l->of[1].joined - l->exact) / (double)l->ulp;
    const double x[2] = {1, MOST_RANKS}, y[2] = {error, error};
    dt_chart_begin(&chart);
    dt_chart_line(&chart, "s0", 2, x, y);
    for (int n = 1; n <= MOST_RANKS; n++) {
        dt_chart_dot(&chart, "d1", n, l->of[n].ulps);
    }
    dt_chart_end(&chart);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct bits_lesson *l = context;
    fprintf(
        out,
        "<h1>The same bits at any number of ranks</h1>\n"
        "<p>A float has 24 bits: (1 + 2⁻²⁴) + 2⁻²⁴ is %.9g, and 1 + (2⁻²⁴ + 2⁻²⁴) is %.9g.</p>\n"
        "<p>The gradient of a weight over %d points, in %d leaves; each rank adds its own "
        "leaves, then the ranks' sums are added. Exact: %.12g.</p>\n<div class=\"cards\">",
        (double)l->tiny[0], (double)l->tiny[1], DT_LAB_N_POINTS, N_LEAVES, l->exact);
    dt_card_begin(out, "Floats depend on the ranks, integers do not",
                  "Dots: sums of floats. Line: the sum of integers, rounded to a float once.");
    draw_sums(out, l);
    dt_card_end(out);
    fputs("</div>\n", out);
    dt_table_begin(out, "ranks|sum of floats|bits|ulps|sum of integers, in 2⁻⁴⁰|as a float");
    for (int n = 1; n <= MOST_RANKS; n++) {
        const struct total *t = &l->of[n];
        dt_table_row(out, "%d|%.9g|%08x|%+.2f|%lld|%08x", n, (double)t->floats,
                     dt_float_bits(t->floats), t->ulps, (long long)t->integer,
                     dt_float_bits(t->joined));
    }
    dt_table_end(out);
}

static enum dt_status lab_bits(const struct dt_args *args)
{
    struct bits_lesson lesson = {.exact = 0};
    DT_TRY(run(&lesson));
    check(&lesson);
    print_lesson(&lesson);
    return dt_golden_tell(&lesson.golden, args, "The same bits", put_body, &lesson);
}

const struct dt_command dt_command_lab_bits = {
    .word = "lab bits",
    .meaning = "why sums of floats depend on the ranks, and integers do not",
    .usage = "dtrain lab bits [--html FILE]",
    .examples = "  dtrain lab bits\n",
    .more = "Adds the gradient of one weight as 1 to 16 ranks do, in floats and in integers.",
    .options = {[DT_OPTION_HTML] = {DT_TAKEN}},
    .alone = lab_bits,
};
