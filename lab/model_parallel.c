/* Four ways to share a model between devices: their traffic, and how many devices compute at once,
 * counted for a configuration. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/config/config.h"
#include "cli/text.h"
#include "dist/allreduce/simulate.h"
#include "lab/golden.h"
#include "report/page/drawing.h"
#include "report/page/layout.h"
#include "train/config.h"

#define DT_PARALLEL_MAX_DEVICES 8
#define DT_PARALLEL_MICRO_BATCHES 8 /* of the pipeline */

enum {
    DT_PARALLEL_LAYERS,
    DT_PARALLEL_PIPELINE,
    DT_PARALLEL_SLICES,
    DT_PARALLEL_DATA,
    DT_PARALLEL_WAYS
};

/* Blocks [begin, end) on one device, and their forward work per sample. */
struct dt_parallel_stage {
    int begin, end;
    double flops;
};

struct dt_parallel_way {
    const char *name, *meaning;
    double bytes;   /* between devices, all messages of a step */
    double at_once; /* devices that compute at the same time, on average */
};

struct dt_parallel_lesson {
    struct dt_config config;
    struct dt_model model;
    int n_devices, n_stages; /* at most as many stages as blocks */
    size_t batch;            /* samples per step */
    double flops;            /* per sample, forward */
    struct dt_parallel_stage stages[DT_PARALLEL_MAX_DEVICES];
    struct dt_parallel_way ways[DT_PARALLEL_WAYS];
    double even; /* at_once of the pipeline if all stages took equally long */
    struct dt_golden golden;
};

/* ---- the page */

/* A device computes something in column `at`. */
static void draw_cell(const struct dt_lanes *grid, int row, int at, const char *class,
                      const char *text)
{
    dt_lanes_box(grid, row, &(struct dt_box){class, at, at + 1, text, NULL});
}

static struct dt_lanes begin(FILE *out, int n_rows, int n_columns, const char *label)
{
    const struct dt_lanes grid = {.out = out,
                                  .label = label,
                                  .n_rows = n_rows,
                                  .width = 440,
                                  .left = 26,
                                  .row = 26,
                                  .end = n_columns};
    char text[16];
    dt_lanes_begin(&grid);
    for (int row = 0; row < n_rows; row++) {
        snprintf(text, sizeof text, "%d", row);
        dt_lanes_name(&grid, row, text);
    }
    return grid;
}

/* Forward down the devices and backward up again, m micro-batches one behind the other. */
static void draw_stages(FILE *out, int p, int m, const char *label)
{
    const int n = 2 * (m + p - 1);
    const struct dt_lanes grid = begin(out, p, n, label);
    for (int row = 0; row < p; row++) {
        for (int i = 0; i < m; i++) {
            char text[16] = "";
            if (m > 1) {
                snprintf(text, sizeof text, "%d", i + 1);
            }
            draw_cell(&grid, row, row + i, "phase forward", text);
            draw_cell(&grid, row, n - 1 - row - i, "phase backward", text);
        }
    }
    dt_lanes_end(&grid);
}

/* All devices at once; `n_exchanges` per direction: one after every layer, or one at the end of the
 * step. */
static void draw_together(FILE *out, int p, int n_layers, bool each, const char *label)
{
    const struct dt_lanes grid = begin(out, p, each ? 4 * n_layers : 2 * n_layers + 1, label);
    for (int row = 0; row < p; row++) {
        int at = 0;
        for (int i = 0; i < 2 * n_layers; i++) {
            draw_cell(&grid, row, at++, i < n_layers ? "phase forward" : "phase backward", NULL);
            if (each) {
                draw_cell(&grid, row, at++, "phase communication", NULL);
            }
        }
        if (!each) {
            draw_cell(&grid, row, at, "phase communication", NULL);
        }
    }
    dt_lanes_end(&grid);
}

static void draw_way(FILE *out, const struct dt_parallel_lesson *l, int way)
{
    const char *name = l->ways[way].name;
    const int shown = l->model.n_blocks < 4 ? l->model.n_blocks : 4;
    if (way == DT_PARALLEL_LAYERS || way == DT_PARALLEL_PIPELINE) {
        draw_stages(out, l->n_stages, way == DT_PARALLEL_LAYERS ? 1 : DT_PARALLEL_MICRO_BATCHES,
                    name);
    } else {
        draw_together(out, l->n_devices, shown, way == DT_PARALLEL_SLICES, name);
    }
}

