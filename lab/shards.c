/* How ranks share the data: the lesson shows the samples that each rank reads, proves that each
 * sample is used once, and measures which shards harm: accuracies are means over several seeds. */
#include <string.h>

#include "cli/result.h"
#include "cli/terminal.h"
#include "lab/golden.h"
#include "lab/training.h"

#define BATCH 16
#define RATE 0.005
enum { N_SEEDS = 10, N_MODES = 3 };

/* `sorted`: the samples of the file, or those of each rank's part, are sorted by label. */
enum { SHARD, GLOBAL, REPLICATE, BY_LABEL, SORTED_FILE, ALONE, BY_LABEL_ALONE, N_KINDS };
static const struct kind {
    const char *name, *meaning;
    enum dt_sharding mode;
    bool sorted, alone;
} kinds[N_KINDS] = {
    [SHARD] = {"shard", "a part each", DT_SHARDING_SHARD, false, false},
    [GLOBAL] = {"global", "slices of one order", DT_SHARDING_GLOBAL, false, false},
    [REPLICATE] = {"replicate", "everything each", DT_SHARDING_REPLICATE, false, false},
    [BY_LABEL] = {"by label", "labels each", DT_SHARDING_SHARD, true, false},
    [SORTED_FILE] = {"sorted file", "one label at a time", DT_SHARDING_GLOBAL, true, false},
    [ALONE] = {"shard alone", "a part each", DT_SHARDING_SHARD, false, true},
    [BY_LABEL_ALONE] = {"by label alone", "labels each", DT_SHARDING_SHARD, true, true},
};

/* The results of a kind of sharing after one epoch. */
struct sharing {
    uint64_t n_steps;
    struct dt_lab_uses uses;  /* of the first seed */
    double accuracy[N_SEEDS]; /* in per cent; the mean over the ranks, if they train alone */
};

struct shards_lesson {
    int n_ranks;
    struct sharing sharings[N_KINDS];
    struct dt_golden golden;
    uint8_t pixels[DT_LAB_N_TRAIN * DT_LAB_N_PIXELS]; /* the training set, sorted */
    uint16_t labels[DT_LAB_N_TRAIN];
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
                             .shuffle = kind != SORTED_FILE};
}

/* ---- one epoch */

/* Deals the samples, sorted by label, to the ranks' parts, one part after the other; a rank that
 * reads the whole file gets all. */
