/* A larger batch does not converge faster. The lesson counts the steps and samples until a training
 * first reaches the target accuracy, by batch size: means over several seeds. */
#include <math.h>

#include "cli/result.h"
#include "cli/terminal.h"
#include "lab/golden.h"
#include "lab/training.h"

#define TARGET 0.95
#define MAX_EPOCHS 30

static const int sizes[] = {8, 16, 32, 64, 128, 256, 512, 1024};
static const double rates[] = {0.002, 0.005, 0.01, 0.02};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], N_RATES = sizeof rates / sizeof rates[0] };
enum { N_SEEDS = 5 };

/* The trainings of a batch size, one for each seed, with the rate that takes the fewest samples. */
struct outcome {
    bool reached; /* all trainings reached the target */
    bool whole;   /* each training used each sample once in an epoch */
    double rate;
    double steps[N_SEEDS], samples[N_SEEDS], all_samples; /* all_samples: of all seeds */
};

struct batch_lesson {
    struct dt_lab_images images[N_SEEDS];
    struct outcome outcomes[N_SIZES];
    struct dt_golden golden;
};

/* ---- the trainings */

/* Trains until the target is reached, or `most` samples are used. */
static enum dt_status train(struct dt_lab_run *run, const struct dt_samples *test, double most,
                            int seed, struct outcome *out)
{
    const uint64_t per_epoch = dt_shard_steps_per_epoch(&run->training.shard);
    uint64_t steps = 0;
    size_t samples = 0, n;
    double accuracy = 0;
    struct dt_lab_uses uses;
    for (; accuracy < TARGET && (double)samples < most; steps++, samples += n) {
        DT_TRY(dt_lab_run_step(run, (uint32_t)(steps / per_epoch), steps % per_epoch, &n));
        DT_TRY(dt_lab_run_accuracy(run, test, &accuracy));
    }
    dt_lab_run_uses(run, &uses);
    out->whole = out->whole && uses.least == 1 && uses.most == 1;
    out->reached = accuracy >= TARGET;
    out->steps[seed] = (double)steps;
    out->samples[seed] = (double)samples;
    out->all_samples += (double)samples;
    return DT_OK;
}

static enum dt_status run_seed(const struct dt_lab_images *images, int size, double most, int seed,
                               struct outcome *out)
{
    struct dt_lab_training training = {.samples = &images->train.samples,
                                       .shard = {.mode = DT_SHARDING_GLOBAL,
                                                 .seed = (uint64_t)seed + 1,
                                                 .n_total = DT_LAB_N_TRAIN,
                                                 .global_batch = (size_t)size,
                                                 .size = 1,
                                                 .shuffle = true},
                                       .only = -1,
                                       .schedule = {.lr = out->rate, .n_epochs = MAX_EPOCHS}};
    struct dt_lab_run run;
    training.schedule.steps_per_epoch = dt_shard_steps_per_epoch(&training.shard);
    DT_TRY(dt_lab_run_open(&training, &run));
    const enum dt_status s = train(&run, &images->test.samples, most, seed, out);
    dt_lab_run_close(&run);
    return s;
}

/* Finds the best rate. A rate that needs more samples than the best so far is stopped. */
static enum dt_status run_size(const struct dt_lab_images *images, int size, struct outcome *best)
{
    *best = (struct outcome){.all_samples = (double)N_SEEDS * MAX_EPOCHS * DT_LAB_N_TRAIN};
    for (int i = 0; i < N_RATES; i++) {
        struct outcome o = {.rate = rates[i], .reached = true, .whole = true};
        for (int seed = 0; o.reached && seed < N_SEEDS; seed++) {
            DT_TRY(run_seed(&images[seed], size, best->all_samples - o.all_samples, seed, &o));
        }
        if (o.reached && o.all_samples < best->all_samples) {
            *best = o;
        }
    }
    return DT_OK;
}

static enum dt_status run(struct batch_lesson *l)
{
    enum dt_status s = DT_OK;
    for (int i = 0; s == DT_OK && i < N_SEEDS; i++) {
        s = dt_lab_images_open(DT_LAB_N_TEST, (uint64_t)i + 1, &l->images[i]);
    }
    for (int i = 0; s == DT_OK && i < N_SIZES; i++) {
        dt_terminal_live("batch %d, the last is %d", sizes[i], sizes[N_SIZES - 1]);
        s = run_size(l->images, sizes[i], &l->outcomes[i]);
    }
    dt_terminal_live(NULL);
    for (int i = 0; i < N_SEEDS; i++) {
        dt_lab_images_close(&l->images[i]);
    }
    return s;
}

static double samples_of(int size, double steps)
{
    const int per_epoch = (DT_LAB_N_TRAIN + size - 1) / size;
    return floor(steps / per_epoch) * DT_LAB_N_TRAIN + fmod(steps, per_epoch) * size;
}

static void check(struct batch_lesson *l)
{
    const struct outcome *first = &l->outcomes[0], *last = &l->outcomes[N_SIZES - 1];
    for (int i = 0; i < N_SIZES; i++) {
        const struct outcome *o = &l->outcomes[i];
        dt_golden_figure(&l->golden, o->reached, "batch %d reaches %g %% in %d epochs", sizes[i],
                         100 * TARGET, MAX_EPOCHS);
        dt_golden_figure(&l->golden, o->whole, "batch %d uses each sample once an epoch", sizes[i]);
        for (int seed = 0; seed < N_SEEDS; seed++) {
            dt_golden_number(&l->golden, o->samples[seed], samples_of(sizes[i], o->steps[seed]), 0,
                             "batch %d, seed %d: samples of its steps", sizes[i], seed + 1);
        }
    }
    dt_golden_figure(&l->golden, dt_lab_compare(N_SEEDS, last->steps, first->steps) < 0,
                     "the largest batch takes fewer steps than the smallest");
    dt_golden_figure(&l->golden, last->all_samples > 2 * first->all_samples,
                     "the largest batch takes more than twice the smallest's samples");
}

