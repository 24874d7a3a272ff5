/* `dtrain plan`: what a run would be, without training. */

#include "cli/commands/load.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/text.h"
#include "cli/commands/model_table.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "dist/allreduce/types.h"
#include "dist/strategy/facts/plan.h"
#include "dist/strategy/leaves.h"
#include "dist/strategy/pipeline/pipeline_schedule.h"
#include "dist/strategy/pipeline/placement.h"
#include "dist/strategy/pipeline/stages.h"
#include "dist/strategy/roles.h"
#include "dist/strategy/strategy.h"
#include "model/device_bytes.h"
#include "train/trainer.h"

#define COLUMNS_OF_NUMBERS 62 /* of the table of blocks */

struct plan {
    struct dt_config config;
    struct dt_model model;
    struct dt_shard shard; /* of rank 0; without data, of as many samples as one batch has */
    struct dt_roles roles;
    struct dt_stages stages; /* of a pipeline */
    size_t n_test, n_validation;
    bool has_data;
    struct dt_planned_traffic traffic;
};

/* The layers of a block stand beside its numbers, or, where there is no room for all, below them.
 */
static bool has_room(const struct dt_model *model)
{
    struct dt_block_row row;
    size_t longest = 0;
    for (int b = 0; b < model->n_blocks; b++) {
        dt_block_row_make(model, b, &row);
        longest = strlen(row.layers) > longest ? strlen(row.layers) : longest;
    }
    return COLUMNS_OF_NUMBERS + (int)longest <= dt_terminal_room(STDOUT_FILENO);
}

static void print_layers(const struct dt_model *model)
{
    const char *gap = has_room(model) ? "  " : "\n           ";
    char count[32];
    struct dt_block_row row;
    double flops = 0;
    printf("  %-8s %-11s %-11s %12s %12s%slayers\n", "block", "input", "output", "parameters",
           "flop/sample", gap);
    for (int b = 0; b < model->n_blocks; b++) {
        dt_block_row_make(model, b, &row);
        printf("  %-8s %-11s %-11s %12s", row.name, row.in, row.out,
               dt_count_text((double)row.n_parameters, count, sizeof count));
        printf(" %12s%s%s\n", dt_count_text(row.flops, count, sizeof count), gap, row.layers);
        flops += row.flops;
    }
    printf("  %-8s %-11s %-11s %12s", "total", "", "",
           dt_count_text((double)model->n_parameters, count, sizeof count));
    printf(" %12s%sforward pass\n", dt_count_text(flops, count, sizeof count), gap);
    dt_model_print_uneven(model);
}

static size_t data_bytes(const struct plan *p, size_t n)
{
    const struct dt_data_spec *data = &p->config.data;
    const size_t input = dt_shape_elems(data->shape) *
                         (data->format == DT_DATA_LINEAR ? sizeof(float) : sizeof(uint8_t));
    return n * (input +
                (data->n_classes > 0 ? sizeof(uint16_t) : (size_t)data->n_targets * sizeof(float)));
}

/* Arenas beside weights and gradients. */
static int n_states(const struct dt_config *c)
{
    return dt_optimizer_n_states(&c->optimizer) + (c->ema > 0);
}

/* Bytes that the cuda backend allocates, without the memory of CUDA itself and cuDNN's workspaces,
 * which only they know. */
static size_t gpu_bytes(const struct plan *p, int capacity)
{
    size_t kept = 0;
    for (int b = 0; b < p->model.n_blocks; b++) {
        const struct dt_device_block_bytes bytes =
            dt_device_block_bytes(&p->model, b, p->config.precision, capacity);
        kept += dt_device_all_bytes(&bytes);
    }
    const size_t size = (size_t)p->shard.size;
    const size_t n_test = (p->n_test + p->n_validation + size - 1) / size;
    const size_t n_samples = p->has_data ? dt_shard_owned(&p->shard).n + n_test : 0;
    return dt_model_n_bytes(&p->model, capacity, n_states(&p->config)) + kept +
           data_bytes(p, n_samples) + DT_DEVICE_N_WORKSPACES * DT_DEVICE_WORKSPACE_BYTES;
}

