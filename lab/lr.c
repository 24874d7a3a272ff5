/* The learning rate grows with the batch (Goyal et al. 2017, arXiv 1706.02677). The lesson compares
 * two steps of rate r over 32 points each with one step of 2 r over all 64. They differ by the
 * change of the gradient between the two steps, which grows with r squared. */
#include <math.h>

#include "cli/result.h"
#include "lab/golden.h"
#include "lab/training.h"
#include "model/lr_schedule.h"

#define N_RATES 5 /* four halvings */
enum { HALF = DT_LAB_N_POINTS / 2 };
#define N_EPOCHS_SHOWN 5

struct point {
    double m, n; /* slope and intercept */
};

/* Two steps of rate r, and one of 2 r, from (0, 0). */
struct race {
    double rate;
    struct point two, one; /* their ends */
    double gap;            /* the distance between both ends */
};

struct lr_lesson {
    struct race races[N_RATES];
    struct race constant; /* for a loss whose gradient is the same everywhere */
    double formula;       /* gap / rate^2, from the data's second derivative */
    struct dt_golden golden;
};

/* ---- the runs */

/* A step over points [begin, begin + n). `constant`: the loss is the mean output, whose gradient
 * does not depend on the weights. */
static enum dt_status step(struct dt_lab_network *net, uint32_t begin, int n, double rate,
                           bool constant)
{
    uint32_t rows[DT_LAB_N_POINTS];
    for (int i = 0; i < n; i++) {
        rows[i] = begin + (uint32_t)i;
    }
    const struct dt_batch batch = {.n = n, .rows = rows, .ids = rows};
    const struct dt_update update =
        dt_strategy_next_update(net->strategy, rate, (size_t)n, (size_t)n);
    struct dt_strategy_step under_way = dt_strategy_start(net->strategy, &update);
    DT_TRY(constant ? dt_lab_pass_sum(net, &batch, &under_way)
                    : dt_lab_pass(net, &batch, false, &under_way));
    return dt_strategy_finish(&under_way);
}

static struct point take_line(struct dt_lab_network *net)
{
    float *m = dt_lab_param(net, "fc1.weight"), *n = dt_lab_param(net, "fc1.bias");
    const struct point p = {(double)*m, (double)*n};
    *m = *n = 0;
    return p;
}

static enum dt_status run_race(struct dt_lab_network *net, double rate, bool constant,
                               struct race *out)
{
    DT_TRY(step(net, 0, HALF, rate, constant));
    DT_TRY(step(net, HALF, HALF, rate, constant));
    out->two = take_line(net);
    DT_TRY(step(net, 0, 2 * HALF, 2 * rate, constant));
    out->one = take_line(net);
    out->rate = rate;
    out->gap = hypot(out->two.m - out->one.m, out->two.n - out->one.n);
    return DT_OK;
}

/* The loss is quadratic, so the gap is rate^2 |H g|: g is the gradient of the first half at (0, 0),
 * H the second derivative of the second half. */
static double gap_formula(const struct dt_samples *points)
{
    const double factor = 2.0 / HALF;
    double gm = 0, gn = 0, hmm = 0, hmn = 0;
    for (int i = 0; i < HALF; i++) {
        const double x = (double)points->values[i], y = (double)points->targets[i],
                     later = (double)points->values[HALF + i];
        gm -= factor * x * y;
        gn -= factor * y;
        hmm += factor * later * later;
        hmn += factor * later;
    }
    return hypot(hmm * gm + hmn * gn, hmn * gm + 2 * gn);
}

static double warmed_up(double epoch)
{
    const struct dt_lr_schedule schedule = {.lr = 0.004,
                                            .warmup_from = 0.25,
                                            .warmup_epochs = 3,
                                            .steps_per_epoch = 100,
                                            .n_epochs = N_EPOCHS_SHOWN};
    return dt_lr_schedule_at(&schedule, (uint64_t)lround(100 * epoch));
}

static enum dt_status run(struct dt_lab_network *net, const struct dt_samples *points, void *lesson)
{
    struct lr_lesson *l = lesson;
    l->formula = gap_formula(points);
    for (int i = 0; i < N_RATES; i++) {
        DT_TRY(run_race(net, ldexp(0.2, -i), false, &l->races[i]));
    }
    return run_race(net, 0.2, true, &l->constant);
}

static void check(struct lr_lesson *l)
{
    dt_golden_number(&l->golden, l->formula, 9.88, 0.005, "the gap by the second derivative");
    for (int i = 0; i < N_RATES; i++) {
        dt_golden_number(&l->golden, l->races[i].gap / (l->races[i].rate * l->races[i].rate), 9.88,
                         0.005, "gap / rate^2 at rate %g", l->races[i].rate);
    }
    dt_golden_number(&l->golden, l->constant.gap, 0, 1e-6, "the gap of a constant gradient");
    dt_golden_number(&l->golden, l->constant.one.n, -0.4, 1e-6, "the line of a constant gradient");
}

/* ---- the document */

