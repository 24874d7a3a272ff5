/* The simulator against what is known: the closed forms of the textbooks, the formulas' totals,
 * what hosts that share a link must come to, and schedules that are wrong. */
#include "dist/allreduce/algorithms/segments.h"
#include "dist/allreduce/formula.h"
#include "dist/allreduce/simulate.h"
#include "tests/lib/check.h"

#define MAX_RANKS 17

static const struct dt_costs costs = {
    .ranks_per_host = 1, .between = {3e-6, 0.5e-9}, .within = {1e-6, 0.1e-9}, .gamma_s = 0.25e-9};
static struct dt_load loads[1024];

static struct dt_simulation simulate(const char *name, int size, size_t n_elems,
                                     const struct dt_costs *with)
{
    struct dt_simulation s;
    CHECK_INT(dt_simulate(dt_algorithm_find(name), size, n_elems, with, &s, loads), DT_OK);
    return s;
}

/* n_messages one after another, n_bytes behind each other in all, and additions. */
static void check_s(const char *name, int size, double n_messages, double n_elems, double n_added)
{
    const double expected = n_messages * 3e-6 + 4 * n_elems * 0.5e-9 + n_added * 0.25e-9;
    const double got = simulate(name, size, 9600, &costs).seconds;
    if (fabs(got / expected - 1) > 1e-9) {
        CHECK_FAIL("%s, %d ranks: %.9g s, by the formula %.9g s", name, size, got, expected);
    }
}

static void check_closed_forms(void)
{
    const double n_elems = 9600;
    for (int size = 2; size <= 16; size++) {
        if (9600 % size == 0) {
            const double piece = n_elems / size;
            check_s("ring", size, 2 * (size - 1), 2 * (size - 1) * piece, (size - 1) * piece);
        }
        check_s("all_to_all", size, size - 1, (size - 1) * n_elems, (size - 1) * n_elems);
        check_s("master_worker", size, 2 * (size - 1), 2 * (size - 1) * n_elems,
                (size - 1) * n_elems);
    }
    for (int levels = 1; levels <= 4; levels++) {
        const int size = 1 << levels;
        const double most = n_elems * (size - 1) / size;
        check_s("recursive_doubling", size, levels, levels * n_elems, levels * n_elems);
        check_s("tree", size, 2 * levels, 2 * levels * n_elems, levels * n_elems);
        check_s("halving_doubling", size, 2 * levels, 2 * most, most);
    }
}

/* Every message, once, with both of its ends, whoever shares a link. */
static void check_totals(const struct dt_algorithm *algorithm, int size, size_t n_elems,
                         int ranks_per_host)
{
    struct dt_costs with = costs;
    with.ranks_per_host = ranks_per_host;
    const struct dt_traffic expected = algorithm->formula(size, n_elems);
    const struct dt_simulation s = simulate(algorithm->name, size, n_elems, &with);
    struct dt_traffic received = {0};
    struct dt_move moves[2 * MAX_RANKS];
    CHECK(memcmp(&s.all, &expected, sizeof expected) == 0);
    for (int r = 0; r < size; r++) {
        const struct dt_traffic counted =
            dt_algorithm_traffic(algorithm, r, size, n_elems, NULL, moves);
        CHECK(memcmp(&loads[r].sent, &counted, sizeof counted) == 0);
        dt_traffic_add(&received, loads[r].received);
    }
    CHECK(received.messages == s.all.messages && received.bytes == s.all.bytes);
    CHECK(s.busiest_rank_bytes <= 2 * s.all.bytes && s.busiest_link_bytes <= s.all.bytes);
    CHECK((s.seconds > 0) == (size > 1));
}

/* Numbers of the tutorial's model: a rank of a ring sends and receives 7.20 MB at 4 ranks; through
 * a master of 8 go 67.2 MB. */
static void check_loads(void)
{
    struct dt_simulation s = simulate("ring", 4, 1199882, &costs);
    CHECK(s.busiest_link_bytes >= 7199292 && s.busiest_link_bytes < 7199292 + 4 * 6);
    s = simulate("master_worker", 8, 1199882, &costs);
    CHECK(s.busiest_rank_bytes == 67193392 && s.busiest_link_bytes == 33596696);
    CHECK(loads[0].sent.messages == 7 && loads[5].received.bytes == 4799528);
}

