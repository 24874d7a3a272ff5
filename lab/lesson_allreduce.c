/* `dtrain lab allreduce` and `lab reduce`: all ranks run in one process over the local wire, on
 * real numbers. The rounds come from the schedule's moves (replay.c), so a new algorithm needs no
 * change here. */
#include "lab/lesson_allreduce.h"

#include <math.h>
#include <string.h>

#include "cli/cli_text.h"
#include "cli/result.h"
#include "cli/suggest.h"
#include "dist/allreduce/simulate.h"
#include "lab/golden.h"

#define MAX_RANKS 64
#define MAX_ELEMS ((size_t)1 << 25) /* of all ranks together */
#define MAX_LETTERS 8               /* more ranks have numbers instead of letters */
#define MAX_DRAWN 16                /* ranks whose rounds are shown */

/* ---- the rounds */

/* The rounds of a replay in a document. */
struct rounds {
    struct dt_doc *doc;
    const struct dt_replay *replay;
    bool plain; /* values are plain numbers; else bit r of a value says that rank r is in the sum */
};

enum { KIND_ADDED, KIND_REPLACED, KIND_COMPLETE, KIND_UNCHANGED = 7 };

static bool has_letters(const struct rounds *l)
{
    return l->replay->size <= MAX_LETTERS;
}

static const char *rank_text(const struct rounds *l, int rank)
{
    return has_letters(l) ? dt_doc_print(l->doc, "%c", 'A' + rank)
                          : dt_doc_print(l->doc, "%d", rank);
}

/* "ab0": pieces [begin, end) of the sum of a and b; "7": a number, or how many ranks are in the
 * sum. */
static const char *sum_text(const struct rounds *l, float value, int begin, int end)
{
    char letters[MAX_RANKS + 1] = "";
    int n = 0;
    if (l->plain) {
        return dt_doc_print(l->doc, "%g", (double)value);
    }
    for (int rank = 0; rank < l->replay->size; rank++) {
        if (((unsigned)value >> rank & 1) != 0) {
            letters[n++] = (char)('a' + rank);
        }
    }
    return !has_letters(l)            ? dt_doc_print(l->doc, "%d", n)
           : l->replay->n_pieces == 1 ? dt_doc_print(l->doc, "%s", letters)
           : end > begin + 1          ? dt_doc_print(l->doc, "%s%d..%d", letters, begin, end - 1)
                                      : dt_doc_print(l->doc, "%s%d", letters, begin);
}

/* What a message carries. */
static const char *content_text(const struct rounds *l, const struct dt_transfer *t)
{
    if (t->begin == t->end) {
        return "nothing";
    }
    if (!isnan(t->value) && (l->plain || has_letters(l))) {
        return sum_text(l, t->value, t->begin, t->end);
    }
    return t->end > t->begin + 1 ? dt_doc_print(l->doc, "pieces %d..%d", t->begin, t->end - 1)
                                 : dt_doc_print(l->doc, "piece %d", t->begin);
}

/* Draws the vectors after n_rounds rounds, the last of which had these n transfers. */
static void draw_vectors(const struct rounds *l, int n_rounds, const struct dt_transfer *t, int n)
{
    const struct dt_replay *p = l->replay;
    struct dt_part *lanes = dt_doc_lanes(l->doc, NULL, "");
    dt_doc_kind(lanes, KIND_ADDED, "added in this round");
    dt_doc_kind(lanes, KIND_REPLACED, "replaced in this round");
    dt_doc_kind(lanes, KIND_COMPLETE, "complete");
    dt_doc_kind(lanes, KIND_UNCHANGED, "unchanged");
    for (int rank = 0; rank < p->size; rank++) {
        const float *state = dt_replay_state(p, n_rounds, rank);
        const int lane = dt_doc_lane(lanes, "%s", rank_text(l, rank));
        for (int i = 0; i < p->n_pieces; i++) {
            int kind = state[i] == p->data[0][p->cuts[i]] ? KIND_COMPLETE : KIND_UNCHANGED;
            for (int k = 0; k < n; k++) {
                if (t[k].to == rank && t[k].begin <= i && i < t[k].end) {
                    kind = t[k].adds ? KIND_ADDED : KIND_REPLACED;
                }
            }
            dt_doc_box(lanes, lane, i, i + 1, kind, "%s", sum_text(l, state[i], i, i + 1));
        }
    }
}

static void add_first(const struct rounds *l)
{
    dt_doc_step(l->doc, "At first");
    draw_vectors(l, 0, NULL, 0);
}

