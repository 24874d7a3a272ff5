/* Waiting and memory of a pipeline's stages: a step by three schedules, on a clock. */
#include <stdio.h>

#include "dist/strategy/pipeline/pipeline_schedule.h"
#include "lab/golden.h"
#include "lab/training.h"
#include "report/page/drawing.h"
#include "report/page/layout.h"

#define DT_PIPELINE_MICRO_BATCHES 8
#define DT_PIPELINE_FORWARD 1  /* time units of a pass */
#define DT_PIPELINE_BACKWARD 2 /* gradients of weights and of inputs: about twice the work */

enum { DT_PIPELINE_GRID_NAIVE, DT_PIPELINE_GRID_GPIPE, DT_PIPELINE_GRID_1F1B, DT_PIPELINE_GRIDS };

static const struct {
    const char *name, *meaning;
    enum dt_pipeline_schedule schedule;
    int n_micro_batches;
} kinds[DT_PIPELINE_GRIDS] = {
    [DT_PIPELINE_GRID_NAIVE] = {"naive", "the whole batch at once", DT_PIPELINE_GPIPE, 1},
    [DT_PIPELINE_GRID_GPIPE] = {"gpipe", "all forward, then all backward", DT_PIPELINE_GPIPE,
                                DT_PIPELINE_MICRO_BATCHES},
    [DT_PIPELINE_GRID_1F1B] = {"1f1b", "one forward, one backward", DT_PIPELINE_1F1B,
                               DT_PIPELINE_MICRO_BATCHES},
};

/* A micro-batch's pass through a stage, in units of time [begin, end). */
struct dt_pipeline_pass {
    struct dt_pipeline_op op;
    int begin, end;
};

/* A step by one schedule. */
struct dt_pipeline_grid {
    const char *name, *meaning;
    int n_micro_batches;
    int n_units; /* of the step; micro-batch units, or of the whole batch if it passes at once */
    int length;  /* the same in units of a micro-batch */
    int n_passes[DT_LAB_MAX_RANKS]; /* of each stage, in this order: */
    struct dt_pipeline_pass passes[DT_LAB_MAX_RANKS][2 * DT_PIPELINE_MICRO_BATCHES];
    int held[DT_LAB_MAX_RANKS]; /* the most micro-batches between forward and backward pass */
    double waits, formula; /* the share of the step that a stage waits on average: counted, and (p -
                              1) / (m + p - 1) */
};

struct dt_pipeline_lesson {
    int n_stages;
    struct dt_pipeline_grid grids[DT_PIPELINE_GRIDS];
    struct dt_golden golden;
};

/* ---- the page */

/* `longest`: units of the longest step, so that all pictures have one scale. */
static void draw_grid(FILE *out, const struct dt_pipeline_grid *grid, int n_stages, int longest)
{
    const double unit = (double)grid->length / grid->n_units;
    const struct dt_lanes lanes = {.out = out,
                                   .label = grid->name,
                                   .n_rows = n_stages,
                                   .width = 960,
                                   .left = 26,
                                   .row = 26,
                                   .end = longest};
    char text[16];
    fputs("<div class=\"wide\">", out);
    dt_lanes_begin(&lanes);
    for (int stage = 0; stage < n_stages; stage++) {
        snprintf(text, sizeof text, "%d", stage);
        dt_lanes_name(&lanes, stage, text);
        dt_lanes_box(&lanes, stage, &(struct dt_box){"rest", 0, grid->length, NULL, NULL});
        for (int i = 0; i < grid->n_passes[stage]; i++) {
            const struct dt_pipeline_pass *pass = &grid->passes[stage][i];
            snprintf(text, sizeof text, "%d", pass->op.micro_batch + 1);
            dt_lanes_box(&lanes, stage,
                         &(struct dt_box){pass->op.backward ? "phase backward" : "phase forward",
                                          pass->begin * unit, pass->end * unit, text, NULL});
        }
    }
    dt_lanes_end(&lanes);
    fputs("</div>\n", out);
}