/* Ranks of a host take turns: where only neighbours meet, one link a host carries what a ring does;
 * where all ranks of two hosts exchange everything, it takes as long as there are ranks on one. */
static void check_shared_links(void)
{
    struct dt_costs shared = {.ranks_per_host = 4, .between = {0, 1e-9}};
    CHECK(simulate("ring", 8, 8000, &shared).busiest_link_bytes == 14 * 4000);
    CHECK(fabs(simulate("ring", 8, 8000, &shared).seconds - 14 * 4e-6) < 1e-12);
    const struct dt_simulation s = simulate("recursive_doubling", 8, 1000, &shared);
    CHECK(s.busiest_link_bytes == 4 * 4000);
    CHECK(fabs(s.seconds - 4 * 4e-6) < 1e-12);
    shared.ranks_per_host = 8; /* nothing leaves the host */
    CHECK(simulate("recursive_doubling", 8, 1000, &shared).busiest_link_bytes == 0);
}

/* A tree over 8 ranks takes six times as long as one vector does, or little more than its root's
 * three children do if segments follow each other. */
static void check_segments(void)
{
    const struct dt_costs free_of_charge = {.ranks_per_host = 1, .between = {0, 1e-9}};
    const size_t n = 16 * DT_SEGMENT_ELEMS;
    const double vector_s = 4e-9 * (double)n, s = simulate("tree", 8, n, &free_of_charge).seconds;
    CHECK(s > 3 * vector_s && s < 4.5 * vector_s);
}

static void check_many(void)
{
    const struct dt_simulation a = simulate("ring", 1024, 1199882, &costs),
                               b = simulate("ring", 1024, 1199882, &costs);
    CHECK(a.all.messages == 2 * 1024 * 1023ull && a.seconds == b.seconds && a.seconds > 0);
}

/* ---- wrong schedules */

static int two_rounds(int size, size_t n_elems)
{
    (void)n_elems;
    (void)size;
    return 2;
}

static struct dt_move move_of(enum dt_move_kind kind, int rank, size_t n)
{
    return (struct dt_move){.kind = kind, .peer = 1 - rank, .end = n};
}

/* Both send first and only then receive: it would work with room for a message on the way, and on
 * no wire that has none. */
static int send_first(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    (void)size;
    moves[0] = move_of(round == 0 ? DT_SEND : DT_ADD, rank, n_elems);
    return 1;
}

static int receive_first(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    return send_first(rank, size, n_elems, 1 - round, moves);
}

static int unheard(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    (void)size;
    moves[0] = move_of(DT_SEND_INPUT, rank, n_elems);
    return rank == 0 && round == 1;
}

static int other_length(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    (void)size;
    moves[0] = move_of(rank == 0 ? DT_SEND : DT_REPLACE, rank, n_elems - (size_t)rank);
    return round == 0;
}

static void check_wrong(void)
{
    static const struct {
        int (*round)(int rank, int size, size_t n_elems, int round, struct dt_move *moves);
        const char *text;
    } wrong[] = {
        {send_first, "toy over 2 ranks: rank 0 waits forever in round 0"},
        {receive_first, "toy over 2 ranks: rank 0 waits forever in round 0"},
        {unheard, "toy over 2 ranks: rank 0 waits forever in round 1"},
        {other_length, "toy: rank 0 sends 5 elements to rank 1, which waits for 4 in round 0"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const struct dt_algorithm toy = {
            .name = "toy", .n_rounds = two_rounds, .round = wrong[i].round};
        struct dt_simulation s;
        CHECK_INT(dt_simulate(&toy, 2, 5, &costs, &s, NULL), DT_INTERNAL);
        CHECK(strcmp(dt_error_text(), wrong[i].text) == 0);
        dt_error_clear();
    }
}

int main(void)
{
    check_closed_forms();
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        for (int size = 1; size <= MAX_RANKS; size++) {
            for (int ranks_per_host = 1; ranks_per_host <= 4; ranks_per_host++) {
                check_totals(&dt_algorithms[i], size, 0, ranks_per_host);
                check_totals(&dt_algorithms[i], size, 1001, ranks_per_host);
            }
        }
    }
    check_loads();
    check_shared_links();
    check_segments();
    check_many();
    check_wrong();
    return 0;
}
