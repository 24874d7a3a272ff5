/* `dtrain plan`: describes a run without training. */
#include "cli/commands/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "cli/commands/model_table.h"
#include "cli/result.h"
#include "cuda/block_plan.h"
#include "data/bad_images.h"
#include "data/formats/labelled.h"
#include "data/validation_split.h"
#include "dist/allreduce/formula.h"
#include "dist/strategy/micro_batches.h"
#include "dist/strategy/pipeline/pipeline_schedule.h"
#include "dist/strategy/pipeline/pipeline_stages.h"
#include "dist/strategy/pipeline/placement.h"
#include "dist/strategy/roles.h"
#include "dist/strategy/strategy.h"
#include "dist/strategy/summary/traffic_plan.h"
#include "train/trainer.h"

#define RATE_POINTS 256
#define MOST_NAMES_BYTES 400
#define MOST_DECODED ((size_t)16) /* images of a split */

static const char *const schedule_names[] = {DT_SCHEDULE_LIST(DT_ENUM_NAME)};

struct plan {
    struct dt_config config;
    struct dt_model model;
    struct dt_shard shard; /* of rank 0; without data, of as many samples as one batch has */
    struct dt_roles roles;
    struct dt_stages stages; /* of a pipeline */
    size_t n_test, n_validation, n_passed;
    char left_out[128];
    char *class_names; /* of the training data, or NULL */
    bool has_data;
    struct dt_planned_traffic traffic;
};

static size_t data_bytes(const struct plan *p, size_t n)
{
    const struct dt_data_spec *data = &p->config.data;
    const size_t input =
        dt_shape_elems(data->shape) *
        (data->format == DT_DATA_LINEAR || data->scale[0].n > 0 ? sizeof(float) : sizeof(uint8_t));
    return n * (input +
                (data->n_classes > 0 ? sizeof(uint16_t) : (size_t)data->n_targets * sizeof(float)));
}

/* Arenas beside weights and gradients. */
static int n_states(const struct dt_config *c)
{
    return dt_optimizer_n_states(&c->optimizer) + (c->ema > 0);
}

/* Samples that rank 0 reads; 0: unknown. */
static size_t n_samples(const struct plan *p)
{
    const size_t size = (size_t)p->shard.size;
    const size_t n_test = (p->n_test + p->n_validation + size - 1) / size;
    return p->has_data ? dt_shard_owned(&p->shard).n + n_test : 0;
}

/* Bytes that the cuda backend allocates, without the memory of CUDA itself and cuDNN's workspaces,
 * which only they know. */
static size_t gpu_bytes(const struct plan *p, int capacity)
{
    size_t kept = 0;
    for (int b = 0; b < p->model.n_blocks; b++) {
        const struct dt_cuda_block_plan block =
            dt_cuda_plan_block(&p->model, b, p->config.precision, capacity);
        for (int i = 0; i < DT_CUDA_N_BUFFERS; i++) {
            kept += block.n_bytes[i];
        }
    }
    return dt_model_n_bytes(&p->model, capacity, n_states(&p->config)) + kept +
           data_bytes(p, n_samples(p)) + DT_CUDA_N_WORKSPACES * DT_CUDA_WORKSPACE_BYTES;
}

/* A plan does not ask for this host's GPU: the run may use another host. */
static void add_memory(struct dt_doc *doc, const struct plan *p)
{
    const struct dt_config *c = &p->config;
    const struct dt_shard *s = &p->shard;
    const int accumulate = (int)c->accumulate,
              capacity = c->dist.deterministic && !p->roles.whole
                             ? (int)c->dist.leaf
                             : (dt_shard_capacity(s) + accumulate - 1) / accumulate;
    const char *data = p->has_data ? "with the data" : "without the data";
    struct dt_part *figures = dt_doc_figures(doc, "Memory of a rank");
    if (c->device != DT_DEVICE_CUDA) {
        const size_t n_bytes =
            dt_model_n_bytes(&p->model, capacity, n_states(c)) + data_bytes(p, n_samples(p)) +
            (c->dist.deterministic ? dt_micro_batches_n_bytes(&p->model, p->roles.n_workers) : 0);
        dt_doc_figure(figures, "CPU::B", dt_n((double)n_bytes));
        dt_doc_judge(figures, DT_NO_VERDICT, "%s, without the program itself", data);
    }
    if (c->device == DT_DEVICE_CUDA || (c->device == DT_DEVICE_AUTO && !c->dist.deterministic)) {
        dt_doc_figure(figures, "GPU::B", dt_n((double)gpu_bytes(p, capacity)));
        dt_doc_judge(figures, DT_NO_VERDICT, "%s%s; CUDA's libraries take some more",
                     c->device == DT_DEVICE_AUTO ? "where there is one, " : "", data);
    }
    dt_doc_figure(figures, "gradients::B", dt_n((double)p->model.arena_elems * sizeof(float)));
}