static void add_gaps(struct dt_doc *doc, const struct lr_lesson *l)
{
    double x[N_RATES], y[N_RATES], formula[N_RATES];
    struct dt_part *chart =
        dt_doc_series(doc, "Half the rate, a quarter of the gap", "rate r", "gap");
    struct dt_part *table =
        dt_doc_table(doc, "Where two steps of r and one of 2 r end",
                     "rate r::g|m of two::6|n of two::6|m of one::6|n of one::6|gap::6|"
                     "gap / r²::2");
    for (int i = 0; i < N_RATES; i++) {
        const struct race *r = &l->races[i];
        const double square = r->rate * r->rate;
        const int at = N_RATES - 1 - i; /* x grows */
        x[at] = r->rate;
        y[at] = r->gap;
        formula[at] = l->formula * square;
        dt_doc_row(table, dt_n(r->rate), dt_n(r->two.m), dt_n(r->two.n), dt_n(r->one.m),
                   dt_n(r->one.n), dt_n(r->gap), dt_n(r->gap / square));
    }
    dt_doc_axes(chart, DT_LOG_X | DT_LOG_Y);
    dt_doc_plot(chart, "measured", DT_DOTS, N_RATES, x, y);
    dt_doc_plot(chart, dt_doc_print(doc, "%.2f r²", l->formula), DT_LINE, N_RATES, x, formula);
}

static void draw_warm_up(struct dt_doc *doc)
{
    double x[10 * N_EPOCHS_SHOWN + 1], y[10 * N_EPOCHS_SHOWN + 1];
    for (int i = 0; i <= 10 * N_EPOCHS_SHOWN; i++) {
        x[i] = i / 10.0;
        y[i] = warmed_up(x[i]);
    }
    struct dt_part *chart = dt_doc_series(doc, "Warm-up", "epoch", "learning rate");
    dt_doc_axes(chart, DT_FROM_ZERO);
    dt_doc_plot(chart, "4 ranks, 3 epochs of warm-up", DT_LINE, 10 * N_EPOCHS_SHOWN + 1, x, y);
}

/* The rates of the rule and of its warm-up, which are checked as they are added. */
static void add_rates(struct dt_doc *doc, struct dt_golden *golden)
{
    static const struct {
        int ranks;
        double rate;
    } rule[] = {{1, 0.001}, {2, 0.002}, {4, 0.004}, {8, 0.008}};
    static const struct {
        double epoch, rate;
    } warm_up[] = {{0, 0.001}, {1.5, 0.0025}, {3, 0.004}};
    struct dt_part *table = dt_doc_table(doc, "The rule", "ranks::0|rate::g");
    for (size_t i = 0; i < sizeof rule / sizeof rule[0]; i++) {
        const double rate = 0.001 * dt_lr_scale(DT_LR_SCALING_LINEAR, rule[i].ranks);
        dt_golden_number(golden, rate, rule[i].rate, 1e-12, "the rate of %d ranks", rule[i].ranks);
        dt_doc_row(table, dt_n(rule[i].ranks), dt_n(rate));
    }
    table = dt_doc_table(doc, "Warm-up of 4 ranks", "epoch::g|rate::g");
    for (size_t i = 0; i < sizeof warm_up / sizeof warm_up[0]; i++) {
        const double epoch = warm_up[i].epoch, rate = warmed_up(epoch);
        dt_golden_number(golden, rate, warm_up[i].rate, 1e-12, "the rate of epoch %g", epoch);
        dt_doc_row(table, dt_n(epoch), dt_n(rate));
    }
}

static struct dt_doc *tell(struct lr_lesson *l)
{
    struct dt_doc *doc = dt_doc_open("lab lr", "Why the learning rate grows with the batch");
    dt_doc_text(doc,
                "64 points around a line y = m x + n, from (0, 0): two steps of rate r over 32 "
                "points each, against one step of 2 r over all 64.");
    add_gaps(doc, l);
    dt_doc_text(
        doc,
        "One step of 2 r lands where two steps of r do, up to the change of the gradient "
        "between them: %.2f r², as the data's second derivative predicts. Where the gradient "
        "is the same everywhere (a loss that is the mean output) both end at the same line: "
        "the gap is %.6f.",
        l->formula, l->constant.gap);
    dt_doc_text(doc, "So n ranks with a batch each train with n times the rate "
                     "(`train.lr_scaling`: `linear`). The rule is derived for SGD. The shipped "
                     "configurations scale Adam's rate by it too, where many use the square root "
                     "of n.");
    dt_doc_text(doc, "At first the gradient changes most, and the rule is worst. So warm-up "
                     "(`train.warmup_epochs`) begins with the rate of one rank and ends with that "
                     "of all.");
    draw_warm_up(doc);
    add_rates(doc, &l->golden);
    return doc;
}

static enum dt_status lab_lr(const struct dt_args *args)
{
    struct lr_lesson lesson = {.formula = 0};
    DT_TRY(dt_lab_line_run(run, &lesson));
    check(&lesson);
    return dt_golden_show(&lesson.golden, args, tell(&lesson));
}

const struct dt_command dt_command_lab_lr = {
    .word = "lab lr",
    .meaning = "why does the learning rate grow with the batch?",
    .minutes = 5,
    .usage = "dtrain lab lr" DT_RESULT_USAGE,
    .examples = "  dtrain lab lr\n",
    .more = "Compares two steps of a rate with one step of twice the rate over all their samples.",
    .options = {DT_RESULT_OPTIONS},
    .alone = lab_lr,
};
