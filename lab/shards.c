/* How ranks share the data: the samples that each reads, the proof that each sample is used once,
 * and shards that harm; accuracies are means over several seeds. */
#include <stdlib.h>

#include "cli/result.h"
#include "cli/terminal.h"
#include "lab/golden.h"
#include "lab/training.h"

#define BATCH 16
#define RATE 0.005
enum { N_SEEDS = 10, N_MODES = 3 };

/* Order of the samples in the file: mixed, dealt so that each rank's part has its own labels, or by
 * label. */
enum file_order { MIXED, DEALT, SORTED };

enum { SHARD, GLOBAL, REPLICATE, BY_LABEL, SORTED_FILE, ALONE, BY_LABEL_ALONE, N_KINDS };
static const struct kind {
    const char *name, *meaning;
    enum dt_sharding mode;
    enum file_order order;
    bool together;
} kinds[N_KINDS] = {
    [SHARD] = {"shard", "a part each", DT_SHARDING_SHARD, MIXED, true},
    [GLOBAL] = {"global", "slices of one order", DT_SHARDING_GLOBAL, MIXED, true},
    [REPLICATE] = {"replicate", "everything each", DT_SHARDING_REPLICATE, MIXED, true},
    [BY_LABEL] = {"by label", "labels each", DT_SHARDING_SHARD, DEALT, true},
    [SORTED_FILE] = {"sorted file", "one label at a time", DT_SHARDING_GLOBAL, SORTED, true},
    [ALONE] = {"shard alone", "a part each", DT_SHARDING_SHARD, MIXED, false},
    [BY_LABEL_ALONE] = {"by label alone", "labels each", DT_SHARDING_SHARD, DEALT, false},
};

/* The results of a way of sharing after one epoch. */
struct sharing {
    uint64_t n_steps;
    struct dt_lab_uses uses;  /* of the first seed */
    double accuracy[N_SEEDS]; /* in per cent; the mean over the ranks, if they train alone */
};

struct shards_lesson {
    int n_ranks;
    struct sharing sharings[N_KINDS];
    struct dt_golden golden;
};

static struct dt_shard shard_of(int kind, int n_ranks, int rank, size_t n_total, int batch,
                                int seed)
{
    return (struct dt_shard){.mode = kinds[kind].mode,
                             .seed = (uint64_t)seed + 1,
                             .n_total = n_total,
                             .global_batch = (size_t)batch,
                             .rank = rank,
                             .size = n_ranks,
                             .shuffle = kinds[kind].order != SORTED};
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
                            int seed, struct sharing *out)
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
    if (s == DT_OK && training->only <= 0 && seed == 0) {
        dt_lab_run_uses(&run, &out->uses);
    }
    s = s == DT_OK ? dt_lab_run_accuracy(&run, test, &accuracy) : s;
    out->accuracy[seed] += 100 * accuracy / (training->only < 0 ? 1 : training->shard.size);
    dt_lab_run_close(&run);
    return s;
}

static enum dt_status run_kind(struct dt_lab_images *images, int kind, int n_ranks, int seed,
                               struct sharing *out)
{
    struct dt_lab_training training = {
        .samples = &images->train.samples,
        .shard = shard_of(kind, n_ranks, 0, DT_LAB_N_TRAIN, BATCH, seed),
        .only = -1,
        .schedule = {.type = DT_SCHEDULE_COSINE, .lr = RATE, .scale = 1, .n_epochs = 1}};
    training.schedule.steps_per_epoch = dt_shard_steps_per_epoch(&training.shard);
    if (kinds[kind].order != MIXED) {
        DT_TRY(order_file(images, &training.shard, kinds[kind].order));
        training.samples = &images->sorted;
    }
    if (kinds[kind].together) {
        return train(&training, &images->test.samples, seed, out);
    }
    for (training.only = 0; training.only < n_ranks; training.only++) {
        DT_TRY(train(&training, &images->test.samples, seed, out));
    }
    return DT_OK;
}

