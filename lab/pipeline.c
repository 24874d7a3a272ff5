/* Waiting and memory of a pipeline's stages: a step by three schedules, on a clock. */
#include "lab/pipeline.h"

#include <stdio.h>
#include <string.h>

#include "cli/args.h"

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
    char what[120];
    for (int stage = 0; stage < p; stage++) {
        const int behind = p - stage < m ? p - stage : m; /* stages from this one on */
        snprintf(what, sizeof what, "%s: passes of stage %d", grid->name, stage);
        dt_golden_number(golden, what, grid->n_passes[stage], 2 * m, 0);
        snprintf(what, sizeof what, "%s: micro-batches that stage %d holds at once", grid->name,
                 stage);
        dt_golden_number(golden, what, grid->held[stage],
                         kind == DT_PIPELINE_GRID_1F1B ? behind : m, 0);
    }
    snprintf(what, sizeof what, "%s: units of time of a step", grid->name);
    dt_golden_number(golden, what, grid->n_units,
                     (m + p - 1) * (DT_PIPELINE_FORWARD + DT_PIPELINE_BACKWARD), 0);
    snprintf(what, sizeof what, "%s: the share that a stage waits", grid->name);
    dt_golden_number(golden, what, grid->waits, grid->formula, 1e-12);
    snprintf(what, sizeof what, "%s: the share that a training reports as waiting", grid->name);
    dt_golden_number(golden, what, dt_pipeline_bubble(p, m), grid->formula, 1e-12);
}

static void check(struct dt_pipeline_lesson *l)
{
    for (int kind = 0; kind < DT_PIPELINE_GRIDS; kind++) {
        check_grid(&l->golden, kind, l->n_stages, &l->grids[kind]);
    }
    dt_golden_end(&l->golden);
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
    puts(l->golden.verdict);
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
    return dt_golden_status(&lesson.golden,
                            dt_pipeline_page(dt_args_text(args, DT_OPTION_HTML), &lesson));
}

const struct dt_command dt_command_lab_pipeline = {
    .word = "lab pipeline",
    .meaning = "who waits in a pipeline, and what each stage holds",
    .usage = "dtrain lab pipeline [--ranks N] [--html FILE]",
    .examples = "  dtrain lab pipeline\n",
    .more = "A step of a pipeline stage by stage, by the schedules naive, gpipe and 1f1b on a "
            "clock: the share of time that a stage waits, beside the formula, and the "
            "micro-batches that it holds at once.",
    .options =
        {
            [DT_OPTION_RANKS] = {DT_TAKEN},
            [DT_OPTION_HTML] = {DT_TAKEN},
        },
    .alone = lab_pipeline,
};
