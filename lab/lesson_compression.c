/* Compressed gradients on four ranks. The lesson compares the bytes that a codec saves with the
 * accuracy that it costs, without and with error feedback: means over several seeds. */
#include <math.h>

#include "base/rng.h"
#include "cli/cli_text.h"
#include "cli/result.h"
#include "cli/terminal.h"
#include "dist/compression/error_feedback.h"
#include "lab/distributed.h"
#include "lab/golden.h"

/* With this rate and these epochs the accuracy of `none` stops to rise. */
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

/* The trainings with a codec. */
struct outcome {
    double accuracy[2][N_SEEDS]; /* in per cent: without error feedback, and with it */
    double sent;                 /* bytes per step and rank */
};

struct compression_lesson {
    struct outcome outcomes[N_TYPES]; /* `none`, which has no error, has the same accuracy twice */
    size_t n_floats;                  /* gradients, and zeros that align them */
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

static void check_training(struct dt_golden *g, int type, bool feedback,
                           const struct dt_lab_outcome *outcome)
{
    const char *name = dt_compression_names[type], *with = feedback ? " with error feedback" : "";
    const double expected =
        (DT_LAB_RANKS - 1) * (double)dt_codec_bytes(&outcome->codec, 0, outcome->n_floats);
    for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
        dt_golden_number(g, outcome->sent[rank], expected, 0,
                         "%s%s: bytes that rank %d sends a step", name, with, rank);
        dt_golden_figure(g, outcome->hashes[rank] == outcome->hashes[0],
                         "%s%s: rank %d ends with the weights of rank 0, to the bit", name, with,
                         rank);
    }
}

static enum dt_status run_seed(struct dt_world *world, int seed, const struct dt_lab_images *images,
                               struct compression_lesson *l)
{
    static struct dt_lab_outcome outcome;
    const struct dt_compression_spec whole = {.type = DT_COMPRESSION_TOPK, .ratio = 1};
    uint64_t hash = 0; /* of the weights of `none` */
    for (int type = 0; type < N_TYPES; type++) {
        struct outcome *out = &l->outcomes[type];
        for (int feedback = 0; feedback < (type == DT_COMPRESSION_NONE ? 1 : 2); feedback++) {
            const struct dt_compression_spec spec = spec_of(type, feedback == 1);
            dt_lab_live(world, "seed %d of %d: %s%s", seed + 1, N_SEEDS, dt_compression_names[type],
                        feedback == 1 ? " with error feedback" : "");
            DT_TRY(train(world, images, seed, &spec, &outcome));
            check_training(&l->golden, type, feedback == 1, &outcome);
            out->accuracy[feedback][seed] = out->accuracy[1][seed] = 100 * outcome.accuracy;
        }
        out->sent = outcome.sent[0];
        hash = type == DT_COMPRESSION_NONE ? outcome.hashes[0] : hash;
    }
    DT_TRY(train(world, images, seed, &whole, &outcome));
    dt_golden_figure(&l->golden, outcome.hashes[0] == hash,
                     "topk of ratio 1 ends with the weights of none, to the bit");
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

/* A number of 4 to 8, a multiple of 1 / 2^16: a float holds every sum of them that occurs, so no
 * addition rounds. */
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
    double in[N_ENCODED] = {0}, sent[N_ENCODED] = {0};
    bool equal = true;
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
        equal = equal && sent[i] + (double)feedback->left[i] == in[i];
    }
    return equal;
}

static enum dt_status prove_all(struct compression_lesson *l)
{
    const struct dt_codec_layout layout = {.n_matrices = 1,
                                           .matrices = {{.n_rows = N_ENCODED / 10, .n_cols = 10}}};
    for (int type = DT_COMPRESSION_NONE + 1; type < N_TYPES; type++) {
        const struct dt_compression_spec spec = spec_of(type, true);
        struct dt_error_feedback feedback;
        struct dt_codec codec;
        DT_TRY(dt_codec_open(dt_all_entries.codecs, &spec, &layout, &codec));
        DT_TRY(dt_error_feedback_open(&codec, 0, N_ENCODED, &feedback));
        dt_golden_figure(&l->golden, prove(&feedback),
                         "%s: sent values plus residual equal the input",
                         dt_compression_names[type]);
        dt_error_feedback_close(&feedback);
    }
    return DT_OK;
}

static void check(struct compression_lesson *l)
{
    for (int type = DT_COMPRESSION_ONEBIT; type <= DT_COMPRESSION_TOPK; type++) {
        const struct outcome *o = &l->outcomes[type];
        dt_golden_figure(&l->golden,
                         dt_lab_mean(N_SEEDS, o->accuracy[1]).mean >
                             dt_lab_mean(N_SEEDS, o->accuracy[0]).mean,
                         "%s is better with error feedback", dt_compression_names[type]);
    }
}

