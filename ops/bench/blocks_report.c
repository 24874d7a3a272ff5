#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"
#include "ops/bench/blocks.h"

struct row {
    double ms, ms_min, ms_max, cpu_ms; /* ms and cpu_ms: medians of the rounds */
};

/* A block forward, or backward. NAN: there is no such number. */
struct pass_row {
    struct row time;
    double gflop;           /* of one step, dense */
    double gflops, of_peak; /* by CPU time, so per core; of a GPU by wall time */
    double alive;           /* share of the output, or of its gradient, that is not zero */
    double alive_linear;    /* backward: of the gradient of the linear operation's output */
};

/* Where a step's time goes. The rest is communication and what lies between the calls. */
enum {
    ROW_GATHER,
    ROW_FORWARD,
    ROW_LOSS,
    ROW_BACKWARD,
    ROW_OPTIMIZER,
    ROW_REST,
    ROW_TOTAL,
    ROW_UNTIMED,
    N_ROWS
};
static const char *const row_names[N_ROWS] = {"gather",    "forward", "loss",  "backward",
                                              "optimizer", "rest",    "total", "untimed"};

struct summary {
    struct pass_row forward[DT_MAX_LAYERS], backward[DT_MAX_LAYERS];
    struct row rows[N_ROWS];
};

static struct row summarize_timer(const struct dt_bench_timer *timer)
{
    double wall[DT_BENCH_ROUNDS], cpu[DT_BENCH_ROUNDS];
    for (int i = 0; i < DT_BENCH_ROUNDS; i++) {
        wall[i] = 1e3 * timer->rounds[i].wall_s;
        cpu[i] = 1e3 * timer->rounds[i].cpu_s;
    }
    const double median = dt_measure_median(wall, DT_BENCH_ROUNDS); /* sorts */
    return (struct row){.ms = median,
                        .ms_min = wall[0],
                        .ms_max = wall[DT_BENCH_ROUNDS - 1],
                        .cpu_ms = dt_measure_median(cpu, DT_BENCH_ROUNDS)};
}

static struct pass_row summarize_pass(const struct dt_trainer *t, double peak_flops,
                                      const struct dt_bench_timer *timer, double n_flops)
{
    struct pass_row pass = {.time = summarize_timer(timer),
                            .gflop = NAN,
                            .gflops = NAN,
                            .of_peak = NAN,
                            .alive_linear = NAN};
    const double ms = t->backend->host_memory ? pass.time.cpu_ms : pass.time.ms;
    if (n_flops > 0 && ms > 0) {
        pass.gflop = 1e-9 * n_flops;
        pass.gflops = 1e3 * pass.gflop / ms;
        pass.of_peak = peak_flops > 0 ? pass.gflops / (1e-9 * peak_flops) : (double)NAN;
    }
    return pass;
}

/* A max pool hands each gradient to one of its inputs; an average pool to all, and which of those
 * live is not to be seen here. */
static double alive_linear(const struct dt_block *block, const struct dt_block_bench *b)
{
    if (block->linear == DT_LINEAR_NONE || block->pool == DT_POOL_AVG) {
        return NAN;
    }
    return b->n_alive_both / (b->n_samples * (double)dt_shape_elems(block->linear_out));
}

/* Backward there are two products of the same size, for the weights and for the input; the gradient
 * in front of the first weights is not needed. */
static void summarize_block(const struct dt_trainer *t, const struct dt_block_times *times,
                            int index, struct summary *out)
{
    const struct dt_block_bench *b = &times->blocks[index];
    const double n_flops = dt_block_flops(&t->model.blocks[index]) * b->n_samples / DT_BENCH_ROUNDS;
    struct pass_row *forward = &out->forward[index], *backward = &out->backward[index];
    *forward = summarize_pass(t, times->peak_flops, &b->forward, n_flops);
    *backward = summarize_pass(t, times->peak_flops, &b->backward,
                               index > dt_model_first_trained(&t->model) ? 2 * n_flops : n_flops);
    forward->alive = b->n_alive_outputs / b->n_outputs;
    backward->alive = b->n_alive_grads / b->n_outputs;
    backward->alive_linear = alive_linear(&t->model.blocks[index], b);
}

static void add_to(struct row *sum, const struct row *row)
{
    sum->ms += row->ms;
    sum->cpu_ms += row->cpu_ms;
}

static void take_from(struct dt_bench_timer *rest, const struct dt_bench_timer *timer)
{
    for (int i = 0; i < DT_BENCH_ROUNDS; i++) {
        rest->rounds[i].wall_s -= timer->rounds[i].wall_s;
        rest->rounds[i].cpu_s -= timer->rounds[i].cpu_s;
    }
}