/* A plan does not ask what this host has: the run's may be another. */
static void print_memory(const struct plan *p, int capacity)
{
    const struct dt_config *c = &p->config;
    char all[DT_BYTES_TEXT_SIZE], gradients[DT_BYTES_TEXT_SIZE];
    dt_bytes_text((double)p->model.arena_elems * sizeof(float), gradients);
    if (c->device != DT_DEVICE_CUDA) {
        const size_t n_bytes =
            dt_model_n_bytes(&p->model, capacity, n_states(c)) +
            (c->dist.deterministic ? dt_leaves_n_bytes(&p->model, p->roles.n_workers) : 0);
        printf("peak memory per rank: %s\n  of weights, gradients (%s), optimizer state and "
               "activations\n",
               dt_bytes_text((double)n_bytes, all), gradients);
    }
    const bool may_be_gpu = c->device == DT_DEVICE_AUTO && !c->dist.deterministic;
    if (c->device == DT_DEVICE_CUDA || may_be_gpu) {
        printf("GPU memory per rank%s: %s\n  with%s the data, %s of gradients; CUDA's libraries "
               "take some more\n",
               c->device == DT_DEVICE_AUTO ? ", where there is one" : "",
               dt_bytes_text((double)gpu_bytes(p, capacity), all), p->has_data ? "" : "out",
               gradients);
    }
}

static void print_data(const struct plan *p)
{
    char count[32], n_test[32], n_held[32], held[64] = "";
    if (p->n_validation > 0) {
        snprintf(held, sizeof held, "%s validation samples, ",
                 dt_count_text((double)p->n_validation, n_held, sizeof n_held));
    }
    if (p->has_data) {
        printf("data: %s training samples, %s%s test samples\n",
               dt_count_text((double)p->shard.n_total, count, sizeof count), held,
               dt_count_text((double)p->n_test, n_test, sizeof n_test));
    } else {
        dt_text_print(stdout, "data: no IDX files in %s", p->config.data.dir);
        puts("  steps/epoch and what each rank reads are unknown without (add --data DIR)");
    }
}

static void print_run(const struct plan *p)
{
    const struct dt_config *c = &p->config;
    const struct dt_shard *s = &p->shard;
    const int accumulate = (int)c->accumulate,
              capacity = c->dist.deterministic && !p->roles.whole
                             ? (int)c->dist.leaf
                             : (dt_shard_capacity(s) + accumulate - 1) / accumulate;
    const unsigned long long steps = dt_shard_steps_per_epoch(s);
    print_memory(p, capacity);
    print_data(p);
    if (c->batch_per_rank > 0) {
        const double scale = dt_lr_scale(c->lr_scaling, s->size);
        const char *times = dt_terminal_times();
        printf("batch %lld %s %d = %zu, lr %g %s %g = %g\n", (long long)c->batch_per_rank, times,
               s->size, s->global_batch, c->optimizer.lr, times, scale, c->optimizer.lr * scale);
    } else {
        printf("batch %zu over %d rank%s, lr %g\n", s->global_batch, s->size,
               s->size == 1 ? "" : "s", c->optimizer.lr);
    }
    if (p->has_data) {
        printf("%llu steps/epoch, %lld epoch%s = %llu steps\n", steps, (long long)c->epochs,
               c->epochs == 1 ? "" : "s", steps * (unsigned long long)c->epochs);
    } else {
        printf("%lld epoch%s\n", (long long)c->epochs, c->epochs == 1 ? "" : "s");
    }
}

static void print_ranks(const struct plan *p)
{
    char count[32];
    for (int r = 0; r < p->shard.size; r++) {
        struct dt_shard shard = p->shard;
        shard.rank = r;
        const struct dt_owned owned = dt_shard_owned(&shard);
        if (p->stages.n > 1) {
            printf("ranks 0 to %d read %s samples each", p->stages.n - 1,
                   dt_count_text((double)owned.n, count, sizeof count));
        } else {
            printf("rank %d reads %s samples", r,
                   dt_count_text((double)owned.n, count, sizeof count));
        }
        if (owned.stride > 1 && owned.n > 2) {
            printf(": %u, %u, %u, ... %zu", owned.first, owned.first + owned.stride,
                   owned.first + 2 * owned.stride, owned.first + (owned.n - 1) * owned.stride);
        }
        printf(", up to %d a step\n", dt_shard_capacity(&shard));
    }
}

