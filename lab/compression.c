/* Compressed gradients on four ranks: bytes saved against accuracy lost, without and with error
 * feedback; means over several seeds. */
#include <math.h>

#include "base/rng.h"
#include "cli/result.h"
#include "cli/terminal.h"
#include "dist/compression/error_feedback.h"
#include "lab/distributed.h"
#include "lab/golden.h"

/* The rate and the epochs bring `none` to its plateau. */
#define RATE 0.5
#define N_EPOCHS 6
#define RATIO 0.01
enum {
    N_SEEDS = 3,
    N_TEST = 2000,
    N_ENCODINGS = 20,
    N_ENCODED = 1000,
    N_TYPES = DT_N_COMPRESSION_TYPES
};

/* A codec, without error feedback [0] and with it [1]; `none` has only the first. */
struct way {
    double accuracy[2][N_SEEDS]; /* in per cent */
    double sent, expected;       /* bytes per step and rank: counted, and by the codec */
};

struct compression_lesson {
    struct way ways[N_TYPES];
    size_t n_gradients, n_floats; /* n_floats: with zeros that align them */
    uint64_t hash;                /* of the weights of `none`, of the first seed */
    struct dt_golden golden;
};

/* ---- the trainings */

static struct dt_compression_spec spec_of(int type, bool error_feedback)
{
    return (struct dt_compression_spec){
        .type = (enum dt_compression_type)type, .ratio = RATIO, .error_feedback = error_feedback};
}

static enum dt_status train(struct dt_world *world, const struct dt_lab_images *images, int seed,
                            const struct dt_compression_spec *spec, struct dt_lab_outcome *out)
{
    const int per_epoch = (DT_LAB_N_TRAIN + DT_LAB_GLOBAL_BATCH - 1) / DT_LAB_GLOBAL_BATCH;
    const struct dt_lab_distributed training = {
        .dist = {.allreduce = DT_ALLREDUCE_ALL_TO_ALL, .compression = *spec},
        .rate = RATE,
        .n_steps = N_EPOCHS * per_epoch,
        .seed = (uint64_t)seed + 1};
    return dt_lab_distributed_run(world, images, &training, out);
}

static void check_training(struct compression_lesson *l, int type, bool feedback,
                           const struct dt_lab_outcome *outcome)
{
    struct dt_golden *g = &l->golden;
    const char *name = dt_compression_names[type], *with = feedback ? " with error feedback" : "";
    l->ways[type].sent = outcome->sent[0];
    l->ways[type].expected =
        (DT_LAB_RANKS - 1) * (double)dt_codec_bytes(&outcome->codec, 0, outcome->n_floats);
    for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
        dt_golden_number(g, outcome->sent[rank], l->ways[type].expected, 0,
                         "%s%s: bytes that rank %d sends a step", name, with, rank);
        dt_golden_fact(g, outcome->hashes[rank] == outcome->hashes[0],
                       "%s%s: rank %d ends with the weights of rank 0, to the bit", name, with,
                       rank);
    }
}

static enum dt_status run_seed(struct dt_world *world, int seed, const struct dt_lab_images *images,
                               struct compression_lesson *l)
{
    static struct dt_lab_outcome outcome;
    const struct dt_compression_spec whole = {.type = DT_COMPRESSION_TOPK, .ratio = 1};
    for (int type = 0; type < N_TYPES; type++) {
        for (int feedback = 0; feedback < (type == DT_COMPRESSION_NONE ? 1 : 2); feedback++) {
            const struct dt_compression_spec spec = spec_of(type, feedback == 1);
            dt_lab_live(world, "seed %d of %d: %s%s", seed + 1, N_SEEDS, dt_compression_names[type],
                        feedback == 1 ? " with error feedback" : "");
            DT_TRY(train(world, images, seed, &spec, &outcome));
            check_training(l, type, feedback == 1, &outcome);
            l->ways[type].accuracy[feedback][seed] = 100 * outcome.accuracy;
            l->hash = type == DT_COMPRESSION_NONE ? outcome.hashes[0] : l->hash;
        }
    }
    DT_TRY(train(world, images, seed, &whole, &outcome));
    dt_golden_fact(&l->golden, outcome.hashes[0] == l->hash,
                   "topk of ratio 1 ends with the weights of none, to the bit");
    l->n_gradients = outcome.n_gradients;
    l->n_floats = outcome.n_floats;
    return DT_OK;
}

static enum dt_status run(struct dt_world *world, struct compression_lesson *l)
{
    enum dt_status s = DT_OK;
    for (int seed = 0; s == DT_OK && seed < N_SEEDS; seed++) {
        struct dt_lab_images images;
        s = dt_world_agree(world, dt_lab_images_open(N_TEST, (uint64_t)seed + 1, &images));
        s = s == DT_OK ? run_seed(world, seed, &images, l) : s;
        dt_lab_images_close(&images);
    }
    dt_lab_live(world, NULL);
    return s;
}

