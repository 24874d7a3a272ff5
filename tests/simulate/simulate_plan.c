#include "tests/simulate/simulate_plan.h"

#include <stdio.h>
#include <string.h>

#include "data/transform.h"
#include "data/validation_split.h"
#include "dist/allreduce/formula.h"
#include "dist/strategy/roles.h"
#include "dist/strategy/strategy.h"
#include "model/layers/layers.h"

static const struct dt_config base = {
    .name = "simulated",
    .data = {.row = &dt_synthetic_data,
             .format = DT_DATA_SYNTHETIC,
             .n_train = 24,
             .n_test = 6,
             .noise = 0.1},
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
    .optimizer = {.lr = 0.05, .momentum = 0.9, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
    .dist = {.rows = &dt_all_entries, .average = true, .broadcast = true, .overlap = true},
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
    } while (dt_allreduce_is_for_gpus(type));
    return type;
}

static void choose_compression(struct sim_random *random, struct dt_compression_spec *out)
{
    *out = (struct dt_compression_spec){.ratio = 0.3, .error_feedback = sim_chance(random, 70)};
    if (sim_chance(random, 40)) {
        out->type = (enum dt_compression_type)sim_below(random, DT_N_COMPRESSION_TYPES);
        out->rounding = sim_chance(random, 50) ? DT_ROUNDING_STOCHASTIC : DT_ROUNDING_NEAREST;
    }
}

static void choose_strategy(struct sim_random *random, int n_ranks, struct dt_dist_spec *dist)
{
    static const char *const names[] = {"allreduce", "parameter_server", "central", "pipeline"};
    dist->strategy = dt_strategy_named(names[sim_chance(random, 55) ? 0 : sim_below(random, 4)]);
    dist->allreduce = choose_allreduce(random);
    dist->across = sim_chance(random, 50) ? 0 : (int)sim_below(random, DT_N_ALGORITHMS);
    dist->servers = 1 + (int64_t)sim_below(random, (uint64_t)n_ranks);
    dist->mode = sim_chance(random, 80) ? DT_SERVER_MODE_SYNC : DT_SERVER_MODE_ASYNC;
    dist->max_staleness = 2;
    dist->schedule = sim_chance(random, 50) ? DT_PIPELINE_GPIPE : DT_PIPELINE_1F1B;
    dist->micro_batches = 1 + (int64_t)sim_below(random, 3);
    dist->order = sim_chance(random, 80) ? DT_ORDER_BACKWARD : DT_ORDER_PRIORITY;
    dist->deterministic = sim_chance(random, 15);
    dist->leaf = 2;
    dist->overlap = sim_chance(random, 80);
    dist->bucket_bytes = sim_chance(random, 50) ? 64 : 1 << 20;
    dist->check_every = sim_below(random, 4);
    choose_compression(random, &dist->compression);
    if (dist->strategy != DT_STRATEGY_ALLREDUCE) { /* keys that have no meaning there are refused */
        dist->order = DT_ORDER_BACKWARD;
        dist->allreduce = DT_ALLREDUCE_AUTO;
    }
    if (dist->strategy != DT_STRATEGY_PARAMETER_SERVER) {
        dist->mode = DT_SERVER_MODE_SYNC;
    }
    dist->deterministic = dist->deterministic && dist->mode == DT_SERVER_MODE_SYNC;
}

/* True if the command line would take it. */
static bool is_allowed(const struct sim_plan *plan, const struct dt_config *c)
{
    struct dt_roles roles;
    const char *key = NULL;
    const struct dt_strategy_spec spec = {
        .dist = c->dist, .optimizer = c->optimizer, .accumulate = (int)c->accumulate};
    const bool allowed = dt_strategy_check(&spec, &key) == DT_OK &&
                         dt_roles_find(&c->dist, 0, plan->n_ranks, &roles) == DT_OK &&
                         (!roles.whole || plan->n_ranks <= 3); /* a pipeline's blocks */
    dt_error_clear();
    return allowed;
}