/* ---- the document */

/* The means over the seeds by batch, and what they were if the samples stayed the same. */
static void plot(struct dt_part *chart, const double *x, const struct dt_lab_mean *means,
                 const double *ideal)
{
    dt_doc_axes(chart, DT_LOG_X | DT_LOG_Y);
    dt_lab_plot(chart, "measured", N_SIZES, x, means);
    dt_doc_plot(chart, "twice the batch, half the steps", DT_DASHES, N_SIZES, x, ideal);
}

static void add_outcomes(struct dt_doc *doc, const struct batch_lesson *l)
{
    struct dt_lab_mean steps[N_SIZES], samples[N_SIZES];
    double x[N_SIZES], ideal_steps[N_SIZES], ideal_samples[N_SIZES];
    struct dt_part *of_steps = dt_doc_series(doc, "Steps", "batch", "steps"),
                   *of_samples = dt_doc_series(doc, "Samples", "batch", "samples"),
                   *table = dt_doc_table(
                       doc, "Until the accuracy is reached",
                       "batch::0|rate::g|steps::0|± steps::0|samples::0|± samples::0|epochs::2");
    for (int i = 0; i < N_SIZES; i++) {
        const struct outcome *o = &l->outcomes[i];
        steps[i] = dt_lab_mean(N_SEEDS, o->steps);
        samples[i] = dt_lab_mean(N_SEEDS, o->samples);
        x[i] = sizes[i];
        ideal_steps[i] = steps[0].mean * x[0] / x[i];
        ideal_samples[i] = samples[0].mean;
        dt_doc_row(table, dt_n(sizes[i]), dt_n(o->rate), dt_n(steps[i].mean), dt_n(steps[i].margin),
                   dt_n(samples[i].mean), dt_n(samples[i].margin),
                   dt_n(samples[i].mean / DT_LAB_N_TRAIN));
    }
    plot(of_steps, x, steps, ideal_steps);
    plot(of_samples, x, samples, ideal_samples);
    dt_doc_caption(table,
                   "Means over %d seeds, each with images and an order of its own; ± is "
                   "their 95 %% interval.",
                   N_SEEDS);
}

/* Concludes only what the numbers show. */
static void conclude(struct dt_doc *doc, const struct batch_lesson *l)
{
    const struct outcome *o = l->outcomes;
    const double fewer = dt_lab_mean(N_SEEDS, o[0].steps).mean /
                         dt_lab_mean(N_SEEDS, o[N_SIZES - 1].steps).mean,
                 more = o[N_SIZES - 1].all_samples / o[0].all_samples;
    int free = 0;             /* the last size that takes no more samples than the first */
    int useful = N_SIZES - 1; /* the last size that takes fewer steps than the one before */
    while (free + 1 < N_SIZES && dt_lab_compare(N_SEEDS, o[free + 1].samples, o[0].samples) <= 0) {
        free++;
    }
    while (useful > 0 && dt_lab_compare(N_SEEDS, o[useful].steps, o[useful - 1].steps) >= 0) {
        useful--;
    }
    dt_doc_text(doc,
                "From batch %d to %d, %d times as large, steps fall %.1f-fold and samples "
                "rise %.1f-fold.",
                sizes[0], sizes[N_SIZES - 1], sizes[N_SIZES - 1] / sizes[0], fewer, more);
    if (free > 0) {
        dt_doc_text(doc,
                    "Up to batch %d these seeds show no more samples than with %d: a batch twice "
                    "as large takes about half the steps.",
                    sizes[free], sizes[0]);
    }
    if (free < N_SIZES - 1) {
        dt_doc_text(doc,
                    "From batch %d on it takes more samples: a larger batch gives a slightly "
                    "better gradient for proportionally more work.",
                    sizes[free + 1]);
    }
    dt_doc_text(doc,
                useful < N_SIZES - 1
                    ? "Adding ranks pays off only while it saves steps: from batch %d to the "
                      "next these seeds show no saving."
                    : "Adding ranks pays off only while it saves steps, as here up to "
                      "batch %d.",
                sizes[useful]);
}

static enum dt_status lab_batch(const struct dt_args *args)
{
    struct batch_lesson lesson = {.golden = {0}};
    DT_TRY(run(&lesson));
    check(&lesson);
    struct dt_doc *doc = dt_doc_open("lab batch", "A larger batch is not faster convergence");
    dt_doc_text(doc,
                "Softmax regression on %d images, until %g %% of the %d test images are "
                "right, with the quickest of four rates of Adam.",
                DT_LAB_N_TRAIN, 100 * TARGET, DT_LAB_N_TEST);
    add_outcomes(doc, &lesson);
    conclude(doc, &lesson);
    return dt_golden_show(&lesson.golden, args, doc);
}

const struct dt_command dt_command_lab_batch = {
    .word = "lab batch",
    .meaning = "what does a larger batch buy?",
    .minutes = 5,
    .usage = "dtrain lab batch" DT_RESULT_USAGE,
    .examples = "  dtrain lab batch\n",
    .more = "Trains with batches of 8 to 1024 images, from five seeds each, until 95 % of the test "
            "images are right, and prints the steps and samples that each batch takes.",
    .options = {DT_RESULT_OPTIONS},
    .alone = lab_batch,
};
