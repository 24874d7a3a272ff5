/* How ranks share the data: the samples that each reads, the proof that each sample is used once,
 * and shards that harm. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/text.h"
#include "lab/golden.h"
#include "lab/training.h"
#include "report/page/drawing.h"
#include "report/page/layout.h"

#define DT_SHARDS_MODES 3                          /* shard, global, replicate */
#define DT_SHARDS_MAX_SHOWN (2 * DT_LAB_MAX_RANKS) /* samples of the example: two for each rank */

#define DT_SHARDS_MAX_SHARINGS 7

/* Order of the samples in the file: mixed, dealt so that each rank's part has its own labels, or by
 * label. */
enum file_order { MIXED, DEALT, SORTED };

enum { SHARD, GLOBAL, REPLICATE, BY_LABEL, SORTED_FILE, ALONE, BY_LABEL_ALONE };
static const struct {
    const char *name, *meaning;
    enum dt_sharding mode;
    enum file_order order;
    bool together;
} kinds[DT_SHARDS_MAX_SHARINGS] = {
    [SHARD] = {"shard", "each rank has its part", DT_SHARDING_SHARD, MIXED, true},
    [GLOBAL] = {"global", "a slice each of one order", DT_SHARDING_GLOBAL, MIXED, true},
    [REPLICATE] = {"replicate", "everybody goes through everything", DT_SHARDING_REPLICATE, MIXED,
                   true},
    [BY_LABEL] = {"by label", "each rank has labels of its own", DT_SHARDING_SHARD, DEALT, true},
    [SORTED_FILE] = {"sorted file", "label after label, not shuffled", DT_SHARDING_GLOBAL, SORTED,
                     true},
    [ALONE] = {"shard, alone", "a part each, nothing averaged", DT_SHARDING_SHARD, MIXED, false},
    [BY_LABEL_ALONE] = {"by label, alone", "labels each, nothing averaged", DT_SHARDING_SHARD,
                        DEALT, false},
};

/* The results of a way of sharing after one epoch. */
struct dt_sharing {
    uint64_t n_steps;
    struct dt_lab_uses uses;
    double accuracy; /* on the test set after the epoch; the mean, if ranks train alone */
};

struct dt_shards_lesson {
    int n_ranks, n_shown;                          /* samples of the example */
    int n_used[DT_SHARDS_MODES][DT_LAB_MAX_RANKS]; /* by each rank, in this order: */
    uint32_t used[DT_SHARDS_MODES][DT_LAB_MAX_RANKS][DT_SHARDS_MAX_SHOWN];
    struct dt_sharing sharings[DT_SHARDS_MAX_SHARINGS];
    struct dt_golden golden;
};

/* ---- the page */

/* Which step of a rank takes a sample; 0: none. */
static int step_of(const struct dt_shards_lesson *l, int mode, int rank, int sample)
{
    for (int i = 0; i < l->n_used[mode][rank]; i++) {
        if (l->used[mode][rank][i] == (uint32_t)sample) {
            return i + 1;
        }
    }
    return 0;
}

/* A row a rank, a column a sample; in a cell the step that takes it. */
static void draw_use(FILE *out, const struct dt_shards_lesson *l, int mode)
{
    const struct dt_lanes grid = {.out = out,
                                  .label = "which rank uses which sample",
                                  .n_rows = l->n_ranks + 1,
                                  .width = 440,
                                  .left = 64,
                                  .row = 24,
                                  .end = l->n_shown};
    char text[16];
    dt_lanes_begin(&grid);
    for (int i = 0; i < l->n_shown; i++) {
        snprintf(text, sizeof text, "%d", i);
        dt_lanes_box(&grid, 0, &(struct dt_box){"head", i, i + 1, text, NULL});
    }
    for (int rank = 0; rank < l->n_ranks; rank++) {
        snprintf(text, sizeof text, "rank %d", rank);
        dt_lanes_name(&grid, rank + 1, text);
        for (int i = 0; i < l->n_shown; i++) {
            const int step = step_of(l, mode, rank, i);
            snprintf(text, sizeof text, "%d", step);
            dt_lanes_box(&grid, rank + 1,
                         &(struct dt_box){step > 0 ? "taken" : "box", i, i + 1,
                                          step > 0 ? text : NULL, NULL});
        }
    }
    dt_lanes_end(&grid);
}