static void put_row(FILE *out, const struct dt_pipeline_grid *grid, int n_stages)
{
    char held[80] = "";
    for (int stage = 0, n = 0; stage < n_stages; stage++) {
        n += snprintf(held + n, sizeof held - (size_t)n, stage > 0 ? " %d" : "%d",
                      grid->held[stage]);
    }
    dt_table_row(out, "%s|%d|%d|%.1f %%|%d / %d = %.1f %%|%s", grid->name, grid->n_micro_batches,
                 grid->length, 100 * grid->waits, n_stages - 1,
                 grid->n_micro_batches + n_stages - 1, 100 * grid->formula, held);
}

static void put_body(FILE *out, const void *context)
{
    const struct dt_pipeline_lesson *l = context;
    fprintf(out,
            "<h1>Who waits in a pipeline?</h1>\n"
            "<p>A step on %d stages, a row each, time from left to right: <b class=\"phase "
            "forward\">forward</b> one unit, <b class=\"phase backward\">backward</b> two; grey is "
            "waiting, numbers are micro-batches. Each picture is as wide as its step is long.</p>\n"
            "<div class=\"pipeline\"><div class=\"cards\">\n",
            l->n_stages);
    int longest = 0;
    for (int kind = 0; kind < DT_PIPELINE_GRIDS; kind++) {
        longest = l->grids[kind].length > longest ? l->grids[kind].length : longest;
    }
    for (int kind = 0; kind < DT_PIPELINE_GRIDS; kind++) {
        const struct dt_pipeline_grid *grid = &l->grids[kind];
        char title[64];
        snprintf(title, sizeof title, "%s: %s", grid->name, grid->meaning);
        dt_card_begin(out, title, "%d units of time, %.1f %% of them waiting", grid->length,
                      100 * grid->waits);
        draw_grid(out, grid, l->n_stages, longest);
        dt_card_end(out);
    }
    fputs("</div></div>\n", out);
    dt_table_begin(out,
                   "schedule|micro-batches|units|waits|(p - 1) / (m + p - 1)|held by each stage");
    for (int kind = 0; kind < DT_PIPELINE_GRIDS; kind++) {
        put_row(out, &l->grids[kind], l->n_stages);
    }
    dt_table_end(out);
    fputs("<p>1f1b waits as long as gpipe, and a stage holds no more micro-batches than there are "
          "stages from it on.</p>\n",
          out);
}

/* ---- the clock */

struct clock {
    int n_stages;
    enum dt_pipeline_schedule schedule;
    int ends[2][DT_LAB_MAX_RANKS]
            [DT_PIPELINE_MICRO_BATCHES]; /* end times of passes forward, and backward; 0: unknown */
};

/* Time at which the neighbour has sent the pass's input; -1: unknown. */
static int find_arrival(const struct clock *clock, int stage, const struct dt_pipeline_op *op)
{
    const int last = clock->n_stages - 1, i = op->micro_batch;
    int end;
    if (!op->backward) {
        end = stage > 0 ? clock->ends[false][stage - 1][i] : 0;
        return stage > 0 && end == 0 ? -1 : end;
    }
    end = stage < last ? clock->ends[true][stage + 1][i] : clock->ends[false][last][i];
    return end == 0 || clock->ends[false][stage][i] == 0 ? -1 : end;
}

/* Schedules the stage's next pass if its start time is known: when the stage is free and has the
 * input. */
