/* How devices share a model: `lab pipeline` runs a pipeline's schedules on a clock; `lab
 * model-parallel` compares four ways to share the model of a configuration. Both use the same clock
 * and the same picture. */
#include <math.h>
#include <stdlib.h>

#include "cli/cli_text.h"
#include "cli/config/config.h"
#include "cli/result.h"
#include "dist/allreduce/simulate.h"
#include "dist/strategy/pipeline/pipeline_schedule.h"
#include "lab/golden.h"
#include "lab/training.h"
#include "train/config.h"

#define MICRO_BATCHES 8
#define BACKWARD 2 /* times the work of a forward pass: gradients of weights and of inputs */

enum { KIND_FORWARD = 1, KIND_BACKWARD, KIND_EXCHANGE }; /* colours, as in the report of a run */

/* A pass of a micro-batch through a stage. */
struct pass {
    struct dt_pipeline_op op;
    double begin, end;
};

/* A step of a pipeline by one schedule. */
struct step {
    const char *name, *meaning;
    enum dt_pipeline_schedule schedule;
    int n_micro_batches, n_stages;
    double work[DT_LAB_MAX_RANKS]; /* time of each stage for the forward pass of the batch */
    /* the result */
    int n_passes[DT_LAB_MAX_RANKS];
    struct pass passes[DT_LAB_MAX_RANKS][2 * MICRO_BATCHES]; /* in the order of time */
    double ends[2][DT_LAB_MAX_RANKS][MICRO_BATCHES];         /* forward, backward; -1: unknown */
    double length, busy; /* of the step; of all stages together */
};

/* ---- the clock */

/* When the neighbour has sent the input of a pass; -1: unknown. */
static double arrival(const struct step *s, int stage, struct dt_pipeline_op op)
{
    const int i = op.micro_batch, last = s->n_stages - 1;
    if (!op.backward) {
        return stage > 0 ? s->ends[false][stage - 1][i] : 0;
    }
    return stage < last ? s->ends[true][stage + 1][i] : s->ends[false][last][i];
}

/* Runs the next pass of a stage, as soon as the stage is free and has the input. False: the arrival
 * of the input is unknown, or the stage is done. */
static bool run_pass(struct step *s, int stage)
{
    const int n = s->n_passes[stage], m = s->n_micro_batches;
    if (n == 2 * m) {
        return false;
    }
    const struct dt_pipeline_op op = dt_pipeline_op(s->schedule, stage, s->n_stages, m, n);
    const double free_at = n > 0 ? s->passes[stage][n - 1].end : 0,
                 input_at = arrival(s, stage, op), begin = fmax(free_at, input_at),
                 end = begin + s->work[stage] / m * (op.backward ? BACKWARD : 1);
    if (input_at < 0) {
        return false;
    }
    s->passes[stage][n] = (struct pass){op, begin, end};
    s->ends[op.backward][stage][op.micro_batch] = end;
    s->length = fmax(s->length, end);
    s->busy += end - begin;
    s->n_passes[stage]++;
    return true;
}

static void run(struct step *s)
{
    for (int i = 0; i < DT_LAB_MAX_RANKS * MICRO_BATCHES; i++) {
        s->ends[false][i / MICRO_BATCHES][i % MICRO_BATCHES] = -1;
        s->ends[true][i / MICRO_BATCHES][i % MICRO_BATCHES] = -1;
    }
    for (bool ran = true; ran;) {
        ran = false;
        for (int stage = 0; stage < s->n_stages; stage++) {
            ran = run_pass(s, stage) || ran;
        }
    }
}

/* The most micro-batches that a stage has between their forward and their backward pass. */
static int most_held(const struct step *s, int stage)
{
    int held = 0, most = 0;
    for (int i = 0; i < s->n_passes[stage]; i++) {
        held += s->passes[stage][i].op.backward ? -1 : 1;
        most = held > most ? held : most;
    }
    return most;
}

/* The share of the step that a stage waits, on average. */
static double waiting(const struct step *s)
{
    return 1 - s->busy / (s->n_stages * s->length);
}

/* ---- the picture */

