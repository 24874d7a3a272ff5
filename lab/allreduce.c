#include "lab/allreduce.h"

#include <math.h>
#include <string.h>

#include "cli/output.h"
#include "cli/suggest.h"
#include "cli/text.h"

#define MAX_RANKS 64
#define MAX_ELEMS ((size_t)1 << 25) /* of all ranks together */

/* ---- the allreduce and its proof */

/* Encodes the set of ranks in a sum as a number. */
static float mark(int rank, size_t i)
{
    (void)i;
    return ldexpf(1, rank);
}

/* Integers whose sums are exact in any order; they differ between ranks and between pieces. */
static float whole(int rank, size_t i)
{
    return (float)(1 + (i * 7 + (size_t)rank * 13) % 1009);
}

static bool is_exact(const struct dt_replay *p, float (*value)(int rank, size_t i))
{
    bool exact = true;
    for (size_t i = 0; i < p->n_elems; i++) {
        float sum = 0;
        for (int rank = 0; rank < p->size; rank++) {
            sum += value(rank, i);
        }
        exact = exact && p->data[0][i] == sum;
    }
    return exact;
}

static struct dt_lab_proof prove(const struct dt_replay *p, float (*value)(int rank, size_t i))
{
    struct dt_lab_proof proof = {.equal = true,
                                 .exact = is_exact(p, value),
                                 .formula = p->algorithm->formula(p->size, p->n_elems)};
    for (int rank = 0; rank < p->size; rank++) {
        proof.equal =
            proof.equal && memcmp(p->data[rank], p->data[0], p->n_elems * sizeof(float)) == 0;
        proof.sent.messages += p->sent[rank].messages;
        proof.sent.elements += p->sent[rank].bytes / sizeof(float);
    }
    return proof;
}

/* `written`: status of writing the page. */
static enum dt_status verdict(const struct dt_replay *p, const struct dt_lab_proof *proof,
                              enum dt_status written)
{
    const bool as_formula = proof->sent.messages == proof->formula.messages &&
                            proof->sent.elements == proof->formula.elements;
    const char *wrong = !proof->equal   ? "the ranks have different sums"
                        : !proof->exact ? "the sum is wrong"
                        : !as_formula   ? "what was sent is not what the formula says"
                                        : NULL;
    if (wrong == NULL) {
        return written;
    }
    dt_output_failed(written);
    return dt_error(DT_FAILED, "%s over %d ranks: %s", p->algorithm->name, p->size, wrong);
}

static enum dt_status open_proof(const struct dt_algorithm *algorithm, int size, size_t n_elems,
                                 struct dt_lab_proof *out)
{
    struct dt_replay replay;
    DT_TRY(dt_replay_open(algorithm, size, n_elems, whole, &replay));
    *out = prove(&replay, whole);
    dt_replay_close(&replay);
    return DT_OK;
}

static void print_counted(const char *what, uint64_t counted, uint64_t formula)
{
    char a[32], b[32];
    printf("  %-28s%s, by the formula %s: %s\n", what, dt_count_text((double)counted, a, sizeof a),
           dt_count_text((double)formula, b, sizeof b), counted == formula ? "equal" : "NOT EQUAL");
}

static void print_proof(const struct dt_replay *p, const struct dt_lab_proof *proof)
{
    char count[32];
    printf("\nproof, by whole numbers: %s on each rank\n",
           dt_count_text((double)p->n_elems, count, sizeof count));
    printf("  %-28s%s\n", "all ranks have the same", proof->equal ? "yes" : "NO");
    printf("  %-28s%s\n", "it is the exact sum", proof->exact ? "yes" : "NO");
    print_counted("messages sent", proof->sent.messages, proof->formula.messages);
    print_counted("bytes sent", proof->sent.elements * sizeof(float),
                  proof->formula.elements * sizeof(float));
}

/* ---- all algorithms */

static enum dt_status simulate_all(int size, size_t n_elems,
                                   struct dt_lab_row rows[DT_N_ALGORITHMS])
{
    static const struct dt_costs costs = {
        .ranks_per_host = 1, .between = {10e-6, 8.0 / 10e9}, .gamma_s = 1e-9}; /* DT_LAB_COSTS */
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        rows[i] = (struct dt_lab_row){.algorithm = &dt_algorithms[i],
                                      .n_rounds = dt_algorithms[i].n_rounds(size, n_elems)};
        DT_TRY(dt_simulate(&dt_algorithms[i], size, n_elems, &costs, &rows[i].simulation, NULL));
    }
    return DT_OK;
}

