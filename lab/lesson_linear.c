/* Shows the effect of averaging and of the broadcast: two ranks fit y = m x + n by gradient
 * descent, with each switch on and off. And the effect of the batch on their paths: one sample a
 * step, 16, or all. */
#include <math.h>
#include <string.h>

#include "cli/result.h"
#include "data/shard.h"
#include "dist/ranks/world.h"
#include "lab/golden.h"
#include "lab/training.h"
#include "train/events.h"

enum { N_STEPS = 64 };

enum { BOTH, AVERAGE, BROADCAST, NEITHER, N_CASES };
static const struct linear_case {
    bool average, broadcast;
    const char *title, *caption;
} cases[N_CASES] = {
    [BOTH] = {true, true, "Average on, broadcast on",
              "Equal steps from equal weights: one training."},
    [AVERAGE] = {true, false, "Average on, broadcast off",
                 "Equal steps: the distance (1, 1) stays, and both ranks end wrong."},
    [BROADCAST] = {false, true, "Average off, broadcast on",
                   "Own steps: the ranks drift apart, each to the line of its points."},
    [NEITHER] = {false, false, "Average off, broadcast off",
                 "Two programs that know nothing of each other."},
};

/* `size`: samples in a rank's step. */
static const struct batch {
    const char *name;
    int size;
    double rate;
} batches[] = {{"all", DT_LAB_N_POINTS / 2, 0.25}, {"16", 16, 0.2}, {"1", 1, 0.05}};

static const struct dt_fit starts[2] = {{1, 1}, {0, 0}}; /* of both ranks */

/* A rank's line before the first step and after each. */
struct path {
    struct dt_fit at[N_STEPS + 1];
};

struct linear_lesson {
    const struct batch *batch;
    struct path alone;          /* of one process with all points, from (1, 1) */
    struct path of[N_CASES][2]; /* of both ranks */
    struct dt_samples points;   /* all of them */
    struct dt_golden golden;
};

/* The loss over all points is its least + (w - best)' C (w - best), with C = [x2 x1; x1 1]. */
struct bowl {
    double x1, x2, y1, xy; /* means over all points; x2: of x squared */
    double m, n;           /* the best line */
};

static struct bowl bowl_of(const struct dt_samples *points)
{
    struct bowl a = {.x1 = 0};
    for (size_t i = 0; i < points->n; i++) {
        const double x = (double)points->values[i], y = (double)points->targets[i],
                     part = 1.0 / (double)points->n;
        a.x1 += part * x;
        a.x2 += part * x * x;
        a.y1 += part * y;
        a.xy += part * x * y;
    }
    a.m = (a.xy - a.x1 * a.y1) / (a.x2 - a.x1 * a.x1);
    a.n = a.y1 - a.m * a.x1;
    return a;
}

/* True if a step takes all points. */
static bool is_full(const struct linear_lesson *l)
{
    return l->batch->size == DT_LAB_N_POINTS / 2;
}

/* ---- a run */

static enum dt_status walk(struct dt_lab_network *net, struct dt_loader *loader, double rate,
                           struct path *path)
{
    const uint64_t per_epoch = dt_shard_steps_per_epoch(&loader->shard);
    const float *m = dt_lab_param(net, "fc1.weight"), *n = dt_lab_param(net, "fc1.bias");
    path->at[0] = (struct dt_fit){*m, *n};
    for (uint64_t i = 0; i < N_STEPS; i++) {
        const struct dt_batch batch =
            dt_loader_batch(loader, (uint32_t)(i / per_epoch), i % per_epoch);
        const size_t n_all = dt_shard_step_samples(&loader->shard, i % per_epoch);
        const struct dt_update update =
            dt_strategy_next_update(net->strategy, rate, n_all, (size_t)batch.n);
        struct dt_strategy_step step = dt_strategy_start(net->strategy, &update);
        DT_TRY(dt_lab_pass(net, &batch, false, &step));
        DT_TRY(dt_strategy_finish(&step));
        path->at[i + 1] = (struct dt_fit){*m, *n};
    }
    return DT_OK;
}

/* Trains a rank of `comm` in case `c` on its shard of the points. Statuses are local: the caller
 * has the ranks agree. */
