/* `dtrain lab allreduce` and `lab reduce`: all ranks run in one process over the local wire, on
 * real numbers. The rounds come from the schedule's moves (replay.c), so a new algorithm needs no
 * change here. */
#include "lab/allreduce.h"

#include <math.h>
#include <string.h>

#include "cli/result.h"
#include "cli/suggest.h"
#include "cli/text.h"
#include "dist/allreduce/simulate.h"
#include "lab/golden.h"

#define MAX_RANKS 64
#define MAX_ELEMS ((size_t)1 << 25) /* of all ranks together */
#define MAX_LETTERS 8               /* more ranks have numbers in place of names */
#define MAX_DRAWN 16                /* ranks whose rounds are shown */

/* ---- the rounds */

/* A replay, and what its numbers mean. */
struct rounds {
    const struct dt_replay *replay;
    bool plain; /* numbers; else bit r of a value says that its sum includes rank r */
};

enum { KIND_ADDED, KIND_REPLACED, KIND_COMPLETE, KIND_UNCHANGED = 7 };

#define WORD 80 /* bytes of a word below */

static const char *rank_text(const struct rounds *l, int rank, char out[WORD])
{
    const bool letters = l->replay->size <= MAX_LETTERS;
    snprintf(out, WORD, letters ? "%c" : "%d", letters ? 'A' + rank : rank);
    return out;
}

/* "ab0": pieces [begin, end) of the sum of a and b; "7": a number, or ranks in the sum. */
static const char *sum_text(const struct rounds *l, float value, int begin, int end, char out[WORD])
{
    int n = 0;
    for (int rank = 0; !l->plain && rank < l->replay->size; rank++) {
        if (((unsigned)value >> rank & 1) != 0) {
            out[n++] = (char)('a' + rank % MAX_LETTERS);
        }
    }
    if (l->plain || l->replay->size > MAX_LETTERS) {
        snprintf(out, WORD, "%g", l->plain ? (double)value : n);
    } else if (l->replay->n_pieces == 1) {
        out[n] = '\0';
    } else {
        snprintf(out + n, (size_t)(WORD - n), end > begin + 1 ? "%d..%d" : "%d", begin, end - 1);
    }
    return out;
}

/* What a message carries. */
static const char *content_text(const struct rounds *l, const struct dt_transfer *t, char out[WORD])
{
    if (t->begin == t->end) {
        snprintf(out, WORD, "nothing");
    } else if (!isnan(t->value) && (l->plain || l->replay->size <= MAX_LETTERS)) {
        sum_text(l, t->value, t->begin, t->end, out);
    } else if (t->end > t->begin + 1) {
        snprintf(out, WORD, "pieces %d..%d", t->begin, t->end - 1);
    } else {
        snprintf(out, WORD, "piece %d", t->begin);
    }
    return out;
}

/* The vectors after n_rounds rounds, whose last one had these n transfers. */
static void draw_vectors(struct dt_doc *doc, const struct rounds *l, int n_rounds,
                         const struct dt_transfer *t, int n)
{
    const struct dt_replay *p = l->replay;
    struct dt_part *lanes = dt_doc_lanes(doc, NULL, "");
    char word[WORD];
    dt_doc_kind(lanes, KIND_ADDED, "added in this round");
    dt_doc_kind(lanes, KIND_REPLACED, "replaced in this round");
    dt_doc_kind(lanes, KIND_COMPLETE, "complete");
    dt_doc_kind(lanes, KIND_UNCHANGED, "unchanged");
    for (int rank = 0; rank < p->size; rank++) {
        const float *state = dt_replay_state(p, n_rounds, rank);
        const int lane = dt_doc_lane(lanes, "%s", rank_text(l, rank, word));
        for (int i = 0; i < p->n_pieces; i++) {
            int kind = state[i] == p->data[0][p->cuts[i]] ? KIND_COMPLETE : KIND_UNCHANGED;
            for (int k = 0; k < n; k++) {
                if (t[k].to == rank && t[k].begin <= i && i < t[k].end) {
                    kind = t[k].adds ? KIND_ADDED : KIND_REPLACED;
                }
            }
            dt_doc_box(lanes, lane, i, i + 1, kind, "%s", sum_text(l, state[i], i, i + 1, word));
        }
    }
}