static struct dt_part *draw_lanes(struct dt_doc *doc, const char *name, const char *axis, int n,
                                  double extent)
{
    struct dt_part *lanes = dt_doc_lanes(doc, name, axis);
    dt_doc_kind(lanes, KIND_FORWARD, "forward");
    dt_doc_kind(lanes, KIND_BACKWARD, "backward");
    for (int i = 0; i < n; i++) {
        dt_doc_lane(lanes, "%d", i);
    }
    dt_doc_extent(lanes, extent);
    return lanes;
}

static struct dt_part *draw(struct dt_doc *doc, const struct step *s, const char *axis,
                            double extent)
{
    struct dt_part *lanes = draw_lanes(doc, s->name, axis, s->n_stages, extent);
    for (int stage = 0; stage < s->n_stages; stage++) {
        for (int i = 0; i < s->n_passes[stage]; i++) {
            const struct pass *p = &s->passes[stage][i];
            dt_doc_box(lanes, stage, p->begin, p->end,
                       p->op.backward ? KIND_BACKWARD : KIND_FORWARD, p->op.backward ? "<%d" : "%d",
                       p->op.micro_batch + 1);
        }
    }
    return lanes;
}

/* ---- lab pipeline */

enum { N_SCHEDULES = 3 };

static void check_step(struct dt_golden *golden, const struct step *s)
{
    const int m = s->n_micro_batches, p = s->n_stages;
    const double formula = (double)(p - 1) / (m + p - 1);
    for (int stage = 0; stage < p; stage++) {
        const int later = p - stage < m ? p - stage : m; /* stages from this one on */
        dt_golden_number(golden, s->n_passes[stage], 2 * m, 0, "%s: passes of stage %d", s->name,
                         stage);
        dt_golden_number(golden, most_held(s, stage), s->schedule == DT_PIPELINE_1F1B ? later : m,
                         0, "%s: micro-batches that stage %d holds at once", s->name, stage);
    }
    dt_golden_number(golden, s->length * m / MICRO_BATCHES, (m + p - 1) * (1 + BACKWARD), 0,
                     "%s: length of a step", s->name);
    dt_golden_number(golden, waiting(s), formula, 1e-12, "%s: the share that a stage waits",
                     s->name);
    dt_golden_number(golden, dt_pipeline_bubble(p, m), formula, 1e-12,
                     "%s: the share that a training reports as waiting", s->name);
}

static struct dt_doc *tell_pipeline(const struct step steps[N_SCHEDULES])
{
    const int p = steps[0].n_stages;
    struct dt_doc *doc = dt_doc_open("lab pipeline", "A step of a pipeline of %d stages", p);
    dt_doc_text(doc,
                "The batch is cut into %d micro-batches. A micro-batch takes a stage one unit of "
                "time forward (`1`) and two backward (`<1`); a gap is waiting.",
                MICRO_BATCHES);
    for (int i = 0; i < N_SCHEDULES; i++) {
        const struct step *s = &steps[i];
        struct dt_part *lanes = draw(doc, s, "time, units", steps[0].length);
        dt_doc_caption(lanes, "%s: %.0f units, %.1f %% of them waiting.", s->meaning, s->length,
                       100 * waiting(s));
    }
    struct dt_part *table =
        dt_doc_table(doc, "Schedules",
                     "schedule|micro-batches::0|units::0|waiting::%|formula::%|held by each stage");
    for (int i = 0; i < N_SCHEDULES; i++) {
        const struct step *s = &steps[i];
        const char *held = "";
        for (int stage = 0; stage < p; stage++) {
            held = dt_doc_print(doc, stage > 0 ? "%s %d" : "%s%d", held, most_held(s, stage));
        }
        dt_doc_row(table, dt_t(s->name), dt_n(s->n_micro_batches), dt_n(s->length),
                   dt_n(waiting(s)), dt_n(dt_pipeline_bubble(p, s->n_micro_batches)), dt_t(held));
    }
    dt_doc_caption(table,
                   "Formula: (p - 1) / (m + p - 1) for p stages and m micro-batches. Held: the "
                   "most micro-batches between their forward and their backward pass.");
    dt_doc_text(doc,
                "More micro-batches leave less waiting. 1f1b waits as long as gpipe and needs less "
                "memory, because it goes backward as early as it can: stage s stores at most p - s "
                "micro-batches, however many there are. gpipe stores all of them, and naive the "
                "whole batch.");
    return doc;
}

