/* Times each block of a model inside real training steps, by a trace of spans (model/backend.h). So
 * it works for any backend, and times what a training does, including chunks. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "cli/cli_text.h"
#include "cli/commands/load.h"
#include "cli/result.h"
#include "cli/terminal.h"
#include "dist/strategy/roles.h"
#include "ops/bench/bench.h"
#include "ops/measure.h"

#define N_WARMUP 20 /* unmeasured steps */
#define N_ROUNDS 15
#define PEAK_MS 3 /* a round */

/* A round is one step of each kind: without clocks, with them, and counting nonzero elements. */
enum step { STEP_PLAIN, STEP_TIMED, STEP_COUNTED, N_STEPS };

/* Where a step's time goes. Forward and backward are the sums of the blocks; the rest is
 * communication and what lies between the calls. */
enum part { PART_DATA, PART_FORWARD, PART_LOSS, PART_BACKWARD, PART_UPDATE, PART_REST, N_PARTS };

struct cost {
    double wall_s, cpu_s; /* cpu: of all threads of this rank */
};

struct timer {
    struct cost rounds[N_ROUNDS];
};

struct block_times {
    struct timer passes[2];      /* forward, backward */
    double n_samples, n_outputs; /* of all counted steps */
    double n_nonzero[2];         /* elements of the output, and of its gradient */
    double n_both; /* nonzero in both: gradients that activation and dropout pass on */
};

struct bench {
    struct dt_trace trace; /* first member: begin_span and end_span receive a pointer to it */
    struct dt_trainer trainer;
    struct dt_finding load;
    struct timer parts[N_PARTS], steps[N_STEPS]; /* parts: data, loss and update */
    struct block_times blocks[DT_MAX_LAYERS];
    double peak_flops; /* of a core; 0: unknown */
    bool recomputes;   /* the backward pass recomputes the first block */
    enum step step;    /* the current one, and its round */
    int round;
    struct cost starts[DT_N_SPANS]; /* of the open spans */
    char *host; /* the largest activation, if the backend's memory is not the host's */
    bool *nonzero[DT_MAX_LAYERS]; /* by block, for each output of the batch: it is nonzero. A
                                   gradient may overwrite the outputs */
};

/* ---- observed spans */

static struct cost now(void)
{
    return (struct cost){.wall_s = dt_clock_s(), .cpu_s = dt_measure_process_s()};
}

static void add_since(struct cost *cost, struct cost start)
{
    const struct cost end = now();
    cost->wall_s += end.wall_s - start.wall_s;
    cost->cpu_s += end.cpu_s - start.cpu_s;
}

/* Bytes per element of block b's output and gradient: floats for the last block, and in host
 * memory. */
static size_t elem_bytes(const struct bench *bench, int b)
{
    const struct dt_trainer *t = &bench->trainer;
    return !t->backend->host_memory && t->config.precision == DT_PRECISION_BF16 &&
                   b < t->model.n_blocks - 1
               ? 2
               : 4;
}

/* Returns n_elems of a buffer, in the program's own memory. */
static enum dt_status reach(const struct bench *bench, int b, const float *x, size_t n_elems,
                            const void **out)
{
    struct dt_backend *backend = bench->trainer.backend;
    *out = backend->host_memory ? (const void *)x : bench->host;
    return backend->host_memory
               ? DT_OK
               : backend->ops->copy_out(backend, bench->host, x, n_elems * elem_bytes(bench, b));
}

/* Nonzero; a negative zero counts as zero. */
static bool is_nonzero(const void *elems, size_t i, size_t n_bytes)
{
    return n_bytes == 2 ? (((const uint16_t *)elems)[i] & 0x7FFF) != 0
                        : ((const float *)elems)[i] != 0;
}

static size_t sample_elems(const struct bench *bench, int b)
{
    return dt_shape_elems(bench->trainer.model.blocks[b].out);
}

/* Notes which elements of a block's output are nonzero. */
static enum dt_status note_outputs(struct bench *bench, const struct dt_span *span)
{
    const int b = span->block;
    const size_t n_sample = sample_elems(bench, b), n = (size_t)span->n_samples * n_sample;
    bool *nonzero = bench->nonzero[b] + (size_t)span->first * n_sample;
    const void *outputs;
    DT_TRY(reach(bench, b, span->y, n, &outputs));
    for (size_t i = 0; i < n; i++) {
        nonzero[i] = is_nonzero(outputs, i, elem_bytes(bench, b));
    }
    return DT_OK;
}