static void draw_accuracy(FILE *out, const struct dt_shards_lesson *l)
{
    struct dt_bar bars[DT_SHARDS_MAX_SHARINGS];
    char texts[DT_SHARDS_MAX_SHARINGS][16];
    for (int i = 0; i < DT_SHARDS_MAX_SHARINGS; i++) {
        const struct dt_sharing *s = &l->sharings[i];
        snprintf(texts[i], sizeof texts[i], "%.1f %%", 100 * s->accuracy);
        bars[i] =
            (struct dt_bar){kinds[i].name, s->accuracy < 0.85 ? "d1" : "d0", texts[i], s->accuracy};
    }
    dt_bars_draw(out, "accuracy of each way", 128, 1, DT_SHARDS_MAX_SHARINGS, bars);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_shards_lesson *l = context;
    fprintf(out,
            "<h1>How ranks share the data</h1>\n"
            "<p>%d ranks and %d samples, one a step for each rank: a blue cell is a sample that a "
            "rank uses, with the number of its step.</p>\n<div class=\"cards\">\n",
            l->n_ranks, l->n_shown);
    for (int mode = 0; mode < DT_SHARDS_MODES; mode++) {
        dt_card_begin(out, kinds[mode].name, "%s", kinds[mode].meaning);
        draw_use(out, l, mode);
        dt_card_end(out);
    }
    dt_card_begin(out, "Accuracy after one epoch",
                  "Shards by label do no harm while every step averages over all ranks. They do "
                  "when ranks train alone, or when all read one label after the other.");
    draw_accuracy(out, l);
    fputs("</div></div>\n", out);
    dt_table_begin(out, "way|steps|a sample is used|labels a rank sees|accuracy|");
    for (int i = 0; i < DT_SHARDS_MAX_SHARINGS; i++) {
        const struct dt_sharing *s = &l->sharings[i];
        dt_table_row(out, "%s|%llu|%d ×|%d|%.1f %%|%s", kinds[i].name,
                     (unsigned long long)s->n_steps, s->uses.most, s->uses.n_labels,
                     100 * s->accuracy, kinds[i].meaning);
    }
    dt_table_end(out);
}

/* ---- the lesson */

#define BATCH 16
#define RATE 0.005

/* ---- reading */

static enum dt_status fill_example(struct dt_shards_lesson *l)
{
    for (int mode = 0; mode < DT_SHARDS_MODES; mode++) {
        for (int rank = 0; rank < l->n_ranks; rank++) {
            const struct dt_shard shard = {.mode = kinds[mode].mode,
                                           .seed = 1,
                                           .n_total = (size_t)l->n_shown,
                                           .global_batch = (size_t)l->n_ranks,
                                           .rank = rank,
                                           .size = l->n_ranks,
                                           .shuffle = true};
            struct dt_loader loader;
            DT_TRY(dt_loader_open(&shard, &loader));
            for (uint64_t step = 0; step < dt_shard_steps_per_epoch(&shard); step++) {
                const struct dt_batch batch = dt_loader_batch(&loader, 0, step);
                for (int i = 0; i < batch.n; i++) {
                    l->used[mode][rank][l->n_used[mode][rank]++] = batch.ids[i];
                }
            }
            dt_loader_close(&loader);
        }
    }
    return DT_OK;
}

/* ---- one epoch */

/* Sample i of the file is sample out[i] by label: rank r's part, every n-th sample, is a contiguous
 * stretch of those. */
static void deal(const struct dt_shard *shard, const uint32_t *by_label, uint32_t *out)
{
    size_t next = 0;
    for (int rank = 0; rank < shard->size; rank++) {
        struct dt_shard of_rank = *shard;
        of_rank.rank = rank;
        const struct dt_owned owned = dt_shard_owned(&of_rank);
        for (size_t i = 0; i < owned.n; i++) {
            out[owned.first + i * owned.stride] = by_label[next++];
        }
    }
}

