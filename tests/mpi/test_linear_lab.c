/* The linear lab: two ranks fit y = m x + n by gradient descent, one beginning at (1, 1), the other
 * at (0, 0), each with its half of the points. What averaging and broadcasting are for shows in how
 * the four cases end. */
#include "dist/ranks/launch/job.h"
#include "tests/lib/rig.h"

enum { N_POINTS = 16, N_STEPS = 200 };
#define LEARNING_RATE 0.25

static float x[N_POINTS], y[N_POINTS];
static const struct dt_samples samples = {.n = N_POINTS,
                                          .shape = {1, 1, 1},
                                          .values = x,
                                          .targets = y,
                                          .n_targets = 1,
                                          .n_total = N_POINTS};

struct line {
    float m, n;
};

/* Points around y = 1.5 x - 0.5, two at each x: those of odd number lie higher, so that the two
 * shards want different lines. */
static void make_points(void)
{
    for (int i = 0; i < N_POINTS; i++) {
        x[i] = (float)(i / 2) / 4 - 1;
        y[i] = 1.5f * x[i] - 0.5f + (i % 2 == 1 ? 0.25f + 0.125f * x[i] : 0);
    }
}

static int shard_of(int rank, int n_ranks, uint32_t *rows)
{
    int n = 0;
    for (int i = rank; i < N_POINTS; i += n_ranks) {
        rows[n++] = (uint32_t)i;
    }
    return n;
}

static const struct dt_backend_ops *backend;

/* A run of rank `rank` of `n_ranks` over `comm`; `every_step` may be NULL. */
static struct line train(struct dt_comm *comm, int rank, int n_ranks, bool average, bool broadcast,
                         struct line start,
                         void (*every_step)(struct dt_comm *comm, struct line now))
{
    const struct rig_spec spec = {
        .backend = backend,
        .n_inputs = 1,
        .units = {1},
        .loss = DT_LOSS_MEAN_SQUARED_ERROR,
        .optimizer = {.type = DT_OPTIMIZER_SGD},
        .dist = {.average = average, .broadcast = broadcast, .overlap = true}};
    struct rig rig;
    uint32_t rows[N_POINTS];
    const int n_rows = shard_of(rank, n_ranks, rows);
    rig_open(&rig, &spec, comm, &samples);
    float *m = rig_param(&rig, "fc1.weight"), *n = rig_param(&rig, "fc1.bias");
    *m = start.m;
    *n = start.n;
    if (spec.dist.broadcast) {
        CHECK_OK(dt_strategy_broadcast(rig.strategy));
    }
    for (int step = 0; step < N_STEPS; step++) {
        rig_step(&rig, rows, n_rows, N_POINTS, LEARNING_RATE);
        if (every_step != NULL) {
            every_step(comm, (struct line){*m, *n});
        }
    }
    const struct line end = {*m, *n};
    rig_close(&rig);
    return end;
}

/* The same alone, with the points of rank `rank` of `n_ranks`. */
static struct line train_alone(int rank, int n_ranks, struct line start)
{
    struct dt_comm *self;
    CHECK_OK(dt_comm_open_self(&self));
    const struct line end = train(self, rank, n_ranks, false, false, start, NULL);
    dt_comm_close(self);
    return end;
}

static void gather(struct dt_comm *comm, struct line mine, struct line both[2])
{
    CHECK_OK(dt_comm_allgather(comm, &mine, both, sizeof mine, "the two lines"));
}

/* To six digits after the point, which is what a lab prints. */
static void check_line(struct line actual, struct line expected)
{
    CHECK_NEAR(actual.m, expected.m, 5e-7);
    CHECK_NEAR(actual.n, expected.n, 5e-7);
}

static void check_same_bits(struct line a, struct line b)
{
    CHECK(memcmp(&a, &b, sizeof a) == 0);
}

/* Exactly, but for the rounding of each step: the ranks' weights lie in different powers of two. */
static void check_offset_stays(struct dt_comm *comm, struct line now)
{
    struct line both[2];
    gather(comm, now, both);
    CHECK_NEAR(both[0].m - both[1].m, 1, 5e-6);
    CHECK_NEAR(both[0].n - both[1].n, 1, 5e-6);
}

static void check_equal(struct dt_comm *comm, struct line now)
{
    struct line both[2];
    gather(comm, now, both);
    check_same_bits(both[0], both[1]);
}

static void tell(struct dt_comm *comm, const char *title, const struct line both[2])
{
    if (comm->rank == 0) {
        printf("%-22s rank 0 (%.6f, %.6f)  rank 1 (%.6f, %.6f)\n", title, (double)both[0].m,
               (double)both[0].n, (double)both[1].m, (double)both[1].n);
    }
}

static void test_backend(struct dt_comm *comm)
{
    static const struct line starts[2] = {{1, 1}, {0, 0}}, middle = {0.5f, 0.5f};
    const struct line start = starts[comm->rank];
    const struct line whole = train_alone(0, 1, starts[0]);
    struct line both[2];

    /* Both: as if one process had all the points. */
    gather(comm, train(comm, comm->rank, 2, true, true, start, check_equal), both);
    tell(comm, "average and broadcast:", both);
    check_line(both[0], whole);

    /* Averaging only: both move alike, so their distance is for ever, and both end half of it
     * beside the answer. */
    gather(comm, train(comm, comm->rank, 2, true, false, start, check_offset_stays), both);
    tell(comm, "average only:", both);
    const struct line answer = train_alone(0, 1, middle);
    CHECK_NEAR(both[0].m - 0.5f, answer.m, 5e-6);
    CHECK_NEAR(both[0].n - 0.5f, answer.n, 5e-6);
    CHECK_NEAR(both[1].m + 0.5f, answer.m, 5e-6);
    CHECK_NEAR(both[1].n + 0.5f, answer.n, 5e-6);

    /* Broadcasting only: from one beginning they drift apart, each to its own points' line. */
    gather(comm, train(comm, comm->rank, 2, false, true, start, NULL), both);
    tell(comm, "broadcast only:", both);
    check_same_bits(both[comm->rank], train_alone(comm->rank, 2, starts[0]));
    CHECK(fabsf(both[0].n - both[1].n) > 0.2f);

    /* Neither: two programs that know nothing of each other. */
    gather(comm, train(comm, comm->rank, 2, false, false, start, NULL), both);
    tell(comm, "neither:", both);
    check_same_bits(both[comm->rank], train_alone(comm->rank, 2, start));
    CHECK(fabsf(both[0].n - both[1].n) > 0.2f);
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    CHECK_INT(world.size, 2);
    make_points();
    backend = &dt_ref_backend;
    test_backend(world.comm);
    backend = &dt_cpu_backend;
    test_backend(world.comm);
    dt_world_exit(&world, DT_OK, true);
}
