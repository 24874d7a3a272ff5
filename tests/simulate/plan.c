#include "tests/simulate/plan.h"

#include <stdio.h>
#include <string.h>

#include "dist/strategy/strategies.h"

static const struct dt_config base = {
    .name = "simulated",
    .data = {.format = DT_DATA_SYNTHETIC, .n_train = 24, .n_test = 6, .noise = 0.1},
    .sharding = DT_SHARDING_GLOBAL,
    .shuffle = true,
    .model = {.input = {1, 2, 2},
              .n_layers = 4,
              .layers = {{.type = DT_LAYER_FLATTEN},
                         {.type = DT_LAYER_DENSE, .size = 5, .activation = DT_ACTIVATION_RELU},
                         {.type = DT_LAYER_DENSE, .size = 4, .activation = DT_ACTIVATION_RELU},
                         {.type = DT_LAYER_DENSE, .size = 3}},
              .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY},
    .epochs = 2,
    .seed = 1,
    .batch_global = 6,
    .accumulate = 1,
    .optimizer = {.type = DT_OPTIMIZER_SGD, .lr = 0.1, .momentum = 0.9},
    .dist = {.rows = &dt_all_rows, .average = true, .broadcast = true, .overlap = true},
    .checkpoint_keep = 2,
    .device = DT_DEVICE_REF,
    .threads = 1,
};

static void choose_ranks(struct sim_random *random, struct sim_plan *plan)
{
    plan->n_ranks = 1 + (int)sim_below(random, SIM_MAX_RANKS);
    const int most = plan->n_ranks < SIM_MAX_HOSTS ? plan->n_ranks : SIM_MAX_HOSTS;
    plan->n_hosts = 1 + (int)sim_below(random, (uint64_t)most);
    const bool in_turn = sim_chance(random, 30);
    for (int r = 0; r < plan->n_ranks; r++) {
        plan->hosts[r] = in_turn ? r % plan->n_hosts : r * plan->n_hosts / plan->n_ranks;
    }
}

/* Those that need no GPU. */
static enum dt_allreduce_type choose_allreduce(struct sim_random *random)
{
    enum dt_allreduce_type type;
    do {
        type = (enum dt_allreduce_type)sim_below(random, DT_N_ALLREDUCE_TYPES);
    } while (type == DT_ALLREDUCE_NCCL || type == DT_ALLREDUCE_STAGED);
    return type;
}

static void choose_config(struct sim_random *random, struct dt_config *c)
{
    *c = base;
    c->dist.allreduce = choose_allreduce(random);
    c->dist.bucket_bytes = sim_chance(random, 50) ? 64 : 1 << 20;
    c->dist.check_every = sim_below(random, 4);
    c->checkpoint_every_steps = (int64_t)sim_below(random, 4);
    c->checkpoint_every_epochs = (int64_t)sim_below(random, 2);
    c->checkpoint_keep = 1 + (int64_t)sim_below(random, 2);
    c->timeout_s = 2 + (double)sim_below(random, 4);
}

static void choose_fault(struct sim_random *random, const struct sim_plan *plan,
                         struct sim_fault *fault)
{
    const uint64_t n = (uint64_t)plan->n_ranks;
    *fault = (struct sim_fault){.kind = (enum sim_fault_kind)sim_below(random, SIM_N_FAULT_KINDS),
                                .rank = (int)sim_below(random, n),
                                .at = (double)sim_below(random, 10000) / 10000};
    fault->peer = (fault->rank + 1 + (int)sim_below(random, n > 1 ? n - 1 : 1)) % plan->n_ranks;
    switch (fault->kind) {
    case SIM_PAUSES:
        fault->seconds = (double)(1 + sim_below(random, 40)) / 10;
        break;
    case SIM_SLOW:
        fault->seconds = (double)(1 + sim_below(random, 20)) * 1e-5;
        break;
    case SIM_DIES:
    case SIM_STOPS:
    case SIM_LOSES:
    case SIM_N_FAULT_KINDS:
        break;
    }
}

void sim_plan_make(uint64_t seed, struct sim_plan *plan)
{
    struct sim_random random = {seed};
    *plan = (struct sim_plan){.seed = seed};
    choose_ranks(&random, plan);
    plan->eager = sim_chance(&random, 50);
    plan->launcher_kills = sim_chance(&random, 30);
    choose_config(&random, &plan->config);
    plan->n_faults = 1;
    choose_fault(&random, plan, &plan->faults[0]);
}

const char *sim_fault_text(const struct sim_fault *fault, char *text, size_t n_text)
{
    static const char *const names[] = {
#define NAME(constant, name) name,
        SIM_FAULT_LIST(NAME)};
    int n = snprintf(text, n_text, "rank %d %s", fault->rank, names[fault->kind]);
    if (fault->kind == SIM_LOSES) {
        n += snprintf(text + n, n_text - (size_t)n, " to rank %d", fault->peer);
    }
    if (fault->seconds > 0) {
        snprintf(text + n, n_text - (size_t)n, ", %g s", fault->seconds);
    }
    return text;
}

void sim_plan_print(const struct sim_plan *plan)
{
    const struct dt_config *c = &plan->config;
    char text[128];
    printf("seed %llu: %d ranks on %d hosts, %s, %s, limit %g s, checkpoints every %lld steps and "
           "%lld epochs, replicas compared every %llu\n",
           (unsigned long long)plan->seed, plan->n_ranks, plan->n_hosts,
           dt_strategy_names[c->dist.strategy], dt_allreduce_names[c->dist.allreduce], c->timeout_s,
           (long long)c->checkpoint_every_steps, (long long)c->checkpoint_every_epochs,
           (unsigned long long)c->dist.check_every);
    for (int i = 0; i < plan->n_faults; i++) {
        printf("  %s at %.4f of its run%s\n", sim_fault_text(&plan->faults[i], text, sizeof text),
               plan->faults[i].at, plan->faults[i].off ? " (left out)" : "");
    }
}