/* Their names, as far as a line has room for them. */
static void add_classes(struct dt_doc *doc, const struct plan *p)
{
    const char *names = "";
    int n = 0;
    for (; n < p->config.data.n_classes && strlen(names) < MOST_NAMES_BYTES; n++) {
        names = dt_doc_print(doc, "%s%s%s", names, n > 0 ? ", " : "",
                             dt_class_text(doc, p->class_names, n));
    }
    dt_doc_text(doc, "Classes: %s%s.", names, n < p->config.data.n_classes ? ", ..." : "");
}

static void add_samples(struct dt_doc *doc, const struct plan *p)
{
    if (!p->has_data) {
        dt_doc_text(doc,
                    "No data in %s: steps and what each rank reads are unknown (add --data DIR).",
                    p->config.data.dir);
        return;
    }
    struct dt_part *figures = dt_doc_figures(doc, "Samples");
    dt_doc_figure(figures, "training::0", dt_n((double)p->shard.n_total));
    if (p->n_validation > 0) {
        dt_doc_figure(figures, "validation::0", dt_n((double)p->n_validation));
    }
    dt_doc_figure(figures, "test::0", dt_n((double)p->n_test));
    if (p->n_passed > 0) {
        dt_doc_figure(figures, "other files, passed over::0", dt_n((double)p->n_passed));
    }
    if (p->left_out[0] != '\0') {
        dt_doc_text(doc, "Columns of text, left out: %s.", p->left_out);
    }
    if (p->class_names != NULL) {
        add_classes(doc, p);
    }
}

static void add_steps(struct dt_doc *doc, const struct plan *p)
{
    const struct dt_config *c = &p->config;
    const int size = p->shard.size;
    const double steps = (double)dt_shard_steps_per_epoch(&p->shard),
                 scale = c->batch_per_rank > 0 ? dt_lr_scale(c->lr_scaling, size) : 1;
    struct dt_part *figures = dt_doc_figures(doc, "Steps");
    dt_doc_figure(figures, "batch::0", dt_n((double)p->shard.global_batch));
    if (c->batch_per_rank > 0) {
        dt_doc_judge(figures, DT_NO_VERDICT, "%lld × %d", (long long)c->batch_per_rank, size);
    } else {
        dt_doc_judge(figures, DT_NO_VERDICT, "over %d rank%s", size, size == 1 ? "" : "s");
    }
    dt_doc_figure(figures, "learning rate::g", dt_n(c->optimizer.lr * scale));
    if (c->batch_per_rank > 0) {
        dt_doc_judge(figures, DT_NO_VERDICT, "%g × %g", c->optimizer.lr, scale);
    }
    dt_doc_figure(figures, "epochs::0", dt_n((double)c->epochs));
    if (p->has_data) {
        dt_doc_figure(figures, "steps an epoch::0", dt_n(steps));
        dt_doc_figure(figures, "steps::0", dt_n(steps * (double)c->epochs));
    }
}