static enum dt_status run_shard(struct dt_comm *comm, const struct batch *batch,
                                const struct linear_case *c, struct path *path)
{
    const struct dt_shard shard = {.mode = DT_SHARDING_SHARD,
                                   .seed = 1,
                                   .n_total = DT_LAB_N_POINTS,
                                   .global_batch = (size_t)batch->size * (size_t)comm->size,
                                   .rank = comm->rank,
                                   .size = comm->size,
                                   .shuffle = true};
    struct dt_dataset points;
    struct dt_loader loader;
    struct dt_lab_network net = {.backend = NULL};
    enum dt_status s;
    DT_TRY(dt_lab_points_open(dt_shard_owned(&shard), &points));
    DT_TRY_GOTO(s, dt_loader_open(&shard, &loader), close_points);
    const struct dt_lab_network_spec spec = {.model = &dt_lab_line_model,
                                             .samples = &points.samples,
                                             .comm = comm,
                                             .average = c->average,
                                             .capacity = dt_shard_capacity(&shard)};
    DT_TRY_GOTO(s, dt_lab_network_open(&spec, &net), close_loader);
    *dt_lab_param(&net, "fc1.weight") = starts[comm->rank].slope;
    *dt_lab_param(&net, "fc1.bias") = starts[comm->rank].intercept;
    s = c->broadcast ? dt_strategy_broadcast(net.strategy) : DT_OK;
    s = s == DT_OK ? walk(&net, &loader, batch->rate, path) : s;
    dt_lab_network_close(&net);
close_loader:
    dt_loader_close(&loader);
close_points:
    dt_dataset_close(&points);
    return s;
}

/* The mean squared error of a line over all points. */
static double loss_of(const struct linear_lesson *l, struct dt_fit line)
{
    double sum = 0;
    for (size_t i = 0; i < l->points.n; i++) {
        const double error = (double)line.slope * (double)l->points.values[i] +
                             (double)line.intercept - (double)l->points.targets[i];
        sum += error * error;
    }
    return sum / (double)l->points.n;
}

static double distance(struct dt_fit a, struct dt_fit b)
{
    return hypot((double)a.slope - (double)b.slope, (double)a.intercept - (double)b.intercept);
}

static enum dt_status run_alone(struct linear_lesson *l)
{
    const struct batch all = {"all", DT_LAB_N_POINTS, l->batch->rate};
    struct dt_comm *self;
    DT_TRY(dt_comm_open_self(&self));
    const enum dt_status s = run_shard(self, &all, &cases[AVERAGE], &l->alone);
    dt_comm_close(self);
    return s;
}

static enum dt_status run(struct dt_world *world, struct linear_lesson *l)
{
    DT_TRY(dt_world_agree(world, is_full(l) ? run_alone(l) : DT_OK));
    for (int i = 0; i < N_CASES; i++) {
        struct path mine;
        DT_TRY(dt_world_agree(world, run_shard(world->comm, l->batch, &cases[i], &mine)));
        DT_TRY(dt_comm_allgather(world->comm, &mine, l->of[i], sizeof mine,
                                 "the paths of both ranks"));
    }
    return DT_OK;
}

/* The loss of a rank's final line. */
static double end_loss(const struct linear_lesson *l, int i, int rank)
{
    return loss_of(l, l->of[i][rank].at[N_STEPS]);
}

/* Steps of rank 0, with averaging and broadcast, that raise the loss over all points. */
static int n_uphill(const struct linear_lesson *l)
{
    const struct dt_fit *at = l->of[BOTH][0].at;
    int n = 0;
    for (int i = 0; i < N_STEPS; i++) {
        n += loss_of(l, at[i + 1]) > loss_of(l, at[i]);
    }
    return n;
}

/* ---- expected results */

/* The largest deviation from gradient descent over all points, step by step: m and n follow the
 * negative derivatives of the mean squared error. */
static double largest_error(const struct linear_lesson *l, const struct path *path)
{
    double m = (double)path->at[0].slope, n = (double)path->at[0].intercept, most = 0;
    const struct bowl a = bowl_of(&l->points);
    for (int i = 1; i <= N_STEPS; i++) {
        const double dm = 2 * (m * a.x2 + n * a.x1 - a.xy), dn = 2 * (m * a.x1 + n - a.y1);
        m -= l->batch->rate * dm;
        n -= l->batch->rate * dn;
        most = fmax(most, fmax(fabs(m - (double)path->at[i].slope),
                               fabs(n - (double)path->at[i].intercept)));
    }
    return most;
}

