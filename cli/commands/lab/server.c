/* Parameter servers beside an allreduce, on four ranks: what the busiest rank sends, which weights are the same, and how stale
 * gradients are where nobody waits. */
#include "cli/commands/lab/server.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/args.h"
#include "cli/commands/lab/images.h"
#include "cli/commands/lab/lessons.h"
#include "cli/report/staleness.h"
#include "cli/report/text.h"
#include "dist/strategy/roles.h"

#define GLOBAL_BATCH 48
#define N_EPOCHS 3
#define RATE 0.01
#define MAX_STALENESS 4

enum { RING, MASTER, CENTRAL, SYNC, ASYNC };

static const struct dt_model_spec model = {.input = {1, 28, 28},
                                           .n_layers = 2,
                                           .layers = {{.type = DT_LAYER_FLATTEN}, {.type = DT_LAYER_DENSE, .size = DT_LAB_CLASSES}},
                                           .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};

static const struct dt_optimizer_spec adam = {.type = DT_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};

static const struct {
    const char *name, *meaning, *formula;
    struct dt_dist_spec dist;
} ways[DT_SERVER_WAYS] = {
    [RING] = {"ring",
              "an allreduce: all ranks work and send as much",
              "2 (n - 1) / n N",
              {.strategy = DT_STRATEGY_ALLREDUCE, .allreduce = DT_ALLREDUCE_RING}},
    [MASTER] = {"master and workers",
                "an allreduce by rank 0 alone",
                "(n - 1) N",
                {.strategy = DT_STRATEGY_ALLREDUCE, .allreduce = DT_ALLREDUCE_MASTER_WORKER}},
    [CENTRAL] = {"central", "rank 0 has the weights, and works too", "(n - 1) N", {.strategy = DT_STRATEGY_CENTRAL}},
    [SYNC] = {"server, sync",
              "rank 3 has the weights and waits for all",
              "(n - 1) N",
              {.strategy = DT_STRATEGY_PARAMETER_SERVER, .servers = 1}},
    [ASYNC] =
        {"server, async",
         "rank 3 steps with each worker's at once",
         "(n - 1) N",
         {.strategy = DT_STRATEGY_PARAMETER_SERVER, .servers = 1, .mode = DT_SERVER_MODE_ASYNC, .max_staleness = MAX_STALENESS}},
};

/* ---- a run */

static enum dt_status take_step(struct dt_lab_network *net, const struct dt_roles *roles, struct dt_loader *loader, uint64_t i)
{
    const uint64_t per_epoch = dt_shard_steps_per_epoch(&loader->shard), number = i % per_epoch;
    struct dt_batch batch = dt_loader_batch(loader, (uint32_t)(i / per_epoch), number);
    batch.n = roles->works ? batch.n : 0;
    const struct dt_update update =
        dt_strategy_next(net->strategy, RATE, dt_shard_step_samples(&loader->shard, number), (size_t)batch.n);
    struct dt_strategy_step step = dt_strategy_begin(net->strategy, &update);
    if (roles->works) {
        DT_TRY(dt_lab_pass(net, &batch, false, &step));
    }
    return dt_strategy_wait(&step);
}

/* FNV-1a over the weights' bits. */
static uint64_t hash_weights(const struct dt_lab_network *net)
{
    const unsigned char *bytes = (const unsigned char *)net->network->params;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < net->model.arena_elems * sizeof(float); i++) {
        hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return hash;
}

static enum dt_status train(struct dt_lab_network *net, const struct dt_roles *roles, struct dt_loader *loader, double *sent)
{
    const uint64_t n_steps = N_EPOCHS * dt_shard_steps_per_epoch(&loader->shard);
    struct dt_wire_sent count = {{0}, {0}};
    dt_strategy_expect(net->strategy, (int)n_steps);
    for (uint64_t i = 0; i < n_steps; i++) {
        DT_TRY(take_step(net, roles, loader, i));
    }
    (void)net->strategy->ops->sent(net->strategy, &count); /* each of these ways counts */
    *sent = (double)count.all.bytes / (double)n_steps;
    return dt_strategy_share_weights(net->strategy);
}

static enum dt_status measure(struct dt_world *world, struct dt_lab_network *net, const struct dt_samples *test, double sent,
                              struct dt_server_way *out)
{
    struct dt_metrics metrics;
    DT_TRY(dt_world_agree(world, dt_lab_evaluate(net, test, &metrics)));
    out->accuracy = metrics.n_correct / metrics.n_samples;
    out->hash = hash_weights(net);
    DT_TRY(dt_strategy_staleness(net->strategy, &out->staleness));
    return dt_comm_allgather(world->comm, &sent, out->sent, sizeof sent, "what each rank sent");
}

