/* The replay behind `dtrain lab`, of algorithms that no list has: what is told of them comes from
 * their moves and numbers. And how lessons compare results of several seeds. */
#include "lab/lesson_allreduce.h"
#include "lab/training.h"
#include "tests/lib/temporary.h"

static float mark(int rank, size_t i)
{
    (void)i;
    return (float)(1 << rank);
}

static int three_rounds(int size, size_t n_elems)
{
    (void)n_elems;
    (void)size;
    return 3;
}

/* Rank 0 waits in its first round for what rank 1 sends in its last one; elements 1 and 2 of 4. */
static int late(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    (void)size;
    (void)n_elems;
    moves[0] = (struct dt_move){
        .kind = rank == 0 ? DT_ADD : DT_SEND, .peer = 1 - rank, .begin = 1, .end = 3};
    return round == (rank == 0 ? 0 : 2);
}

/* A message takes its place only after the round in which it is sent. */
static int there_and_on(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    const bool sends = rank == round;
    moves[0] = (struct dt_move){
        .kind = sends ? DT_SEND : DT_REPLACE, .peer = sends ? rank + 1 : rank - 1, .end = n_elems};
    return rank == round || (rank == round + 1 && rank < size);
}

static int both_send(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    (void)size;
    moves[0] =
        (struct dt_move){.kind = round == 0 ? DT_SEND : DT_ADD, .peer = 1 - rank, .end = n_elems};
    return round < 2;
}

static struct dt_algorithm toy(int (*round)(int rank, int size, size_t n_elems, int round,
                                            struct dt_move *moves))
{
    return (struct dt_algorithm){.name = "toy", .n_rounds = three_rounds, .round = round};
}

static void check_state(const struct dt_replay *p, int n_rounds, int rank, const float *expected,
                        int n)
{
    CHECK_INT(p->n_pieces, n);
    for (int i = 0; i < n; i++) {
        CHECK(dt_replay_state(p, n_rounds, rank)[i] == expected[i]);
    }
}

static void check_late(void)
{
    const struct dt_algorithm algorithm = toy(late);
    struct dt_replay p;
    int n;
    CHECK_OK(dt_replay_open(&algorithm, 2, 4, mark, &p));
    CHECK_INT(p.n_pieces, 3);
    CHECK(p.cuts[0] == 0 && p.cuts[1] == 1 && p.cuts[2] == 3 && p.cuts[3] == 4);
    dt_replay_transfers(&p, 0, &n);
    CHECK_INT(n, 0);
    const struct dt_transfer *t = dt_replay_transfers(&p, 2, &n);
    CHECK_INT(n, 1);
    CHECK(t->from == 1 && t->to == 0 && t->adds && t->begin == 1 && t->end == 2 && t->value == 2);
    check_state(&p, 2, 0, (const float[]){1, 1, 1}, 3);
    check_state(&p, 3, 0, (const float[]){1, 3, 1}, 3);
    check_state(&p, 3, 1, (const float[]){2, 2, 2}, 3);
    CHECK(p.data[0][0] == 1 && p.data[0][1] == 3 && p.data[0][2] == 3 && p.data[0][3] == 1);
    dt_replay_close(&p);
}

static void check_states_between(void)
{
    const struct dt_algorithm algorithm = toy(there_and_on);
    struct dt_replay p;
    CHECK_OK(dt_replay_open(&algorithm, 4, 1, mark, &p));
    static const float expected[4][4] = {{1, 2, 4, 8}, {1, 1, 4, 8}, {1, 1, 1, 8}, {1, 1, 1, 1}};
    for (int round = 0; round <= 3; round++) {
        for (int rank = 0; rank < 4; rank++) {
            check_state(&p, round, rank, &expected[round][rank], 1);
        }
    }
    dt_replay_close(&p);
}

static void check_wrong(void)
{
    const struct dt_algorithm algorithm = toy(both_send);
    struct dt_replay p;
    CHECK_INT(dt_replay_open(&algorithm, 2, 4, mark, &p), DT_INTERNAL);
    CHECK(strcmp(dt_error_text(), "toy over 2 ranks: rank 0 waits forever") == 0);
    dt_error_clear();
}

/* By Student's t: 3.182 for four seeds, 2.262 for ten. */
static void check_seeds(void)
{
    const double a[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, b[4] = {1.5, 2.6, 3.4, 4.5};
    CHECK_NEAR(dt_lab_mean(4, a).mean, 2.5, 1e-12);
    CHECK_NEAR(dt_lab_mean(4, a).margin, 3.182 * 0.6454972, 1e-6);
    CHECK_NEAR(dt_lab_mean(10, a).margin, 2.262 * 0.9574271, 1e-6);
    CHECK_INT(dt_lab_compare(4, b, a), 1); /* seed by seed, though their own intervals overlap */
    CHECK_INT(dt_lab_compare(4, a, b), -1);
    CHECK_INT(dt_lab_compare(4, (const double[]){1.5, 1.6, 3.4, 3.5}, a), 0);
}

int main(void)
{
    check_seeds();
    check_late();
    check_states_between();
    check_wrong();
    return 0;
}