static enum dt_status lab_pipeline(const struct dt_args *args)
{
    struct step steps[N_SCHEDULES] = {
        {"naive", "The whole batch at once", DT_PIPELINE_GPIPE, 1, .n_stages = 0},
        {"gpipe", "All forward, then all backward", DT_PIPELINE_GPIPE, MICRO_BATCHES,
         .n_stages = 0},
        {"1f1b", "One forward, one backward", DT_PIPELINE_1F1B, MICRO_BATCHES, .n_stages = 0}};
    struct dt_golden golden = {.n = 0};
    size_t n_ranks = 4;
    DT_TRY(dt_args_number(args, DT_OPTION_RANKS, false, 2, DT_LAB_MAX_RANKS, &n_ranks));
    for (int i = 0; i < N_SCHEDULES; i++) {
        steps[i].n_stages = (int)n_ranks;
        for (size_t stage = 0; stage < n_ranks; stage++) {
            steps[i].work[stage] = MICRO_BATCHES;
        }
        run(&steps[i]);
        check_step(&golden, &steps[i]);
    }
    return dt_golden_show(&golden, args, tell_pipeline(steps));
}

const struct dt_command dt_command_lab_pipeline = {
    .word = "lab pipeline",
    .meaning = "who waits in a pipeline, and what does a stage hold?",
    .minutes = 5,
    .usage = "dtrain lab pipeline [--ranks N]" DT_RESULT_USAGE,
    .examples = "  dtrain lab pipeline\n",
    .more = "A step of a pipeline stage by stage, by the schedules naive, gpipe and 1f1b on a "
            "clock: the share of time that a stage waits, beside the formula, and the "
            "micro-batches that it holds at once.",
    .options = {[DT_OPTION_RANKS] = {DT_TAKEN}, DT_RESULT_OPTIONS},
    .alone = lab_pipeline,
};

/* ---- lab model-parallel */

enum { WAY_NAIVE, WAY_PIPELINE, WAY_TENSOR, WAY_DATA, N_WAYS };

static const struct {
    const char *name, *meaning;
} ways[N_WAYS] = {
    [WAY_NAIVE] = {"naive model parallel", "Some layers on each device; one device computes, the "
                                           "others wait"},
    [WAY_PIPELINE] = {"pipeline parallel", "The same layers, the batch in 8 micro-batches"},
    [WAY_TENSOR] = {"tensor parallel", "A slice of every layer on each device"},
    [WAY_DATA] = {"data parallel", "All layers on each device, a share of the batch"}};

#define AXIS "time, % of a step on one device"
#define WHOLE 100.0 /* a step on one device, on this axis */

/* The model of configs/mnist.json, whose numbers on four devices are known. */
#define MNIST_PARAMETERS 1199882
#define MNIST_FLOPS 23984896

/* Blocks [begin, end) on one device, and their forward work for a sample. */
struct stage {
    int begin, end;
    double flops;
};

struct sharing {
    struct dt_config config;
    struct dt_model model;
    int n_devices, n_stages; /* at most as many stages as blocks */
    size_t batch;            /* samples of a step */
    double flops;            /* of a sample, forward */
    struct stage stages[DT_LAB_MAX_RANKS];
    struct step steps[2]; /* of WAY_NAIVE and WAY_PIPELINE */
    double bytes[N_WAYS]; /* sent between devices in a step */
};

static double flops_of(const struct dt_model *model, int begin, int end)
{
    double sum = 0;
    for (int i = begin; i < end; i++) {
        sum += dt_block_flops(&model->blocks[i]);
    }
    return sum;
}

/* Devices that compute at the same time, on average. */
static double at_once(const struct sharing *l, int way)
{
    return way <= WAY_PIPELINE ? l->steps[way].busy / l->steps[way].length : l->n_devices;
}

static double outputs_of(const struct dt_model *model, int block)
{
    return (double)dt_shape_elems(model->blocks[block].out);
}

/* Cuts the chain into n_stages stages whose longest has the least work: best[k][i] is the work of
 * the longest where k stages have the first i blocks. */
