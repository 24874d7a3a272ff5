/* The cost of a training step on a GPU, as far as it can be counted without one: nodes of its
 * graph, their longest chain, and the bytes that their arguments reach (fake.h). The fake counts a
 * library call as one node, which may be more on a GPU. Nearly all bytes are proportional to the
 * samples, or constant, so that two small batches predict a large one. The graph, with the bytes of
 * each node, is in the file that DTRAIN_CUDA_GRAPH names. */
#include "cli/config/config.h"
#include "cuda/block_plan.h"
#include "cuda/step_graph.h"
#include "data/shard.h"
#include "dist/strategy/strategy.h"
#include "tests/cuda/on_gpu.h"

#define SMALL 4 /* samples of a batch; the other batch has twice as many */
#define LARGE 4096

/* The same in each precision, but for bytes; a change that needs less lowers them. */
static const struct limit {
    const char *config;
    int nodes, chain;
    double gb; /* in bf16 at LARGE */
} limits[] = {
    {"configs/mnist.json", 17, 14, 4.43},
    {"configs/mnist-mlp.json", 9, 9, 0.053},
    {"tests/cuda/lenet.json", 23, 20, 0.43}, /* pools, and channels not divisible by eight */
    {"tests/cuda/three_convs.json", 20, 17, 2.44},
};

struct training { /* a training of one rank */
    struct dt_model model;
    struct dt_comm *comm;
    struct dt_backend *gpu;
    struct dt_strategy *strategy;
    struct dt_network *network;
    struct dt_bound_samples *samples;
    struct dt_step_graph *graph;
    struct dt_shard shard;
};

static void bind_samples(struct training *t, int n)
{
    static uint8_t pixels[2 * SMALL * 28 * 28];
    static uint16_t labels[2 * SMALL];
    for (size_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (uint8_t)draw(256);
    }
    const struct dt_samples samples = {.n = (size_t)n,
                                       .shape = {1, 28, 28},
                                       .pixels = pixels,
                                       .scale = 1.0f / 255,
                                       .labels = labels,
                                       .n_classes = 10,
                                       .n_total = (uint64_t)n,
                                       .id_stride = 1};
    CHECK_OK(t->gpu->ops->samples_open(t->gpu, &samples, &t->samples));
}

/* The same step as record_step of train/drivers/recorded.c. */
static enum dt_status take_step(void *context, const struct dt_batch *batch,
                                const struct dt_update *update)
{
    struct training *t = context;
    struct dt_pass pass = {.batch = batch, .training = true, .seed = 1};
    struct dt_strategy_step step = dt_strategy_start(t->strategy, update);
    DT_TRY(dt_network_gather(t->network, t->samples, batch));
    DT_TRY(dt_network_forward(t->network, &pass));
    DT_TRY(dt_network_loss(t->network, t->samples, &pass));
    DT_TRY(dt_strategy_backward(&step, t->network, &pass));
    return dt_strategy_finish(&step);
}

static void open_training(struct training *t, const struct dt_config *config,
                          const struct mode *mode, int n)
{
    *t = (struct training){.shard = {.mode = DT_SHARDING_SHARD,
                                     .n_total = (uint64_t)n,
                                     .global_batch = (uint64_t)n,
                                     .size = 1}};
    CHECK_OK(dt_model_lower(&config->model, &t->model));
    CHECK_OK(dt_comm_open_self(&t->comm));
    t->gpu = open_gpu(mode);
    const struct dt_strategy_spec spec = {.dist = config->dist,
                                          .optimizer = config->optimizer,
                                          .model = &t->model,
                                          .comm = t->comm,
                                          .backend = t->gpu,
                                          .capacity = n,
                                          .recorded = true};
    CHECK_OK(dt_strategy_open(&spec, &t->strategy));
    CHECK_OK(dt_network_open(&t->model, t->gpu, n, &t->strategy->memory, false, &t->network));
    bind_samples(t, n);
    CHECK_OK(dt_step_graph.open(t->gpu, NULL, n, take_step, t, &t->graph));
}