/* Which tensors each server holds. */
static void print_placement(const struct plan *p)
{
    struct dt_placement placement;
    char bytes[DT_BYTES_TEXT_SIZE];
    dt_placement_make(&p->model, p->roles.n_servers, &placement);
    for (int s = 0; s < p->roles.n_servers; s++) {
        double held = 0;
        printf("  server %d, rank %d:", s, p->roles.first_server + s);
        for (int i = 0; i < p->model.n_params; i++) {
            if (placement.server_of[i] == s) {
                printf(" %s", p->model.params[i].name);
                held += (double)(p->model.params[i].n_elems * sizeof(float));
            }
        }
        printf("%s%s\n", held > 0 ? ", " : " nothing", held > 0 ? dt_bytes_text(held, bytes) : "");
    }
}

/* Which blocks each rank has, and what it does. */
static void print_stages(const struct plan *p)
{
    char count[32];
    double all = 0;
    const struct dt_dist_spec *dist = &p->config.dist;
    const int n_parts = dt_pipeline_n_parts(dist, (int64_t)p->shard.global_batch);
    for (int i = 0; i < p->stages.n; i++) {
        all += p->stages.stages[i].flops;
    }
    printf("pipeline: %d stage%s, %d micro-batches, %s; they wait %.1f %% of a step if each "
           "takes as long\n",
           p->stages.n, p->stages.n == 1 ? "" : "s", n_parts,
           dt_pipeline_schedule_name(dist->schedule),
           100 * dt_pipeline_bubble(p->stages.n, n_parts));
    for (int i = 0; i < p->stages.n; i++) {
        const struct dt_stage *stage = &p->stages.stages[i];
        printf("  stage %d, rank %d:", i, i);
        for (int b = stage->begin; b < stage->end; b++) {
            printf(" %s", p->model.blocks[b].name);
        }
        printf(", %s flop/sample (%.0f %%)\n", dt_count_text(stage->flops, count, sizeof count),
               100 * stage->flops / all);
    }
}

static void print_servers(const struct plan *p)
{
    char sent[120];
    const struct dt_roles *r = &p->roles;
    printf("%s: %d worker%s, %d server%s\n", dt_strategy_names[p->config.dist.strategy],
           r->n_workers, r->n_workers == 1 ? "" : "s", r->n_servers, r->n_servers == 1 ? "" : "s");
    print_placement(p);
    dt_traffic_text(&p->traffic.step, sent, sizeof sent);
    printf("  a step: %s\n", sent);
}

/* Predicts messages and bytes of averaging, without a run. */
static void print_averaging(const struct plan *p)
{
    const struct dt_dist_spec *dist = &p->config.dist;
    const int size = p->shard.size, n = p->traffic.n_buckets;
    char sent[120], gradients[DT_BYTES_TEXT_SIZE];
    if (p->roles.whole) {
        print_stages(p);
        return;
    }
    if (p->roles.n_servers > 0) {
        print_servers(p);
        return;
    }
    if (size == 1 || !dist->average) {
        return;
    }
    printf("allreduce over %d ranks: %s, %d bucket%s, %s of gradients\n", size,
           dt_allreduce_names[p->traffic.allreduce], n, n == 1 ? "" : "s",
           dt_bytes_text(sizeof(float) * (double)p->model.arena_elems, gradients));
    dt_compression_print(stdout, &p->traffic.codec, p->model.n_parameters);
    if (p->traffic.step.known && p->traffic.step.messages > 0) {
        dt_traffic_text(&p->traffic.step, sent, sizeof sent);
        printf("  a step: %s\n", sent);
        dt_traffic_print_between(stdout, &p->traffic.step);
    } else {
        printf("  %s\n", dist->allreduce == DT_ALLREDUCE_AUTO
                             ? "chosen at run time; set distributed.allreduce to see its traffic"
                             : dt_allreduce_meaning(dist->allreduce));
    }
}