static void choose_config(struct sim_random *random, struct sim_plan *plan)
{
    struct dt_config *c = &plan->config;
    do {
        *c = base;
        choose_strategy(random, plan->n_ranks, &c->dist);
        c->optimizer.type = sim_chance(random, 50) ? DT_OPTIMIZER_SGD : DT_OPTIMIZER_ADAM;
        c->checkpoint_every_steps = (int64_t)sim_below(random, 4);
        c->checkpoint_every_epochs = (int64_t)sim_below(random, 2);
        c->checkpoint_keep = 1 + (int64_t)sim_below(random, 2);
        c->checkpoint_best = sim_chance(random, 20) ? DT_TEST_LOSS : DT_TEST_NONE;
        c->timeout_s = 2 + (double)sim_below(random, 4);
    } while (!is_allowed(plan, c));
    plan->exact = c->dist.mode == DT_SERVER_MODE_SYNC;
    plan->n_resumed = c->dist.deterministic && c->dist.strategy == DT_STRATEGY_ALLREDUCE
                          ? 1 + (int)sim_below(random, SIM_MAX_RANKS)
                          : plan->n_ranks;
}

/* Replicas of their own, which each have their gradient. */
static bool is_mirrored(const struct sim_plan *plan)
{
    const struct dt_dist_spec *dist = &plan->config.dist;
    struct dt_roles roles;
    return dt_roles_find(dist, 0, plan->n_ranks, &roles) == DT_OK && !roles.whole &&
           roles.n_servers == 0 && dist->allreduce >= DT_ALLREDUCE_OF_ALGORITHM(0) &&
           !dist->deterministic && plan->n_ranks > 1;
}

static void choose_seconds(struct sim_random *random, struct sim_fault *fault)
{
    switch (fault->kind) {
    case SIM_PAUSES:
        fault->seconds = (double)(1 + sim_below(random, 60)) / 10;
        break;
    case SIM_CUTS:
    case SIM_DISK_FULL:
        fault->seconds = sim_chance(random, 50) ? (double)(1 + sim_below(random, 60)) / 10 : 0;
        break;
    case SIM_SLOW:
        fault->seconds = (double)(1 + sim_below(random, 20)) * 1e-5;
        break;
    case SIM_CLOCK_JUMPS:
        fault->seconds = (double)(1 + sim_below(random, 100));
        break;
    case SIM_DIES:
    case SIM_STOPS:
    case SIM_LOSES:
    case SIM_SIGNAL:
    case SIM_SIGNAL_ALL:
    case SIM_NO_MEMORY:
    case SIM_DISK_FAILS:
    case SIM_POWER_CUT:
    case SIM_NAN:
    case SIM_FLIP:
    case SIM_FLIP_GRADIENT:
    case SIM_FLIP_MESSAGE:
    case SIM_MPI_FAILS:
    case SIM_DEVICE_FAILS:
    case SIM_HOOK_FAILS:
    case SIM_N_FAULT_KINDS:
        break;
    }
}

static void choose_fault(struct sim_random *random, struct sim_plan *plan, struct sim_fault *fault)
{
    const uint64_t n = (uint64_t)plan->n_ranks;
    bool fits;
    do {
        *fault = (struct sim_fault){.kind = (enum sim_fault_kind)sim_below(random, SIM_FLIP + 1),
                                    .rank = (int)sim_below(random, n),
                                    .at = (double)sim_below(random, 10000) / 10000,
                                    .both_ways = sim_chance(random, 50),
                                    .step = 1 + sim_below(random, 7)};
        fits = (fault->kind != SIM_NAN && fault->kind != SIM_FLIP) || is_mirrored(plan);
    } while (!fits);
    fault->peer = (fault->rank + 1 + (int)sim_below(random, n > 1 ? n - 1 : 1)) % plan->n_ranks;
    choose_seconds(random, fault);
    if (fault->kind == SIM_DISK_FULL || fault->kind == SIM_DISK_FAILS) {
        fault->rank = 0; /* which writes */
    }
    if (fault->kind == SIM_FLIP && plan->config.dist.check_every == 0) {
        plan->config.dist.check_every = 1; /* or nobody promises to see it */
    }
}

/* In some seeds the first fault becomes another one, drawn apart, so that all other seeds stay what
 * they were. */
static void choose_flip(struct sim_random *random, struct sim_plan *plan)
{
    struct sim_fault *fault = &plan->faults[0];
    if (!is_mirrored(plan) || !sim_chance(random, 20)) {
        return;
    }
    fault->kind = sim_chance(random, 30) ? SIM_FLIP_GRADIENT : SIM_FLIP_MESSAGE;
    fault->rank = (int)sim_below(random, (uint64_t)plan->n_ranks);
    fault->seconds = 0;
    plan->config.dist.check_every += plan->config.dist.check_every == 0;
    plan->flips = true;
    plan->exact = false;
}