static bool take_pass(struct clock *clock, int stage, struct dt_pipeline_grid *grid)
{
    const int m = grid->n_micro_batches, n = grid->n_passes[stage];
    if (n == 2 * m) {
        return false;
    }
    const struct dt_pipeline_op op = dt_pipeline_op(clock->schedule, stage, clock->n_stages, m, n);
    const int arrival = find_arrival(clock, stage, &op),
              is_free = n > 0 ? grid->passes[stage][n - 1].end : 0;
    if (arrival < 0) {
        return false;
    }
    struct dt_pipeline_pass *pass = &grid->passes[stage][n];
    pass->op = op;
    pass->begin = arrival > is_free ? arrival : is_free;
    pass->end = pass->begin + (op.backward ? DT_PIPELINE_BACKWARD : DT_PIPELINE_FORWARD);
    clock->ends[op.backward][stage][op.micro_batch] = pass->end;
    grid->n_passes[stage]++;
    return true;
}

static void run(int kind, int n_stages, struct dt_pipeline_grid *grid)
{
    struct clock clock = {.n_stages = n_stages, .schedule = kinds[kind].schedule};
    bool took = true;
    grid->name = kinds[kind].name;
    grid->meaning = kinds[kind].meaning;
    grid->n_micro_batches = kinds[kind].n_micro_batches;
    while (took) { /* until all are done, or each waits for another */
        took = false;
        for (int stage = 0; stage < n_stages; stage++) {
            took = take_pass(&clock, stage, grid) || took;
        }
    }
}

static void count(int n_stages, struct dt_pipeline_grid *grid)
{
    int busy = 0;
    for (int stage = 0; stage < n_stages; stage++) {
        int held = 0;
        for (int i = 0; i < grid->n_passes[stage]; i++) {
            const struct dt_pipeline_pass *pass = &grid->passes[stage][i];
            held += pass->op.backward ? -1 : 1;
            grid->held[stage] = held > grid->held[stage] ? held : grid->held[stage];
            grid->n_units = pass->end > grid->n_units ? pass->end : grid->n_units;
            busy += pass->end - pass->begin;
        }
    }
    grid->length = grid->n_units * DT_PIPELINE_MICRO_BATCHES / grid->n_micro_batches;
    grid->waits = 1 - (double)busy / (n_stages * grid->n_units);
    grid->formula = (double)(n_stages - 1) / (grid->n_micro_batches + n_stages - 1);
}

/* ---- expected results */

static void check_grid(struct dt_golden *golden, int kind, int p,
                       const struct dt_pipeline_grid *grid)
{
    const int m = grid->n_micro_batches;
    for (int stage = 0; stage < p; stage++) {
        const int behind = p - stage < m ? p - stage : m; /* stages from this one on */
        dt_golden_number(golden, grid->n_passes[stage], 2 * m, 0, "%s: passes of stage %d",
                         grid->name, stage);
        dt_golden_number(golden, grid->held[stage], kind == DT_PIPELINE_GRID_1F1B ? behind : m, 0,
                         "%s: micro-batches that stage %d holds at once", grid->name, stage);
    }
    dt_golden_number(golden, grid->n_units,
                     (m + p - 1) * (DT_PIPELINE_FORWARD + DT_PIPELINE_BACKWARD), 0,
                     "%s: units of time of a step", grid->name);
    dt_golden_number(golden, grid->waits, grid->formula, 1e-12, "%s: the share that a stage waits",
                     grid->name);
    dt_golden_number(golden, dt_pipeline_bubble(p, m), grid->formula, 1e-12,
                     "%s: the share that a training reports as waiting", grid->name);
}

static void check(struct dt_pipeline_lesson *l)
{
    for (int kind = 0; kind < DT_PIPELINE_GRIDS; kind++) {
        check_grid(&l->golden, kind, l->n_stages, &l->grids[kind]);
    }
}

/* ---- the text */

/* A column is a time unit: "1" forward, "<1" backward. */
static void print_stage(const struct dt_pipeline_grid *grid, int stage)
{
    int at = 0;
    printf("  stage %d  ", stage);
    for (int i = 0; i < grid->n_passes[stage]; i++) {
        const struct dt_pipeline_pass *pass = &grid->passes[stage][i];
        for (; at < pass->begin; at++) {
            putchar('.');
        }
        printf("%s%d", pass->op.backward ? "<" : "", pass->op.micro_batch + 1);
        at = pass->end;
    }
    for (; at < grid->n_units; at++) {
        putchar('.');
    }
    putchar('\n');
}

