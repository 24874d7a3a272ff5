/* Why the learning rate grows with the batch (Goyal et al. 2017, arXiv 1706.02677): k steps of rate
 * r over N samples each, against one of rate k r over all k N. They differ by the change of the
 * gradient between them, which grows with r squared. */
#include <math.h>

#include "cli/result.h"
#include "lab/golden.h"
#include "lab/training.h"
#include "model/schedule.h"
#include "model/stages.h"

#define N_RATES 5 /* four halvings */
enum { HALF = DT_LAB_N_POINTS / 2 };
#define N_EPOCHS_SHOWN 5

struct point {
    double m, n; /* slope and intercept */
};

/* Two steps of rate r against one of 2 r, from (0, 0). */
struct race {
    double rate;
    struct point two, one;
    double gap; /* distance of their ends */
};

struct lr_lesson {
    struct race races[N_RATES];
    struct race constant; /* for a loss whose gradient is the same everywhere */
    double formula;       /* gap / rate^2, from the data's second derivative */
    double scaled[4];     /* 0.001 over 1, 2, 4, 8 ranks */
    double warm[3];       /* 0.004 = 4 * 0.001, warmed up over 3 epochs: after 0, 1.5 and 3 */
    struct dt_golden golden;
};

static const int ranks[4] = {1, 2, 4, 8};
static const double warm_epochs[3] = {0, 1.5, 3};

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
    struct dt_pass pass = {.batch = &batch, .training = true};
    const struct dt_update update = dt_strategy_next(net->strategy, rate, (size_t)n, (size_t)n);
    struct dt_strategy_step under_way = dt_strategy_begin(net->strategy, &update);
    DT_TRY(dt_network_gather(net->network, net->bound, &batch));
    DT_TRY(dt_network_forward(net->network, &pass));
    DT_TRY(dt_network_loss(net->network, net->bound, &pass));
    for (int i = 0; constant && i < n; i++) {
        dt_network_dlogits(net->network)[i] = 1;
    }
    DT_TRY(dt_strategy_backward(&under_way, net->network, &pass));
    return dt_strategy_wait(&under_way);
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

static enum dt_status run_races(struct dt_lab_network *net, struct lr_lesson *l)
{
    double rate = 0.2;
    for (int i = 0; i < N_RATES; i++, rate /= 2) {
        DT_TRY(run_race(net, rate, false, &l->races[i]));
    }
    return run_race(net, 0.2, true, &l->constant);
}

/* The loss is quadratic, so the gap is rate^2 |H g|: g is the first half's gradient at (0, 0), H
 * the second half's second derivative. */
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
    const struct dt_schedule schedule = {.lr = 0.004,
                                         .scale = 4,
                                         .warmup_epochs = 3,
                                         .steps_per_epoch = 100,
                                         .n_epochs = N_EPOCHS_SHOWN};
    return dt_schedule_lr(&schedule, (uint64_t)lround(100 * epoch));
}

static enum dt_status run(struct lr_lesson *l)
{
    struct dt_dataset points;
    struct dt_lab_network net = {.backend = NULL};
    struct dt_comm *self;
    enum dt_status s;
    DT_TRY(dt_lab_points_open((struct dt_owned){.n = DT_LAB_N_POINTS, .stride = 1}, &points));
    DT_TRY_GOTO(s, dt_comm_open_self(&self), close_points);
    const struct dt_lab_network_spec spec = {.model = &dt_lab_line_model,
                                             .samples = &points.samples,
                                             .comm = self,
                                             .capacity = DT_LAB_N_POINTS};
    DT_TRY_GOTO(s, dt_lab_network_open(&spec, &net), close_comm);
    s = run_races(&net, l);
    l->formula = gap_formula(&points.samples);
    dt_lab_network_close(&net);
close_comm:
    dt_comm_close(self);
close_points:
    dt_dataset_close(&points);
    return s;
}

