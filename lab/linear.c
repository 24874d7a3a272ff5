/* Shows the effect of averaging and broadcasting: two ranks fit y = m x + n by gradient descent,
 * with each switch on and off. And the effect of the batch on the path: one sample a step, some, or
 * all. */
#include <math.h>
#include <string.h>

#include "cli/result.h"
#include "data/shard.h"
#include "dist/ranks/world.h"
#include "lab/golden.h"
#include "lab/training.h"
#include "train/events.h"

enum { N_STEPS = 64, N_CASES = 4 };

/* The path of each rank's line in one of the cases; [0] is its start. */
struct linear_case {
    bool average, broadcast;
    struct dt_fit path[2][N_STEPS + 1];
    double apart;   /* distance of the final lines */
    double loss[2]; /* of the final lines, over all points */
};

struct linear_lesson {
    const char *batch_name; /* "1", "16", "all" */
    int batch;              /* samples in a rank's step */
    double rate;
    struct dt_fit alone[N_STEPS + 1]; /* of one process with all points, from (1, 1) */
    struct linear_case cases[N_CASES];
    int n_uphill;             /* steps of the first case that raise the loss over all points */
    struct dt_samples points; /* all of them */
    struct dt_golden golden;
};

/* ---- the lesson */

/* Means over all points; x2: of x squared. */
struct moments {
    double x1, x2, y1, xy;
};

static struct moments moments_of(const struct dt_samples *points)
{
    struct moments a = {.x1 = 0};
    for (size_t i = 0; i < points->n; i++) {
        const double x = (double)points->values[i], y = (double)points->targets[i],
                     part = 1.0 / (double)points->n;
        a.x1 += part * x;
        a.x2 += part * x * x;
        a.y1 += part * y;
        a.xy += part * x * y;
    }
    return a;
}

/* The loss is least + (w - best)' C (w - best), C = [x2 x1; x1 1]. */
struct bowl {
    double m, n;
    struct moments means;
};

static struct bowl bowl_of(const struct dt_samples *points)
{
    const struct moments a = moments_of(points);
    const double m = (a.xy - a.x1 * a.y1) / (a.x2 - a.x1 * a.x1);
    return (struct bowl){.m = m, .n = a.y1 - m * a.x1, .means = a};
}

static const struct {
    const char *name;
    int size;
    double rate;
} batches[] = {{"all", DT_LAB_N_POINTS / 2, 0.25}, {"16", 16, 0.2}, {"1", 1, 0.05}};
static const struct dt_fit starts[2] = {{1, 1}, {0, 0}};

/* True if a step takes all points. */
static bool is_full(const struct linear_lesson *l)
{
    return l->batch == DT_LAB_N_POINTS / 2;
}

/* ---- a run */

static enum dt_status walk(struct dt_lab_network *net, struct dt_loader *loader, double rate,
                           struct dt_fit *path)
{
    const uint64_t per_epoch = dt_shard_steps_per_epoch(&loader->shard);
    const float *m = dt_lab_param(net, "fc1.weight"), *n = dt_lab_param(net, "fc1.bias");
    path[0] = (struct dt_fit){*m, *n};
    for (uint64_t i = 0; i < N_STEPS; i++) {
        const struct dt_batch batch =
            dt_loader_batch(loader, (uint32_t)(i / per_epoch), i % per_epoch);
        const size_t n_all = dt_shard_step_samples(&loader->shard, i % per_epoch);
        const struct dt_update update =
            dt_strategy_next(net->strategy, rate, n_all, (size_t)batch.n);
        struct dt_strategy_step step = dt_strategy_begin(net->strategy, &update);
        DT_TRY(dt_lab_pass(net, &batch, false, &step));
        DT_TRY(dt_strategy_wait(&step));
        path[i + 1] = (struct dt_fit){*m, *n};
    }
    return DT_OK;
}

static enum dt_status begin_at(struct dt_lab_network *net, const struct linear_case *c,
                               struct dt_fit start)
{
    *dt_lab_param(net, "fc1.weight") = start.slope;
    *dt_lab_param(net, "fc1.bias") = start.intercept;
    return c->broadcast ? dt_strategy_broadcast(net->strategy) : DT_OK;
}

/* Runs a rank of `comm` in one case, with its shard of the points. Statuses are local: the caller
 * has ranks agree. */