/* The rate over the steps, where it changes. */
static void add_rate(struct dt_doc *doc, const struct plan *p)
{
    const struct dt_config *c = &p->config;
    const uint64_t per_epoch = p->has_data ? dt_shard_steps_per_epoch(&p->shard) : 100,
                   n_steps = per_epoch * (uint64_t)c->epochs;
    const struct dt_lr_schedule schedule =
        dt_trainer_schedule(c, (uint64_t)p->roles.n_workers, per_epoch);
    double x[RATE_POINTS], y[RATE_POINTS];
    size_t n = n_steps < RATE_POINTS ? n_steps : RATE_POINTS;
    for (size_t i = 0; i < n; i++) {
        const uint64_t step = n > 1 ? i * (n_steps - 1) / (n - 1) : 0;
        x[i] = (double)step + 1;
        y[i] = dt_lr_schedule_at(&schedule, step);
    }
    if (c->schedule != DT_SCHEDULE_PLATEAU &&
        (c->schedule != DT_SCHEDULE_CONSTANT || dt_lr_schedule_warms_up(&schedule))) {
        struct dt_part *series = dt_doc_series(doc, "Learning rate", "step", "learning rate");
        dt_doc_plot(series, schedule_names[c->schedule], DT_LINE, n, x, y);
    }
}

static void add_ranks(struct dt_doc *doc, const struct plan *p)
{
    struct dt_part *table =
        dt_doc_table(doc, "Ranks", "rank|samples::0|a step, at most::0|which of them");
    for (int r = 0; r < p->shard.size; r++) {
        struct dt_shard shard = p->shard;
        shard.rank = r;
        const struct dt_owned owned = dt_shard_owned(&shard);
        const bool regular = owned.stride > 1 && owned.n > 2;
        dt_doc_row(
            table,
            dt_t(p->stages.n > 1 ? dt_doc_print(doc, "0 to %d", p->stages.n - 1)
                                 : dt_doc_print(doc, "%d", r)),
            dt_n((double)owned.n), dt_n(dt_shard_capacity(&shard)),
            dt_t(regular ? dt_doc_print(doc, "%u, %u, %u, ... %zu", owned.first,
                                        owned.first + owned.stride, owned.first + 2 * owned.stride,
                                        owned.first + (owned.n - 1) * owned.stride)
                         : ""));
    }
}

/* The tensors of each server. */
static void add_servers(struct dt_doc *doc, const struct plan *p)
{
    struct dt_placement placement;
    struct dt_part *table = dt_doc_table(doc, "Servers", "server::+|rank::+|tensors|bytes::B");
    dt_placement_make(&p->model, p->roles.n_servers, &placement);
    for (int s = 0; s < p->roles.n_servers; s++) {
        const char *names = "";
        double held = 0;
        for (int i = 0; i < p->model.n_params; i++) {
            if (placement.server_of[i] == s) {
                names = dt_doc_print(doc, "%s%s%s", names, held > 0 ? " " : "",
                                     p->model.params[i].name);
                held += (double)(p->model.params[i].n_elems * sizeof(float));
            }
        }
        dt_doc_row(table, dt_n(s), dt_n(p->roles.first_server + s), dt_t(names), dt_n(held));
    }
}

/* The blocks of each rank, and its share of the work. */
static void add_stages(struct dt_doc *doc, const struct plan *p)
{
    double all = 0;
    const struct dt_dist_spec *dist = &p->config.dist;
    const int n_parts = dt_pipeline_n_parts(dist, (int64_t)p->shard.global_batch);
    struct dt_part *table = dt_doc_table(doc, "Stages", "rank::+|blocks|flop a sample::0|share::%");
    for (int i = 0; i < p->stages.n; i++) {
        all += p->stages.stages[i].flops;
    }
    for (int i = 0; i < p->stages.n; i++) {
        const struct dt_stage *stage = &p->stages.stages[i];
        const char *names = "";
        for (int b = stage->begin; b < stage->end; b++) {
            names = dt_doc_print(doc, "%s%s%s", names, b > stage->begin ? " " : "",
                                 p->model.blocks[b].name);
        }
        dt_doc_row(table, dt_n(i), dt_t(names), dt_n(stage->flops), dt_n(stage->flops / all));
    }
    struct dt_part *figures = dt_doc_figures(doc, "Pipeline");
    dt_doc_fact(figures, "schedule", "%s", dt_pipeline_schedule_name(dist->schedule));
    dt_doc_figure(figures, "micro-batches::0", dt_n(n_parts));
    dt_doc_figure(figures, "waiting::%", dt_n(dt_pipeline_bubble(p->stages.n, n_parts)));
    dt_doc_judge(figures, DT_NO_VERDICT, "of a step, if all stages take equally long");
}