static void check(struct lr_lesson *l)
{
    static const double scaled[4] = {0.001, 0.002, 0.004, 0.008}, warm[3] = {0.001, 0.0025, 0.004};
    dt_golden_number(&l->golden, l->formula, 9.88, 0.005, "the gap by the second derivative");
    for (int i = 0; i < N_RATES; i++) {
        dt_golden_number(&l->golden, l->races[i].gap / (l->races[i].rate * l->races[i].rate), 9.88,
                         0.005, "gap / rate^2 at rate %g", l->races[i].rate);
    }
    dt_golden_number(&l->golden, l->constant.gap, 0, 1e-6, "the gap of a constant gradient");
    dt_golden_number(&l->golden, l->constant.one.n, -0.4, 1e-6, "the line of a constant gradient");
    for (int i = 0; i < 4; i++) {
        l->scaled[i] = 0.001 * dt_lr_scale(DT_LR_SCALING_LINEAR, ranks[i]);
        dt_golden_number(&l->golden, l->scaled[i], scaled[i], 1e-12, "the rate of %d ranks",
                         ranks[i]);
    }
    for (int i = 0; i < 3; i++) {
        l->warm[i] = warmed_up(warm_epochs[i]);
        dt_golden_number(&l->golden, l->warm[i], warm[i], 1e-12, "the rate of epoch %g",
                         warm_epochs[i]);
    }
}

/* ---- the document */

static void draw_gaps(struct dt_doc *doc, const struct lr_lesson *l)
{
    double x[N_RATES], y[N_RATES], formula[N_RATES];
    for (int i = 0; i < N_RATES; i++) { /* x grows */
        const struct race *r = &l->races[N_RATES - 1 - i];
        x[i] = r->rate;
        y[i] = r->gap;
        formula[i] = l->formula * r->rate * r->rate;
    }
    struct dt_part *chart =
        dt_doc_series(doc, "Half the rate, a quarter of the gap", "rate r", "gap");
    dt_doc_axes(chart, DT_LOG_X | DT_LOG_Y);
    dt_doc_plot(chart, "measured", DT_DOTS, N_RATES, x, y);
    dt_doc_plot(chart, dt_doc_print(doc, "%.2f r²", l->formula), DT_LINE, N_RATES, x, formula);
}

static void fill_gaps(struct dt_doc *doc, const struct lr_lesson *l)
{
    struct dt_part *table =
        dt_doc_table(doc, "Where two steps of r and one of 2 r end",
                     "rate r::g|m of two::6|n of two::6|m of one::6|n of one::6|gap::6|"
                     "gap / r²::2");
    for (int i = 0; i < N_RATES; i++) {
        const struct race *r = &l->races[i];
        dt_doc_row(table, dt_n(r->rate), dt_n(r->two.m), dt_n(r->two.n), dt_n(r->one.m),
                   dt_n(r->one.n), dt_n(r->gap), dt_n(r->gap / (r->rate * r->rate)));
    }
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

static void fill_rates(struct dt_doc *doc, const struct lr_lesson *l)
{
    struct dt_part *rates = dt_doc_table(doc, "The rule", "ranks::0|rate::g");
    for (int i = 0; i < 4; i++) {
        dt_doc_row(rates, dt_n(ranks[i]), dt_n(l->scaled[i]));
    }
    struct dt_part *warm = dt_doc_table(doc, "Warm-up of 4 ranks", "epoch::g|rate::g");
    for (int i = 0; i < 3; i++) {
        dt_doc_row(warm, dt_n(warm_epochs[i]), dt_n(l->warm[i]));
    }
}

static struct dt_doc *tell(const struct lr_lesson *l)
{
    struct dt_doc *doc = dt_doc_open("lab lr", "Why the learning rate grows with the batch");
    dt_doc_text(doc,
                "64 points around a line y = m x + n, from (0, 0): two steps of rate r over 32 "
                "points each, against one step of 2 r over all 64.");
    draw_gaps(doc, l);
    fill_gaps(doc, l);
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
    fill_rates(doc, l);
    return doc;
}

static enum dt_status lab_lr(const struct dt_args *args)
{
    struct lr_lesson lesson = {.formula = 0};
    DT_TRY(run(&lesson));
    check(&lesson);
    return dt_golden_show(&lesson.golden, args, tell(&lesson));
}

const struct dt_command dt_command_lab_lr = {
    .word = "lab lr",
    .meaning = "why does the learning rate grow with the batch?",
    .minutes = 5,
    .usage = "dtrain lab lr [--html FILE]",
    .examples = "  dtrain lab lr\n",
    .more = "Compares two steps of a rate with one step of twice the rate over all their samples.",
    .options = {DT_RESULT_OPTIONS},
    .alone = lab_lr,
};