/* ---- error feedback alone */

/* Numbers of 4 to 8 in steps of 1 / 2^16: a float holds every sum that occurs, so rounding loses
 * nothing. */
static float input(uint32_t encoding, uint32_t i)
{
    const struct dt_rng4 draw = dt_philox4x32((struct dt_rng4){{i, encoding, 0, 0}}, 1, 0);
    const float size = 4 + (float)(draw.v[0] >> 14) / 65536;
    return draw.v[1] % 2 == 1 ? -size : size;
}

/* True if sent plus residual equals the input, for every number. */
static bool prove(struct dt_error_feedback *feedback)
{
    static float values[N_ENCODED], bytes[N_ENCODED];
    static double in[N_ENCODED], sent[N_ENCODED];
    size_t n_equal = 0;
    for (uint32_t i = 0; i < N_ENCODED; i++) {
        in[i] = sent[i] = 0;
    }
    for (uint32_t encoding = 0; encoding < N_ENCODINGS; encoding++) {
        for (uint32_t i = 0; i < N_ENCODED; i++) {
            values[i] = input(encoding, i);
            in[i] += (double)values[i];
        }
        dt_error_feedback_encode(feedback, encoding, 0, N_ENCODED, values, bytes);
        for (uint32_t i = 0; i < N_ENCODED; i++) {
            sent[i] += (double)values[i];
        }
    }
    for (uint32_t i = 0; i < N_ENCODED; i++) {
        n_equal += sent[i] + (double)feedback->left[i] == in[i];
    }
    return n_equal == N_ENCODED;
}

static enum dt_status prove_all(struct compression_lesson *l)
{
    const struct dt_codec_layout layout = {.n_matrices = 1,
                                           .matrices = {{.n_rows = N_ENCODED / 10, .n_cols = 10}}};
    for (int type = DT_COMPRESSION_NONE + 1; type < N_TYPES; type++) {
        const struct dt_compression_spec spec = spec_of(type, true);
        struct dt_error_feedback feedback;
        struct dt_codec codec;
        DT_TRY(dt_codec_open(dt_all_rows.codecs, &spec, &layout, &codec));
        DT_TRY(dt_error_feedback_open(&codec, 0, N_ENCODED, &feedback));
        dt_golden_fact(&l->golden, prove(&feedback),
                       "%s: sent values plus residual equal the input", dt_compression_names[type]);
        dt_error_feedback_close(&feedback);
    }
    return DT_OK;
}

static void check(struct compression_lesson *l)
{
    for (int type = DT_COMPRESSION_ONEBIT; type <= DT_COMPRESSION_TOPK; type++) {
        const struct way *way = &l->ways[type];
        dt_golden_fact(&l->golden,
                       dt_lab_mean(N_SEEDS, way->accuracy[1]).mean >
                           dt_lab_mean(N_SEEDS, way->accuracy[0]).mean,
                       "%s is better with error feedback", dt_compression_names[type]);
    }
}

/* ---- the document */

/* `none` has nothing to feed back, and is in both lines. */
static const double *accuracy(const struct compression_lesson *l, int type, int feedback)
{
    return l->ways[type].accuracy[type == DT_COMPRESSION_NONE ? 0 : feedback];
}

static void draw(struct dt_doc *doc, const struct compression_lesson *l)
{
    struct dt_part *chart = dt_doc_series(doc, "Accuracy by the bytes that a rank sends in a step",
                                          "bytes", "accuracy, %");
    dt_doc_axes(chart, DT_LOG_X);
    for (int feedback = 0; feedback < 2; feedback++) {
        double x[N_TYPES], y[N_TYPES], low[N_TYPES], high[N_TYPES];
        for (int i = 0; i < N_TYPES; i++) {
            const int type = N_TYPES - 1 - i; /* x grows */
            const struct dt_lab_mean m = dt_lab_mean(N_SEEDS, accuracy(l, type, feedback));
            x[i] = l->ways[type].sent;
            y[i] = m.mean;
            low[i] = m.mean - m.margin;
            high[i] = fmin(100, m.mean + m.margin);
        }
        dt_doc_line(chart, &(struct dt_line){feedback == 1 ? "with error feedback" : "without",
                                             DT_LINE_AND_DOTS, N_TYPES, x, y, low, high, 0});
    }
}