static enum dt_status order_file(struct dt_lab_images *images, const struct dt_shard *shard,
                                 enum file_order order)
{
    uint32_t *by_label = calloc(2 * DT_LAB_N_TRAIN, sizeof *by_label);
    if (by_label == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for an order of samples");
    }
    dt_lab_images_by_label(images, by_label);
    if (order == DEALT) {
        deal(shard, by_label, by_label + DT_LAB_N_TRAIN);
    }
    dt_lab_images_sort(images, by_label + (order == DEALT ? DT_LAB_N_TRAIN : 0));
    free(by_label);
    return DT_OK;
}

static enum dt_status train(const struct dt_lab_training *training, const struct dt_samples *test,
                            struct dt_sharing *out)
{
    struct dt_lab_run run;
    enum dt_status s = DT_OK;
    double accuracy = 0;
    size_t n;
    DT_TRY(dt_lab_run_open(training, &run));
    out->n_steps = dt_shard_steps_per_epoch(&training->shard);
    for (uint64_t step = 0; s == DT_OK && step < out->n_steps; step++) {
        s = dt_lab_run_step(&run, 0, step, &n);
    }
    if (s == DT_OK && training->only <= 0) {
        dt_lab_run_uses(&run, &out->uses);
    }
    if (s == DT_OK) {
        s = dt_lab_run_accuracy(&run, test, &accuracy);
    }
    out->accuracy += training->only < 0 ? accuracy : accuracy / training->shard.size;
    dt_lab_run_close(&run);
    return s;
}

static enum dt_status run_kind(struct dt_lab_images *images, int kind, int n_ranks,
                               struct dt_sharing *out)
{
    struct dt_lab_training training = {
        .samples = &images->train.samples,
        .shard = {.mode = kinds[kind].mode,
                  .seed = 1,
                  .n_total = DT_LAB_N_TRAIN,
                  .global_batch = BATCH,
                  .size = n_ranks,
                  .shuffle = kinds[kind].order != SORTED},
        .only = -1,
        .schedule = {.type = DT_SCHEDULE_COSINE, .lr = RATE, .scale = 1, .n_epochs = 1}};
    training.schedule.steps_per_epoch = dt_shard_steps_per_epoch(&training.shard);
    *out = (struct dt_sharing){.n_steps = 0};
    if (kinds[kind].order != MIXED) {
        DT_TRY(order_file(images, &training.shard, kinds[kind].order));
        training.samples = &images->sorted;
    }
    if (kinds[kind].together) {
        return train(&training, &images->test.samples, out);
    }
    for (training.only = 0; training.only < n_ranks; training.only++) {
        DT_TRY(train(&training, &images->test.samples, out));
    }
    return DT_OK;
}

static enum dt_status run(struct dt_shards_lesson *l)
{
    struct dt_lab_images images;
    DT_TRY(fill_example(l));
    DT_TRY(dt_lab_images_open(DT_LAB_N_TEST, &images));
    enum dt_status s = DT_OK;
    for (int kind = 0; s == DT_OK && kind < DT_SHARDS_MAX_SHARINGS; kind++) {
        s = run_kind(&images, kind, l->n_ranks, &l->sharings[kind]);
    }
    dt_lab_images_close(&images);
    return s;
}

static void check(struct dt_shards_lesson *l)
{
    for (int kind = 0; kind < DT_SHARDS_MAX_SHARINGS; kind++) {
        const struct dt_sharing *s = &l->sharings[kind];
        const int times = kind == REPLICATE ? l->n_ranks : 1;
        dt_golden_number(&l->golden, s->uses.least, times, 0,
                         "%s: how often a sample is used at least", kinds[kind].name);
        dt_golden_number(&l->golden, s->uses.most, times, 0,
                         "%s: how often a sample is used at most", kinds[kind].name);
    }
    dt_golden_fact(&l->golden, l->sharings[SHARD].accuracy > l->sharings[GLOBAL].accuracy - 0.04,
                   "shard learns what global learns, but for four in a hundred");
    dt_golden_fact(
        &l->golden, l->sharings[BY_LABEL].accuracy > l->sharings[SHARD].accuracy - 0.04,
        "by label, averaged, costs less than four in a hundred: a step still has all labels");
    dt_golden_fact(&l->golden,
                   l->sharings[SORTED_FILE].accuracy < l->sharings[GLOBAL].accuracy - 0.5,
                   "a sorted file costs fifty in a hundred");
    dt_golden_fact(&l->golden,
                   l->sharings[BY_LABEL_ALONE].accuracy < l->sharings[ALONE].accuracy - 0.3,
                   "labels of its own and nothing averaged cost thirty in a hundred");
}