static enum dt_status run_shard(struct dt_comm *comm, const struct linear_lesson *l,
                                const struct linear_case *c, struct dt_fit *path)
{
    const struct dt_shard shard = {.mode = DT_SHARDING_SHARD,
                                   .seed = 1,
                                   .n_total = DT_LAB_N_POINTS,
                                   .global_batch = is_full(l) ? DT_LAB_N_POINTS
                                                              : (size_t)(l->batch * comm->size),
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
    DT_TRY_GOTO(s, begin_at(&net, c, starts[comm->rank]), close_network);
    s = walk(&net, &loader, l->rate, path);
close_network:
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

static enum dt_status run_case(struct dt_world *world, const struct linear_lesson *l,
                               struct linear_case *c)
{
    struct dt_fit mine[N_STEPS + 1];
    DT_TRY(dt_world_agree(world, run_shard(world->comm, l, c, mine)));
    DT_TRY(dt_comm_allgather(world->comm, mine, c->path, sizeof mine, "the ways of both ranks"));
    c->apart = distance(c->path[0][N_STEPS], c->path[1][N_STEPS]);
    for (int rank = 0; rank < 2; rank++) {
        c->loss[rank] = loss_of(l, c->path[rank][N_STEPS]);
    }
    return DT_OK;
}

static enum dt_status run_alone(struct linear_lesson *l)
{
    const struct linear_case alone = {.average = true};
    struct dt_comm *self;
    DT_TRY(dt_comm_open_self(&self));
    const enum dt_status s = run_shard(self, l, &alone, l->alone);
    dt_comm_close(self);
    return s;
}

static enum dt_status run(struct dt_world *world, struct linear_lesson *l)
{
    DT_TRY(dt_world_agree(world, run_alone(l)));
    for (int i = 0; i < N_CASES; i++) {
        l->cases[i].average = i < 2;
        l->cases[i].broadcast = i % 2 == 0;
        DT_TRY(run_case(world, l, &l->cases[i]));
    }
    for (int i = 0; i < N_STEPS; i++) {
        const struct dt_fit *path = l->cases[0].path[0];
        l->n_uphill += loss_of(l, path[i + 1]) > loss_of(l, path[i]);
    }
    return DT_OK;
}

/* ---- expected results */

/* Largest deviation from gradient descent over all points, step by step: m and n follow the
 * negative derivatives of the mean squared error. */
static double largest_error(const struct linear_lesson *l, const struct dt_fit *path)
{
    double m = (double)path[0].slope, n = (double)path[0].intercept, most = 0;
    const struct moments a = moments_of(&l->points);
    for (int i = 1; i <= N_STEPS; i++) {
        const double dm = 2 * (m * a.x2 + n * a.x1 - a.xy), dn = 2 * (m * a.x1 + n - a.y1);
        m -= l->rate * dm;
        n -= l->rate * dn;
        most =
            fmax(most, fmax(fabs(m - (double)path[i].slope), fabs(n - (double)path[i].intercept)));
    }
    return most;
}

/* The largest deviation of the ranks' offset from (1, 1). */
static double largest_drift(const struct linear_case *c)
{
    double most = 0;
    for (int i = 0; i <= N_STEPS; i++) {
        const struct dt_fit *a = &c->path[0][i], *b = &c->path[1][i];
        most = fmax(most, fmax(fabs((double)a->slope - (double)b->slope - 1),
                               fabs((double)a->intercept - (double)b->intercept - 1)));
    }
    return most;
}

static bool same_way(const struct dt_fit *a, const struct dt_fit *b)
{
    bool same = true;
    for (int i = 0; i <= N_STEPS; i++) {
        same = same && a[i].slope == b[i].slope && a[i].intercept == b[i].intercept;
    }
    return same;
}

static void check(struct linear_lesson *l)
{
    struct dt_golden *g = &l->golden;
    const struct linear_case *both = &l->cases[0], *average = &l->cases[1],
                             *broadcast = &l->cases[2], *neither = &l->cases[3];
    dt_golden_fact(
        g, same_way(both->path[0], both->path[1]),
        "average and broadcast: both ranks have the same weights, to the bit, after every step");
    dt_golden_number(g, largest_drift(average), 0, 5e-6,
                     "average alone: how far the distance of the ranks goes from (1, 1)");
    dt_golden_fact(g, distance(broadcast->path[1][0], starts[0]) == 0,
                   "broadcast alone: both begin at (1, 1)");
    dt_golden_fact(g, broadcast->apart > 0.1, "broadcast alone: they drift apart");
    dt_golden_fact(g, same_way(broadcast->path[0], neither->path[0]),
                   "neither: rank 0's way is that of broadcast alone, where it begins alike");
    for (int rank = 0; rank < 2; rank++) {
        dt_golden_fact(
            g,
            both->loss[0] <=
                1.001 * fmin(fmin(average->loss[rank], broadcast->loss[rank]), neither->loss[rank]),
            "no case ends with less loss than average and broadcast, but for a thousandth");
    }
    if (is_full(l)) {
        const struct dt_fit *end = &l->alone[N_STEPS];
        dt_golden_number(g, distance(both->path[0][N_STEPS], *end), 0, 1e-6,
                         "distance from the line of one process");
        dt_golden_number(g, largest_error(l, both->path[0]), 0, 5e-6,
                         "distance from gradient descent on paper");
        dt_golden_number(g, l->n_uphill, 0, 0, "steps that raise the loss");
    }
}

/* ---- the document */

enum { N_ANGLES = 72, N_CONTOURS = 7 };
#define PI 3.14159265358979323846

/* Where the loss is `above` its least: with u = (cos, sin), C = L L', w = best + sqrt(above) *
 * inverse(L') u. */
static void draw_contour(struct dt_part *chart, const struct bowl *b, double above)
{
    double m[N_ANGLES + 1], n[N_ANGLES + 1];
    const double l11 = sqrt(b->means.x2), l21 = b->means.x1 / l11, l22 = sqrt(1 - l21 * l21),
                 r = sqrt(above);
    for (int i = 0; i <= N_ANGLES; i++) {
        const double angle = 2 * PI * i / N_ANGLES, second = r * sin(angle) / l22;
        n[i] = b->n + second;
        m[i] = b->m + (r * cos(angle) - l21 * second) / l11;
    }
    dt_doc_plot(chart, "", DT_LINE, N_ANGLES + 1, m, n);
}

static void draw_case(struct dt_doc *doc, const struct linear_case *c, const struct bowl *bowl)
{
    static const char *const switches[2] = {"off", "on"};
    struct dt_part *chart = dt_doc_series(
        doc,
        dt_doc_print(doc, "Average %s, broadcast %s", switches[c->average], switches[c->broadcast]),
        "m", "n");
    dt_doc_caption(
        chart, "%s",
        c->average && c->broadcast ? "Equal steps from equal weights: one training."
        : c->average   ? "Equal steps: the distance (1, 1) stays, and both ranks end wrong."
        : c->broadcast ? "Own steps: the ranks drift apart, each to the line of its points."
                       : "Two programs that know nothing of each other.");
    for (int i = 0; i < N_CONTOURS; i++) {
        draw_contour(chart, bowl, 0.05 * pow(2.2, i));
    }
    for (int rank = 0; rank < 2; rank++) {
        double m[N_STEPS + 1], n[N_STEPS + 1];
        for (int i = 0; i <= N_STEPS; i++) {
            m[i] = (double)c->path[rank][i].slope;
            n[i] = (double)c->path[rank][i].intercept;
        }
        dt_doc_plot(chart, rank == 0 ? "rank 0" : "rank 1", DT_LINE_AND_DOTS, N_STEPS + 1, m, n);
    }
    dt_doc_plot(chart, "minimum of the loss", DT_DOTS, 1, &bowl->m, &bowl->n);
}

static void fill_table(struct dt_doc *doc, const struct linear_lesson *l)
{
    struct dt_part *table = dt_doc_table(
        doc, "Where the ranks end", "average|broadcast|m₀::6|n₀::6|m₁::6|n₁::6|apart::6|loss::4");
    for (int i = 0; i < N_CASES; i++) {
        const struct linear_case *c = &l->cases[i];
        const struct dt_fit *a = &c->path[0][N_STEPS], *b = &c->path[1][N_STEPS];
        dt_doc_row(table, dt_t(c->average ? "on" : "off"), dt_t(c->broadcast ? "on" : "off"),
                   dt_n((double)a->slope), dt_n((double)a->intercept), dt_n((double)b->slope),
                   dt_n((double)b->intercept), dt_n(c->apart), dt_n(fmax(c->loss[0], c->loss[1])));
    }
    if (is_full(l)) {
        const struct dt_fit *a = &l->alone[N_STEPS];
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
    struct dt_doc *doc = dt_doc_open("lab linear", "What averaging and broadcasting are for");
    dt_doc_text(
        doc,
        "Two ranks fit y = m x + n. Each has 32 of 64 points and takes %d of them in a step: "
        "%d steps of rate %g. Rank 0 begins at (1, 1), rank 1 at (0, 0). Grey: contours of "
        "the loss over all points.",
        l->batch, N_STEPS, l->rate);
    for (int i = 0; i < N_CASES; i++) {
        draw_case(doc, &l->cases[i], &bowl);
    }
    fill_table(doc, l);
    dt_doc_text(doc, "Batch %s: %d of %d steps raised the loss over all points.%s", l->batch_name,
                l->n_uphill, N_STEPS,
                l->n_uphill == 0
                    ? ""
                    : " A step follows its own few samples; over many steps that evens out.");
    return doc;
}

static enum dt_status choose_batch(const char *name, struct linear_lesson *l)
{
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        if (name == NULL || strcmp(name, batches[i].name) == 0) {
            l->batch_name = batches[i].name;
            l->batch = batches[i].size;
            l->rate = batches[i].rate;
            return DT_OK;
        }
    }
    return dt_error(DT_USAGE, "--batch: '%.60s' is none of 1, 16, all", name);
}

static enum dt_status lab_linear(struct dt_world *world, const struct dt_args *args)
{
    struct linear_lesson lesson = {.batch = 0};
    struct dt_dataset points;
    DT_TRY(dt_world_agree(world, choose_batch(dt_args_text(args, DT_OPTION_BATCH), &lesson)));
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
    .usage = "mpirun -np 2 dtrain lab linear [--batch 1|16|all] [--html FILE]",
    .examples = "  mpirun -np 2 dtrain lab linear --batch 16\n",
    .more = "Two ranks fit a line, with averaging and broadcasting each on and off, with one "
            "sample per step, 16, or all.",
    .options = {[DT_OPTION_BATCH] = {DT_TAKEN,
                                     "samples of a rank's step: 1, 16 or all, the default"},
                DT_RESULT_OPTIONS},
    .together = lab_linear,
};