static void add_round(const struct rounds *l, int round)
{
    int n;
    const struct dt_transfer *t = dt_replay_transfers(l->replay, round, &n);
    dt_doc_step(l->doc, dt_doc_print(l->doc, "Round %d of %d", round + 1, l->replay->n_rounds));
    struct dt_part *table = dt_doc_table(l->doc, NULL, "from|sends|to|operation");
    for (int i = 0; i < n; i++) {
        dt_doc_row(table, dt_t(rank_text(l, t[i].from)), dt_t(content_text(l, &t[i])),
                   dt_t(rank_text(l, t[i].to)),
                   dt_t(t[i].from == t[i].to ? "adds its own input"
                        : t[i].adds          ? "adds"
                                             : "replaces"));
    }
    if (!has_letters(l)) {
        dt_doc_detail(table);
    }
    draw_vectors(l, round + 1, t, n);
}

/* ---- the proof */

/* A rank's input, from whose sums a reader tells which ranks are in them. */
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

static size_t count_exact(const struct dt_replay *p, float (*value)(int rank, size_t i))
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_elems; i++) {
        float sum = 0;
        for (int rank = 0; rank < p->size; rank++) {
            sum += value(rank, i);
        }
        n += p->data[0][i] == sum;
    }
    return n;
}

/* Adds the table of the proof, and checks it. */
static void prove(struct dt_doc *doc, const struct dt_replay *p, float (*value)(int rank, size_t i),
                  struct dt_golden *golden)
{
    const struct dt_traffic formula = p->algorithm->formula(p->size, p->n_elems);
    int equal = 0;
    for (int rank = 0; rank < p->size; rank++) {
        equal += memcmp(p->data[rank], p->data[0], p->n_elems * sizeof(float)) == 0;
    }
    const struct {
        const char *what;
        double counted, expected;
    } rows[] = {
        {"ranks with the same sum", equal, p->size},
        {"elements with the exact sum", (double)count_exact(p, value), (double)p->n_elems},
        {"messages sent", (double)p->sent.messages, (double)formula.messages},
        {"bytes sent", (double)p->sent.bytes, (double)formula.bytes},
    };
    struct dt_part *table = dt_doc_table(doc, "Proof", "check|counted::0|expected::0");
    dt_doc_caption(table, "With whole numbers, whose sums are exact. Messages and bytes are "
                          "expected by the formula.");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const bool holds = rows[i].counted == rows[i].expected;
        dt_doc_row(table, dt_t(rows[i].what), dt_n(rows[i].counted), dt_n(rows[i].expected));
        dt_doc_judge(table, holds ? DT_VERDICT_PASS : DT_VERDICT_FAIL, "%s", "");
        dt_golden_number(golden, rows[i].counted, rows[i].expected, 0, "%s over %d rank%s: %s",
                         p->algorithm->name, p->size, p->size == 1 ? "" : "s", rows[i].what);
    }
}

/* ---- all algorithms */

/* The time of an allreduce depends on the number of floats: few cost latency, many cost bandwidth.
 */
enum { TIME_ASKED, TIME_FEW, TIME_MANY, N_TIMES };
#define MANY_ELEMS 1199882 /* the gradients of configs/mnist.json */

static int fastest(const double seconds[DT_N_ALGORITHMS])
{
    int best = 0;
    for (int i = 1; i < DT_N_ALGORITHMS; i++) {
        best = seconds[i] < seconds[best] ? i : best;
    }
    return best;
}

static void conclude(struct dt_doc *doc, const double few[DT_N_ALGORITHMS],
                     const double many[DT_N_ALGORITHMS])
{
    dt_doc_text(doc,
                "Few floats are latency-bound: each message takes 10 µs, whatever it carries, so "
                "few rounds win. %s is fastest with %.1f µs; the ring takes %.1f µs.",
                dt_algorithms[fastest(few)].name, 1e6 * few[fastest(few)], 1e6 * few[0]);
    dt_doc_text(doc,
                "Many floats are bandwidth-bound: bytes take the time, so the algorithm wins whose "
                "busiest rank has the fewest. %s is fastest with %.2f ms; the ring takes %.2f ms.",
                dt_algorithms[fastest(many)].name, 1e3 * many[fastest(many)], 1e3 * many[0]);
}