static void add_round(struct dt_doc *doc, const struct rounds *l, int round)
{
    int n;
    const struct dt_transfer *t = dt_replay_transfers(l->replay, round, &n);
    dt_doc_step(doc, dt_doc_print(doc, "Round %d of %d", round + 1, l->replay->n_rounds));
    struct dt_part *table = dt_doc_table(doc, NULL, "from|sends|to|operation");
    for (int i = 0; i < n; i++) {
        char from[WORD], to[WORD], content[WORD];
        dt_doc_row(table, dt_t(rank_text(l, t[i].from, from)),
                   dt_t(content_text(l, &t[i], content)), dt_t(rank_text(l, t[i].to, to)),
                   dt_t(t[i].from == t[i].to ? "adds its own input"
                        : t[i].adds          ? "adds"
                                             : "replaces"));
    }
    if (l->replay->size > MAX_LETTERS) {
        dt_doc_detail(table);
    }
    draw_vectors(doc, l, round + 1, t, n);
}

static void add_first(struct dt_doc *doc, const struct rounds *l)
{
    dt_doc_step(doc, "At first");
    draw_vectors(doc, l, 0, NULL, 0);
}

/* ---- the proof */

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
    double equal = 0, messages = 0, bytes = 0;
    for (int rank = 0; rank < p->size; rank++) {
        equal += memcmp(p->data[rank], p->data[0], p->n_elems * sizeof(float)) == 0;
        messages += (double)p->sent[rank].messages;
        bytes += (double)p->sent[rank].bytes;
    }
    const struct {
        const char *what;
        double counted, expected;
    } rows[] = {
        {"ranks with the same sum", equal, p->size},
        {"elements with the exact sum", (double)count_exact(p, value), (double)p->n_elems},
        {"messages sent", messages, (double)formula.messages},
        {"bytes sent", bytes, (double)formula.elements * sizeof(float)},
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

/* How long an allreduce takes depends on the number of elements: few cost latency, many cost
 * bandwidth. */
enum { TIME_ASKED, TIME_FEW, TIME_MANY, N_TIMES };
#define MANY_ELEMS 1199882 /* the gradients of configs/mnist.json */

struct costs {
    struct dt_simulation asked;
    double seconds[N_TIMES];
};

static enum dt_status simulate_all(int size, size_t n_elems, struct costs out[DT_N_ALGORITHMS])
{
    static const struct dt_costs costs = {
        .ranks_per_host = 1, .between = {10e-6, 8.0 / 10e9}, .gamma_s = 1e-9};
    const size_t n[N_TIMES] = {n_elems, (size_t)size, MANY_ELEMS};
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        for (int k = N_TIMES - 1; k >= 0; k--) {
            DT_TRY(dt_simulate(&dt_algorithms[i], size, n[k], &costs, &out[i].asked, NULL));
            out[i].seconds[k] = out[i].asked.seconds;
        }
    }
    return DT_OK;
}

static int fastest(const struct costs costs[DT_N_ALGORITHMS], int time)
{
    int best = 0;
    for (int i = 1; i < DT_N_ALGORITHMS; i++) {
        best = costs[i].seconds[time] < costs[best].seconds[time] ? i : best;
    }
    return best;
}

static void add_costs(struct dt_doc *doc, const struct dt_replay *p,
                      const struct costs costs[DT_N_ALGORITHMS])
{
    struct dt_part *traffic = dt_doc_table(doc, "Messages and bytes",
                                           "algorithm|rounds::0|messages::0|sent:bytes:0|"
                                           "busiest rank:bytes:0");
    dt_doc_caption(traffic, "Busiest rank: the most bytes that one rank sends and receives.");
    dt_doc_main(traffic);
    struct dt_part *times =
        dt_doc_table(doc, "Simulated times", "algorithm|this size::t|few floats::t|many floats::t");
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        const struct dt_algorithm *a = &dt_algorithms[i];
        const struct dt_simulation *s = &costs[i].asked;
        dt_doc_row(traffic, dt_t(a->name), dt_n(a->n_rounds(p->size, p->n_elems)),
                   dt_n((double)s->all.messages), dt_n((double)s->all.bytes),
                   dt_n((double)s->busiest_rank_bytes));
        dt_doc_row(times, dt_t(a->name), dt_n(costs[i].seconds[TIME_ASKED]),
                   dt_n(costs[i].seconds[TIME_FEW]), dt_n(costs[i].seconds[TIME_MANY]));
        if (a == p->algorithm) {
            dt_doc_emphasize(traffic);
            dt_doc_emphasize(times);
        }
    }
    char n_elems[32];
    dt_doc_caption(times,
                   "This size: %s on each rank; few: %d; many: 1,199,882, the gradients of "
                   "configs/mnist.json. With 10 µs a message, 10 Gbit/s, 1 ns an addition, each "
                   "rank on a host of its own.",
                   dt_count_text((double)p->n_elems, n_elems, sizeof n_elems), p->size);
}