static struct dt_samples sort(struct shards_lesson *l, const struct dt_samples *all,
                              struct dt_shard shard)
{
    struct dt_samples sorted = *all;
    uint32_t by_label[DT_LAB_N_TRAIN];
    size_t n = 0;
    for (int label = 0; label < DT_LAB_CLASSES; label++) {
        for (uint32_t i = 0; i < DT_LAB_N_TRAIN; i++) {
            if (all->labels[i] == label) {
                by_label[n++] = i;
            }
        }
    }
    for (n = 0; n < DT_LAB_N_TRAIN; shard.rank++) {
        const struct dt_owned part = dt_shard_owned(&shard);
        for (size_t i = 0; i < part.n; i++, n++) {
            const size_t to = part.first + i * part.stride;
            memcpy(l->pixels + to * DT_LAB_N_PIXELS,
                   all->pixels + (size_t)by_label[n] * DT_LAB_N_PIXELS, DT_LAB_N_PIXELS);
            l->labels[to] = all->labels[by_label[n]];
        }
    }
    sorted.pixels = l->pixels;
    sorted.labels = l->labels;
    return sorted;
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

static enum dt_status run_kind(struct shards_lesson *l, const struct dt_lab_images *images,
                               int kind, int seed)
{
    const struct dt_samples *all = &images->train.samples, *test = &images->test.samples;
    struct dt_lab_training training = {
        .shard = shard_of(kind, l->n_ranks, 0, DT_LAB_N_TRAIN, BATCH, seed),
        .only = -1,
        .schedule = {.type = DT_SCHEDULE_COSINE, .lr = RATE, .n_epochs = 1}};
    training.schedule.steps_per_epoch = dt_shard_steps_per_epoch(&training.shard);
    const struct dt_samples sorted = kinds[kind].sorted ? sort(l, all, training.shard) : *all;
    training.samples = &sorted;
    if (!kinds[kind].alone) {
        return train(&training, test, seed, &l->sharings[kind]);
    }
    for (training.only = 0; training.only < l->n_ranks; training.only++) {
        DT_TRY(train(&training, test, seed, &l->sharings[kind]));
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
            s = run_kind(l, &images, kind, seed);
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
        dt_golden_number(g, uses->least, times, 0, "%s: least uses of a sample", kinds[kind].name);
        dt_golden_number(g, uses->most, times, 0, "%s: most uses of a sample", kinds[kind].name);
    }
    dt_golden_figure(g, mean_of(l, SHARD) > mean_of(l, GLOBAL) - 2,
                     "shard learns as much as global, but for two in a hundred");
    dt_golden_figure(g, mean_of(l, BY_LABEL) > mean_of(l, SHARD) - 2,
                     "by label, averaged, costs less than two in a hundred");
    dt_golden_figure(g, mean_of(l, SORTED_FILE) < mean_of(l, GLOBAL) - 50,
                     "a sorted file costs fifty in a hundred");
    dt_golden_figure(g, mean_of(l, BY_LABEL_ALONE) < mean_of(l, ALONE) - 30,
                     "labels of its own and nothing averaged cost thirty in a hundred");
}

/* ---- the document */

/* A lane for each rank, a box for each of its samples, with the number of the step that uses it. */
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

static void add_accuracies(struct dt_doc *doc, const struct shards_lesson *l)
{
    struct dt_part *lanes = dt_doc_lanes(doc, "Accuracy after one epoch", "accuracy, %");
    struct dt_part *table = dt_doc_table(doc, "After one epoch",
                                         "sharing|accuracy:%:1|±:%:1|steps::0|uses::0|labels::0|"
                                         "what ranks read");
    for (int kind = 0; kind < N_KINDS; kind++) {
        const char *name = kinds[kind].name;
        const struct sharing *s = &l->sharings[kind];
        const struct dt_lab_mean m = dt_lab_mean(N_SEEDS, s->accuracy);
        dt_doc_box(lanes, dt_doc_lane(lanes, "%s", name), 0, m.mean,
                   relation_to_global(l, kind) < 0, "%.1f ± %.1f %%", m.mean, m.margin);
        dt_doc_row(table, dt_t(name), dt_n(m.mean), dt_n(m.margin), dt_n((double)s->n_steps),
                   dt_n(s->uses.most), dt_n(s->uses.n_labels), dt_t(kinds[kind].meaning));
    }
    dt_doc_kind(lanes, 0, "not less");
    dt_doc_kind(lanes, 1, "less than global");
    dt_doc_main(table);
    dt_doc_caption(
        table,
        "%d images of %d classes, %d a step, softmax regression. Means over %d seeds, "
        "each with images and an order of its own; ± is their 95 %% interval. uses: of a sample, "
        "by all ranks together; labels: that a rank sees; alone: nothing is averaged.",
        DT_LAB_N_TRAIN, DT_LAB_CLASSES, BATCH, N_SEEDS);
}

/* Concludes only what a comparison with the accuracies of `global` shows. */
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
    add_accuracies(doc, &lesson);
    conclude(doc, &lesson);
    const enum dt_status shown = dt_golden_show(&lesson.golden, args, doc);
    return s != DT_OK ? s : shown;
}

const struct dt_command dt_command_lab_shards = {
    .word = "lab shards",
    .meaning = "who reads which samples, and which shards harm?",
    .minutes = 10,
    .usage = "dtrain lab shards [--ranks N]" DT_RESULT_USAGE,
    .examples = "  dtrain lab shards --ranks 2\n",
    .more = "Shows which samples each rank reads with each of the three sharding modes, that each "
            "sample is used once, and the effect of shards by label and of a sorted file on the "
            "accuracy.",
    .options = {[DT_OPTION_RANKS] = {DT_TAKEN}, DT_RESULT_OPTIONS},
    .alone = lab_shards,
};