/* ---- the text */

static void print_example(const struct dt_shards_lesson *l)
{
    printf(
        "How %d ranks share the data. Of %d samples, one a step for each rank, in order:\n\n%-8s",
        l->n_ranks, l->n_shown, "");
    for (int mode = 0; mode < DT_SHARDS_MODES; mode++) {
        printf("%-*s", mode < 2 ? 10 : 0, kinds[mode].name);
    }
    for (int rank = 0; rank < l->n_ranks; rank++) {
        printf("\nrank %-3d", rank);
        for (int mode = 0; mode < DT_SHARDS_MODES; mode++) {
            int width = 0;
            for (int i = 0; i < l->n_used[mode][rank]; i++) {
                width +=
                    printf(i + 1 < l->n_used[mode][rank] ? "%-3u" : "%u", l->used[mode][rank][i]);
            }
            printf("%*s", mode < 2 && width < 10 ? 10 - width : 0, "");
        }
    }
    printf("\n");
}

static void print_lesson(const struct dt_shards_lesson *l)
{
    char count[32];
    print_example(l);
    printf("\n%s images of %d classes, %d a step, one epoch of softmax regression:\n\n",
           dt_count_text(DT_LAB_N_TRAIN, count, sizeof count), DT_LAB_CLASSES, BATCH);
    printf("%-15s%6s%8s%7s%9s\n", "", "steps", "used", "labels", "accuracy");
    for (int kind = 0; kind < DT_SHARDS_MAX_SHARINGS; kind++) {
        const struct dt_sharing *s = &l->sharings[kind];
        char used[32] = "once";
        if (s->uses.least != 1 || s->uses.most != 1) {
            snprintf(used, sizeof used, s->uses.least == s->uses.most ? "%d times" : "%d-%d x",
                     s->uses.least, s->uses.most);
        }
        printf("%-15s%6llu%8s%7d%7.1f %%  %s\n", kinds[kind].name, (unsigned long long)s->n_steps,
               used, s->uses.n_labels, 100 * s->accuracy, kinds[kind].meaning);
    }
    puts("\nused: how often a sample is, by all ranks together; labels: that a rank sees\n\n"
         "Shards by label do no harm while every step averages over all ranks: its batch\n"
         "has all labels. They do when ranks train alone, or, which is the same in\n"
         "time, when all ranks read one label after the other.\n");
}

static enum dt_status lab_shards(const struct dt_args *args)
{
    struct dt_shards_lesson lesson = {.n_ranks = 4};
    size_t n_ranks = 4;
    DT_TRY(dt_args_number(args, DT_OPTION_RANKS, false, 2, DT_LAB_MAX_RANKS, &n_ranks));
    lesson.n_ranks = (int)n_ranks;
    lesson.n_shown = 2 * lesson.n_ranks;
    DT_TRY(run(&lesson));
    check(&lesson);
    print_lesson(&lesson);
    return dt_golden_tell(&lesson.golden, args, "Shards", put_body, &lesson);
}

const struct dt_command dt_command_lab_shards = {
    .word = "lab shards",
    .meaning = "how ranks share the data, and shards that harm",
    .usage = "dtrain lab shards [--ranks N] [--html FILE]",
    .examples = "  dtrain lab shards --ranks 2\n",
    .more = "Shows which samples each rank reads with each of the three sharding modes, that each "
            "sample is used once, and the effect of shards by label and of a sorted file on the "
            "accuracy.",
    .options = {[DT_OPTION_RANKS] = {DT_TAKEN}, [DT_OPTION_HTML] = {DT_TAKEN}},
    .alone = lab_shards,
};