/* Counts nonzero elements of a block's output and of its gradient. */
static enum dt_status count_block(struct bench *bench, const struct dt_span *span)
{
    const int b = span->block;
    struct block_times *block = &bench->blocks[b];
    const size_t n_sample = sample_elems(bench, b), n = (size_t)span->n_samples * n_sample;
    const bool *nonzero = bench->nonzero[b] + (size_t)span->first * n_sample;
    const void *grads;
    DT_TRY(reach(bench, b, span->dy, n, &grads));
    for (size_t i = 0; i < n; i++) {
        const bool grad = is_nonzero(grads, i, elem_bytes(bench, b));
        block->n_nonzero[0] += nonzero[i];
        block->n_nonzero[1] += grad;
        block->n_both += nonzero[i] && grad;
    }
    block->n_samples += span->n_samples;
    block->n_outputs += (double)n;
    return DT_OK;
}

static struct timer *timer_of(struct bench *b, const struct dt_span *span)
{
    switch (span->kind) {
    case DT_SPAN_GATHER:
        return &b->parts[PART_DATA];
    case DT_SPAN_LOSS:
        return &b->parts[PART_LOSS];
    case DT_SPAN_UPDATE:
        return &b->parts[PART_UPDATE];
    case DT_SPAN_FORWARD:
        return &b->blocks[span->block].passes[0];
    case DT_SPAN_RECOMPUTE:
    case DT_SPAN_BACKWARD:
        return &b->blocks[span->block].passes[1];
    case DT_SPAN_BUCKET:
    case DT_SPAN_WAIT:
    case DT_SPAN_GPU:
    case DT_N_SPANS:
        break;
    }
    return NULL; /* spans beside the blocks */
}

static enum dt_status begin_span(struct dt_trace *trace, const struct dt_span *span)
{
    struct bench *bench = (struct bench *)trace;
    bench->recomputes = bench->recomputes || span->kind == DT_SPAN_RECOMPUTE;
    if (bench->step == STEP_COUNTED && span->kind == DT_SPAN_BACKWARD) {
        DT_TRY(count_block(bench, span));
    }
    bench->starts[span->kind] = now();
    return DT_OK;
}

/* A device that has only enqueued the work must finish it first. */
static enum dt_status end_span(struct dt_trace *trace, const struct dt_span *span)
{
    struct bench *bench = (struct bench *)trace;
    struct dt_backend *backend = bench->trainer.backend;
    struct timer *timer = timer_of(bench, span);
    if (bench->step == STEP_TIMED && timer != NULL) {
        DT_TRY(backend->ops->sync(backend));
        add_since(&timer->rounds[bench->round], bench->starts[span->kind]);
    }
    return bench->step == STEP_COUNTED && span->kind == DT_SPAN_FORWARD ? note_outputs(bench, span)
                                                                        : DT_OK;
}

/* ---- the steps */

static enum dt_status take_step(struct bench *b, enum step step)
{
    b->step = step;
    dt_trainer_trace(&b->trainer, step != STEP_PLAIN ? &b->trace : NULL);
    const struct cost start = now();
    DT_TRY(dt_bench_take_step(&b->trainer, "bench model"));
    add_since(&b->steps[step].rounds[b->round], start);
    return DT_OK;
}

static enum dt_status take_steps(struct bench *b)
{
    for (int i = 0; i < N_WARMUP; i++) {
        DT_TRY(take_step(b, STEP_PLAIN));
    }
    memset(b->steps, 0, sizeof b->steps);
    for (b->round = 0; b->round < N_ROUNDS; b->round++) {
        if (b->trainer.world->rank == 0) {
            dt_terminal_live("round %d of %d", b->round + 1, N_ROUNDS);
        }
        for (int step = 0; step < N_STEPS; step++) {
            DT_TRY(take_step(b, (enum step)step));
        }
        if (b->trainer.backend->host_memory) {
            b->peak_flops = fmax(b->peak_flops, dt_bench_peak(PEAK_MS));
        }
    }
    return DT_OK;
}

/* ---- the document */