static void print_grids(const struct dt_pipeline_lesson *l)
{
    printf("A step of a pipeline with %d stages, its batch in %d micro-batches. A column is a\n"
           "unit of time: micro-batch 1 takes a stage one unit forward (1) and two\n"
           "backward (<1); a stage that waits has a dot.\n",
           l->n_stages, DT_PIPELINE_MICRO_BATCHES);
    for (int kind = 0; kind < DT_PIPELINE_GRIDS; kind++) {
        const struct dt_pipeline_grid *grid = &l->grids[kind];
        printf("\n%s: %s", grid->name, grid->meaning);
        printf(kind == DT_PIPELINE_GRID_NAIVE ? "; a column is %d units\n" : "\n",
               DT_PIPELINE_MICRO_BATCHES);
        for (int stage = 0; stage < l->n_stages; stage++) {
            print_stage(grid, stage);
        }
    }
}

static void print_table(const struct dt_pipeline_lesson *l)
{
    printf("\n%-7s%5s%7s%9s%25s   %s\n", "", "parts", "units", "waits", "(p - 1) / (m + p - 1)",
           "held by each stage");
    for (int kind = 0; kind < DT_PIPELINE_GRIDS; kind++) {
        const struct dt_pipeline_grid *grid = &l->grids[kind];
        const int p = l->n_stages, m = grid->n_micro_batches;
        printf("%-7s%5d%7d%7.1f %%%10d / %-2d = %6.1f %%  ", grid->name, m, grid->length,
               100 * grid->waits, p - 1, m + p - 1, 100 * grid->formula);
        for (int stage = 0; stage < p; stage++) {
            printf(" %d", grid->held[stage]);
        }
        putchar('\n');
    }
}

static void print_lesson(const struct dt_pipeline_lesson *l)
{
    print_grids(l);
    print_table(l);
    puts("\nMore micro-batches leave less to wait. 1f1b waits as long as gpipe, but goes\n"
         "backward as soon as it can: a stage holds at most as many as there are stages\n"
         "from it on, however many parts a batch has. gpipe holds all, and so does\n"
         "naive: its one part is the batch.\n");
}

static enum dt_status lab_pipeline(const struct dt_args *args)
{
    static struct dt_pipeline_lesson lesson;
    size_t n_ranks = 4;
    DT_TRY(dt_args_number(args, DT_OPTION_RANKS, false, 2, DT_LAB_MAX_RANKS, &n_ranks));
    lesson.n_stages = (int)n_ranks;
    for (int kind = 0; kind < DT_PIPELINE_GRIDS; kind++) {
        run(kind, lesson.n_stages, &lesson.grids[kind]);
        count(lesson.n_stages, &lesson.grids[kind]);
    }
    check(&lesson);
    print_lesson(&lesson);
    return dt_golden_tell(&lesson.golden, args, "Pipeline", put_body, &lesson);
}

const struct dt_command dt_command_lab_pipeline = {
    .word = "lab pipeline",
    .meaning = "who waits in a pipeline, and what does a stage hold?",
    .minutes = 5,
    .usage = "dtrain lab pipeline [--ranks N] [--html FILE]",
    .examples = "  dtrain lab pipeline\n",
    .more = "A step of a pipeline stage by stage, by the schedules naive, gpipe and 1f1b on a "
            "clock: the share of time that a stage waits, beside the formula, and the "
            "micro-batches that it holds at once.",
    .options = {[DT_OPTION_RANKS] = {DT_TAKEN}, [DT_OPTION_HTML] = {DT_TAKEN}},
    .alone = lab_pipeline,
};