static void close_training(struct training *t)
{
    dt_step_graph.close(t->graph);
    t->gpu->ops->samples_close(t->gpu, t->samples);
    dt_network_close(t->network);
    dt_strategy_close(t->strategy);
    t->gpu->ops->close(t->gpu);
    dt_comm_close(t->comm);
}

/* One after the other: the first goes call by call, the second is recorded. */
static void run_steps(struct training *t, int n)
{
    struct dt_step_input inputs[2];
    int n_done = 0;
    for (int i = 0; i < n; i++) {
        inputs[i].draw = dt_shard_device_draw(&t->shard, 0, 0);
        inputs[i].update =
            dt_strategy_next_update(t->strategy, 0.001, inputs[i].draw.n, inputs[i].draw.n);
    }
    CHECK_OK(dt_step_graph.start(t->graph, inputs, n));
    while (n_done < n) {
        CHECK_OK(dt_step_graph.test(t->graph, &n_done));
    }
}

static struct fake_graph cost_of(const struct dt_config *config, const struct mode *mode, int n)
{
    struct training t;
    open_training(&t, config, mode, n);
    run_steps(&t, 2);
    const struct fake_graph graph = fake_last_graph();
    close_training(&t);
    return graph;
}

static void check_config(const struct limit *limit)
{
    char path[1024];
    static struct dt_config config;
    snprintf(path, sizeof path, "%s/%s", DT_TEST_SOURCE_DIR, limit->config);
    CHECK_OK(dt_config_load(path, NULL, 0, &config));
    for (size_t m = 0; m < N_MODES; m++) {
        const struct fake_graph small = cost_of(&config, &modes[m], SMALL),
                                twice = cost_of(&config, &modes[m], 2 * SMALL);
        const double each = (double)(twice.n_bytes - small.n_bytes) / SMALL,
                     fixed = (double)small.n_bytes - SMALL * each;
        const double gb = (fixed + LARGE * each) * 1e-9;
        printf("%-31s %-4s  %2d nodes, longest chain %2d, %.2f MB and %.3f MB a sample: %.3f GB at "
               "batch %d\n",
               limit->config, modes[m].name, small.n_nodes, small.longest_chain, fixed * 1e-6,
               each * 1e-6, gb, LARGE);
        CHECK(small.n_nodes <= limit->nodes && small.longest_chain <= limit->chain);
        CHECK(modes[m].precision != DT_PRECISION_BF16 || gb <= limit->gb);
    }
}

/* What mnist.json's step costs if one thing is left out. */
static const struct without {
    const char *name;
    int nodes, chain;
} withouts[] = {
#define NAMED(constant, name) [DT_CUDA_##constant] = {name, COST_##constant},
#define COST_FIRST_CONV 19, 16
#define COST_HEAD 22, 18
#define COST_PACKED 19, 16
#define COST_BRANCH 17, 17
#define COST_ENGINE_TRIAL 17, 14 /* the same graph, by the first engines: test_cuda_training.sh */
#define COST_STEPS 17, 14        /* the same graph, launched later: test_step_graph.c */
    DT_CUDA_FUSION_LIST(NAMED){"first_conv,head,packed,branch", 28, 28}};

static void check_without(const struct without *without)
{
    static struct dt_config config;
    setenv("DTRAIN_CUDA_WITHOUT", without->name, 1);
    CHECK_OK(dt_config_load(DT_TEST_SOURCE_DIR "/configs/mnist.json", NULL, 0, &config));
    const struct fake_graph graph = cost_of(&config, &modes[0], SMALL);
    printf("without %-30s %2d nodes, longest chain %2d\n", without->name, graph.n_nodes,
           graph.longest_chain);
    CHECK_INT(graph.n_nodes, without->nodes);
    CHECK_INT(graph.longest_chain, without->chain);
    unsetenv("DTRAIN_CUDA_WITHOUT");
}

int main(void)
{
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        check_config(&limits[i]);
    }
    for (size_t i = 0; i < sizeof withouts / sizeof withouts[0]; i++) {
        check_without(&withouts[i]);
    }
    return 0;
}