struct row {
    double ms, cpu_ms, shortest_ms, longest_ms; /* ms and cpu_ms: medians of the rounds */
};

static struct row row_of(const struct timer *timer)
{
    double wall[N_ROUNDS], cpu[N_ROUNDS];
    for (int i = 0; i < N_ROUNDS; i++) {
        wall[i] = 1e3 * timer->rounds[i].wall_s;
        cpu[i] = 1e3 * timer->rounds[i].cpu_s;
    }
    const double median = dt_measure_median(wall, N_ROUNDS); /* sorts */
    return (struct row){median, dt_measure_median(cpu, N_ROUNDS), wall[0], wall[N_ROUNDS - 1]};
}

static void add_to(struct row *sum, const struct row *row)
{
    sum->ms += row->ms;
    sum->cpu_ms += row->cpu_ms;
    sum->shortest_ms = sum->longest_ms = NAN;
}

static void take_from(struct timer *rest, const struct timer *timer)
{
    for (int i = 0; i < N_ROUNDS; i++) {
        rest->rounds[i].wall_s -= timer->rounds[i].wall_s;
        rest->rounds[i].cpu_s -= timer->rounds[i].cpu_s;
    }
}

/* The share of the gradient behind activation, pool and dropout that is not zero. A max pool hands
 * each gradient to one of its inputs; an average pool to all, and its inputs are not observed. */
static double passed(const struct dt_block *block, const struct block_times *times)
{
    return block->linear == DT_LINEAR_NONE || block->pool == DT_POOL_AVG
               ? (double)NAN
               : times->n_both / (times->n_samples * (double)dt_shape_elems(block->linear_out));
}

/* A rate is by CPU time, so per core; of a GPU by wall time. Backward there are two products of the
 * same size, for the weights and for the input; the gradient in front of the first weights is not
 * needed. */
static void add_pass(const struct bench *b, struct dt_part *table, int i, bool backward)
{
    const struct dt_trainer *t = &b->trainer;
    const struct dt_block *block = &t->model.blocks[i];
    const struct block_times *times = &b->blocks[i];
    const struct row row = row_of(&times->passes[backward]);
    bool adds;
    const double ms = t->backend->host_memory ? row.cpu_ms : row.ms,
                 n_products = backward && dt_network_dx(t->network, i, 0, 0, &adds) != NULL ? 2 : 1,
                 gflop = 1e-9 * n_products * dt_block_flops(block) * times->n_samples / N_ROUNDS,
                 gflops = gflop > 0 && ms > 0 ? 1e3 * gflop / ms : (double)NAN;
    dt_doc_row(table, dt_t(block->name), dt_t(backward ? "backward" : "forward"), dt_n(row.ms),
               dt_n(row.cpu_ms), dt_n(gflops),
               dt_n(1e9 * gflops / b->peak_flops), /* not finite without a peak */
               dt_n(times->n_nonzero[backward] / times->n_outputs),
               dt_n(backward ? passed(block, times) : (double)NAN),
               dt_n(gflop > 0 ? gflop : (double)NAN), dt_n(row.shortest_ms), dt_n(row.longest_ms));
}

static void add_blocks(const struct bench *b, struct dt_doc *doc)
{
    const struct dt_trainer *t = &b->trainer;
    struct dt_part *p =
        dt_doc_table(doc, "Blocks",
                     "block|pass|time:ms:3|CPU:ms:3|rate:GFLOP/s:1|of peak::%|"
                     "nonzero::%|passed::%|work:GFLOP:5|shortest:ms:3|longest:ms:3");
    dt_doc_caption(p,
                   "Medians of rank 0; CPU: of all its threads. nonzero: the share of nonzero "
                   "values in the output (forward) or the incoming gradient (backward). passed: "
                   "the same of the gradient behind activation, pool and dropout. work: two for "
                   "each multiply-add of the dense operation, backward twice as many; the first "
                   "block with weights passes no gradient on. %s",
                   b->peak_flops > 0
                       ? "rate: by CPU time, so per core; above 100 % of the peak, the program "
                         "skipped products with zeros, which the work includes."
                       : "rate: by wall time, call by call; as a CUDA graph (cuda.graph) a step "
                         "takes less.");
    for (int i = 0; i < 2 * t->model.n_blocks; i++) {
        add_pass(b, p, i % t->model.n_blocks, i >= t->model.n_blocks);
    }
    dt_doc_main(p);
    if (b->recomputes) {
        dt_doc_text(doc,
                    "The backward pass recomputes %s; that time is in the block's backward pass.",
                    t->model.blocks[0].name);
    }
}