static enum dt_status check_files(const struct dt_data_spec *data, enum dt_split split)
{
    const struct dt_owned no_rows = {.first = UINT32_MAX, .stride = 1};
    struct dt_dataset none;
    DT_TRY(dt_dataset_open(data, split, no_rows, &none));
    dt_dataset_close(&none);
    return DT_OK;
}

static enum dt_status count_samples(struct plan *p)
{
    DT_TRY(dt_trainer_shard(&p->config, 0, p->roles.n_workers, &p->shard));
    DT_TRY(dt_dataset_count(&p->config.data, DT_SPLIT_TEST, &p->n_test));
    DT_TRY(p->config.data.validation > 0
               ? dt_dataset_count(&p->config.data, DT_SPLIT_VALIDATION, &p->n_validation)
               : DT_OK);
    DT_TRY(check_files(&p->config.data, DT_SPLIT_TRAIN));
    return check_files(&p->config.data, DT_SPLIT_TEST);
}

static enum dt_status make_plan(struct dt_world *world, bool needs_data, struct plan *p)
{
    const struct dt_config *c = &p->config;
    DT_TRY(dt_model_lower(&c->model, &p->model));
    dt_data_spec_fit(&p->config.data, &p->model);
    DT_TRY(dt_roles_find(&c->dist, world->rank, world->size, &p->roles));
    DT_TRY(p->roles.whole ? dt_stages_make(&p->model, world->size, &c->dist.cut, &p->stages)
                          : DT_OK);
    DT_TRY(dt_traffic_plan(&c->dist, &p->model, world->comm, &p->traffic));
    const enum dt_status s = count_samples(p);
    p->has_data = s == DT_OK;
    if (s == DT_NO_INPUT && !needs_data) {
        dt_error_clear();
        p->shard.n_total = p->shard.global_batch;
        return DT_OK;
    }
    return s;
}

/* Prints to stdout: layers with shapes, parameters and FLOPs per sample; memory; steps; what each
 * rank will read. Reads only the headers of the data files, and says what it cannot know where they
 * are missing; with `needs_data`, because somebody named their folder, that is an error. Agreed. */
static enum dt_status show(struct dt_world *world, const struct dt_config *config, bool needs_data)
{
    struct plan *plan = calloc(1, sizeof *plan);
    enum dt_status s = DT_NO_MEMORY;
    if (plan != NULL) {
        plan->config = *config;
        s = make_plan(world, needs_data, plan);
    } else {
        dt_error(s, "out of memory");
    }
    s = dt_world_agree(world, s);
    if (plan != NULL && s == DT_OK && world->rank == 0) {
        dt_text_print(stdout, "%s", config->name);
        print_layers(&plan->model);
        print_run(plan);
        print_averaging(plan);
        if (plan->has_data) {
            print_ranks(plan);
        }
    }
    free(plan);
    return s;
}

static enum dt_status run(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    DT_TRY(dt_world_agree(world, dt_load_config(args, &config)));
    return show(world, &config, dt_args_has(args, DT_OPTION_DATA));
}

const struct dt_command dt_command_plan = {
    .word = "plan",
    .meaning = "show layers, parameters, memory and shards",
    .usage = "dtrain plan --config FILE [--data DIR] [--epochs N] [--batch N] [--lr X]\n"
             "      [--set KEY.PATH=VALUE]...",
    .examples = "  dtrain plan --config configs/mnist.json\n",
    .more = "Without training: shapes, operations, the memory that a rank wants on its device, "
            "the steps of an epoch, what each rank reads, and between several ranks what "
            "averaging gradients sends. Without data it leaves out the steps and what is read.",
    .options = {[DT_OPTION_CONFIG] = {DT_REQUIRED},
                [DT_OPTION_DATA] = {DT_TAKEN},
                [DT_OPTION_EPOCHS] = {DT_TAKEN},
                [DT_OPTION_BATCH] = {DT_TAKEN},
                [DT_OPTION_LR] = {DT_TAKEN},
                [DT_OPTION_SET] = {DT_TAKEN}},
    .needs_no_ranks = true,
    .together = run,
};