static void cut(struct sharing *l)
{
    double best[DT_LAB_MAX_RANKS + 1][DT_MAX_LAYERS + 1];
    int from[DT_LAB_MAX_RANKS + 1][DT_MAX_LAYERS + 1] = {{0}};
    const int n = l->model.n_blocks;
    for (int k = 0; k <= l->n_stages; k++) {
        for (int i = 0; i <= n; i++) {
            best[k][i] = k == 0 && i == 0 ? 0 : INFINITY;
            for (int j = k - 1; k > 0 && j < i; j++) {
                const double most = fmax(best[k - 1][j], flops_of(&l->model, j, i));
                if (most < best[k][i]) {
                    best[k][i] = most;
                    from[k][i] = j;
                }
            }
        }
    }
    for (int k = l->n_stages, end = n; k > 0; end = from[k][end], k--) {
        l->stages[k - 1] =
            (struct stage){from[k][end], end, flops_of(&l->model, from[k][end], end)};
    }
}

static void run_stages(struct sharing *l, int way, int n_micro_batches)
{
    struct step *s = &l->steps[way];
    *s = (struct step){.name = ways[way].name,
                       .schedule = DT_PIPELINE_GPIPE,
                       .n_micro_batches = n_micro_batches,
                       .n_stages = l->n_stages};
    for (int i = 0; i < l->n_stages; i++) {
        s->work[i] = WHOLE / (1 + BACKWARD) * l->stages[i].flops / l->flops;
    }
    run(s);
}

/* Stages send outputs to the next device, and receive their gradients. A slice computes a part of
 * the outputs of every block: forward, the other devices need that part; backward, they need the
 * sums of the gradients, except those of the samples. */
static void count_activations(struct sharing *l)
{
    const int n = l->model.n_blocks;
    double between = 0, slices = outputs_of(&l->model, n - 1);
    for (int i = 0; i + 1 < l->n_stages; i++) {
        between += 2 * outputs_of(&l->model, l->stages[i].end - 1);
    }
    for (int i = 0; i + 1 < n; i++) {
        slices += 2 * outputs_of(&l->model, i);
    }
    l->bytes[WAY_NAIVE] = l->bytes[WAY_PIPELINE] = sizeof(float) * (double)l->batch * between;
    l->bytes[WAY_TENSOR] = sizeof(float) * (double)l->batch * (l->n_devices - 1) * slices;
}

/* The gradients of the parameters in a ring, counted from its moves. */
static enum dt_status count_gradients(struct sharing *l)
{
    static const struct dt_costs costs = {.ranks_per_host = 1};
    struct dt_simulation s;
    DT_TRY(dt_simulate(dt_algorithm_find("ring"), l->n_devices, l->model.n_parameters, &costs, &s,
                       NULL));
    l->bytes[WAY_DATA] = (double)s.all.bytes;
    return DT_OK;
}

/* Devices at work in a pipeline of even stages. */
static double even_stages(const struct sharing *l)
{
    return (double)(l->n_stages * MICRO_BATCHES) / (MICRO_BATCHES + l->n_stages - 1);
}

/* Devices at work in this pipeline: the first micro-batch passes all stages, then the longest stage
 * ends one micro-batch after the other. */
static double uneven_stages(const struct sharing *l)
{
    double longest = 0;
    for (int i = 0; i < l->n_stages; i++) {
        longest = fmax(longest, l->stages[i].flops);
    }
    return MICRO_BATCHES * l->flops / (l->flops + (MICRO_BATCHES - 1) * longest);
}