static void add_engines(const struct bench *b, struct dt_doc *doc)
{
    const struct dt_device_module *module = b->trainer.device.module;
    struct dt_device_engine engines[DT_DEVICE_MAX_ENGINES];
    struct dt_part *p = NULL;
    for (int i = 0; i < b->trainer.model.n_blocks && module != NULL && module->engines != NULL;
         i++) {
        const int n = module->engines(b->trainer.network->states[i], engines);
        for (int k = 0; k < n; k++) {
            const struct dt_device_engine *e = &engines[k];
            p = p != NULL ? p
                          : dt_doc_table(doc, "Engines",
                                         "block|number::+|place::+|best of::+|time:us:1|"
                                         "workspace::B|operation");
            dt_doc_row(p, dt_t(b->trainer.model.blocks[i].name), dt_n((double)e->number),
                       dt_n(e->place), dt_n(e->n_timed), dt_n(e->n_timed > 0 ? e->us : (double)NAN),
                       dt_n((double)e->workspace_bytes), dt_t(e->operation));
        }
    }
    dt_doc_caption(p, "By number and place in cuDNN's list; best of 0: the first one, not timed.");
}

static void add_step(const struct bench *b, struct dt_doc *doc)
{
    enum { TOTAL = N_PARTS, UNTIMED, N_ROWS };
    static const char *const names[] = {"data",   "forward", "loss",  "backward",
                                        "update", "rest",    "total", "untimed"};
    struct row rows[N_ROWS] = {{0}};
    struct timer rest = b->steps[STEP_TIMED];
    for (int i = 0; i < PART_REST; i++) {
        rows[i] = row_of(&b->parts[i]);
        take_from(&rest, &b->parts[i]);
    }
    for (int i = 0; i < 2 * b->trainer.model.n_blocks; i++) {
        const struct timer *timer = &b->blocks[i / 2].passes[i % 2];
        const struct row row = row_of(timer);
        add_to(&rows[i % 2 == 0 ? PART_FORWARD : PART_BACKWARD], &row);
        take_from(&rest, timer);
    }
    rows[PART_REST] = row_of(&rest);
    for (int i = 0; i < N_PARTS; i++) {
        add_to(&rows[TOTAL], &rows[i]);
    }
    rows[UNTIMED] = row_of(&b->steps[STEP_PLAIN]);
    struct dt_part *p =
        dt_doc_table(doc, "Step", "part|time:ms:3|CPU:ms:3|share::%|shortest:ms:3|longest:ms:3");
    dt_doc_caption(p, "rest: communication, and the time between calls. untimed: a step without "
                      "these clocks.");
    for (int i = 0; i < N_ROWS; i++) {
        const struct row *row = &rows[i];
        dt_doc_row(p, dt_t(names[i]), dt_n(row->ms), dt_n(row->cpu_ms),
                   dt_n(i != UNTIMED ? row->ms / rows[TOTAL].ms : (double)NAN),
                   dt_n(row->shortest_ms), dt_n(row->longest_ms));
    }
}

static enum dt_status show(const struct bench *b, const struct dt_args *args)
{
    const struct dt_trainer *t = &b->trainer;
    struct dt_doc *doc = dt_doc_open("bench model", "Blocks of %s", t->config.name);
    struct dt_part *p = dt_doc_figures(doc, "Setup");
    dt_bench_describe(p, t->world, &b->load, b->peak_flops);
    dt_doc_fact(p, "device", "%s %s", t->backend->ops->name, t->backend->description);
    dt_doc_figure(p, "batch of a rank::0", dt_n(t->set.loader.capacity));
    dt_doc_figure(p, "steps::+", dt_n(N_ROUNDS));
    dt_doc_figure(p, "steps before them::+", dt_n(N_WARMUP));
    dt_doc_figure(
        p, dt_doc_print(doc, "speed:%s/s:0", dt_unit_name(&t->config)),
        dt_n(1e3 * (double)t->set.loader.shard.global_batch / row_of(&b->steps[STEP_PLAIN]).ms));
    add_step(b, doc);
    add_blocks(b, doc);
    add_engines(b, doc);
    const enum dt_status s = dt_result_show(args, doc);
    dt_doc_close(doc);
    return s;
}