static double out_elems(const struct dt_model *model, int block)
{
    return (double)dt_shape_elems(model->blocks[block].out);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_parallel_lesson *l = context;
    char text[32];
    fprintf(out,
            "<h1>Four ways to share a model</h1>\n"
            "<p>%zu samples a step on %d devices, time from left to right: <b class=\"phase "
            "forward\">forward</b>, <b class=\"phase backward\">backward</b>, <b class=\"phase "
            "communication\">exchange</b>. As if all layers took equally long; numbers are "
            "micro-batches.</p>\n"
            "<div class=\"cards\">\n",
            l->batch, l->n_devices);
    for (int i = 0; i < DT_PARALLEL_WAYS; i++) {
        const struct dt_parallel_way *w = &l->ways[i];
        dt_card_begin(out, w->name, "%s", w->meaning);
        draw_way(out, l, i);
        fprintf(out, "<p>%s bytes a step; %.2f of %d devices at once</p></div>\n",
                dt_count_text(w->bytes, text, sizeof text), w->at_once, l->n_devices);
    }
    fputs("</div>\n", out);
    dt_table_begin(out, "device|blocks|of the operations|outputs of a sample");
    for (int i = 0; i < l->n_stages; i++) {
        const struct dt_parallel_stage *s = &l->stages[i];
        const bool one = s->end == s->begin + 1;
        dt_table_row(out, "%d|%s%s%s|%.1f %%|%s", i, l->model.blocks[s->begin].name,
                     one ? "" : " to ", one ? "" : l->model.blocks[s->end - 1].name,
                     100 * s->flops / l->flops,
                     dt_count_text(out_elems(&l->model, s->end - 1), text, sizeof text));
    }
    dt_table_end(out);
    fprintf(out,
            "<p>The pipeline of %d micro-batches would keep %.2f devices "
            "at work if its stages were even; as they are cut, %.2f.</p>\n",
            DT_PARALLEL_MICRO_BATCHES, l->even, l->ways[DT_PARALLEL_PIPELINE].at_once);
}

/* ---- the lesson */

/* The model of configs/mnist.json, whose numbers on four devices are golden. */
#define MNIST_PARAMETERS 1199882
#define MNIST_FLOPS 23984896

/* ---- blocks to devices */

static double flops_of(const struct dt_model *model, int begin, int end)
{
    double sum = 0;
    for (int i = begin; i < end; i++) {
        sum += dt_block_flops(&model->blocks[i]);
    }
    return sum;
}

/* Cuts the chain into n_stages stages with the least maximum of work: best[k][i] is that maximum
 * for the first i blocks in k stages. */
static void cut(struct dt_parallel_lesson *l)
{
    double best[DT_PARALLEL_MAX_DEVICES + 1][DT_MAX_LAYERS + 1];
    int from[DT_PARALLEL_MAX_DEVICES + 1][DT_MAX_LAYERS + 1] = {{0}};
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
            (struct dt_parallel_stage){from[k][end], end, flops_of(&l->model, from[k][end], end)};
    }
}

/* ---- the four ways */

/* Outputs go to the next device, and their gradients back. */
static double bytes_between_stages(const struct dt_parallel_lesson *l)
{
    double floats = 0;
    for (int i = 0; i + 1 < l->n_stages; i++) {
        floats += out_elems(&l->model, l->stages[i].end - 1);
    }
    return 2 * sizeof(float) * (double)l->batch * floats;
}

/* Every device computes its share of each block's outputs: forward, the others need all of them;
 * backward, the sums of their gradients, except for the samples'. */
static double bytes_of_slices(const struct dt_parallel_lesson *l)
{
    const int n = l->model.n_blocks;
    double floats = out_elems(&l->model, n - 1);
    for (int i = 0; i + 1 < n; i++) {
        floats += 2 * out_elems(&l->model, i);
    }
    return sizeof(float) * (double)l->batch * (l->n_devices - 1) * floats;
}