/* In every sixth seed a layer takes statistics over all ranks, where these pass through it
 * together. No seed that stands for an older mend is among them. */
static void choose_norm(struct sim_plan *plan)
{
    struct dt_model_spec *model = &plan->config.model;
    struct dt_roles roles;
    const bool together = dt_roles_find(&plan->config.dist, 0, plan->n_ranks, &roles) == DT_OK &&
                          roles.n_workers == plan->n_ranks && !roles.whole &&
                          !plan->config.dist.deterministic;
    if (!together || plan->seed % 6 != 0) {
        return;
    }
    memmove(&model->layers[3], &model->layers[2], 2 * sizeof *model->layers);
    model->layers[2] = (struct dt_layer_spec){
        .type = DT_LAYER_BATCH_NORM, .epsilon = 1e-5, .momentum = 0.1, .sync = true};
    model->n_layers = 5;
    model->rows = &dt_all_layers;
}

/* In every eleventh seed the first fault is that MPI, or the device, fails. No seed that stands for
 * an older mend is among them. */
static void choose_call(struct sim_random *random, struct sim_plan *plan)
{
    if (plan->seed % 11 == 0) {
        plan->faults[0].kind = sim_chance(random, 70) ? SIM_MPI_FAILS : SIM_DEVICE_FAILS;
        plan->faults[0].seconds = 0;
    }
}

/* A fault that no weights survive. It strikes early, so the rest of the run is shorter. */
static void choose_again(struct sim_random *random, struct sim_plan *plan)
{
    struct sim_fault *fault = &plan->faults[plan->n_faults];
    struct sim_plan resumed = *plan;
    resumed.n_ranks = plan->n_resumed;
    plan->n_again = sim_chance(random, 25);
    do {
        choose_fault(random, &resumed, fault);
    } while (fault->kind == SIM_NAN || fault->kind == SIM_FLIP);
    fault->at *= 0.6;
}

void sim_plan_make(uint64_t seed, struct sim_plan *plan)
{
    struct sim_random random = {seed}, apart = {~seed};
    *plan = (struct sim_plan){.seed = seed};
    choose_ranks(&random, plan);
    plan->eager = sim_chance(&random, 50);
    plan->launcher_kills = sim_chance(&random, 30);
    choose_config(&random, plan);
    plan->n_faults = sim_chance(&random, 75) ? 1 : sim_chance(&random, 80) ? 2 : 3;
    int n_flips = 0;
    for (int i = 0; i < plan->n_faults; i++) {
        choose_fault(&random, plan, &plan->faults[i]);
        n_flips += plan->faults[i].kind == SIM_FLIP;
    }
    choose_flip(&apart, plan);
    choose_again(&apart, plan);
    choose_norm(plan);
    choose_call(&apart, plan);
    /* Two may be the same bit of all replicas; and where a normalization has rounding take a bit
     * away, the gradient in between has moved all of them. */
    plan->exact = plan->exact && n_flips < (plan->config.model.rows != NULL ? 1 : 2);
}

