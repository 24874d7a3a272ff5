/* A larger batch does not converge faster: steps and samples until a training first reaches the
 * target accuracy, by batch size. */
#include <math.h>
#include <stdio.h>

#include "cli/text.h"
#include "lab/golden.h"
#include "lab/training.h"
#include "report/page/chart.h"
#include "report/page/layout.h"

#define TARGET 0.95
#define MAX_EPOCHS 30

static const int sizes[] = {8, 16, 32, 64, 128, 256, 512, 1024};
static const double rates[] = {0.002, 0.005, 0.01, 0.02};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], N_RATES = sizeof rates / sizeof rates[0] };

/* The result of the fastest rate. */
struct outcome {
    bool reached;
    double rate;
    uint64_t steps;
    size_t samples;
    struct dt_lab_uses uses; /* in the first epoch */
};

struct batch_lesson {
    struct outcome outcomes[N_SIZES];
    struct dt_golden golden;
};

/* ---- the trainings */

/* Trains up to the target, or for at most n samples. */
static enum dt_status train(struct dt_lab_run *run, const struct dt_samples *test,
                            size_t max_samples, struct outcome *out)
{
    const uint64_t per_epoch = dt_shard_steps_per_epoch(&run->training.shard);
    while (!out->reached && out->samples < max_samples) {
        double accuracy;
        size_t n;
        DT_TRY(
            dt_lab_run_step(run, (uint32_t)(out->steps / per_epoch), out->steps % per_epoch, &n));
        DT_TRY(dt_lab_run_accuracy(run, test, &accuracy));
        out->steps++;
        out->samples += n;
        out->reached = accuracy >= TARGET;
    }
    dt_lab_run_uses(run, &out->uses);
    return DT_OK;
}

static enum dt_status run_rate(const struct dt_lab_images *images, int size, double rate,
                               size_t max_samples, struct outcome *out)
{
    struct dt_lab_training training = {
        .samples = &images->train.samples,
        .shard = {.mode = DT_SHARDING_GLOBAL,
                  .seed = 1,
                  .n_total = DT_LAB_N_TRAIN,
                  .global_batch = (size_t)size,
                  .size = 1,
                  .shuffle = true},
        .only = -1,
        .schedule = {.lr = rate, .scale = 1, .n_epochs = MAX_EPOCHS}};
    struct dt_lab_run run;
    training.schedule.steps_per_epoch = dt_shard_steps_per_epoch(&training.shard);
    *out = (struct outcome){.rate = rate};
    DT_TRY(dt_lab_run_open(&training, &run));
    const enum dt_status s = train(&run, &images->test.samples, max_samples, out);
    dt_lab_run_close(&run);
    return s;
}

/* Stops a rate that needs more samples than the best one so far. */
static enum dt_status run_size(const struct dt_lab_images *images, int size, struct outcome *best)
{
    *best = (struct outcome){.samples = (size_t)MAX_EPOCHS * DT_LAB_N_TRAIN};
    for (int i = 0; i < N_RATES; i++) {
        struct outcome outcome;
        DT_TRY(run_rate(images, size, rates[i], best->samples, &outcome));
        if (outcome.reached && (!best->reached || outcome.samples < best->samples)) {
            *best = outcome;
        }
    }
    return DT_OK;
}

static enum dt_status run(struct batch_lesson *l)
{
    struct dt_lab_images images;
    enum dt_status s = DT_OK;
    DT_TRY(dt_lab_images_open(DT_LAB_N_TEST, &images));
    for (int i = 0; s == DT_OK && i < N_SIZES; i++) {
        s = run_size(&images, sizes[i], &l->outcomes[i]);
    }
    dt_lab_images_close(&images);
    return s;
}

static void check(struct batch_lesson *l)
{
    const struct outcome *first = &l->outcomes[0], *last = &l->outcomes[N_SIZES - 1];
    for (int i = 0; i < N_SIZES; i++) {
        const struct outcome *o = &l->outcomes[i];
        const size_t size = (size_t)sizes[i], n_total = DT_LAB_N_TRAIN,
                     per_epoch = (n_total + size - 1) / size;
        const size_t samples = o->steps / per_epoch * n_total + o->steps % per_epoch * size;
        dt_golden_fact(&l->golden, o->reached, "batch %d reaches %g %% in %d epochs", sizes[i],
                       100 * TARGET, MAX_EPOCHS);
        dt_golden_fact(&l->golden, o->uses.least == 1 && o->uses.most == 1,
                       "batch %d uses each sample once an epoch", sizes[i]);
        dt_golden_number(&l->golden, (double)o->samples, (double)samples, 0,
                         "batch %d: samples of its steps", sizes[i]);
    }
    dt_golden_fact(&l->golden, last->steps < first->steps,
                   "the largest batch takes fewer steps than the smallest");
    dt_golden_fact(&l->golden, last->samples > 2 * first->samples,
                   "the largest batch takes more than twice the smallest's samples");
}