/* Gradients of the parameters in a ring, counted from its moves. */
static enum dt_status bytes_of_ring(const struct dt_parallel_lesson *l, double *out)
{
    static const struct dt_costs costs = {
        .ranks_per_host = 1, .between = {10e-6, 8.0 / 10e9}, .gamma_s = 1e-9};
    struct dt_simulation s;
    DT_TRY(dt_simulate(dt_algorithm_find("ring"), l->n_devices, l->model.n_parameters, &costs, &s,
                       NULL));
    *out = (double)s.all.bytes;
    return DT_OK;
}

/* m micro-batches through stages of these lengths: the first passes all stages, then the longest
 * stage releases one at a time. */
static double pipeline_at_once(const struct dt_parallel_lesson *l)
{
    const double m = DT_PARALLEL_MICRO_BATCHES;
    double longest = 0;
    for (int i = 0; i < l->n_stages; i++) {
        longest = fmax(longest, l->stages[i].flops);
    }
    return m * l->flops / (l->flops + (m - 1) * longest);
}

static enum dt_status count(struct dt_parallel_lesson *l)
{
    const double between = bytes_between_stages(l), m = DT_PARALLEL_MICRO_BATCHES;
    double ring;
    DT_TRY(bytes_of_ring(l, &ring));
    l->even = l->n_stages * m / (m + l->n_stages - 1);
    l->ways[DT_PARALLEL_LAYERS] =
        (struct dt_parallel_way){"a layer per device", "one works, the others wait", between, 1};
    l->ways[DT_PARALLEL_PIPELINE] = (struct dt_parallel_way){
        "pipeline", "the same in micro-batches", between, pipeline_at_once(l)};
    l->ways[DT_PARALLEL_SLICES] = (struct dt_parallel_way){
        "vertical slices", "a share of every layer", bytes_of_slices(l), l->n_devices};
    l->ways[DT_PARALLEL_DATA] = (struct dt_parallel_way){
        "data parallel", "all layers, a share of the batch", ring, l->n_devices};
    return DT_OK;
}

static void check(struct dt_parallel_lesson *l)
{
    struct dt_golden *g = &l->golden;
    double flops = 0;
    int next = 0;
    for (int i = 0; i < l->n_stages; i++) {
        dt_golden_number(g, l->stages[i].begin, next, 0, "the first block of a device");
        next = l->stages[i].end;
        flops += l->stages[i].flops;
    }
    dt_golden_number(g, next, l->model.n_blocks, 0, "blocks on devices");
    dt_golden_number(g, flops, l->flops, 0, "operations on devices");
    dt_golden_number(g, l->ways[DT_PARALLEL_DATA].bytes,
                     2.0 * (l->n_devices - 1) * sizeof(float) * (double)l->model.n_parameters, 0,
                     "bytes of a ring by its formula");
    dt_golden_fact(g, l->ways[DT_PARALLEL_PIPELINE].at_once <= l->even + 1e-9,
                   "a pipeline is best with even stages");
    if (l->model.n_parameters == MNIST_PARAMETERS && l->n_devices == 4 && l->batch == 512) {
        dt_golden_number(g, l->flops, MNIST_FLOPS, 0, "operations of a sample");
        dt_golden_number(g, l->ways[DT_PARALLEL_LAYERS].bytes, 126877696, 0,
                         "bytes of a layer per device");
        dt_golden_number(g, l->ways[DT_PARALLEL_SLICES].bytes, 380694528, 0,
                         "bytes of vertical slices");
        dt_golden_number(g, l->ways[DT_PARALLEL_DATA].bytes, 28797168, 0, "bytes of data parallel");
    }
}

/* ---- the text */

static void print_stages(const struct dt_parallel_lesson *l)
{
    for (int i = 0; i < l->n_stages; i++) {
        const struct dt_parallel_stage *s = &l->stages[i];
        char names[64] = "", count[32];
        for (int b = s->begin; b < s->end && strlen(names) < 40; b++) {
            const size_t n = strlen(names);
            snprintf(names + n, sizeof names - n, "%s%s", n > 0 ? " " : "",
                     l->model.blocks[b].name);
        }
        printf("  device %d  %-42.42s %5.1f %% %12s\n", i, names, 100 * s->flops / l->flops,
               dt_count_text(out_elems(&l->model, s->end - 1), count, sizeof count));
    }
}