static void conclude(struct dt_doc *doc, const struct costs costs[DT_N_ALGORITHMS])
{
    const int few = fastest(costs, TIME_FEW), many = fastest(costs, TIME_MANY);
    dt_doc_text(doc,
                "Few floats are latency-bound: each message takes 10 µs, whatever it carries, so "
                "few rounds win. %s is fastest with %.1f µs; the ring takes %.1f µs.",
                dt_algorithms[few].name, 1e6 * costs[few].seconds[TIME_FEW],
                1e6 * costs[0].seconds[TIME_FEW]);
    dt_doc_text(doc,
                "Many floats are bandwidth-bound: bytes take the time, so the algorithm wins whose "
                "busiest rank has the fewest. %s is fastest with %.2f ms; the ring takes %.2f ms.",
                dt_algorithms[many].name, 1e3 * costs[many].seconds[TIME_MANY],
                1e3 * costs[0].seconds[TIME_MANY]);
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
    const struct rounds rounds = {.replay = &replay};
    if (o->n_ranks > MAX_DRAWN) {
        dt_doc_text(doc, "Rounds are shown for at most %d ranks.", MAX_DRAWN);
        return DT_OK;
    }
    DT_TRY(dt_replay_open(o->algorithm, (int)o->n_ranks, o->n_elems, mark, &replay));
    if (replay.size > MAX_LETTERS) {
        dt_doc_text(doc, "A row is the vector of a rank. The number in a piece says how many ranks "
                         "its sum includes.");
    } else if (replay.size > 1) {
        dt_doc_text(doc,
                    "A row is the vector of a rank: rank A begins with a, B with b, and so on; %s.",
                    replay.n_pieces > 1 ? "a0 is piece 0 of a, and ab0 is a0 + b0" : "ab is a + b");
    }
    add_first(doc, &rounds);
    for (int round = 0; round < replay.n_rounds; round++) {
        add_round(doc, &rounds, round);
    }
    dt_doc_step(doc, NULL);
    dt_replay_close(&replay);
    return DT_OK;
}

static enum dt_status add_all(struct dt_doc *doc, const struct options *o, struct dt_golden *golden)
{
    struct costs costs[DT_N_ALGORITHMS];
    struct dt_replay replay;
    DT_TRY(add_rounds(doc, o));
    DT_TRY(simulate_all((int)o->n_ranks, o->n_elems, costs));
    DT_TRY(dt_replay_open(o->algorithm, (int)o->n_ranks, o->n_elems, whole, &replay));
    prove(doc, &replay, whole, golden);
    add_costs(doc, &replay, costs);
    if (replay.size > 1) {
        conclude(doc, costs);
    }
    dt_replay_close(&replay);
    return DT_OK;
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
    dt_doc_text(doc, "%c%s.", o.algorithm->meaning[0] - 'a' + 'A', o.algorithm->meaning + 1);
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
    .usage = "dtrain lab allreduce [--algorithm NAME] [--ranks N] [--elements N]\n"
             "      [--html FILE]",
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

static struct dt_doc *tell_reduce(const struct dt_replay *p, struct dt_golden *golden)
{
    const struct rounds rounds = {.replay = p, .plain = true};
    const int n_reduce = end_of_reduce(p);
    struct dt_doc *doc = dt_doc_open("lab reduce", "Reduce and allreduce of 1 to %d", p->size);
    dt_doc_text(doc,
                "Five ranks, A to E, have the numbers 1 to 5. Reduce adds them up on one rank, the "
                "root; allreduce then sends the sum to all. The algorithm is a %s.",
                p->algorithm->name);
    add_first(doc, &rounds);
    for (int round = 0; round < p->n_rounds; round++) {
        add_round(doc, &rounds, round);
        if (round + 1 == n_reduce) {
            dt_doc_text(doc, "Reduce is done: rank A, the root, has the sum.");
        }
    }
    dt_doc_text(doc, "Allreduce is done: every rank has the sum.");
    dt_doc_step(doc, NULL);
    struct dt_part *table = dt_doc_table(doc, "Sums", "rank|after reduce::0|after allreduce::0");
    for (int rank = 0; rank < p->size; rank++) {
        char word[WORD];
        dt_doc_row(table, dt_t(rank_text(&rounds, rank, word)),
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
    .usage = "dtrain lab reduce [--html FILE]",
    .examples = "  dtrain lab reduce\n",
    .options = {DT_RESULT_OPTIONS},
    .alone = lab_reduce,
};
