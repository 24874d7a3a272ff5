/* Why the learning rate grows with the batch (Goyal et al. 2017, arXiv 1706.02677): k steps of rate
 * r over N samples each, against one of rate k r over all k N. They differ by the change of the
 * gradient between them, which grows with r squared. */
#include <math.h>
#include <stdio.h>

#include "lab/golden.h"
#include "lab/training.h"
#include "model/schedule.h"
#include "model/stages.h"
#include "report/page/chart.h"
#include "report/page/layout.h"

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

/* ---- text and page */

static void print_lesson(const struct lr_lesson *l)
{
    puts("Why the learning rate grows with the batch. 64 points around a line y = m x + n,\n"
         "from (0, 0): two steps of rate r over 32 points each, and one of 2 r over 64.\n");
    printf("%8s  %-22s%-22s%12s%11s\n", "rate r", "two steps: m, n", "one step: m, n", "gap",
           "gap / r^2");
    for (int i = 0; i < N_RATES; i++) {
        const struct race *r = &l->races[i];
        char two[40], one[40];
        snprintf(two, sizeof two, "%.6f, %.6f", r->two.m, r->two.n);
        snprintf(one, sizeof one, "%.6f, %.6f", r->one.m, r->one.n);
        printf("%8g  %-22s%-22s%12.6f%11.2f\n", r->rate, two, one, r->gap,
               r->gap / (r->rate * r->rate));
    }
    printf("\nHalf the rate, a quarter of the gap: %.2f r^2, as the data's second derivative\n"
           "predicts. One step of 2 r lands where two steps of r do, up to the change of\n"
           "the gradient between them. Where it is constant (a loss that is the mean\n"
           "output) both end at the same line:\n%.6f, %.6f and %.6f, %.6f.\n",
           l->formula, l->constant.two.m, l->constant.two.n, l->constant.one.m, l->constant.one.n);
    printf("\nSo n ranks with a batch each go with n times the rate (lr_scaling: linear):\n ");
    for (int i = 0; i < 4; i++) {
        printf(" 0.001 x %d = %g%s", ranks[i], l->scaled[i], i < 3 ? "," : "\n");
    }
    printf("At first the gradient changes most, and the rule is worst. Warm-up begins with\n"
           "the rate of one rank and ends with that of all; 4 ranks, warmup_epochs 3:\n ");
    for (int i = 0; i < 3; i++) {
        printf(" epoch %g: %g%s", warm_epochs[i], l->warm[i], i < 2 ? "," : "\n");
    }
    putchar('\n');
}

static void draw_gaps(FILE *out, const struct lr_lesson *l)
{
    const struct dt_chart chart = {out,
                                   "the gap over the rate, both logarithmic",
                                   {"rate r", 0.01, 0.25, true},
                                   {"gap", 0.001, 1, true}};
    const double x[2] = {0.01, 0.25}, y[2] = {l->formula * x[0] * x[0], l->formula * x[1] * x[1]};
    dt_chart_begin(&chart);
    dt_chart_line(&chart, "s0", 2, x, y);
    for (int i = 0; i < N_RATES; i++) {
        dt_chart_dot(&chart, "d1", l->races[i].rate, l->races[i].gap);
    }
    char text[32];
    snprintf(text, sizeof text, "%.2f r²", l->formula);
    dt_chart_note(&chart, "end", 0.09, 0.09, text);
    dt_chart_end(&chart);
}

static void draw_warm_up(FILE *out)
{
    const struct dt_chart chart = {out,
                                   "the learning rate over the epochs",
                                   {"epoch", 0, N_EPOCHS_SHOWN, false},
                                   {"rate", 0, 0.005, false}};
    double x[10 * N_EPOCHS_SHOWN + 1], y[10 * N_EPOCHS_SHOWN + 1];
    for (int i = 0; i <= 10 * N_EPOCHS_SHOWN; i++) {
        x[i] = i / 10.0;
        y[i] = warmed_up(x[i]);
    }
    dt_chart_begin(&chart);
    dt_chart_line(&chart, "s0", 10 * N_EPOCHS_SHOWN + 1, x, y);
    for (int i = 0; i < 3; i++) {
        char text[32];
        snprintf(text, sizeof text, "%g", warmed_up(warm_epochs[i]));
        dt_chart_dot(&chart, "d1", warm_epochs[i], warmed_up(warm_epochs[i]));
        dt_chart_note(&chart, "start", warm_epochs[i], warmed_up(warm_epochs[i]) - 0.0003, text);
    }
    dt_chart_end(&chart);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct lr_lesson *l = context;
    fputs("<h1>Why the learning rate grows with the batch</h1>\n"
          "<p>64 points around a line y = m x + n, from (0, 0): two steps of rate r over 32 points "
          "each, against one step of 2 r over all 64.</p>\n"
          "<div class=\"cards\"><div class=\"card\"><h2>Half the rate, a quarter of the gap</h2>\n"
          "<p>Dots: how far the two lines end apart. Line: what the data's second derivative "
          "says.</p>\n",
          out);
    draw_gaps(out, l);
    fputs("</div>\n<div class=\"card\"><h2>Warm-up</h2>\n"
          "<p>At first the gradient changes most, and the rule is worst: four ranks begin with the "
          "rate of one, and have that of four after three epochs.</p>\n",
          out);
    draw_warm_up(out);
    fputs("</div></div>\n", out);
    dt_table_begin(out, "rate r|two steps: m, n|one step: m, n|gap|gap / r²");
    for (int i = 0; i < N_RATES; i++) {
        const struct race *r = &l->races[i];
        dt_table_row(out, "%g|%.6f, %.6f|%.6f, %.6f|%.6f|%.2f", r->rate, r->two.m, r->two.n,
                     r->one.m, r->one.n, r->gap, r->gap / (r->rate * r->rate));
    }
    dt_table_end(out);
    fprintf(out,
            "<p>Where the gradient is the same everywhere (a loss that is the mean output) both "
            "end at the same line: the gap is %.6f.</p>\n",
            l->constant.gap);
}

static enum dt_status lab_lr(const struct dt_args *args)
{
    struct lr_lesson lesson = {.formula = 0};
    DT_TRY(run(&lesson));
    check(&lesson);
    print_lesson(&lesson);
    return dt_golden_tell(&lesson.golden, args, "The learning rate", put_body, &lesson);
}

const struct dt_command dt_command_lab_lr = {
    .word = "lab lr",
    .meaning = "why the learning rate grows with the batch; warm-up",
    .usage = "dtrain lab lr [--html FILE]",
    .examples = "  dtrain lab lr\n",
    .more = "Compares two steps of a rate with one step of twice the rate over all their samples.",
    .options = {[DT_OPTION_HTML] = {DT_TAKEN}},
    .alone = lab_lr,
};