static void check_sharing(const struct sharing *l, struct dt_golden *g)
{
    double flops = 0;
    int next = 0;
    for (int i = 0; i < l->n_stages; i++) {
        dt_golden_number(g, l->stages[i].begin, next, 0, "the first block of device %d", i);
        next = l->stages[i].end;
        flops += l->stages[i].flops;
    }
    dt_golden_number(g, next, l->model.n_blocks, 0, "blocks on devices");
    dt_golden_number(g, flops, l->flops, 0, "operations on devices");
    dt_golden_number(g, l->steps[WAY_NAIVE].length, WHOLE, 1e-9, "length of a naive step");
    dt_golden_number(g, at_once(l, WAY_PIPELINE), uneven_stages(l), 1e-9,
                     "devices at work in a pipeline, by its longest stage");
    dt_golden_figure(g, at_once(l, WAY_PIPELINE) <= even_stages(l) + 1e-9,
                     "a pipeline is best with even stages");
    dt_golden_number(g, l->bytes[WAY_DATA],
                     2.0 * (l->n_devices - 1) * sizeof(float) * (double)l->model.n_parameters, 0,
                     "bytes of a ring by its formula");
    if (l->model.n_parameters == MNIST_PARAMETERS && l->n_devices == 4 && l->batch == 512) {
        dt_golden_number(g, l->flops, MNIST_FLOPS, 0, "operations of a sample");
        dt_golden_number(g, l->bytes[WAY_NAIVE], 126877696, 0, "bytes of naive model parallelism");
        dt_golden_number(g, l->bytes[WAY_TENSOR], 380694528, 0, "bytes of tensor parallelism");
        dt_golden_number(g, l->bytes[WAY_DATA], 28797168, 0, "bytes of data parallelism");
    }
}

/* ---- its document */

/* Draws a way in which all devices compute at once, with an exchange after each block, or one at
 * the end. */
static struct dt_part *draw_together(struct dt_doc *doc, const struct sharing *l, int way)
{
    const bool slices = way == WAY_TENSOR;
    const int n = l->model.n_blocks;
    const double sliver = slices ? fmin(1, 10.0 / n) : 1;
    struct dt_part *lanes = draw_lanes(doc, ways[way].name, AXIS, l->n_devices, WHOLE);
    dt_doc_kind(lanes, KIND_EXCHANGE, "exchange");
    for (int device = 0; device < l->n_devices; device++) {
        double at = 0;
        for (int i = 0; i < 2 * n; i++) {
            const bool backward = i >= n;
            const struct dt_block *block = &l->model.blocks[backward ? 2 * n - 1 - i : i];
            const double end = at + WHOLE / (1 + BACKWARD) * (backward ? BACKWARD : 1) *
                                        dt_block_flops(block) / l->flops / l->n_devices;
            const bool sends = slices ? i < 2 * n - 1 : i == 2 * n - 1;
            dt_doc_box(lanes, device, at, end, backward ? KIND_BACKWARD : KIND_FORWARD, "%s",
                       block->name);
            if (sends) {
                dt_doc_box(lanes, device, end, end + sliver, KIND_EXCHANGE, "%s",
                           slices ? "" : "allreduce");
            }
            at = sends ? end + sliver : end;
        }
    }
    return lanes;
}

static void add_stages(struct dt_doc *doc, const struct sharing *l)
{
    struct dt_part *table =
        dt_doc_table(doc, "Blocks of each device", "device::0|operations::%|outputs::0|blocks");
    dt_doc_caption(table, "For naive model and pipeline parallelism: the cut whose longest stage "
                          "is shortest. Outputs: numbers of a sample that go to the next device.");
    for (int i = 0; i < l->n_stages; i++) {
        const struct stage *s = &l->stages[i];
        const char *first = l->model.blocks[s->begin].name;
        dt_doc_row(table, dt_n(i), dt_n(s->flops / l->flops),
                   dt_n(outputs_of(&l->model, s->end - 1)),
                   dt_t(s->end == s->begin + 1 ? first
                                               : dt_doc_print(doc, "%s to %s", first,
                                                              l->model.blocks[s->end - 1].name)));
    }
}