static enum dt_status add_costs(struct dt_doc *doc, const struct dt_replay *p)
{
    static const struct dt_costs costs = {
        .ranks_per_host = 1, .between = {10e-6, 8.0 / 10e9}, .gamma_s = 1e-9};
    const size_t n[N_TIMES] = {p->n_elems, (size_t)p->size, MANY_ELEMS};
    double seconds[N_TIMES][DT_N_ALGORITHMS];
    char n_elems[32];
    struct dt_part *traffic = dt_doc_table(doc, "Messages and bytes",
                                           "algorithm|rounds::0|messages::0|sent:bytes:0|"
                                           "busiest rank:bytes:0");
    struct dt_part *times =
        dt_doc_table(doc, "Simulated times", "algorithm|this size::t|few floats::t|many floats::t");
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        const struct dt_algorithm *a = &dt_algorithms[i];
        struct dt_simulation s;
        for (int k = N_TIMES - 1; k >= 0; k--) { /* the last has the traffic of this size */
            DT_TRY(dt_simulate(a, p->size, n[k], &costs, &s, NULL));
            seconds[k][i] = s.seconds;
        }
        dt_doc_row(traffic, dt_t(a->name), dt_n(a->n_rounds(p->size, p->n_elems)),
                   dt_n((double)s.all.messages), dt_n((double)s.all.bytes),
                   dt_n((double)s.busiest_rank_bytes));
        dt_doc_row(times, dt_t(a->name), dt_n(seconds[TIME_ASKED][i]), dt_n(seconds[TIME_FEW][i]),
                   dt_n(seconds[TIME_MANY][i]));
        if (a == p->algorithm) {
            dt_doc_emphasize(traffic);
            dt_doc_emphasize(times);
        }
    }
    dt_doc_caption(traffic, "Busiest rank: the most bytes that one rank sends and receives.");
    dt_doc_main(traffic);
    dt_doc_caption(times,
                   "This size: %s on each rank; few: %d; many: 1,199,882, the gradients of "
                   "configs/mnist.json. With 10 µs a message, 10 Gbit/s, 1 ns an addition, each "
                   "rank on a host of its own.",
                   dt_count_text((double)p->n_elems, n_elems, sizeof n_elems), p->size);
    if (p->size > 1) {
        conclude(doc, seconds[TIME_FEW], seconds[TIME_MANY]);
    }
    return DT_OK;
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
    if (*out != NULL) {
        return DT_OK;
    }
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        const size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "", dt_algorithms[i].name);
        dt_suggest_offer(&s, dt_algorithms[i].name);
    }
    return dt_error(DT_USAGE,
                    s.best != NULL ? "--algorithm: unknown algorithm '%.60s' (did you mean '%s'?)"
                                   : "--algorithm: unknown algorithm '%.60s' (one of %s)",
                    name, s.best != NULL ? s.best : names);
}

static enum dt_status read_options(const struct dt_args *args, struct options *o)
{
    const char *name = dt_args_text(args, DT_OPTION_ALGORITHM);
    *o = (struct options){.n_ranks = 4};
    DT_TRY(find_algorithm(name != NULL ? name : dt_algorithms[0].name, &o->algorithm));
    DT_TRY(dt_args_number(args, DT_OPTION_RANKS, false, 1, MAX_RANKS, &o->n_ranks));
    o->n_elems = o->n_ranks;
    DT_TRY(dt_args_number(args, DT_OPTION_ELEMENTS, false, 1, MAX_ELEMS, &o->n_elems));
    if (o->n_ranks * o->n_elems > MAX_ELEMS) {
        return dt_error(DT_USAGE,
                        "--elements %zu is too many for %zu ranks in one process (at most %zu)",
                        o->n_elems, o->n_ranks, MAX_ELEMS / o->n_ranks);
    }
    return DT_OK;
}

static enum dt_status add_rounds(struct dt_doc *doc, const struct options *o)
{
    struct dt_replay replay;
    const struct rounds rounds = {.doc = doc, .replay = &replay};
    if (o->n_ranks > MAX_DRAWN) {
        dt_doc_text(doc, "Rounds are shown for at most %d ranks.", MAX_DRAWN);
        return DT_OK;
    }
    DT_TRY(dt_replay_open(o->algorithm, (int)o->n_ranks, o->n_elems, mark, &replay));
    if (!has_letters(&rounds)) {
        dt_doc_text(doc, "A row is the vector of a rank. The number in a piece says how many ranks "
                         "its sum includes.");
    } else if (replay.size > 1) {
        dt_doc_text(doc,
                    "A row is the vector of a rank: rank A begins with a, B with b, and so on; %s.",
                    replay.n_pieces > 1 ? "a0 is piece 0 of a, and ab0 is a0 + b0" : "ab is a + b");
    }
    add_first(&rounds);
    for (int round = 0; round < replay.n_rounds; round++) {
        add_round(&rounds, round);
    }
    dt_doc_step(doc, NULL);
    dt_replay_close(&replay);
    return DT_OK;
}

static enum dt_status add_all(struct dt_doc *doc, const struct options *o, struct dt_golden *golden)
{
    struct dt_replay replay;
    DT_TRY(add_rounds(doc, o));
    DT_TRY(dt_replay_open(o->algorithm, (int)o->n_ranks, o->n_elems, whole, &replay));
    prove(doc, &replay, whole, golden);
    const enum dt_status s = add_costs(doc, &replay);
    dt_replay_close(&replay);
    return s;
}