static void fill_table(struct dt_doc *doc, const struct compression_lesson *l)
{
    struct dt_part *table = dt_doc_table(doc, "Codecs",
                                         "type|sent:B:0|times fewer::1|without:%:1|±::1|with "
                                         "feedback:%:1|± with::1");
    struct dt_part *formulas = dt_doc_figures(doc, "Bytes of n numbers");
    for (int type = 0; type < N_TYPES; type++) {
        const struct dt_lab_mean without = dt_lab_mean(N_SEEDS, accuracy(l, type, 0)),
                                 with = dt_lab_mean(N_SEEDS, accuracy(l, type, 1));
        const bool none = type == DT_COMPRESSION_NONE;
        dt_doc_row(table, dt_t(dt_compression_names[type]), dt_n(l->ways[type].sent),
                   dt_n(l->ways[DT_COMPRESSION_NONE].sent / l->ways[type].sent), dt_n(without.mean),
                   dt_n(without.margin), dt_n(none ? NAN : with.mean),
                   dt_n(none ? NAN : with.margin));
        dt_doc_fact(formulas, dt_compression_names[type], "%s", dt_compression_formulas[type]);
    }
    dt_doc_caption(table,
                   "sent: by a rank in a step. Accuracy, without and with error feedback: means "
                   "over %d seeds, each with "
                   "images, an order and %d test images of its own; ± is their 95 %% interval.",
                   N_SEEDS, N_TEST);
    dt_doc_caption(formulas, "onebit: d of the n numbers are weights of a dense layer, in c groups "
                             "of columns.");
}

/* The types whose accuracy the seeds show to be less than that of `none`, or do not. */
static const char *list(struct dt_doc *doc, const struct compression_lesson *l, int feedback,
                        bool less)
{
    const char *names = "";
    for (int type = DT_COMPRESSION_NONE + 1; type < N_TYPES; type++) {
        const int relation =
            dt_lab_compare(N_SEEDS, accuracy(l, type, feedback), accuracy(l, 0, 0));
        if ((relation < 0) == less) {
            names = dt_doc_print(doc, "%s%s%s", names, names[0] != '\0' ? ", " : "",
                                 dt_compression_names[type]);
        }
    }
    return names[0] != '\0' ? names : "no codec";
}

static struct dt_doc *tell(const struct compression_lesson *l)
{
    struct dt_doc *doc = dt_doc_open("lab compression", "How few bytes do gradients need?");
    dt_doc_text(
        doc,
        "%d ranks. Each sends its %zu numbers (%zu gradients, and zeros that align them) to "
        "the other %d in every step; %d epochs of SGD at rate %g, until `none` has reached "
        "its plateau. `topk` sends %g %% of them.",
        DT_LAB_RANKS, l->n_floats, l->n_gradients, DT_LAB_RANKS - 1, N_EPOCHS, RATE, 100 * RATIO);
    draw(doc, l);
    fill_table(doc, l);
    struct dt_part *claims =
        dt_doc_table(doc, "Beside none", "error feedback|costs accuracy|costs none that shows");
    dt_doc_caption(claims, "Compared seed by seed, at 95 %%.");
    for (int feedback = 0; feedback < 2; feedback++) {
        dt_doc_row(claims, dt_t(feedback == 1 ? "with" : "without"),
                   dt_t(list(doc, l, feedback, true)), dt_t(list(doc, l, feedback, false)));
    }
    dt_doc_text(
        doc,
        "Without error feedback the error of a codec is lost in every step, and always of "
        "the same kind. With it a rank keeps the error and adds it to the next step's "
        "gradients: over %d encodings, sent values plus residual equal the original numbers "
        "exactly.",
        N_ENCODINGS);
    dt_doc_text(doc, "Encodings can be added only where each number stands for itself (fp16, "
                     "bf16), with any allreduce. All others take `all_to_all`: every rank gets "
                     "every encoding and adds them in one order, so all end with the same weights, "
                     "to the bit.");
    return doc;
}

static enum dt_status lab_compression(struct dt_world *world, const struct dt_args *args)
{
    static struct compression_lesson lesson;
    enum dt_status s = DT_OK;
    DT_TRY(dt_lab_need_ranks(world, "compression", DT_LAB_RANKS));
    DT_TRY(run(world, &lesson));
    if (world->rank == 0) {
        s = prove_all(&lesson);
        check(&lesson);
        s = s == DT_OK ? dt_golden_show(&lesson.golden, args, tell(&lesson)) : s;
    }
    return dt_world_agree(world, s);
}

const struct dt_command dt_command_lab_compression = {
    .word = "lab compression",
    .meaning = "how few bytes do gradients need, and at what price?",
    .minutes = 10,
    .usage = "mpirun -np 4 dtrain lab compression [--html FILE]",
    .examples = "  mpirun -np 4 dtrain lab compression\n",
    .more = "Trains on four ranks with uncompressed gradients, and with each codec, without and "
            "with error feedback, from three seeds each, and prints the bytes that a rank sends "
            "per step, and the accuracy.",
    .options = {DT_RESULT_OPTIONS},
    .together = lab_compression,
};