static void add_traffic(struct dt_part *figures, const struct plan *p)
{
    const struct dt_step_traffic *step = &p->traffic.step;
    if (!step->known || step->messages == 0) {
        return;
    }
    dt_doc_figure(figures, "messages a step::0", dt_n(step->messages));
    dt_doc_figure(figures, "sent a step::B", dt_n(step->bytes));
    dt_doc_judge(figures, DT_NO_VERDICT, "by %s", step->by_each ? "each rank" : "the busiest rank");
    if (step->n_hosts > 1) {
        dt_doc_figure(figures, "messages between hosts::0", dt_n(step->messages_between));
        dt_doc_figure(figures, "sent between hosts::B", dt_n(step->bytes_between));
        dt_doc_judge(figures, DT_NO_VERDICT, "by all ranks together");
    }
}

/* Predicts messages and bytes of averaging, without a run. */
static void add_averaging(struct dt_doc *doc, const struct plan *p)
{
    const struct dt_dist_spec *dist = &p->config.dist;
    const struct dt_codec *codec = &p->traffic.codec;
    if (p->roles.whole) {
        add_stages(doc, p);
        return;
    }
    if (p->roles.n_servers == 0 && (p->shard.size == 1 || !dist->average)) {
        return;
    }
    if (p->roles.n_servers > 0) {
        add_servers(doc, p);
    }
    struct dt_part *figures = dt_doc_figures(doc, "Averaging");
    if (p->roles.n_servers > 0) {
        dt_doc_fact(figures, "strategy", "%s", dt_strategy_names[dist->strategy]);
        dt_doc_figure(figures, "workers::0", dt_n(p->roles.n_workers));
    } else {
        dt_doc_fact(figures, "allreduce", "%s", dt_allreduce_names[p->traffic.allreduce]);
        dt_doc_figure(figures, "buckets::0", dt_n(p->traffic.n_buckets));
    }
    if (codec->spec.type != DT_COMPRESSION_NONE) {
        dt_doc_figure(figures,
                      dt_doc_print(doc, "sent as %s::B", dt_compression_names[codec->spec.type]),
                      dt_n((double)dt_codec_bytes(codec, 0, p->model.n_parameters)));
        dt_doc_judge(figures, DT_NO_VERDICT, "%s for n gradients",
                     dt_compression_formulas[codec->spec.type]);
    }
    add_traffic(figures, p);
    if (!p->traffic.step.known || p->traffic.step.messages == 0) {
        dt_doc_text(doc, "%s.",
                    dist->allreduce == DT_ALLREDUCE_AUTO
                        ? "Which is chosen at run time: set distributed.allreduce to see messages"
                        : dt_allreduce_meaning(dist->allreduce));
    }
}

/* Opens the files, and decodes a few of all images. */
static enum dt_status check_files(struct plan *p, enum dt_split split, size_t n_there)
{
    const size_t n =
        p->config.data.format != DT_DATA_IMAGES ? 0 : dt_min_size(n_there, MOST_DECODED);
    const struct dt_owned rows = {n, n > 0 ? 0 : UINT32_MAX, n > 0 ? (uint32_t)(n_there / n) : 1};
    struct dt_data_spec spec = dt_validation_none(&p->config.data);
    struct dt_bad_images bad = {.lines = NULL};
    struct dt_dataset some;
    spec.bad = &bad;
    DT_TRY(dt_dataset_open(&spec, split, rows, &some));
    const enum dt_status s = dt_bad_decide(&bad, (size_t)spec.skip_bad);
    p->n_passed += some.n_passed;
    if (split == DT_SPLIT_TRAIN && some.found != NULL) {
        dt_found_take(some.found, &p->config.data);
        memcpy(p->left_out, some.left_out, sizeof p->left_out);
    }
    free(p->class_names);
    p->class_names = some.class_names;
    some.class_names = NULL;
    dt_dataset_close(&some);
    dt_bad_close(&bad);
    char part[64];
    snprintf(part, sizeof part, "; plan reads %zu of %zu", n, n_there);
    return s == DT_OK || n == n_there ? s : dt_error_around(s, "", part);
}