static void summarize(const struct dt_trainer *t, const struct dt_block_times *times,
                      struct summary *out)
{
    static const int row_of[DT_N_PARTS] = {[DT_PART_GATHER] = ROW_GATHER,
                                           [DT_PART_LOSS] = ROW_LOSS,
                                           [DT_PART_OPTIMIZER] = ROW_OPTIMIZER};
    struct dt_bench_timer rest = times->steps[DT_STEP_TIMED];
    memset(out, 0, sizeof *out);
    for (int i = 0; i < t->model.n_blocks; i++) {
        summarize_block(t, times, i, out);
        add_to(&out->rows[ROW_FORWARD], &out->forward[i].time);
        add_to(&out->rows[ROW_BACKWARD], &out->backward[i].time);
        take_from(&rest, &times->blocks[i].forward);
        take_from(&rest, &times->blocks[i].backward);
    }
    for (int part = 0; part < DT_N_PARTS; part++) {
        out->rows[row_of[part]] = summarize_timer(&times->parts[part]);
        take_from(&rest, &times->parts[part]);
    }
    out->rows[ROW_REST] = summarize_timer(&rest);
    for (int i = 0; i < ROW_TOTAL; i++) {
        add_to(&out->rows[ROW_TOTAL], &out->rows[i]);
    }
    out->rows[ROW_UNTIMED] = summarize_timer(&times->steps[DT_STEP_PLAIN]);
}

/* ---- as a table */

static void print_number(int width, int decimals, double value)
{
    if (isfinite(value)) {
        printf(" %*.*f", width, decimals, value);
    } else {
        printf(" %*s", width, "-");
    }
}

static void print_pass(const struct pass_row *pass)
{
    print_number(8, 3, pass->time.ms);
    print_number(8, 3, pass->time.cpu_ms);
    print_number(8, 5, pass->gflop);
    print_number(8, 1, pass->gflops);
    print_number(6, 1, 100 * pass->of_peak);
    print_number(8, 1, 100 * pass->alive);
}

static void print_passes(const struct dt_trainer *t, const struct summary *s, bool backward)
{
    printf("%-9s       ms      cpu    GFLOP  GFLOP/s  %%peak %%nonzero%s\n",
           backward ? "backward" : "forward", backward ? " %passed" : "");
    for (int i = 0; i < t->model.n_blocks; i++) {
        printf("%-9s", t->model.blocks[i].name);
        print_pass(backward ? &s->backward[i] : &s->forward[i]);
        if (backward) {
            print_number(7, 1, 100 * s->backward[i].alive_linear);
        }
        putchar('\n');
    }
}

/* The engines of the block's operations, and their number; 0 where the device names none. */
static int engines_of(const struct dt_trainer *t, int block,
                      struct dt_device_engine out[DT_DEVICE_MAX_ENGINES])
{
    const struct dt_device_module *module = t->device.module;
    return module != NULL && module->engines != NULL
               ? module->engines(t->network->states[block], out)
               : 0;
}

static void print_engine(const char *block, const struct dt_device_engine *e)
{
    char how[48] = "the first, not timed", workspace[DT_BYTES_TEXT_SIZE];
    if (e->n_timed > 0) {
        snprintf(how, sizeof how, "%.1f us, best of %d", e->us, e->n_timed);
    }
    printf("engine %lld/%d: %s, %s: %s, %s\n", (long long)e->number, e->place, block, e->operation,
           how, dt_bytes_text((double)e->workspace_bytes, workspace));
}

static void print_engines(const struct dt_trainer *t)
{
    struct dt_device_engine engines[DT_DEVICE_MAX_ENGINES];
    bool first = true;
    for (int b = 0; b < t->model.n_blocks; b++) {
        const int n = engines_of(t, b, engines);
        for (int i = 0; i < n; i++) {
            fputs(first ? "\nengines, by number/place in the library's list, and their workspace\n"
                        : "",
                  stdout);
            print_engine(t->model.blocks[b].name, &engines[i]);
            first = false;
        }
    }
}

static void print_step(const struct summary *s)
{
    printf("\n%-9s%9s%9s%9s\n", "part", "ms", "cpu", "%");
    for (int i = 0; i < N_ROWS; i++) {
        const struct row *row = &s->rows[i];
        printf("%-9s%9.3f%9.3f%9.1f\n", row_names[i], row->ms, row->cpu_ms,
               100 * row->ms / s->rows[ROW_TOTAL].ms);
    }
}

static void print_notes(const struct dt_trainer *t, const struct dt_block_times *times)
{
    puts("\nms, cpu: wall time, and CPU time of all threads of rank 0; medians.\n"
         "rest: communication, and the time between calls.\n"
         "total: the sum of the rows above. untimed: a step without these clocks.\n"
         "GFLOP: 2 for each multiply-add of the dense operation, backward twice as many;\n"
         "the first block with weights passes no gradient on.\n"
         "%nonzero: share of non-zero values in the output (forward) or incoming gradient\n"
         "(backward); %passed: in the gradient behind activation, pool and dropout, where\n"
         "it enters the linear operation.");
    if (times->peak_flops > 0) {
        printf("GFLOP/s: per core, by CPU time. %%peak: of %.1f GFLOP/s, measured with\n"
               "multiply-adds alone on this core between the steps; above 100 means that work\n"
               "was skipped: products with zeros, which the count of dense operations includes.\n",
               1e-9 * times->peak_flops);
    } else {
        puts("GFLOP/s: by wall time. Steps are taken call by call here; as a CUDA graph\n"
             "(cuda.graph) they take less.");
    }
    if (times->made_again) {
        printf("%s is recomputed in the backward pass, and that is in its backward time.\n",
               t->model.blocks[0].name);
    }
}