static enum dt_status lab_allreduce(const struct dt_args *args)
{
    struct options o;
    struct dt_golden golden = {.n = 0};
    char n_elems[32];
    DT_TRY(read_options(args, &o));
    struct dt_doc *doc = dt_doc_open("lab allreduce", "%s over %zu rank%s, %s float%s each",
                                     o.algorithm->name, o.n_ranks, o.n_ranks == 1 ? "" : "s",
                                     dt_count_text((double)o.n_elems, n_elems, sizeof n_elems),
                                     o.n_elems == 1 ? "" : "s");
    const char *text = dt_allreduce_meaning(DT_ALLREDUCE_OF_ALGORITHM(o.algorithm - dt_algorithms));
    dt_doc_text(doc, "%c%s.", text[0] - 'a' + 'A', text + 1);
    const enum dt_status s = add_all(doc, &o, &golden);
    if (s != DT_OK) {
        dt_doc_close(doc);
        return s;
    }
    return dt_golden_show(&golden, args, doc);
}

const struct dt_command dt_command_lab_allreduce = {
    .word = "lab allreduce",
    .meaning = "how do ranks add up their vectors, round by round?",
    .minutes = 10,
    .usage = "dtrain lab allreduce [--algorithm NAME] [--ranks N] [--elements N]" DT_RESULT_USAGE,
    .examples = "  dtrain lab allreduce\n"
                "  dtrain lab allreduce --algorithm halving_doubling --ranks 8 \\\n"
                "      --elements 1199882 --html halving.html\n",
    .more = "Shows the messages of each round, and the vector of every rank afterwards. All ranks "
            "run in one process, on real numbers. It ends with the proof (every rank has the exact "
            "sum, with as many messages and bytes as the formula says; otherwise the exit code is "
            "1) and a comparison of all algorithms, with simulated times.",
    .options = {[DT_OPTION_ALGORITHM] = {DT_TAKEN},
                [DT_OPTION_RANKS] = {DT_TAKEN, "how many ranks, default 4, at most 64"},
                [DT_OPTION_ELEMENTS] = {DT_TAKEN},
                DT_RESULT_OPTIONS},
    .alone = lab_allreduce,
};

/* ---- lab reduce */

#define N_COUNTING 5

static float counting(int rank, size_t i)
{
    (void)i;
    return (float)(rank + 1);
}

/* The number of rounds up to the last that adds. */
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

static struct dt_doc *tell_reduce(const struct dt_replay *p, struct dt_golden *golden)
{
    const int n_reduce = end_of_reduce(p);
    struct dt_doc *doc = dt_doc_open("lab reduce", "Reduce and allreduce of 1 to %d", p->size);
    const struct rounds rounds = {.doc = doc, .replay = p, .plain = true};
    dt_doc_text(doc,
                "Five ranks, A to E, have the numbers 1 to 5. Reduce adds them up on one rank, the "
                "root; allreduce then sends the sum to all. The algorithm is a %s.",
                p->algorithm->name);
    add_first(&rounds);
    for (int round = 0; round < p->n_rounds; round++) {
        add_round(&rounds, round);
        if (round + 1 == n_reduce) {
            dt_doc_text(doc, "Reduce is done: rank A, the root, has the sum.");
        }
    }
    dt_doc_text(doc, "Allreduce is done: every rank has the sum.");
    dt_doc_step(doc, NULL);
    struct dt_part *table = dt_doc_table(doc, "Sums", "rank|after reduce::0|after allreduce::0");
    for (int rank = 0; rank < p->size; rank++) {
        dt_doc_row(table, dt_t(rank_text(&rounds, rank)),
                   dt_n((double)*dt_replay_state(p, n_reduce, rank)),
                   dt_n((double)p->data[rank][0]));
    }
    dt_doc_main(table);
    prove(doc, p, counting, golden);
    return doc;
}

static enum dt_status lab_reduce(const struct dt_args *args)
{
    struct dt_golden golden = {.n = 0};
    struct dt_replay replay;
    DT_TRY(dt_replay_open(dt_algorithm_find("tree"), N_COUNTING, 1, counting, &replay));
    const enum dt_status s = dt_golden_show(&golden, args, tell_reduce(&replay, &golden));
    dt_replay_close(&replay);
    return s;
}

const struct dt_command dt_command_lab_reduce = {
    .word = "lab reduce",
    .meaning = "how do five ranks add up their numbers?",
    .minutes = 5,
    .usage = "dtrain lab reduce" DT_RESULT_USAGE,
    .examples = "  dtrain lab reduce\n",
    .options = {DT_RESULT_OPTIONS},
    .alone = lab_reduce,
};