static enum dt_status run(struct shards_lesson *l)
{
    enum dt_status s = DT_OK;
    for (int seed = 0; s == DT_OK && seed < N_SEEDS; seed++) {
        struct dt_lab_images images;
        dt_terminal_live("seed %d of %d", seed + 1, N_SEEDS);
        s = dt_lab_images_open(DT_LAB_N_TEST, (uint64_t)seed + 1, &images);
        for (int kind = 0; s == DT_OK && kind < N_KINDS; kind++) {
            s = run_kind(&images, kind, l->n_ranks, seed, &l->sharings[kind]);
        }
        dt_lab_images_close(&images);
    }
    dt_terminal_live(NULL);
    return s;
}

static double mean_of(const struct shards_lesson *l, int kind)
{
    return dt_lab_mean(N_SEEDS, l->sharings[kind].accuracy).mean;
}

static int relation_to_global(const struct shards_lesson *l, int kind)
{
    return dt_lab_compare(N_SEEDS, l->sharings[kind].accuracy, l->sharings[GLOBAL].accuracy);
}

static void check(struct shards_lesson *l)
{
    struct dt_golden *g = &l->golden;
    for (int kind = 0; kind < N_KINDS; kind++) {
        const struct dt_lab_uses *uses = &l->sharings[kind].uses;
        const int times = kind == REPLICATE ? l->n_ranks : 1;
        dt_golden_number(g, uses->least, times, 0, "%s: how often a sample is used at least",
                         kinds[kind].name);
        dt_golden_number(g, uses->most, times, 0, "%s: how often a sample is used at most",
                         kinds[kind].name);
    }
    dt_golden_fact(g, mean_of(l, SHARD) > mean_of(l, GLOBAL) - 2,
                   "shard learns as much as global, but for two in a hundred");
    dt_golden_fact(g, mean_of(l, BY_LABEL) > mean_of(l, SHARD) - 2,
                   "by label, averaged, costs less than two in a hundred");
    dt_golden_fact(g, mean_of(l, SORTED_FILE) < mean_of(l, GLOBAL) - 50,
                   "a sorted file costs fifty in a hundred");
    dt_golden_fact(g, mean_of(l, BY_LABEL_ALONE) < mean_of(l, ALONE) - 30,
                   "labels of its own and nothing averaged cost thirty in a hundred");
}

/* ---- the document */

/* A lane a rank, a box a sample, with the number of the step that takes it. */
static enum dt_status draw_use(struct dt_doc *doc, int mode, int n_ranks)
{
    struct dt_part *lanes = dt_doc_lanes(doc, kinds[mode].name, "sample");
    dt_doc_caption(lanes, "Ranks read %s. A box has the number of the step that uses the sample.",
                   kinds[mode].meaning);
    for (int rank = 0; rank < n_ranks; rank++) {
        const struct dt_shard shard =
            shard_of(mode, n_ranks, rank, 2 * (size_t)n_ranks, n_ranks, 0);
        const int lane = dt_doc_lane(lanes, "rank %d", rank);
        struct dt_loader loader;
        int n = 0;
        DT_TRY(dt_loader_open(&shard, &loader));
        for (uint64_t step = 0; step < dt_shard_steps_per_epoch(&shard); step++) {
            const struct dt_batch batch = dt_loader_batch(&loader, 0, step);
            for (int i = 0; i < batch.n; i++) {
                dt_doc_box(lanes, lane, batch.ids[i], batch.ids[i] + 1, 0, "%d", ++n);
            }
        }
        dt_loader_close(&loader);
    }
    return DT_OK;
}

static void draw_accuracy(struct dt_doc *doc, const struct shards_lesson *l)
{
    struct dt_part *lanes = dt_doc_lanes(doc, "Accuracy after one epoch", "accuracy, %");
    for (int kind = 0; kind < N_KINDS; kind++) {
        const struct dt_lab_mean m = dt_lab_mean(N_SEEDS, l->sharings[kind].accuracy);
        dt_doc_box(lanes, dt_doc_lane(lanes, "%s", kinds[kind].name), 0, m.mean,
                   relation_to_global(l, kind) < 0, "%.1f ± %.1f %%", m.mean, m.margin);
    }
    dt_doc_kind(lanes, 0, "not less");
    dt_doc_kind(lanes, 1, "less than global");
}

