/* One flipped bit of one weight of one rank is found and named, alike on every rank. */
#include "tests/lib/rig.h"

#include "dist/launch/job.h"
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

/* `rank` alone has other bits; of two ranks neither is blamed. */
static void check_found(struct dt_replica_check *check, struct rig *rig, const char *tensor,
                        int rank)
{
    char text[96];
    if (check->comm->size == 2) {
        snprintf(text, sizeof text,
                 "replicas differ: tensor '%s' differs between rank 0 and rank 1 (", tensor);
    } else {
        snprintf(
            text, sizeof text,
            "replicas differ: tensor '%s' of rank %d differs from that of the other %d ranks (",
            tensor, rank, check->comm->size - 1);
    }
    CHECK_FAILS(dt_replica_check_run(check, rig->network), DT_INTERNAL, text);
}

/* The last element of each tensor in turn, of each rank in turn. */
static void test_each_tensor(struct dt_replica_check *check, struct rig *rig, struct dt_comm *comm)
{
    for (int p = 0; p < rig->model.n_params; p++) {
        const struct dt_param *param = &rig->model.params[p];
        float *last = rig->network->params + param->offset + param->n_elems - 1;
        for (int rank = 0; rank < comm->size; rank++) {
            if (comm->rank == rank) {
                flip(last, (p * 7 + rank) % 32);
            }
            check_found(check, rig, param->name, rank);
            if (comm->rank == rank) {
                flip(last, (p * 7 + rank) % 32);
            }
            CHECK_OK(dt_replica_check_run(check, rig->network));
        }
    }
}

static void test_first_is_named(struct dt_replica_check *check, struct rig *rig,
                                struct dt_comm *comm)
{
    if (comm->rank > 0) {
        flip(rig_param(rig, "fc2.bias"), 3);
    }
    if (comm->rank == comm->size - 1) {
        flip(rig_param(rig, "fc1.bias"), 3);
    }
    check_found(check, rig, "fc1.bias", comm->size - 1);
}

/* Each rank gets one of so many values; then the text says of the tensor: */
static void check_split(struct dt_replica_check *check, struct rig *rig, int value,
                        const char *expected)
{
    float *weight = rig_param(rig, "fc1.weight");
    const float before = weight[1];
    weight[1] = (float)value;
    CHECK_FAILS(dt_replica_check_run(check, rig->network), DT_INTERNAL, expected);
    weight[1] = before;
}

/* More than half of the ranks are right; if there are not so many, it is said which agree. */
static void test_majority(struct dt_replica_check *check, struct rig *rig, struct dt_comm *comm)
{
    const int rank = comm->rank;
    if (comm->size == 4) {
        check_split(check, rig, rank / 2,
                    "'fc1.weight' differs between ranks 0, 1 and ranks 2, 3 (");
        check_split(check, rig, rank % 3,
                    "'fc1.weight' differs between ranks 0, 3 and rank 1 and rank 2 (");
        check_split(check, rig, rank,
                    "'fc1.weight' differs between rank 0 and rank 1 and rank 2 and rank 3 (");
    } else if (comm->size == 3) {
        check_split(check, rig, rank,
                    "'fc1.weight' differs between rank 0 and rank 1 and rank 2 (");
    }
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    const struct rig_spec spec = {.backend = &dt_ref_backend,
                                  .n_inputs = 1,
                                  .units = {5, 7},
                                  .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};
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
        test_majority(&check, &rig, world.comm);
        test_first_is_named(&check, &rig, world.comm);
    }
    dt_replica_check_close(&check);
    rig_close(&rig);
    dt_world_exit(&world, DT_OK, true);
}