/* The largest deviation of the ranks' offset from (1, 1). */
static double largest_drift(const struct path *a, const struct path *b)
{
    double most = 0;
    for (int i = 0; i <= N_STEPS; i++) {
        most = fmax(most, fmax(fabs((double)a->at[i].slope - (double)b->at[i].slope - 1),
                               fabs((double)a->at[i].intercept - (double)b->at[i].intercept - 1)));
    }
    return most;
}

static bool same_path(const struct path *a, const struct path *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void check(struct linear_lesson *l)
{
    struct dt_golden *g = &l->golden;
    const struct path *both = l->of[BOTH];
    dt_golden_figure(
        g, same_path(&both[0], &both[1]),
        "average and broadcast: both ranks have the same weights, to the bit, after every step");
    dt_golden_number(g, largest_drift(&l->of[AVERAGE][0], &l->of[AVERAGE][1]), 0, 5e-6,
                     "average alone: how far the distance of the ranks goes from (1, 1)");
    dt_golden_figure(g, distance(l->of[BROADCAST][1].at[0], starts[0]) == 0,
                     "broadcast alone: both begin at (1, 1)");
    dt_golden_figure(
        g, distance(l->of[BROADCAST][0].at[N_STEPS], l->of[BROADCAST][1].at[N_STEPS]) > 0.1,
        "broadcast alone: they drift apart");
    dt_golden_figure(g, same_path(&l->of[BROADCAST][0], &l->of[NEITHER][0]),
                     "neither: rank 0's path is that of broadcast alone, where it begins alike");
    for (int rank = 0; rank < 2; rank++) {
        double least = INFINITY;
        for (int i = AVERAGE; i < N_CASES; i++) {
            least = fmin(least, end_loss(l, i, rank));
        }
        dt_golden_figure(
            g, end_loss(l, BOTH, 0) <= 1.001 * least,
            "no case ends with less loss than average and broadcast, but for a thousandth");
    }
    if (is_full(l)) {
        dt_golden_number(g, distance(both[0].at[N_STEPS], l->alone.at[N_STEPS]), 0, 1e-6,
                         "distance from the line of one process");
        dt_golden_number(g, largest_error(l, &both[0]), 0, 5e-6,
                         "distance from gradient descent on paper");
        dt_golden_number(g, n_uphill(l), 0, 0, "steps that raise the loss");
    }
}

/* ---- the document */

enum { N_ANGLES = 48, N_CONTOURS = 7 };
#define PI 3.14159265358979323846

/* Draws where the loss is `above` its least: with u = (cos, sin), C = L L', w = best + sqrt(above)
 * * inverse(L') u. */
static void draw_contour(struct dt_part *chart, const struct bowl *b, double above)
{
    double m[N_ANGLES + 1], n[N_ANGLES + 1];
    const double l11 = sqrt(b->x2), l21 = b->x1 / l11, l22 = sqrt(1 - l21 * l21), r = sqrt(above);
    for (int i = 0; i <= N_ANGLES; i++) {
        const double angle = 2 * PI * i / N_ANGLES, second = r * sin(angle) / l22;
        n[i] = b->n + second;
        m[i] = b->m + (r * cos(angle) - l21 * second) / l11;
    }
    dt_doc_plot(chart, "", DT_LINE, N_ANGLES + 1, m, n);
}

static void draw_case(struct dt_doc *doc, const struct linear_case *c, const struct path of[2],
                      const struct bowl *bowl)
{
    struct dt_part *chart = dt_doc_series(doc, c->title, "m", "n");
    dt_doc_caption(chart, "%s", c->caption);
    for (int i = 0; i < N_CONTOURS; i++) {
        draw_contour(chart, bowl, 0.05 * pow(2.2, i));
    }
    for (int rank = 0; rank < 2; rank++) {
        double m[N_STEPS + 1], n[N_STEPS + 1];
        for (int i = 0; i <= N_STEPS; i++) {
            m[i] = (double)of[rank].at[i].slope;
            n[i] = (double)of[rank].at[i].intercept;
        }
        dt_doc_plot(chart, rank == 0 ? "rank 0" : "rank 1", DT_LINE_AND_DOTS, N_STEPS + 1, m, n);
    }
    dt_doc_plot(chart, "minimum of the loss", DT_DOTS, 1, &bowl->m, &bowl->n);
}

static void add_ends(struct dt_doc *doc, const struct linear_lesson *l)
{
    struct dt_part *table = dt_doc_table(
        doc, "Where the ranks end", "average|broadcast|m₀::6|n₀::6|m₁::6|n₁::6|apart::6|loss::4");
    for (int i = 0; i < N_CASES; i++) {
        const struct dt_fit *a = &l->of[i][0].at[N_STEPS], *b = &l->of[i][1].at[N_STEPS];
        dt_doc_row(table, dt_t(cases[i].average ? "on" : "off"),
                   dt_t(cases[i].broadcast ? "on" : "off"), dt_n((double)a->slope),
                   dt_n((double)a->intercept), dt_n((double)b->slope), dt_n((double)b->intercept),
                   dt_n(distance(*a, *b)), dt_n(fmax(loss_of(l, *a), loss_of(l, *b))));
    }
    if (is_full(l)) {
        const struct dt_fit *a = &l->alone.at[N_STEPS];
        dt_doc_row(table, dt_t("alone"), dt_t(""), dt_n((double)a->slope),
                   dt_n((double)a->intercept), dt_n(NAN), dt_n(NAN), dt_n(NAN),
                   dt_n(loss_of(l, *a)));
    }
    dt_doc_caption(
        table,
        "m₀, n₀: the line of rank 0. alone: one process with all points. loss: over all points, of "
        "the rank where it is larger.");
}

static struct dt_doc *tell(const struct linear_lesson *l)
{
    const struct bowl bowl = bowl_of(&l->points);
    const int uphill = n_uphill(l);
    struct dt_doc *doc = dt_doc_open("lab linear", "What averaging and broadcasting are for");
    dt_doc_text(
        doc,
        "Two ranks fit y = m x + n. Each has 32 of 64 points and takes %d of them in a step: "
        "%d steps of rate %g. Rank 0 begins at (1, 1), rank 1 at (0, 0). Grey: contours of "
        "the loss over all points.",
        l->batch->size, N_STEPS, l->batch->rate);
    for (int i = 0; i < N_CASES; i++) {
        draw_case(doc, &cases[i], l->of[i], &bowl);
    }
    add_ends(doc, l);
    dt_doc_text(
        doc, "Batch %s: %d of %d steps raised the loss over all points.%s", l->batch->name, uphill,
        N_STEPS,
        uphill == 0 ? "" : " A step follows its own few samples; over many steps that evens out.");
    return doc;
}

static enum dt_status choose_batch(const char *name, const struct batch **out)
{
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        if (name == NULL || strcmp(name, batches[i].name) == 0) {
            *out = &batches[i];
            return DT_OK;
        }
    }
    return dt_error(DT_USAGE, "--batch: '%.60s' is none of 1, 16, all", name);
}