static void add_ways(struct dt_doc *doc, const struct sharing *l)
{
    char count[32];
    struct dt_part *table = dt_doc_table(
        doc, "Four ways", "way|sent:bytes:0|devices at work::2|step:% of one device's:1");
    for (int i = 0; i < N_WAYS; i++) {
        dt_doc_row(table, dt_t(ways[i].name), dt_n(l->bytes[i]), dt_n(at_once(l, i)),
                   dt_n(WHOLE / at_once(l, i)));
    }
    dt_doc_caption(table, "Sent: by all devices in a step. Step: its length without exchanges.");
    dt_doc_main(table);
    dt_doc_text(doc,
                "Naive and pipeline parallelism send %zu samples × the outputs of all devices but "
                "the last, forward and back, × 4 bytes.",
                l->batch);
    dt_doc_text(doc,
                "Tensor parallelism sends %zu samples × the outputs of every block, to each of the "
                "other %d devices, and their gradients back, × 4 bytes.",
                l->batch, l->n_devices - 1);
    dt_doc_text(doc,
                "Data parallelism sends 2 × (%d - 1) × %s parameters × 4 bytes, a ring allreduce.",
                l->n_devices, dt_count_text((double)l->model.n_parameters, count, sizeof count));
    dt_doc_text(doc,
                "A pipeline of %d even stages would keep %d × %d / (%d + %d - 1) = %.2f devices at "
                "work. These stages are uneven, and all wait for the longest: %.2f.",
                l->n_stages, l->n_stages, MICRO_BATCHES, MICRO_BATCHES, l->n_stages, even_stages(l),
                at_once(l, WAY_PIPELINE));
}

static struct dt_doc *tell_sharing(const struct sharing *l)
{
    struct dt_doc *doc = dt_doc_open("lab model-parallel", "Four ways to share %s on %d devices",
                                     l->config.name, l->n_devices);
    dt_doc_text(doc,
                "A step of %zu samples, drawn by the share that each layer has of the operations: "
                "backward takes twice as long as forward. Exchanges are drawn as slivers, whatever "
                "they send.",
                l->batch);
    add_stages(doc, l);
    for (int i = 0; i < N_WAYS; i++) {
        struct dt_part *lanes =
            i <= WAY_PIPELINE ? draw(doc, &l->steps[i], AXIS, WHOLE) : draw_together(doc, l, i);
        dt_doc_caption(lanes, "%s: %.2f of %d devices at work.", ways[i].meaning, at_once(l, i),
                       l->n_devices);
    }
    add_ways(doc, l);
    dt_doc_text(doc, "Data parallelism sends gradients, so it suits few parameters and large "
                     "activations. A model that does not fit on one device needs one of the other "
                     "three.");
    return doc;
}

static enum dt_status prepare(const struct dt_args *args, struct sharing *l)
{
    size_t n = 4;
    DT_TRY(dt_args_number(args, DT_OPTION_RANKS, false, 2, DT_LAB_MAX_RANKS, &n));
    DT_TRY(dt_config_load(dt_args_text(args, DT_OPTION_CONFIG), NULL, 0, &l->config));
    DT_TRY(dt_model_lower(&l->config.model, &l->model));
    l->n_devices = (int)n;
    l->n_stages = l->model.n_blocks < l->n_devices ? l->model.n_blocks : l->n_devices;
    l->batch = l->config.batch_global > 0 ? (size_t)l->config.batch_global
                                          : n * (size_t)l->config.batch_per_rank;
    l->flops = flops_of(&l->model, 0, l->model.n_blocks);
    cut(l);
    run_stages(l, WAY_NAIVE, 1);
    run_stages(l, WAY_PIPELINE, MICRO_BATCHES);
    count_activations(l);
    return count_gradients(l);
}

static enum dt_status lab_model_parallel(const struct dt_args *args)
{
    struct dt_golden golden = {.n = 0};
    struct sharing *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a model");
    }
    enum dt_status s = prepare(args, l);
    if (s == DT_OK) {
        check_sharing(l, &golden);
        s = dt_golden_show(&golden, args, tell_sharing(l));
    }
    free(l);
    return s;
}

const struct dt_command dt_command_lab_model_parallel = {
    .word = "lab model-parallel",
    .meaning = "why do ranks share the data, and not the model?",
    .minutes = 5,
    .usage = "dtrain lab model-parallel --config FILE [--ranks N]" DT_RESULT_USAGE,
    .examples = "  dtrain lab model-parallel --config configs/mnist.json\n",
    .more = "Compares four ways to share a model, by the bytes sent in a step and the devices that "
            "compute at once: naive model parallelism (some layers on each device), a pipeline, "
            "tensor parallelism (a slice of every layer), data parallelism.",
    .options =
        {[DT_OPTION_CONFIG] = {DT_REQUIRED}, [DT_OPTION_RANKS] = {DT_TAKEN}, DT_RESULT_OPTIONS},
    .alone = lab_model_parallel,
};