static void fill_table(struct dt_doc *doc, const struct shards_lesson *l)
{
    struct dt_part *table = dt_doc_table(doc, "After one epoch",
                                         "sharing|accuracy:%:1|±:%:1|steps::0|uses::0|labels::0|"
                                         "what ranks read");
    for (int kind = 0; kind < N_KINDS; kind++) {
        const struct sharing *s = &l->sharings[kind];
        const struct dt_lab_mean m = dt_lab_mean(N_SEEDS, s->accuracy);
        dt_doc_row(table, dt_t(kinds[kind].name), dt_n(m.mean), dt_n(m.margin),
                   dt_n((double)s->n_steps), dt_n(s->uses.most), dt_n(s->uses.n_labels),
                   dt_t(kinds[kind].meaning));
    }
    dt_doc_main(table);
    dt_doc_caption(
        table,
        "%d images of %d classes, %d a step, softmax regression. Means over %d seeds, "
        "each with images and an order of its own; ± is their 95 %% interval. uses: of a sample, "
        "by all ranks together; labels: that a rank sees; alone: nothing is averaged.",
        DT_LAB_N_TRAIN, DT_LAB_CLASSES, BATCH, N_SEEDS);
}

/* Says what the accuracies show beside those of `global`, and no more. */
static void conclude(struct dt_doc *doc, const struct shards_lesson *l)
{
    static const char *const says[] = {"less accurate", "no difference to be seen",
                                       "more accurate"};
    const char *text = "";
    for (int relation = -1; relation <= 1; relation++) {
        const char *names = "";
        for (int kind = 0; kind < N_KINDS; kind++) {
            if (kind != GLOBAL && relation == relation_to_global(l, kind)) {
                names = dt_doc_print(doc, "%s%s`%s`", names, names[0] != '\0' ? ", " : "",
                                     kinds[kind].name);
            }
        }
        text = names[0] == '\0' ? text
                                : dt_doc_print(doc, "%s%s %s: %s", text, text[0] != '\0' ? ";" : "",
                                               says[relation + 1], names);
    }
    dt_doc_text(doc, "Beside `global`,%s. (`replicate` takes %d times as many steps in an epoch.)",
                text, l->n_ranks);
    dt_doc_text(
        doc,
        "Shards by label %s while every step averages over all ranks, because together its "
        "batch has all labels. They do harm when ranks train alone; a sorted file harms "
        "too, because all ranks see one label at a time.",
        dt_lab_compare(N_SEEDS, l->sharings[BY_LABEL].accuracy, l->sharings[SHARD].accuracy) >= 0
            ? "do no harm"
            : "cost little");
}

static enum dt_status lab_shards(const struct dt_args *args)
{
    static struct shards_lesson lesson;
    size_t n_ranks = 4;
    enum dt_status s = DT_OK;
    DT_TRY(dt_args_number(args, DT_OPTION_RANKS, false, 2, DT_LAB_MAX_RANKS, &n_ranks));
    lesson.n_ranks = (int)n_ranks;
    DT_TRY(run(&lesson));
    check(&lesson);
    struct dt_doc *doc = dt_doc_open("lab shards", "How ranks share the data");
    dt_doc_section(doc, "%d ranks and %d samples, one a step for each rank", lesson.n_ranks,
                   2 * lesson.n_ranks);
    for (int mode = 0; s == DT_OK && mode < N_MODES; mode++) {
        s = draw_use(doc, mode, lesson.n_ranks);
    }
    dt_doc_section(doc, "What it costs");
    draw_accuracy(doc, &lesson);
    fill_table(doc, &lesson);
    conclude(doc, &lesson);
    const enum dt_status shown = dt_golden_show(&lesson.golden, args, doc);
    return s != DT_OK ? s : shown;
}

const struct dt_command dt_command_lab_shards = {
    .word = "lab shards",
    .meaning = "who reads which samples, and which shards harm?",
    .minutes = 10,
    .usage = "dtrain lab shards [--ranks N] [--html FILE]",
    .examples = "  dtrain lab shards --ranks 2\n",
    .more = "Shows which samples each rank reads with each of the three sharding modes, that each "
            "sample is used once, and the effect of shards by label and of a sorted file on the "
            "accuracy.",
    .options = {[DT_OPTION_RANKS] = {DT_TAKEN}, DT_RESULT_OPTIONS},
    .alone = lab_shards,
};