/* ---- text and page */

static double epochs_of(const struct outcome *o)
{
    return (double)o->samples / DT_LAB_N_TRAIN;
}

static void print_lesson(const struct batch_lesson *l)
{
    char count[32];
    printf("A larger batch is not faster convergence. Softmax regression on %s images,\n"
           "until %g %% of the test images are right; the quickest of Adam's rates\n ",
           dt_count_text(DT_LAB_N_TRAIN, count, sizeof count), 100 * TARGET);
    for (int i = 0; i < N_RATES; i++) {
        printf(" %g%s", rates[i], i + 1 < N_RATES ? "," : ".\n");
    }
    printf("\n%8s%10s%10s%12s%10s\n", "batch", "rate", "steps", "samples", "epochs");
    for (int i = 0; i < N_SIZES; i++) {
        const struct outcome *o = &l->outcomes[i];
        printf("%8d%10g%10llu%12s%10.2f\n", sizes[i], o->rate, (unsigned long long)o->steps,
               dt_count_text((double)o->samples, count, sizeof count), epochs_of(o));
    }
    puts("\nA batch twice as large takes fewer steps, but not half as many: the gradient of\n"
         "many samples points little better than that of some, and the work is in the\n"
         "samples. More ranks pay off while a step over n batches takes hardly longer than\n"
         "over one and saves enough steps; where steps no longer fall, they only cost.\n");
}

static void draw(FILE *out, const struct batch_lesson *l, bool samples)
{
    double x[N_SIZES], y[N_SIZES], low = INFINITY, high = 0;
    for (int i = 0; i < N_SIZES; i++) {
        x[i] = sizes[i];
        y[i] = samples ? (double)l->outcomes[i].samples : (double)l->outcomes[i].steps;
        low = fmin(low, y[i]);
        high = fmax(high, y[i]);
    }
    const double ideal[2] = {y[0], samples ? y[0] : y[0] * x[0] / x[N_SIZES - 1]},
                 ends[2] = {x[0], x[N_SIZES - 1]};
    const struct dt_chart chart = {
        out,
        samples ? "samples by batch size" : "steps by batch size",
        {"batch", 7, 1200, true},
        {samples ? "samples" : "steps", fmax(1, 0.7 * fmin(low, ideal[1])), 1.5 * high, true}};
    dt_chart_begin(&chart);
    dt_chart_line(&chart, "s0 ideal", 2, ends, ideal);
    dt_chart_line(&chart, "s1", N_SIZES, x, y);
    for (int i = 0; i < N_SIZES; i++) {
        dt_chart_dot(&chart, "d1", x[i], y[i]);
    }
    dt_chart_end(&chart);
}

/* Both are of type dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct batch_lesson *l = context;
    char count[32];
    fprintf(out,
            "<h1>A larger batch is not faster convergence</h1>\n<p>Softmax regression on %s images "
            "until %g %% of the test images are "
            "right, by the batch size, with the quickest of four learning rates. Dashed: if a "
            "batch twice as large took half the "
            "steps.</p>\n<div class=\"cards\"><div class=\"card\"><h2>Steps</h2>\n",
            dt_count_text(DT_LAB_N_TRAIN, count, sizeof count), 100 * TARGET);
    draw(out, l, false);
    fputs("</div><div class=\"card\"><h2>Samples</h2>\n", out);
    draw(out, l, true);
    fputs("</div></div>\n", out);
    dt_table_begin(out, "batch|rate|steps|samples|epochs");
    for (int i = 0; i < N_SIZES; i++) {
        const struct outcome *o = &l->outcomes[i];
        dt_table_row(out, "%d|%g|%llu|%s|%.2f", sizes[i], o->rate, (unsigned long long)o->steps,
                     dt_count_text((double)o->samples, count, sizeof count), epochs_of(o));
    }
    dt_table_end(out);
}

static enum dt_status lab_batch(const struct dt_args *args)
{
    struct batch_lesson lesson = {.golden = {0}};
    DT_TRY(run(&lesson));
    check(&lesson);
    print_lesson(&lesson);
    return dt_golden_tell(&lesson.golden, args, "Batch size", put_body, &lesson);
}

const struct dt_command dt_command_lab_batch = {
    .word = "lab batch",
    .meaning = "the batch size against steps and samples to an accuracy",
    .usage = "dtrain lab batch [--html FILE]",
    .examples = "  dtrain lab batch\n",
    .more = "Trains with batches of 8 to 1024 images until 95 % of the test images are classified "
            "correctly, and prints the steps and samples of each.",
    .options = {[DT_OPTION_HTML] = {DT_TAKEN}},
    .alone = lab_batch,
};
