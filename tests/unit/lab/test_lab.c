/* The replay behind `dtrain lab`, of algorithms that no list has: what is told of them comes from
 * their moves and numbers. And what the lesson of compression claims, of accuracies that it never
 * had. */
#include "lab/allreduce.h"
#include "lab/compression.h"
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
    return (struct dt_algorithm){
        .name = "toy", .meaning = "a toy", .n_rounds = three_rounds, .round = round};
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

/* The lesson's sentence if each type has these accuracies, without error feedback and with it. */
static void check_claims(double without, double with, const char *expected)
{
    static struct dt_compression_lesson lesson;
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        lesson.ways[type].outcomes[0].accuracy = type == DT_COMPRESSION_NONE ? 0.94 : without;
        lesson.ways[type].outcomes[1].accuracy = with;
    }
    dt_compression_print_claims(print_begin(), &lesson);
    CHECK_TEXT(print_end(), expected);
}

/* On 5,000 images a share of 94 % is known to 0.66 %, and a difference of two to 0.93 %. */
static void check_compression(void)
{
    CHECK_NEAR(dt_compression_margin(0.94), 0.0065826, 1e-6);
    CHECK_INT(dt_compression_relation(0.9495, 0.94), 1);
    CHECK_INT(dt_compression_relation(0.948, 0.94), 0);
    CHECK_INT(dt_compression_relation(0.932, 0.94), 0);
    CHECK_INT(dt_compression_relation(0.929, 0.94), -1);
    check_claims(
        0.94, 0.948,
        "  without error feedback, no difference to be seen: fp16, bf16, int8, onebit, topk\n"
        "  with error feedback, no difference to be seen: fp16, bf16, int8, onebit, topk\n");
    check_claims(0.92, 0.96,
                 "  without error feedback, worse: fp16, bf16, int8, onebit, topk\n"
                 "  with error feedback, better: fp16, bf16, int8, onebit, topk\n");
}

int main(void)
{
    check_compression();
    check_late();
    check_states_between();
    check_wrong();
    return 0;
}