static void print_arithmetic(const struct dt_parallel_lesson *l)
{
    char batch[32], n[32];
    dt_count_text((double)l->batch, batch, sizeof batch);
    printf("\na layer per device: %s samples x the outputs above but the last device's,\n"
           "  there and back, x 4 bytes; the pipeline sends the same\n",
           batch);
    printf("vertical slices: %s x every block's outputs, to %d others each, and back, x 4\n", batch,
           l->n_devices - 1);
    printf("data parallel: 2 x (%d - 1) x %s parameters x 4, a ring's allreduce\n", l->n_devices,
           dt_count_text((double)l->model.n_parameters, n, sizeof n));
    printf("pipeline, %d micro-batches: %d x %d / (%d + %d - 1) = %.2f devices if its stages\n"
           "  were even; as they are cut, the longest holds the others up: %.2f\n",
           DT_PARALLEL_MICRO_BATCHES, l->n_stages, DT_PARALLEL_MICRO_BATCHES,
           DT_PARALLEL_MICRO_BATCHES, l->n_stages, l->even, l->ways[DT_PARALLEL_PIPELINE].at_once);
}

static void print_lesson(const struct dt_parallel_lesson *l)
{
    char text[32];
    dt_text_print(stdout, "%.40s on %d devices, %zu samples a step: four ways to share a model",
                  l->config.name, l->n_devices, l->batch);
    puts("\nblocks of each device                       share of the operations, outputs");
    print_stages(l);
    printf("\n%-20s%24s%22s\n", "way", "bytes a step", "devices at once");
    for (int i = 0; i < DT_PARALLEL_WAYS; i++) {
        const struct dt_parallel_way *w = &l->ways[i];
        printf("%-20s%24s%15.2f of %d\n", w->name, dt_count_text(w->bytes, text, sizeof text),
               w->at_once, l->n_devices);
    }
    print_arithmetic(l);
    puts("\nFew parameters and large activations are for data parallelism; models that\n"
         "one device cannot hold need one of the others.\n");
}

static enum dt_status prepare(const struct dt_args *args, struct dt_parallel_lesson *l)
{
    size_t n = 4;
    DT_TRY(dt_args_number(args, DT_OPTION_RANKS, false, 2, DT_PARALLEL_MAX_DEVICES, &n));
    DT_TRY(dt_config_load(dt_args_text(args, DT_OPTION_CONFIG), NULL, 0, &l->config));
    DT_TRY(dt_model_lower(&l->config.model, &l->model));
    l->n_devices = (int)n;
    l->n_stages = l->model.n_blocks < l->n_devices ? l->model.n_blocks : l->n_devices;
    l->batch = l->config.batch_global > 0 ? (size_t)l->config.batch_global
                                          : n * (size_t)l->config.batch_per_rank;
    l->flops = flops_of(&l->model, 0, l->model.n_blocks);
    cut(l);
    return count(l);
}

static enum dt_status lab_model_parallel(const struct dt_args *args)
{
    struct dt_parallel_lesson *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a model");
    }
    enum dt_status s = prepare(args, l);
    if (s == DT_OK) {
        check(l);
        print_lesson(l);
        s = dt_golden_tell(&l->golden, args, "Model parallel", put_body, l);
    }
    free(l);
    return s;
}

const struct dt_command dt_command_lab_model_parallel = {
    .word = "lab model-parallel",
    .meaning = "why do ranks share the data, and not the model?",
    .minutes = 5,
    .usage = "dtrain lab model-parallel --config FILE [--ranks N] [--html FILE]",
    .examples = "  dtrain lab model-parallel --config configs/mnist.json\n",
    .more = "Compares four ways to share a model, by the bytes sent per step and the devices that "
            "compute at once: a layer per device, a pipeline, vertical slices, data parallel.",
    .options = {[DT_OPTION_CONFIG] = {DT_REQUIRED},
                [DT_OPTION_RANKS] = {DT_TAKEN},
                [DT_OPTION_HTML] = {DT_TAKEN}},
    .alone = lab_model_parallel,
};
