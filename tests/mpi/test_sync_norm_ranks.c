/* batch_norm with sync: ranks have the same running statistics, to the bit, without anybody giving
 * them around, and have begun the same number of collectives, whatever part of a batch each has. */
#include "cli/config/config.h"
#include "dist/launch/job.h"
#include "dist/ranks/comm_private.h"
#include "model/layers/layers.h"
#include "tests/lib/rig.h"
#include "train/trainer.h"

/* The last batch of an epoch is one sample: most ranks have none, and none has one in the first
 * micro-batch. */
static const char config_text[] =
    "{\"data\": {\"format\": \"synthetic\", \"train_samples\": 41, \"test_samples\": 8, "
    "\"sharding\": \"global\"}, \"model\": {\"input\": [1, 6, 6], \"layers\": [{\"type\": "
    "\"conv2d\", \"filters\": 9, \"kernel\": 3}, {\"type\": \"batch_norm\", \"sync\": true}, "
    "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 10}], \"loss\": "
    "\"softmax_cross_entropy\"}, \"train\": {\"epochs\": 3, \"batch\": {\"global\": 8}, "
    "\"accumulate\": 2, \"optimizer\": {\"type\": \"adam\", \"lr\": 0.001}}}";

/* Whether all ranks have the same bits. */
static bool are_equal(struct dt_comm *comm, const void *values, size_t n, enum dt_type type)
{
    const size_t n_bytes = n * dt_type_bytes(type);
    unsigned char *all = calloc((size_t)comm->size, n_bytes);
    bool equal = all != NULL;
    CHECK_OK(dt_comm_allgather(comm, values, all, n_bytes, "comparison"));
    for (int rank = 0; rank < comm->size; rank++) {
        equal = equal && memcmp(all + (size_t)rank * n_bytes, values, n_bytes) == 0;
    }
    free(all);
    return equal;
}

static void take_steps(struct dt_trainer *t)
{
    static struct dt_step_results results;
    for (int i = 0; i < 6; i++) { /* an epoch */
        CHECK_OK(dt_trainer_steps(t, 1, &results));
    }
    t->state.epoch++;
    t->state.step_in_epoch = 0;
}

static void test(struct dt_world *world, const char *device, const char *sync,
                 const char *allreduce)
{
    static struct dt_config config;
    static struct dt_trainer t;
    const char *sets[] = {device, sync, allreduce};
    const bool synced = strstr(sync, "true") != NULL;
    CHECK_OK(dt_config_parse("test", config_text, strlen(config_text), sets, 3, &config));
    CHECK_OK(dt_trainer_open(world, &config, &dt_config_json, &dt_all_parts, &t));
    CHECK((t.driver.own != NULL) == (synced && world->size > 1));
    float *statistics = calloc(t.model.buffer_elems, sizeof *statistics);
    for (int epoch = 0; epoch < 2; epoch++) {
        take_steps(&t);
        CHECK(are_equal(world->comm, &world->comm->private->n_started, 1, DT_TYPE_U64));
        CHECK_OK(dt_buffers_get(t.network, statistics));
        CHECK(are_equal(world->comm, statistics, t.model.buffer_elems, DT_TYPE_F32) ==
              (synced || world->size == 1));
        CHECK(statistics[0] != 0);
    }
    CHECK_OK(
        dt_strategy_share_weights(t.strategy)); /* with "priority" sums are still on their way */
    free(statistics);
    dt_trainer_close(&t);
}

int main(void)
{
    static const char *const devices[] = {"device=ref", "device=cpu"};
    struct dt_world world = {0};
    CHECK_OK(dt_world_open(&world));
    for (int i = 0; i < 2; i++) {
        test(&world, devices[i], "model.layers.1.sync=true", "distributed.allreduce=auto");
        test(&world, devices[i], "model.layers.1.sync=true", "distributed.allreduce=ring");
        test(&world, devices[i], "model.layers.1.sync=true", "distributed.order=priority");
        test(&world, devices[i], "model.layers.1.sync=true", "distributed.strategy=central");
        test(&world, devices[i], "model.layers.1.sync=false", "distributed.allreduce=auto");
    }
    dt_world_exit(&world, DT_OK, true);
}