static void print_rows(int size, size_t n_elems, const struct dt_lab_row *rows)
{
    char a[32], b[32];
    dt_count_text((double)n_elems, a, sizeof a);
    printf("\nall algorithms over %d rank%s, %s float%s each\n", size, size == 1 ? "" : "s", a,
           n_elems == 1 ? "" : "s");
    printf("  %-18s %6s %8s %14s %14s %11s\n", "algorithm", "rounds", "messages", "bytes in all",
           "busiest rank", "time(us)");
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        const struct dt_simulation *s = &rows[i].simulation;
        printf("  %-18s %6d %8llu ", rows[i].algorithm->name, rows[i].n_rounds,
               (unsigned long long)s->all.messages);
        printf("%14s %14s %11.1f\n", dt_count_text((double)s->all.bytes, a, sizeof a),
               dt_count_text((double)s->busiest_rank_bytes, b, sizeof b), s->seconds * 1e6);
    }
    printf("  busiest rank: the bytes that it sends and receives; time: simulated with\n "
           " " DT_LAB_COSTS "\n");
}

/* ---- lab allreduce */

struct options {
    const struct dt_algorithm *algorithm;
    size_t n_ranks, n_elems;
};

static enum dt_status find_algorithm(const char *name, const struct dt_algorithm **out)
{
    struct dt_suggestion s = {.word = name};
    char names[256] = "";
    *out = dt_algorithm_find(name);
    for (int i = 0; *out == NULL && i < DT_N_ALGORITHMS; i++) {
        const size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "", dt_algorithms[i].name);
        dt_suggest_offer(&s, dt_algorithms[i].name);
    }
    if (*out == NULL && s.best != NULL) {
        return dt_error(DT_USAGE, "--algorithm: unknown algorithm '%.60s' (did you mean '%s'?)",
                        name, s.best);
    }
    return *out != NULL ? DT_OK
                        : dt_error(DT_USAGE, "--algorithm: unknown algorithm '%.60s' (one of %s)",
                                   name, names);
}

static enum dt_status read_options(const struct dt_args *args, struct options *o)
{
    *o = (struct options){.n_ranks = 4};
    DT_TRY(find_algorithm(dt_args_text(args, DT_OPTION_ALGORITHM) != NULL
                              ? dt_args_text(args, DT_OPTION_ALGORITHM)
                              : dt_algorithms[0].name,
                          &o->algorithm));
    DT_TRY(dt_args_number(args, DT_OPTION_RANKS, false, 1, MAX_RANKS, &o->n_ranks));
    o->n_elems = o->n_ranks;
    DT_TRY(dt_args_number(args, DT_OPTION_ELEMENTS, false, 1, MAX_ELEMS, &o->n_elems));
    if (o->n_ranks * o->n_elems > MAX_ELEMS) {
        return dt_error(DT_USAGE,
                        "--elements %zu is too many for %zu ranks in one process (at most %zu)",
                        o->n_elems, o->n_ranks, MAX_ELEMS / o->n_ranks);
    }
    if (dt_args_text(args, DT_OPTION_HTML) != NULL && o->n_ranks > DT_LAB_MAX_DRAWN) {
        return dt_error(DT_USAGE, "--html draws %d ranks at most, not %zu", DT_LAB_MAX_DRAWN,
                        o->n_ranks);
    }
    return DT_OK;
}

static void print_head(const struct dt_lesson *lesson)
{
    const struct dt_replay *p = lesson->replay;
    char n_elems[32];
    dt_count_text((double)p->n_elems, n_elems, sizeof n_elems);
    printf("%s over %d rank%s, %s float%s each\n%s\n", p->algorithm->name, p->size,
           p->size == 1 ? "" : "s", n_elems, p->n_elems == 1 ? "" : "s", p->algorithm->meaning);
    if (p->size <= DT_LAB_MAX_LETTERS && p->size > 1) {
        printf("A has the vector a, B has b, ...; ");
        printf(p->n_pieces > 1 ? "a0 is piece 0 of a, and ab0 is a0 + b0\n" : "ab is a + b\n");
    }
}

static enum dt_status show(const struct options *o, const struct dt_replay *replay,
                           const char *html)
{
    const struct dt_lesson lesson = {.replay = replay, .sets = replay};
    struct dt_lab_proof proof;
    struct dt_lab_row rows[DT_N_ALGORITHMS];
    DT_TRY(open_proof(o->algorithm, replay->size, replay->n_elems, &proof));
    DT_TRY(simulate_all(replay->size, replay->n_elems, rows));
    print_head(&lesson);
    dt_lab_print_rounds(stdout, &lesson, 0, replay->n_rounds);
    print_proof(replay, &proof);
    print_rows(replay->size, replay->n_elems, rows);
    return verdict(replay, &proof, dt_lab_page(html, &lesson, &proof, rows, DT_N_ALGORITHMS));
}