static enum dt_status lab_linear(struct dt_world *world, const struct dt_args *args)
{
    struct linear_lesson lesson = {.batch = NULL};
    struct dt_dataset points;
    DT_TRY(dt_world_agree(world, choose_batch(dt_args_text(args, DT_OPTION_BATCH), &lesson.batch)));
    DT_TRY(dt_lab_need_ranks(world, "linear", 2));
    DT_TRY(dt_world_agree(
        world, dt_lab_points_open((struct dt_owned){.n = DT_LAB_N_POINTS, .stride = 1}, &points)));
    lesson.points = points.samples;
    enum dt_status s = run(world, &lesson);
    if (s == DT_OK) {
        check(&lesson);
        s = dt_world_agree(world, world->rank == 0
                                      ? dt_golden_show(&lesson.golden, args, tell(&lesson))
                                      : dt_golden_status(&lesson.golden, DT_OK));
    }
    dt_dataset_close(&points);
    return s;
}

const struct dt_command dt_command_lab_linear = {
    .word = "lab linear",
    .meaning = "what happens without averaging, and without the broadcast?",
    .minutes = 10,
    .usage = "mpirun -np 2 dtrain lab linear [--batch 1|16|all]" DT_RESULT_USAGE,
    .examples = "  mpirun -np 2 dtrain lab linear --batch 16\n",
    .more = "Two ranks fit a line, with averaging and broadcasting each on and off, with one "
            "sample per step, 16, or all.",
    .options = {[DT_OPTION_BATCH] = {DT_TAKEN,
                                     "samples of a rank's step: 1, 16 or all, the default"},
                DT_RESULT_OPTIONS},
    .together = lab_linear,
};
