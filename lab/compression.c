/* Compressed gradients on four ranks: bytes saved against accuracy lost, without and with error
 * feedback. */
#include "lab/compression.h"

#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "cli/args.h"
#include "cli/text.h"
#include "dist/compression/error_feedback.h"

#define RATE 0.2
#define RATIO 0.01
#define N_ENCODINGS 20
#define N_ENCODED 1000

/* ---- the trainings */

static struct dt_compression_spec spec_of(int type, bool error_feedback)
{
    return (struct dt_compression_spec){
        .type = (enum dt_compression_type)type, .ratio = RATIO, .error_feedback = error_feedback};
}

static enum dt_status train(struct dt_world *world, const struct dt_lab_images *images,
                            const struct dt_compression_spec *spec, struct dt_lab_outcome *out)
{
    const struct dt_lab_distributed training = {.dist = {.strategy = DT_STRATEGY_ALLREDUCE,
                                                         .allreduce = DT_ALLREDUCE_ALL_TO_ALL,
                                                         .compression = *spec},
                                                .rate = RATE};
    return dt_lab_distributed_run(world, images, &training, out);
}

static enum dt_status train_all(struct dt_world *world, const struct dt_lab_images *images,
                                struct dt_compression_lesson *l)
{
    const struct dt_compression_spec whole = {.type = DT_COMPRESSION_TOPK, .ratio = 1};
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        for (int feedback = 0; feedback < (type == DT_COMPRESSION_NONE ? 1 : 2); feedback++) {
            const struct dt_compression_spec spec = spec_of(type, feedback == 1);
            DT_TRY(train(world, images, &spec, &l->ways[type].outcomes[feedback]));
        }
    }
    return train(world, images, &whole, &l->whole);
}

static enum dt_status run(struct dt_world *world, struct dt_compression_lesson *l)
{
    struct dt_lab_images images;
    enum dt_status s = dt_world_agree(world, dt_lab_images_open(DT_COMPRESSION_N_TEST, &images));
    s = s == DT_OK ? train_all(world, &images, l) : s;
    dt_lab_images_close(&images);
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

static enum dt_status prove_all(struct dt_compression_lesson *l)
{
    const struct dt_codec_layout layout = {.n_matrices = 1,
                                           .matrices = {{.n_rows = N_ENCODED / 10, .n_cols = 10}}};
    for (int type = DT_COMPRESSION_NONE + 1; type < DT_N_COMPRESSION_TYPES; type++) {
        const struct dt_compression_spec spec = spec_of(type, true);
        struct dt_error_feedback feedback;
        struct dt_codec codec;
        DT_TRY(dt_codec_open(dt_all_rows.codecs, &spec, &layout, &codec));
        DT_TRY(dt_error_feedback_open(&codec, 0, N_ENCODED, &feedback));
        l->ways[type].nothing_lost = prove(&feedback);
        dt_error_feedback_close(&feedback);
    }
    return DT_OK;
}

/* ---- expected results */

static void check_outcome(struct dt_golden *golden, const char *name,
                          const struct dt_lab_outcome *outcome, double expected)
{
    char what[120];
    for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
        snprintf(what, sizeof what, "%s: bytes that rank %d sends a step", name, rank);
        dt_golden_number(golden, what, outcome->sent[rank], expected, 0);
    }
    snprintf(what, sizeof what, "%s: all ranks end with the same weights, to the bit", name);
    dt_golden_fact(golden, what,
                   outcome->hashes[1] == outcome->hashes[0] &&
                       outcome->hashes[2] == outcome->hashes[0] &&
                       outcome->hashes[3] == outcome->hashes[0]);
}

static void check_way(struct dt_compression_lesson *l, int type)
{
    struct dt_compression_way *way = &l->ways[type];
    const struct dt_codec *codec = &way->outcomes[0].codec;
    const char *name = dt_compression_names[type];
    char what[120];
    way->expected = (DT_LAB_RANKS - 1) * (double)dt_codec_bytes(codec, 0, l->whole.n_floats);
    check_outcome(&l->golden, name, &way->outcomes[0], way->expected);
    if (type != DT_COMPRESSION_NONE) {
        snprintf(what, sizeof what, "%s with error feedback", name);
        check_outcome(&l->golden, what, &way->outcomes[1], way->expected);
        snprintf(what, sizeof what, "%s: what was sent and what is left add up to what came in",
                 name);
        dt_golden_fact(&l->golden, what, way->nothing_lost);
    }
    if (type == DT_COMPRESSION_ONEBIT || type == DT_COMPRESSION_TOPK) {
        snprintf(what, sizeof what, "%s is better with error feedback", name);
        dt_golden_fact(
            &l->golden, what,
            dt_compression_relation(way->outcomes[1].accuracy, way->outcomes[0].accuracy) > 0);
    }
}