static enum dt_status run_way(struct dt_world *world, const struct dt_lab_images *images, int way, struct dt_server_lesson *l)
{
    struct dt_server_way *out = &l->ways[way];
    struct dt_dist_spec dist = ways[way].dist;
    struct dt_roles roles;
    struct dt_loader loader;
    struct dt_lab_network net;
    double sent;
    dist.average = dist.broadcast = dist.overlap = true;
    dist.bucket_bytes = (size_t)1 << 30;
    DT_TRY(dt_roles_find(&dist, world->rank, world->size, &roles));
    const struct dt_shard shard = {.mode = DT_SHARDING_GLOBAL,
                                   .seed = 1,
                                   .n_total = DT_LAB_N_TRAIN,
                                   .global_batch = GLOBAL_BATCH,
                                   .rank = roles.works ? world->rank : 0,
                                   .size = roles.n_workers,
                                   .shuffle = true};
    const struct dt_lab_network_spec spec = {.model = &model,
                                             .samples = &images->train.samples,
                                             .comm = world->comm,
                                             .dist = &dist,
                                             .optimizer = adam,
                                             .capacity = GLOBAL_BATCH};
    enum dt_status s;
    DT_TRY(dt_world_agree(world, dt_loader_open(&shard, &loader)));
    DT_TRY_GOTO(s, dt_world_agree(world, dt_lab_network_open(&spec, &net)), close_loader);
    dt_model_init(&net.model, 1, net.network->params);
    l->n_elems = net.model.n_parameters;
    out->n_workers = roles.n_workers;
    s = train(&net, &roles, &loader, &sent);
    s = s == DT_OK ? measure(world, &net, &images->test.samples, sent, out) : s;
    dt_lab_network_close(&net);
close_loader:
    dt_loader_close(&loader);
    return s;
}

static enum dt_status run(struct dt_world *world, struct dt_server_lesson *l)
{
    struct dt_lab_images images;
    enum dt_status s = dt_world_agree(world, dt_lab_images_open(&images));
    for (int way = 0; s == DT_OK && way < DT_SERVER_WAYS; way++) {
        s = run_way(world, &images, way, l);
    }
    dt_lab_images_close(&images);
    return s;
}

/* ---- what must come out */

static void compare(struct dt_server_lesson *l)
{
    const double n = DT_SERVER_RANKS, all = (double)l->n_elems * sizeof(float);
    for (int i = 0; i < DT_SERVER_WAYS; i++) {
        struct dt_server_way *way = &l->ways[i];
        way->name = ways[i].name;
        way->meaning = ways[i].meaning;
        way->formula = ways[i].formula;
        way->expected = (i == RING ? 2 * (n - 1) / n : n - 1) * all;
        for (int rank = 0; rank < DT_SERVER_RANKS; rank++) {
            way->busiest = way->sent[rank] > way->busiest ? way->sent[rank] : way->busiest;
        }
    }
}

static void check(struct dt_server_lesson *l)
{
    char what[120];
    const int n_pushers = DT_SERVER_RANKS - 1;
    for (int i = 0; i < DT_SERVER_WAYS; i++) { /* an allreduce's buckets have the gaps between tensors, a few floats, with them */
        snprintf(what, sizeof what, "%s: bytes that the busiest rank sends a step", l->ways[i].name);
        dt_golden_number(&l->golden, what, l->ways[i].busiest, l->ways[i].expected, 0.001 * l->ways[i].expected);
    }
    dt_golden_fact(&l->golden, "central has the weights of master and workers, to the bit",
                   l->ways[CENTRAL].hash == l->ways[MASTER].hash);
    dt_golden_number(&l->golden, "sync: gradients that are stale", dt_staleness_n_bins(&l->ways[SYNC].staleness), 0, 0);
    dt_golden_fact(&l->golden, "async: no gradient is staler than two workers can make it",
                   dt_staleness_n_bins(&l->ways[ASYNC].staleness) - 1 <= (n_pushers - 1) * (2 * MAX_STALENESS + 1));
    for (int i = 0; i < DT_SERVER_WAYS; i++) {
        snprintf(what, sizeof what, "%s learns", l->ways[i].name);
        dt_golden_fact(&l->golden, what, l->ways[i].accuracy > 0.7);
    }
    dt_golden_end(&l->golden);
}

/* ---- the text */

static void print_lesson(const struct dt_server_lesson *l)
{
    char count[32], bytes[DT_BYTES_TEXT_SIZE];
    printf("Who carries the gradients? %d ranks, %s of them (N), batch %d, %d epochs:\n\n", DT_SERVER_RANKS,
           dt_count_text((double)l->n_elems, count, sizeof count), GLOBAL_BATCH, N_EPOCHS);
    printf("%-19s %-16s %12s %7s %9s\n", "", "busiest sends", "bytes a step", "workers", "accuracy");
    for (int i = 0; i < DT_SERVER_WAYS; i++) {
        const struct dt_server_way *way = &l->ways[i];
        printf("%-19s %-16s %12s %7d %7.1f %%\n", way->name, way->formula, dt_bytes_text(way->busiest, bytes), way->n_workers,
               100 * way->accuracy);
    }
    puts("\nA ring's ranks all send as much, hardly more with more ranks. A server sends\n"
         "each worker all weights, so its link is the narrow place: n - 1 times N, and\n"
         "as much comes in. Several servers share that among them.\n");
    dt_staleness_print(stdout, &l->ways[ASYNC].staleness);
    puts("\nWhere nobody waits, others have stepped since a worker read the weights: its\n"
         "gradients are so many steps old. Where all wait, none is.\n");
    puts(l->golden.verdict);
}

enum dt_status dt_lab_server(struct dt_world *world, const struct dt_args *args)
{
    static struct dt_server_lesson lesson;
    enum dt_status s = DT_OK;
    DT_TRY(dt_lab_need_ranks(world, "server", DT_SERVER_RANKS));
    DT_TRY(run(world, &lesson));
    if (world->rank == 0) {
        compare(&lesson);
        check(&lesson);
        print_lesson(&lesson);
        s = args->html != NULL ? dt_server_page(args->html, &lesson) : DT_OK;
        s = s == DT_OK ? dt_golden_status(&lesson.golden) : s;
    }
    return dt_world_agree(world, s);
}
