/* The gradient's norm, asked of a strategy between steps: that of one process that has all the
 * samples, the same on all ranks. */
#include "tests/lib/classifier.h"

#include "dist/launch/job.h"
#include "dist/strategy/summary/summary.h"

/* The norm of one process that has all the samples of the second step, from its own sums. */
static double norm_alone(struct rig_spec spec, struct dt_comm *self)
{
    struct rig rig;
    uint32_t rows[N_SAMPLES];
    double squares = 0, norm;
    rig_open(&rig, &spec, self, &samples);
    init(&rig, 1);
    for (int step = 0; step < 2; step++) {
        const int n = part_of(self, step, rows);
        rig_step(&rig, rows, n, n, 0.01);
    }
    CHECK_OK(dt_strategy_share_weights(rig.strategy));
    for (size_t i = 0; i < rig.model.arena_elems; i++) { /* gaps are zeros here */
        squares +=
            (double)rig.strategy->allreduce->total[i] * (double)rig.strategy->allreduce->total[i];
    }
    CHECK_OK(dt_strategy_grad_norm(rig.strategy, &norm));
    CHECK_NEAR(norm, sqrt(squares) / (N_SAMPLES - 1), 1e-6 * norm);
    rig_close(&rig);
    return norm;
}

/* Asked for between steps, on all ranks the same, and nothing else changes. */
static void check_norm(struct rig_spec spec, struct dt_comm *comm, double expected,
                       double tolerance)
{
    struct rig rig;
    struct dt_replica_check check;
    uint32_t rows[N_SAMPLES];
    rig_open(&rig, &spec, comm, &samples);
    init(&rig, 1);
    CHECK_OK(dt_replica_check_open(comm, &rig.model, &check));
    for (int step = 0; step < 6; step++) {
        double norm, least;
        const int n = part_of(comm, step, rows);
        rig_step(&rig, rows, n, N_SAMPLES - step, 0.01);
        CHECK(dt_strategy_has_gradient(rig.strategy));
        CHECK_OK(dt_strategy_grad_norm(rig.strategy, &norm));
        least = norm;
        CHECK_OK(dt_comm_allreduce(comm, &least, 1, DT_TYPE_F64, DT_REDUCE_SUM, "sum of norms"));
        CHECK_NEAR(least / comm->size, norm, 1e-15 * norm);
        if (step == 1) {
            CHECK_NEAR(norm, expected, tolerance * expected);
        }
        CHECK_OK(dt_replica_check_run(&check, rig.network));
    }
    dt_replica_check_close(&check);
    rig_close(&rig);
}

static void test_norm(const struct dt_backend_ops *backend, struct dt_comm *comm,
                      struct dt_comm *self)
{
    struct rig_spec spec = classifier_on(backend);
    spec.units[0] = 250; /* several pieces */
    spec.units[1] = 100;
    const double expected = norm_alone(spec, self);
    for (int together = 0; together < 2; together++) {
        spec.shared_step = together != 0;
        check_norm(spec, comm, expected, 1e-5);
        spec.dist.order = DT_ORDER_PRIORITY;
        check_norm(spec, comm, expected, 1e-5);
        spec.dist.order = DT_ORDER_BACKWARD;
    }
    spec.dist.allreduce = DT_ALLREDUCE_RING;
    check_norm(spec, comm, expected, 1e-5);
    spec.dist.compression = (struct dt_compression_spec){.type = DT_COMPRESSION_FP16};
    check_norm(spec, comm, expected, 1e-2);
    spec.dist.compression = (struct dt_compression_spec){.type = DT_COMPRESSION_NONE};
    spec.optimizer.type = DT_OPTIMIZER_SGD; /* the second step sees how far the first one went:
                                               clipped by none, here */
    const double unclipped = norm_alone(spec, self);
    spec.optimizer.clip_norm = 1e3;
    check_norm(spec, comm, unclipped, 1e-5);
}

int main(void)
{
    struct dt_world world;
    struct dt_comm *self;
    CHECK_OK(dt_world_open(&world));
    CHECK_OK(dt_comm_open_self(&self));
    make_samples();
    test_norm(&dt_ref_backend, world.comm, self);
    test_norm(&dt_cpu_backend, world.comm, self);
    dt_comm_close(self);
    dt_world_exit(&world, DT_OK, true);
}