static enum dt_status lab_allreduce(const struct dt_args *args)
{
    struct options o;
    struct dt_replay replay;
    DT_TRY(read_options(args, &o));
    DT_TRY(dt_replay_open(o.algorithm, (int)o.n_ranks, o.n_elems, mark, &replay));
    const enum dt_status s = show(&o, &replay, dt_args_text(args, DT_OPTION_HTML));
    dt_replay_close(&replay);
    return s;
}

/* ---- lab reduce */

#define N_COUNTING 5

static float counting(int rank, size_t i)
{
    (void)i;
    return (float)(rank + 1);
}

/* The round after the last that adds. */
static int end_of_reduce(const struct dt_replay *p)
{
    int end = 0;
    for (int round = 0, n; round < p->n_rounds; round++) {
        const struct dt_transfer *t = dt_replay_transfers(p, round, &n);
        for (int i = 0; i < n; i++) {
            end = t[i].adds ? round + 1 : end;
        }
    }
    return end;
}

static void print_reduce(const struct dt_lesson *lesson, int n_reduce)
{
    const struct dt_replay *p = lesson->replay;
    printf("[1, 2, 3, 4, 5] on five ranks, A to E, which a %s adds up\n\nat first\n",
           p->algorithm->name);
    dt_lab_print_state(stdout, lesson, 0);
    dt_lab_print_rounds(stdout, lesson, 0, n_reduce);
    printf("\nReduce: the sum is on the root, %g on A\n", (double)*dt_replay_state(p, n_reduce, 0));
    dt_lab_print_rounds(stdout, lesson, n_reduce, p->n_rounds);
    printf("\nAllreduce: the sum is everywhere,");
    for (int rank = 0; rank < p->size; rank++) {
        printf(" %g", (double)p->data[rank][0]);
    }
    printf("\n");
}

static enum dt_status show_reduce(const struct dt_replay *replay, const struct dt_replay *sets,
                                  const char *html)
{
    const struct dt_lesson lesson = {.replay = replay, .numbers = true, .sets = sets};
    const struct dt_lab_proof proof = prove(replay, counting);
    print_reduce(&lesson, end_of_reduce(replay));
    return verdict(replay, &proof, dt_lab_reduce_page(html, &lesson, end_of_reduce(replay)));
}

static enum dt_status lab_reduce(const struct dt_args *args)
{
    const struct dt_algorithm *tree = dt_algorithm_find("tree");
    struct dt_replay replay, sets;
    enum dt_status s;
    DT_TRY(dt_replay_open(tree, N_COUNTING, 1, counting, &replay));
    DT_TRY_GOTO(s, dt_replay_open(tree, N_COUNTING, 1, mark, &sets), close_replay);
    s = show_reduce(&replay, &sets, dt_args_text(args, DT_OPTION_HTML));
    dt_replay_close(&sets);
close_replay:
    dt_replay_close(&replay);
    return s;
}

const struct dt_command dt_command_lab_allreduce = {
    .word = "lab allreduce",
    .meaning = "how do ranks add up their vectors, round by round?",
    .minutes = 10,
    .usage = "dtrain lab allreduce [--algorithm NAME] [--ranks N] [--elements N]\n"
             "      [--html FILE]",
    .examples = "  dtrain lab allreduce\n"
                "  dtrain lab allreduce --algorithm halving_doubling --ranks 8 \\\n"
                "      --elements 1199882 --html halving.html\n",
    .more = "Shows each round's messages: sender, receiver, piece, whether it is added or "
            "replaces, and every rank's vector afterwards. All ranks run in this one process, "
            "with real numbers. It ends with the proof (all ranks have the exact sum, with as "
            "many messages and bytes as the formula predicts; else the status is 1) and a table "
            "of all algorithms for the same ranks and numbers, with simulated times.",
    .options = {[DT_OPTION_ALGORITHM] = {DT_TAKEN},
                [DT_OPTION_RANKS] = {DT_TAKEN, "how many ranks, default 4, at most 64"},
                [DT_OPTION_ELEMENTS] = {DT_TAKEN},
                [DT_OPTION_HTML] =
                    {DT_TAKEN, "write a page with pictures to this file, of at most 16 ranks"}},
    .alone = lab_allreduce,
};

const struct dt_command dt_command_lab_reduce = {
    .word = "lab reduce",
    .meaning = "how do five ranks add up their numbers?",
    .minutes = 5,
    .usage = "dtrain lab reduce [--html FILE]",
    .examples = "  dtrain lab reduce\n",
    .options = {[DT_OPTION_HTML] = {DT_TAKEN}},
    .alone = lab_reduce,
};