/* A convolution, whose statistics are each rank's own, or a line. */
static void widen_model(struct sim_random *random, struct dt_config *c)
{
    struct dt_model_spec *model = &c->model;
    if (model->rows == NULL && sim_chance(random, 50)) {
        memmove(&model->layers[2], model->layers, (size_t)model->n_layers * sizeof *model->layers);
        model->layers[0] =
            (struct dt_layer_spec){.type = DT_LAYER_CONV2D, .size = 2, .kernel = 1, .stride = 1};
        model->layers[1] =
            (struct dt_layer_spec){.type = DT_LAYER_BATCH_NORM, .epsilon = 1e-5, .momentum = 0.1};
        model->n_layers += 2;
        model->rows = &dt_all_layers;
    } else if (c->dist.strategy == DT_STRATEGY_ALLREDUCE && sim_chance(random, 20)) {
        c->data = (struct dt_data_spec){.row = &dt_linear_data,
                                        .format = DT_DATA_LINEAR,
                                        .n_train = 24,
                                        .n_test = 6,
                                        .slope = 2};
        *model = (struct dt_model_spec){.input = {1, 1, 1},
                                        .n_layers = 1,
                                        .layers = {{.type = DT_LAYER_DENSE, .size = 1}},
                                        .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    }
}

static void widen_end(struct sim_random *random, struct dt_config *c)
{
    const bool averages = c->ema > 0 && sim_chance(random, 50);
    c->checkpoint_best = averages ? DT_EMA_TEST_LOSS : DT_TEST_LOSS;
    if (sim_chance(random, 40)) {
        c->data.whole = c->data.row;
        c->data.row = &dt_validation_data;
        c->data.validation = 0.25;
        c->checkpoint_best = averages ? DT_EMA_VALIDATION_LOSS : DT_VALIDATION_LOSS;
        c->early_stopping = (struct dt_monitor_spec){.metric = c->checkpoint_best, .patience = 2};
    }
}

/* A last batch that is too small for all ranks, more classes than a report shows at once, and a
 * pipeline whose bits are those of one rank. */
static void widen_sizes(struct sim_random *random, struct sim_plan *plan)
{
    struct dt_config *c = &plan->config;
    struct dt_layer_spec *last = &c->model.layers[c->model.n_layers - 1];
    c->data.n_train += sim_chance(random, 30) ? 1 : 0;
    if (c->data.format != DT_DATA_LINEAR && sim_chance(random, 20)) {
        last->size = 12;
    }
    const bool deterministic = c->dist.deterministic;
    c->dist.deterministic =
        deterministic || (c->dist.strategy == DT_STRATEGY_PIPELINE && sim_chance(random, 50));
    c->dist.deterministic = is_allowed(plan, c) ? c->dist.deterministic : deterministic;
}

void sim_plan_widen(struct sim_plan *plan)
{
    struct sim_random random = {plan->seed};
    struct dt_config *c = &plan->config;
    plan->wide = true;
    const bool fits = c->dist.strategy == DT_STRATEGY_ALLREDUCE && !c->dist.deterministic &&
                      c->dist.order == DT_ORDER_BACKWARD;
    plan->own_memory = sim_chance(&random, fits ? 40 : 10);
    plan->exact = plan->flips = false;
    plan->n_faults = plan->n_again = 0;
    widen_model(&random, c);
    c->accumulate = sim_chance(&random, 30) ? 2 : 1;
    c->accumulate = is_allowed(plan, c) ? c->accumulate : 1;
    c->ema = sim_chance(&random, 40) ? 0.9 : 0;
    c->log_audit = sim_chance(&random, 30);
    c->tensorboard = sim_chance(&random, 30);
    c->report = sim_chance(&random, 30);
    c->log_every_steps = sim_chance(&random, 50);
    c->data.normalize.of_dataset = c->data.format != DT_DATA_LINEAR && sim_chance(&random, 30);
    c->data.transform = dt_transform_open;
    c->optimizer.clip_norm = sim_chance(&random, 20) ? 0.5 : 0;
    if (sim_chance(&random, 30)) {
        c->trace_first = 2;
        c->trace_last = 3;
    }
    widen_end(&random, c);
    widen_sizes(&random, plan);
}

const char *sim_fault_text(const struct sim_fault *fault, char *text, size_t n_text)
{
    static const char *const names[] = {
#define NAME(constant, name) name,
        SIM_FAULT_LIST(NAME)};
    int n = snprintf(text, n_text, "rank %d %s", fault->rank, names[fault->kind]);
    if (fault->kind == SIM_LOSES || fault->kind == SIM_CUTS) {
        n += snprintf(text + n, n_text - (size_t)n, "%s to rank %d%s",
                      fault->kind == SIM_CUTS ? "," : "", fault->peer,
                      fault->kind == SIM_CUTS && fault->both_ways ? " and back" : "");
    }
    if (fault->call > 0) {
        n += snprintf(text + n, n_text - (size_t)n, ", call %llu", (unsigned long long)fault->call);
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
    printf("  %s compression, order %d, %s, deterministic %d, %d ranks resume, best %d, servers "
           "%lld, mode %d, %d layers\n",
           dt_compression_names[c->dist.compression.type], (int)c->dist.order,
           c->optimizer.type == DT_OPTIMIZER_SGD ? "sgd" : "adam", c->dist.deterministic,
           plan->n_resumed, (int)c->checkpoint_best, (long long)c->dist.servers, (int)c->dist.mode,
           c->model.n_layers);
    for (int i = 0; i < plan->n_faults + plan->n_again; i++) {
        printf("  %s at %.4f of its run%s%s\n", sim_fault_text(&plan->faults[i], text, sizeof text),
               plan->faults[i].at, i == plan->n_faults ? ", resumed" : "",
               plan->faults[i].off ? " (left out)" : "");
    }
}