/* ---- the command */

/* One piece of memory: room for an activation, and the notes on the outputs. */
static enum dt_status open_host(struct bench *b)
{
    const struct dt_trainer *t = &b->trainer;
    size_t n_largest = 0, n_all = 0;
    for (int i = 0; i < t->model.n_blocks; i++) {
        const size_t n = (size_t)t->network->capacity * sample_elems(b, i);
        n_largest = dt_max_size(n_largest, n);
        n_all += n;
    }
    const size_t n_host = t->backend->host_memory ? 0 : n_largest * sizeof(float);
    b->host = malloc(n_host + n_all);
    if (b->host == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the largest activation");
    }
    bool *nonzero = (bool *)(b->host + n_host);
    for (int i = 0; i < t->model.n_blocks; i++) {
        b->nonzero[i] = nonzero;
        nonzero += (size_t)t->network->capacity * sample_elems(b, i);
    }
    return DT_OK;
}

static enum dt_status run(struct bench *b, const struct dt_args *args)
{
    struct dt_trainer *t = &b->trainer;
    DT_TRY(dt_world_agree(t->world, open_host(b)));
    DT_TRY(dt_strategy_broadcast(t->strategy));
    DT_TRY(take_steps(b));
    dt_terminal_live(NULL);
    return dt_world_agree(t->world, t->world->rank == 0 ? show(b, args) : DT_OK);
}

/* Trains for some steps, so that zeros are where training puts them, then times further ones.
 * Agreed. */
static enum dt_status bench_model(struct dt_world *world, const struct dt_args *args)
{
    struct bench *b;
    struct dt_config config;
    struct dt_roles roles;
    DT_TRY(dt_load_config_all(world, args, &config));
    DT_TRY(dt_error_agreed(dt_roles_find(&config.dist, world->rank, world->size, &roles)));
    if (roles.whole) {
        return dt_error_agreed(dt_error(DT_CONFIG,
                                        "bench model: no rank of a pipeline runs all blocks (set "
                                        "distributed.strategy to allreduce)"));
    }
    DT_TRY(dt_world_alloc(world, 1, sizeof *b, "what is measured", (void **)&b));
    b->trace = (struct dt_trace){.begin = begin_span, .end = end_span};
    config.dist.check_every = 0;
    config.cuda_graph = false;             /* call by call, so that calls can be timed */
    config.dist.order = DT_ORDER_BACKWARD; /* a step ends with its update */
    enum dt_status s = dt_bench_find_load(world, &b->load);
    s = s == DT_OK ? dt_trainer_open(world, &config, &dt_config_json, &dt_all_parts, &b->trainer)
                   : s;
    if (s == DT_OK) {
        s = run(b, args);
        dt_trainer_close(&b->trainer);
    }
    dt_terminal_live(NULL);
    free(b->host);
    free(b);
    return s;
}

const struct dt_command dt_command_bench_model = {
    .word = "bench model",
    .meaning = "time each block, beside the core's peak",
    .usage = "mpirun -np 2 dtrain bench model --config FILE [--data DIR]\n"
             "      [--set KEY.PATH=VALUE]..." DT_RESULT_USAGE,
    .examples = "  dtrain bench model --config configs/mnist.json --data data/mnist \\\n"
                "      --set threads=1\n",
    .more = "Times each block of the model inside real training steps, after 20 unmeasured ones: "
            "milliseconds forward and backward, the share of nonzero numbers, and the arithmetic "
            "rate beside that of a loop of multiply-adds on the same core. A rate counts the "
            "dense operation; above 100 % of the peak, work on zeros was skipped. On a GPU it "
            "names the cuDNN engines of the convolutions. Rank 0 prints its own times. "
            "Interrupting discards the measurement.",
    .options = {[DT_OPTION_CONFIG] = {DT_REQUIRED},
                [DT_OPTION_DATA] = {DT_TAKEN},
                [DT_OPTION_SET] = {DT_TAKEN},
                DT_RESULT_OPTIONS},
    .ending = DT_AGREES_WITH_OTHERS,
    .together = bench_model,
};