/* ---- the document */

static void add_codecs(struct dt_doc *doc, const struct compression_lesson *l)
{
    double sent[N_TYPES];
    struct dt_lab_mean without[N_TYPES], with[N_TYPES];
    struct dt_part *chart = dt_doc_series(doc, "Accuracy by the bytes that a rank sends in a step",
                                          "bytes", "accuracy, %");
    struct dt_part *table = dt_doc_table(doc, "Codecs",
                                         "type|sent:B:0|times fewer::1|without:%:1|±::1|with "
                                         "feedback:%:1|± with::1");
    struct dt_part *formulas = dt_doc_figures(doc, "Bytes of n numbers");
    for (int type = 0; type < N_TYPES; type++) {
        const struct outcome *o = &l->outcomes[type];
        const int at = N_TYPES - 1 - type; /* x grows */
        const bool none = type == DT_COMPRESSION_NONE;
        sent[at] = o->sent;
        without[at] = dt_lab_mean(N_SEEDS, o->accuracy[0]);
        with[at] = dt_lab_mean(N_SEEDS, o->accuracy[1]);
        dt_doc_row(table, dt_t(dt_compression_names[type]), dt_n(o->sent),
                   dt_n(l->outcomes[DT_COMPRESSION_NONE].sent / o->sent), dt_n(without[at].mean),
                   dt_n(without[at].margin), dt_n(none ? NAN : with[at].mean),
                   dt_n(none ? NAN : with[at].margin));
        dt_doc_fact(formulas, dt_compression_names[type], "%s", dt_compression_formulas[type]);
    }
    dt_doc_axes(chart, DT_LOG_X);
    dt_lab_plot(chart, "without", N_TYPES, sent, without);
    dt_lab_plot(chart, "with error feedback", N_TYPES, sent, with);
    dt_doc_caption(table,
                   "sent: by a rank in a step. Accuracy: means over %d seeds, each with images, an "
                   "order and %d test images of its own; ± is their 95 %% interval.",
                   N_SEEDS, N_TEST);
    dt_doc_caption(formulas, "onebit: d of the n numbers are weights of a dense layer, in c groups "
                             "of columns.");
}

/* The names of the codecs with less accuracy than `none`; or, not `less`, of all others. */
static const char *list(struct dt_doc *doc, const struct compression_lesson *l, int feedback,
                        bool less)
{
    const char *names = "";
    for (int type = DT_COMPRESSION_NONE + 1; type < N_TYPES; type++) {
        const int relation = dt_lab_compare(N_SEEDS, l->outcomes[type].accuracy[feedback],
                                            l->outcomes[DT_COMPRESSION_NONE].accuracy[0]);
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
    dt_doc_text(doc,
                "%d ranks. Each sends %s numbers, its gradients and zeros that align them, to "
                "the other %d in every step; %d epochs of SGD at rate %g, until `none` has reached "
                "its plateau. `topk` sends %g %% of them.",
                DT_LAB_RANKS, dt_count_text((double)l->n_floats, (char[32]){""}, 32),
                DT_LAB_RANKS - 1, N_EPOCHS, RATE, 100 * RATIO);
    add_codecs(doc, l);
    struct dt_part *claims =
        dt_doc_table(doc, "Beside none", "error feedback|costs accuracy|no loss shows");
    dt_doc_caption(claims, "Compared seed by seed, at 95 %%.");
    for (int feedback = 0; feedback < 2; feedback++) {
        dt_doc_row(claims, dt_t(feedback == 1 ? "with" : "without"),
                   dt_t(list(doc, l, feedback, true)), dt_t(list(doc, l, feedback, false)));
    }
    dt_doc_text(
        doc,
        "Without error feedback every step loses the error of the codec, and these errors are "
        "alike. With it a rank keeps the error and adds it to the next step's gradients: over %d "
        "encodings, sent values plus residual equal the original numbers exactly.",
        N_ENCODINGS);
    dt_doc_text(doc, "fp16 and bf16 encode each number by itself, so any allreduce can add their "
                     "encodings. All other codecs need `all_to_all`: every rank receives every "
                     "encoding and adds them in one order, so all ranks end with the same "
                     "weights, to the bit.");
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
    .usage = "mpirun -np 4 dtrain lab compression" DT_RESULT_USAGE,
    .examples = "  mpirun -np 4 dtrain lab compression\n",
    .more = "Trains on four ranks with uncompressed gradients, and with each codec, without and "
            "with error feedback, from three seeds each, and prints the bytes that a rank sends "
            "per step, and the accuracy.",
    .options = {DT_RESULT_OPTIONS},
    .together = lab_compression,
};
