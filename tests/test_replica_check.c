/* One flipped bit of one weight of one rank is found and named, alike on every rank. */
#include "rig.h"

#include "dist/strategy/replica_check.h"

static float values[4];
static const uint16_t labels[4];
static const struct dt_samples samples = {
    .n = 4, .shape = {1, 1, 1}, .values = values, .labels = labels, .n_classes = 7, .n_total = 4};

static void flip(float *x, int bit)
{
    uint32_t word;
    memcpy(&word, x, sizeof word);
    word ^= 1u << bit;
    memcpy(x, &word, sizeof word);
}

static void check_found(struct dt_replica_check *check, struct rig *rig, const char *tensor, int rank)
{
    char text[96];
    snprintf(text, sizeof text, "tensor '%s' of rank %d is not rank 0's", tensor, rank);
    CHECK_STATUS(dt_replica_check_run(check, rig->network), DT_INTERNAL);
    CHECK_HAS(dt_error_text(), text);
    dt_error_clear();
}

/* The last element of each tensor in turn, of each rank in turn; a difference of rank 0 shows as one of rank 1. */
static void test_each_tensor(struct dt_replica_check *check, struct rig *rig, struct dt_comm *comm)
{
    for (int p = 0; p < rig->model.n_params; p++) {
        const struct dt_param *param = &rig->model.params[p];
        float *last = rig->network->params + param->offset + param->n_elems - 1;
        for (int rank = 0; rank < comm->size; rank++) {
            if (comm->rank == rank) {
                flip(last, (p * 7 + rank) % 32);
            }
            check_found(check, rig, param->name, rank == 0 ? 1 : rank);
            if (comm->rank == rank) {
                flip(last, (p * 7 + rank) % 32);
            }
            CHECK_OK(dt_replica_check_run(check, rig->network));
        }
    }
}

static void test_first_is_named(struct dt_replica_check *check, struct rig *rig, struct dt_comm *comm)
{
    if (comm->rank > 0) {
        flip(rig_param(rig, "fc2.bias"), 3);
    }
    if (comm->rank == comm->size - 1) {
        flip(rig_param(rig, "fc1.bias"), 3);
    }
    check_found(check, rig, "fc1.bias", comm->size - 1);
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    const struct rig_spec spec = {
        .backend = &dt_ref_backend, .n_inputs = 1, .units = {5, 7}, .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};
    struct rig rig;
    struct dt_replica_check check;
    rig_open(&rig, &spec, world.comm, &samples);
    CHECK_OK(dt_replica_check_open(world.comm, &rig.model, &check));
    dt_model_init(&rig.model, 1, rig.network->params);
    rig_param(&rig, "fc1.weight")[0] = NAN; /* equal bits are equal replicas, whatever they mean */
    CHECK_OK(dt_replica_check_run(&check, rig.network));
    rig_param(&rig, "fc1.bias")[5] = (float)world.rank; /* a gap between tensors is nobody's */
    CHECK_OK(dt_replica_check_run(&check, rig.network));
    if (world.size > 1) {
        test_each_tensor(&check, &rig, world.comm);
        test_first_is_named(&check, &rig, world.comm);
    }
    dt_replica_check_close(&check);
    rig_close(&rig);
    dt_world_exit(&world, DT_OK, true);
}