static void check(struct dt_compression_lesson *l)
{
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        check_way(l, type);
    }
    dt_golden_fact(&l->golden, "topk of ratio 1 ends with the weights of none, to the bit",
                   l->whole.hashes[0] == l->ways[DT_COMPRESSION_NONE].outcomes[0].hashes[0]);
    dt_golden_end(&l->golden);
}

/* ---- the text */

static void print_accuracy(double share)
{
    printf(" %5.1f +-%.1f %%", 100 * share, 100 * dt_compression_margin(share));
}

static void print_way(const struct dt_compression_lesson *l, int type)
{
    const struct dt_compression_way *way = &l->ways[type];
    char bytes[32];
    printf("%-7s %-24s %8s %7.1f", dt_compression_names[type],
           type == DT_COMPRESSION_TOPK ? "8 k, the k largest" : dt_compression_formulas[type],
           dt_count_text(way->outcomes[0].sent[0], bytes, sizeof bytes),
           l->ways[DT_COMPRESSION_NONE].expected / way->expected);
    print_accuracy(way->outcomes[0].accuracy);
    if (type != DT_COMPRESSION_NONE) {
        print_accuracy(way->outcomes[1].accuracy);
    }
    putchar('\n');
}

static void print_lesson(const struct dt_compression_lesson *l)
{
    char floats[32], gradients[32], n_test[32];
    printf("How few bytes do gradients need? %d ranks, each sends its %s numbers (n:\n%s "
           "gradients, and zeros that align them) to the "
           "other %d; %d epochs of\nSGD at rate %g. topk sends %g %% of them.\n\n",
           DT_LAB_RANKS, dt_count_text((double)l->whole.n_floats, floats, sizeof floats),
           dt_count_text((double)l->whole.n_gradients, gradients, sizeof gradients),
           DT_LAB_RANKS - 1, DT_LAB_N_EPOCHS, RATE, 100 * RATIO);
    printf("%-32s %8s %7s %13s %13s\n%-32s %8s %7s %13s %13s\n", "", "a rank", "times", "accuracy",
           "with error", "        bytes for n numbers", "sends", "fewer", "", "feedback");
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        print_way(l, type);
    }
    printf("  of onebit's n numbers d are weights of a dense layer, in c groups of columns\n"
           "  accuracy: of %s test images; +-: 95 of 100 such test sets come so near\n"
           "\nCompared with none, by more than the chance of the test set explains:\n",
           dt_count_text(DT_COMPRESSION_N_TEST, n_test, sizeof n_test));
    dt_compression_print_claims(stdout, l);
    printf("Each is one training from one seed: another may differ by more.\n"
           "\nWithout error feedback what a codec loses is lost in every step, and always of\n"
           "the same kind. With it a rank keeps what was lost and adds it to the next step's\n"
           "gradients, so it arrives late, but it arrives: over %d encodings what was sent\n"
           "and what is left add up to exactly what came in.\n\n"
           "Encodings can be added only where each number stands for itself (fp16, bf16),\n"
           "with any allreduce. All others take all_to_all: every rank gets every encoding\n"
           "and adds them in one order, so all end with the same weights, to the bit.\n\n",
           N_ENCODINGS);
    puts(l->golden.verdict);
}

static enum dt_status lab_compression(struct dt_world *world, const struct dt_args *args)
{
    static struct dt_compression_lesson lesson;
    enum dt_status s = DT_OK;
    DT_TRY(dt_lab_need_ranks(world, "compression", DT_LAB_RANKS));
    DT_TRY(run(world, &lesson));
    if (world->rank == 0) {
        s = prove_all(&lesson);
        check(&lesson);
        print_lesson(&lesson);
        s = s == DT_OK
                ? dt_golden_status(&lesson.golden,
                                   dt_compression_page(dt_args_text(args, DT_OPTION_HTML), &lesson))
                : s;
    }
    return dt_world_agree(world, s);
}

const struct dt_command dt_command_lab_compression = {
    .word = "lab compression",
    .meaning = "fewer bytes for gradients, and the accuracy they cost",
    .usage = "mpirun -np 4 dtrain lab compression [--html FILE]",
    .examples = "  mpirun -np 4 dtrain lab compression\n",
    .more = "Trains on four ranks with uncompressed gradients, and with each codec, without and "
            "with error feedback, and prints the bytes that a rank sends per step, and the "
            "accuracy.",
    .options =
        {
            [DT_OPTION_HTML] = {DT_TAKEN},
        },
    .together = lab_compression,
};