void dt_block_times_print(const struct dt_block_times *times)
{
    const struct dt_trainer *t = times->trainer;
    struct summary s;
    summarize(t, times, &s);
    dt_text_print(stdout, "%s on %d rank%s, batch %d; %d steps after %d", t->config.name,
                  t->world->size, t->world->size == 1 ? "" : "s", t->set.loader.capacity,
                  DT_BENCH_ROUNDS, DT_BENCH_WARMUP);
    dt_text_print(stdout, "rank 0: %s %s", t->backend->ops->name, t->backend->description);
    putchar('\n');
    print_passes(t, &s, false);
    putchar('\n');
    print_passes(t, &s, true);
    print_engines(t);
    print_step(&s);
    print_notes(t, times);
}

/* ---- as JSON; null: there is no such number */

static void put_row(struct dt_json *json, const struct row *row, bool with_range)
{
    dt_json_number(json, "ms", 0, row->ms);
    dt_json_number(json, "cpu_ms", 0, row->cpu_ms);
    if (with_range) {
        dt_json_number(json, "ms_min", 0, row->ms_min);
        dt_json_number(json, "ms_max", 0, row->ms_max);
    }
}

static void put_pass(struct dt_json *json, const struct pass_row *pass, bool backward)
{
    dt_json_begin(json, backward ? "backward" : "forward", '{');
    put_row(json, &pass->time, true);
    dt_json_number(json, "gflop", 0, pass->gflop);
    dt_json_number(json, "gflops", 0, pass->gflops);
    dt_json_number(json, "of_peak", 0, pass->of_peak);
    dt_json_number(json, "alive", 0, pass->alive);
    if (backward) {
        dt_json_number(json, "reach", 0, pass->alive_linear);
    }
    dt_json_end(json, '{');
}

static void put_engines(struct dt_json *json, const struct dt_trainer *t, int block)
{
    struct dt_device_engine engines[DT_DEVICE_MAX_ENGINES];
    const int n = engines_of(t, block, engines);
    if (n == 0) {
        return;
    }
    dt_json_begin(json, "engines", '[');
    for (int i = 0; i < n; i++) {
        dt_json_begin(json, NULL, '{');
        dt_json_text(json, "operation", engines[i].operation);
        dt_json_number(json, "number", 0, (double)engines[i].number);
        dt_json_number(json, "place", 0, engines[i].place);
        dt_json_number(json, "timed", 0, engines[i].n_timed);
        dt_json_number(json, "us", 0, engines[i].us);
        dt_json_number(json, "workspace_bytes", 0, (double)engines[i].workspace_bytes);
        dt_json_end(json, '{');
    }
    dt_json_end(json, '[');
}

static void put_blocks(struct dt_json *json, const struct dt_trainer *t, const struct summary *s)
{
    dt_json_begin(json, "blocks", '[');
    for (int i = 0; i < t->model.n_blocks; i++) {
        dt_json_begin(json, NULL, '{');
        dt_json_text(json, "name", t->model.blocks[i].name);
        put_pass(json, &s->forward[i], false);
        put_pass(json, &s->backward[i], true);
        put_engines(json, t, i);
        dt_json_end(json, '{');
    }
    dt_json_end(json, '[');
}

void dt_block_times_put_json(FILE *out, const void *context)
{
    const struct dt_block_times *times = context;
    const struct dt_trainer *t = times->trainer;
    struct summary s;
    char device[128];
    summarize(t, times, &s);
    const struct row *plain = &s.rows[ROW_UNTIMED];
    snprintf(device, sizeof device, "%s %s", t->backend->ops->name, t->backend->description);
    struct dt_json json = dt_bench_json(out, "blocks", t->world, times->peak_flops);
    dt_json_text(&json, "config", t->config.name);
    dt_json_text(&json, "device", device);
    dt_json_number(&json, "batch", 0, t->set.loader.capacity);
    dt_json_number(&json, "steps", 0, DT_BENCH_ROUNDS);
    dt_json_number(&json, "warmup_steps", 0, DT_BENCH_WARMUP);
    put_blocks(&json, t, &s);
    dt_json_begin(&json, "parts", '{');
    for (int i = 0; i <= ROW_TOTAL; i++) {
        dt_json_begin(&json, row_names[i], '{');
        put_row(&json, &s.rows[i], false);
        dt_json_end(&json, '{');
    }
    dt_json_end(&json, '{');
    dt_json_begin(&json, "step", '{'); /* without clocks */
    put_row(&json, plain, true);
    dt_json_number(&json, "images_per_s", 0,
                   1e3 * (double)t->set.loader.shard.global_batch / plain->ms);
    dt_json_end(&json, '{');
    dt_json_end(&json, '{');
    fputc('\n', out);
}
