/* Times each block of a model inside real training steps, by observing their spans (model/trace.h).
 * So it works for any backend, and times exactly what a training does, including chunks. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/commands/load.h"
#include "dist/strategy/roles.h"
#include "ops/bench/blocks.h"

#define PEAK_MS 3 /* a round */

struct bench {
    struct dt_trace trace; /* first member: begin_span and end_span receive a pointer to it */
    struct dt_trainer trainer;
    struct dt_block_times times;
    enum dt_bench_step step; /* the current one, and its round */
    int round;
    struct dt_bench_cost starts[DT_N_SPANS]; /* of the open spans */
    char *host; /* the largest activation, if the backend's memory is not the host's */
    bool *alive[DT_MAX_LAYERS]; /* by block, for each output of the batch: it is nonzero. A gradient
                                   may overwrite the outputs */
};

/* ---- observed spans */

static struct dt_bench_cost now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (struct dt_bench_cost){.wall_s = dt_clock_s(),
                                  .cpu_s = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec};
}

static void add_since(struct dt_bench_cost *cost, struct dt_bench_cost start)
{
    const struct dt_bench_cost end = now();
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
static bool is_alive(const void *elems, size_t i, size_t n_bytes)
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
    bool *alive = bench->alive[b] + (size_t)span->first * n_sample;
    const void *outputs;
    DT_TRY(reach(bench, b, span->y, n, &outputs));
    for (size_t i = 0; i < n; i++) {
        alive[i] = is_alive(outputs, i, elem_bytes(bench, b));
    }
    return DT_OK;
}

/* Counts nonzero elements of a block's output and of its gradient. */
static enum dt_status count_block(struct bench *bench, const struct dt_span *span)
{
    const int b = span->block;
    struct dt_block_bench *block = &bench->times.blocks[b];
    const size_t n_sample = sample_elems(bench, b), n = (size_t)span->n_samples * n_sample;
    const bool *alive = bench->alive[b] + (size_t)span->first * n_sample;
    const void *grads;
    DT_TRY(reach(bench, b, span->dy, n, &grads));
    for (size_t i = 0; i < n; i++) {
        const bool grad = is_alive(grads, i, elem_bytes(bench, b));
        block->n_alive_outputs += alive[i];
        block->n_alive_grads += grad;
        block->n_alive_both += alive[i] && grad;
    }
    block->n_samples += span->n_samples;
    block->n_outputs += (double)n;
    return DT_OK;
}

static struct dt_bench_timer *timer_of(struct bench *bench, const struct dt_span *span)
{
    struct dt_block_times *times = &bench->times;
    switch (span->kind) {
    case DT_SPAN_GATHER:
        return &times->parts[DT_PART_GATHER];
    case DT_SPAN_FORWARD:
        return &times->blocks[span->block].forward;
    case DT_SPAN_LOSS:
        return &times->parts[DT_PART_LOSS];
    case DT_SPAN_RECOMPUTE:
    case DT_SPAN_BACKWARD:
        return &times->blocks[span->block].backward;
    case DT_SPAN_UPDATE:
        return &times->parts[DT_PART_OPTIMIZER];
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
    bench->times.made_again = bench->times.made_again || span->kind == DT_SPAN_RECOMPUTE;
    if (bench->step == DT_STEP_COUNTED && span->kind == DT_SPAN_BACKWARD) {
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
    struct dt_bench_timer *timer = timer_of(bench, span);
    if (bench->step == DT_STEP_TIMED && timer != NULL) {
        DT_TRY(backend->ops->sync(backend));
        add_since(&timer->rounds[bench->round], bench->starts[span->kind]);
    }
    return bench->step == DT_STEP_COUNTED && span->kind == DT_SPAN_FORWARD
               ? note_outputs(bench, span)
               : DT_OK;
}

/* ---- the steps */

static enum dt_status take_step(struct bench *b, enum dt_bench_step step)
{
    b->step = step;
    dt_trainer_watch(&b->trainer, step != DT_STEP_PLAIN ? &b->trace : NULL);
    const struct dt_bench_cost start = now();
    DT_TRY(dt_bench_take_step(&b->trainer, "bench model"));
    add_since(&b->times.steps[step].rounds[b->round], start);
    return DT_OK;
}

static enum dt_status take_steps(struct bench *b)
{
    for (int i = 0; i < DT_BENCH_WARMUP; i++) {
        DT_TRY(take_step(b, DT_STEP_PLAIN));
    }
    memset(b->times.steps, 0, sizeof b->times.steps);
    for (b->round = 0; b->round < DT_BENCH_ROUNDS; b->round++) {
        for (int step = 0; step < DT_N_STEPS; step++) {
            DT_TRY(take_step(b, (enum dt_bench_step)step));
        }
        if (b->trainer.backend->host_memory) {
            b->times.peak_flops = fmax(b->times.peak_flops, dt_bench_peak(PEAK_MS));
        }
    }
    return DT_OK;
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
    bool *alive = (bool *)(b->host + n_host);
    for (int i = 0; i < t->model.n_blocks; i++) {
        b->alive[i] = alive;
        alive += (size_t)t->network->capacity * sample_elems(b, i);
    }
    return DT_OK;
}

static enum dt_status run(struct bench *b, const char *path)
{
    struct dt_trainer *t = &b->trainer;
    DT_TRY(dt_world_agree(t->world, open_host(b)));
    DT_TRY(dt_strategy_broadcast(t->strategy));
    DT_TRY(take_steps(b));
    enum dt_status written = DT_OK;
    if (t->world->rank == 0) {
        b->times.trainer = t;
        dt_block_times_print(&b->times);
        written = dt_file_print(path, dt_block_times_put_json, &b->times);
    }
    return dt_world_agree(t->world, written);
}

/* Trains for some steps, so that zeros are where training puts them, then times further ones; rank
 * 0 prints a table, and writes the file --json. Agreed. */
static enum dt_status bench_blocks(struct dt_world *world, const struct dt_args *args)
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
    DT_TRY(dt_bench_print_load(world));
    DT_TRY(dt_world_alloc(world, 1, sizeof *b, "what is measured", (void **)&b));
    b->trace = (struct dt_trace){.begin = begin_span, .end = end_span};
    config.dist.check_every = 0;
    config.cuda_graph = false;             /* call by call, so that calls can be timed */
    config.dist.order = DT_ORDER_BACKWARD; /* a step ends with its update */
    enum dt_status s = dt_trainer_open(world, &config, &dt_config_json, &dt_all_parts, &b->trainer);
    if (s == DT_OK) {
        s = run(b, dt_args_text(args, DT_OPTION_JSON));
        dt_trainer_close(&b->trainer);
    }
    free(b->host);
    free(b);
    return s;
}

const struct dt_command dt_command_bench_model = {
    .word = "bench model",
    .meaning = "time each block, beside the core's peak",
    .usage = "mpirun -np 2 dtrain bench model --config FILE [--data DIR]\n"
             "      [--set KEY.PATH=VALUE]... [--json FILE]",
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
                [DT_OPTION_JSON] = {DT_TAKEN}},
    .ending = DT_AGREES_WITH_OTHERS,
    .together = bench_blocks,
};