/* With validation samples there need be none. */
static enum dt_status count_test(struct plan *p)
{
    const enum dt_status s = dt_dataset_count(&p->config.data, DT_SPLIT_TEST, &p->n_test);
    if (s == DT_NO_INPUT && p->config.data.validation > 0) {
        dt_error_clear();
        p->n_test = 0;
        return DT_OK;
    }
    return s == DT_OK ? check_files(p, DT_SPLIT_TEST, p->n_test) : s;
}

static enum dt_status count_samples(struct plan *p)
{
    DT_TRY(dt_trainer_shard(&p->config, 0, p->roles.n_workers, &p->shard));
    DT_TRY(p->config.data.validation > 0
               ? dt_dataset_count(&p->config.data, DT_SPLIT_VALIDATION, &p->n_validation)
               : DT_OK);
    DT_TRY(check_files(p, DT_SPLIT_TRAIN, p->shard.n_total + p->n_validation));
    return count_test(p);
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

static enum dt_status show(const struct dt_args *args, const struct plan *p)
{
    struct dt_doc *doc = dt_doc_open("plan", "%s", p->config.name);
    dt_model_table(doc, &p->model);
    dt_model_tell_uneven(doc, &p->model);
    add_samples(doc, p);
    add_steps(doc, p);
    add_rate(doc, p);
    add_memory(doc, p);
    add_averaging(doc, p);
    if (p->has_data) {
        add_ranks(doc, p);
    }
    const enum dt_status s = dt_result_show(args, doc);
    dt_doc_close(doc);
    return s;
}

/* Shows layers with shapes, parameters and FLOPs per sample; memory; steps; the samples of each
 * rank. Reads only the headers of the data files. Without data the plan says what is unknown; with
 * --data, missing data are an error, because the user named the folder. Agreed. */
static enum dt_status run(struct dt_world *world, const struct dt_args *args)
{
    struct plan *plan = calloc(1, sizeof *plan);
    enum dt_status s = plan != NULL ? dt_load_config(args, &plan->config)
                                    : dt_error(DT_NO_MEMORY, "out of memory");
    s = dt_world_agree(world, s);
    s = s == DT_OK ? make_plan(world, dt_args_has(args, DT_OPTION_DATA), plan) : s;
    s = dt_world_agree(world, s == DT_OK && world->rank == 0 ? show(args, plan) : s);
    free(plan != NULL ? plan->class_names : NULL);
    free(plan);
    return s;
}

const struct dt_command dt_command_plan = {
    .word = "plan",
    .meaning = "show layers, parameters, memory and shards",
    .usage = "dtrain plan --config FILE [--data DIR] [--epochs N] [--batch N] [--lr X]\n"
             "      [--set KEY.PATH=VALUE]..." DT_RESULT_USAGE,
    .examples = "  dtrain plan --config configs/mnist.json\n",
    .more = "Without training: shapes, operations, the memory that a rank wants on its device, "
            "the steps of an epoch, what each rank reads, and between several ranks what "
            "averaging gradients sends. Without data it leaves out the steps and what is read.",
    .options = {[DT_OPTION_CONFIG] = {DT_REQUIRED},
                [DT_OPTION_DATA] = {DT_TAKEN},
                [DT_OPTION_EPOCHS] = {DT_TAKEN},
                [DT_OPTION_BATCH] = {DT_TAKEN},
                [DT_OPTION_LR] = {DT_TAKEN},
                [DT_OPTION_SET] = {DT_TAKEN},
                DT_RESULT_OPTIONS},
    .needs_no_ranks = true,
    .together = run,
};
