/* The first lines of a run: the ranks, the arithmetic of batch and rate, how gradients are
 * combined, and what is unusual. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/cli_text.h"
#include "cli/sinks/fields.h"
#include "cli/terminal.h"
#include "dist/compression/codec.h"
#include "dist/strategy/pipeline/pipeline_schedule.h"
#include "dist/strategy/summary/summary.h"
#include "train/hooks/inject.h"

static const char *const optimizer_names[] = {DT_OPTIMIZER_LIST(DT_ENUM_NAME)};
static const char *const scaling_names[] = {DT_LR_SCALING_LIST(DT_ENUM_NAME)};
static const char *const schedule_names[] = {DT_SCHEDULE_LIST(DT_ENUM_NAME)};
static const char *const sharding_names[] = {DT_SHARDING_LIST(DT_ENUM_NAME)};

/* ---- the table of ranks */

#define DATA_SIZE 96

/* "shard: 15,000 of 60,000 samples" */
static int data_text(const struct dt_folder_event *folder, const struct dt_run_event *run, int rank,
                     char text[DATA_SIZE])
{
    char n_rows[32], n_total[32], held[DT_BYTES_TEXT_SIZE];
    const struct dt_rank_info *info = &run->ranks[rank];
    if (!info->works) {
        return snprintf(text, DATA_SIZE, "none: serves %s of weights",
                        dt_bytes_text((double)info->held, held));
    }
    return snprintf(text, DATA_SIZE, "%s: %s of %s samples",
                    sharding_names[folder->config->sharding],
                    dt_count_text((double)info->n_samples, n_rows, sizeof n_rows),
                    dt_count_text((double)run->n_train, n_total, sizeof n_total));
}

/* Widths of the columns. */
struct columns {
    int host, device, data;
    bool full; /* with "local" and "threads" */
};

/* Chooses the columns between host and data: all of them, or only the device if `width` has no room
 * for all (0: any room). A host that is still too wide is cut. */
static struct columns plan_columns(const struct dt_folder_event *folder,
                                   const struct dt_run_event *run, int width)
{
    struct columns c = {.host = 4, .device = 6, .data = 4};
    char text[DATA_SIZE];
    for (int r = 0; r < folder->world_size; r++) {
        c.host = dt_max(c.host, (int)strlen(run->ranks[r].host));
        c.device = dt_max(c.device, (int)strlen(run->ranks[r].device));
        c.data = dt_max(c.data, data_text(folder, run, r, text));
    }
    const int rest = 10 + c.device + 2 + c.data;
    c.full = width == 0 || 8 + c.host + 9 + c.device + 11 + c.data <= width;
    c.host = c.full || c.host + rest <= width ? c.host : dt_max(width - rest, 8);
    return c;
}

static void print_rank(const struct columns *c, const struct dt_rank_info *rank, const char *data)
{
    char local[16] = "", threads[16] = "";
    if (c->full) {
        snprintf(local, sizeof local, "  %5d", rank->local_rank);
        snprintf(threads, sizeof threads, "  %7d", rank->n_threads);
    }
    dt_text_print(stderr, "  %4d  %-*.*s%s  %-*s%s  %s", rank->rank, c->host, c->host, rank->host,
                  local, c->device, rank->device, threads, data);
}

static void print_ranks(const struct dt_folder_event *folder, const struct dt_run_event *run)
{
    const struct columns c = plan_columns(folder, run, dt_terminal_width(STDERR_FILENO));
    char data[DATA_SIZE];
    fprintf(stderr, "  rank  %-*s%s  %-*s%s  data\n", c.host, "host", c.full ? "  local" : "",
            c.device, "device", c.full ? "  threads" : "");
    for (int r = 0; r < folder->world_size; r++) {
        data_text(folder, run, r, data);
        print_rank(&c, &run->ranks[r], data);
    }
}

/* ---- batch, rate and averaging */

/* "batch 128 × 4 = 512, lr 0.001 × 4 = 0.004 (linear)" */
static void print_arithmetic(const struct dt_folder_event *folder, const struct dt_run_event *run)
{
    const struct dt_config *c = folder->config;
    const int n = run->n_workers;
    const char *times = dt_terminal_times();
    if (c->batch_global > 0) {
        fprintf(stderr, "  batch %lld over %d rank%s, lr %g", (long long)c->batch_global, n,
                n == 1 ? "" : "s", run->lr);
    } else {
        fprintf(stderr, "  batch %lld %s %d = %zu, lr %g %s %g = %g (%s)",
                (long long)c->batch_per_rank, times, n, run->global_batch, c->optimizer.lr, times,
                run->lr_scale, run->lr, scaling_names[c->lr_scaling]);
    }
    if (c->accumulate > 1) {
        fprintf(stderr, ", %lld micro-batches", (long long)c->accumulate);
    }
    fputc('\n', stderr);
}

/* "schedule cosine, warm-up 1 epoch; 118 steps/epoch, 12 epochs" */
static void print_schedule(const struct dt_config *c, const struct dt_run_event *run)
{
    fprintf(stderr, "  schedule %s", schedule_names[c->schedule]);
    if (c->warmup_epochs > 0) {
        const bool grows = c->warmup_from >= 0 ? c->warmup_from < 1 : run->lr_scale != 1;
        fprintf(stderr, ", warm-up %g epoch%s%s", c->warmup_epochs,
                c->warmup_epochs == 1 ? "" : "s",
                grows ? "" : " that changes nothing (set train.warmup_from, such as 0.1)");
    }
    fprintf(stderr, "; %llu step%s/epoch, %lld epoch%s\n", (unsigned long long)run->steps_per_epoch,
            run->steps_per_epoch == 1 ? "" : "s", (long long)c->epochs, c->epochs == 1 ? "" : "s");
    if (c->schedule == DT_SCHEDULE_PLATEAU) {
        fprintf(stderr, "  lr %s %g when the %s has not improved for %lld epoch%s\n",
                dt_terminal_times(), c->schedule_factor, dt_metric_name(c->plateau.metric),
                (long long)c->plateau.patience, c->plateau.patience == 1 ? "" : "s");
    }
    if (c->early_stopping.metric != DT_TEST_NONE) {
        fprintf(stderr, "  ends early when the %s has not improved for %lld epoch%s\n",
                dt_metric_name(c->early_stopping.metric), (long long)c->early_stopping.patience,
                c->early_stopping.patience == 1 ? "" : "s");
    }
}

/* For "auto": why it is not the GPU. For a GPU: whether it takes steps on its own. */
static void print_device(const struct dt_config *c, const struct dt_run_event *run)
{
    if (c->device == DT_DEVICE_AUTO && !run->gpu) {
        dt_text_print(stderr, "  device: cpu, because %s", run->device_why);
    } else if (run->graph) {
        fprintf(stderr, "  steps recorded as a CUDA graph\n");
    } else if (run->gpu) {
        fprintf(stderr, "  steps call by call: %s\n",
                !c->cuda_graph               ? "cuda.graph is off"
                : c->ema > 0                 ? "train.ema adds each step's weights"
                : run->device_why[0] != '\0' ? run->device_why
                                             : "gradients pass through the host");
    }
}

/* Warns if this host has more ranks on its CPU than cores. */
static void print_shared_cores(const struct dt_folder_event *folder, const struct dt_run_event *run)
{
    const long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = 0;
    for (int r = 0; r < folder->world_size && !run->gpu; r++) {
        n += strcmp(run->ranks[r].host, run->ranks[0].host) == 0;
    }
    if (n > n_cores) {
        fprintf(stderr, "  %d ranks share %ld core%s: expect no speed-up\n", n, n_cores,
                n_cores == 1 ? "" : "s");
    }
}

/* "  compression: int8 with error feedback, 1,213,946 bytes for 1,199,882 gradients: n + 3 ceil(n /
 * 256) for n numbers", if gradients are compressed. */
static void print_compression(const struct dt_codec *codec, size_t n_gradients)
{
    char bytes[32], numbers[32];
    if (codec != NULL && codec->spec.type != DT_COMPRESSION_NONE) {
        const struct dt_compression_spec *compression = &codec->spec;
        fprintf(stderr, "  compression: %s%s, %s bytes for %s gradients: %s for n numbers\n",
                dt_compression_names[compression->type],
                compression->error_feedback ? " with error feedback" : "",
                dt_count_text((double)dt_codec_bytes(codec, 0, n_gradients), bytes, sizeof bytes),
                dt_count_text((double)n_gradients, numbers, sizeof numbers),
                dt_compression_formulas[compression->type]);
    }
}

static void print_averaging(const struct dt_folder_event *folder, const struct dt_run_event *run)
{
    const struct dt_strategy_summary *a = &run->averaging;
    if (folder->world_size == 1 || !folder->config->dist.average) {
        return;
    }
    if (a->n_stages > 0) {
        const struct dt_config *c = folder->config;
        const struct dt_dist_spec *dist = &c->dist;
        fprintf(stderr, "  pipeline of %d stages, %d micro-batches, %s", a->n_stages,
                dt_pipeline_n_parts(dist, c->batch_per_rank + c->batch_global),
                dt_pipeline_schedule_name(dist->schedule));
        for (int i = 0; i < dist->cut.n; i++) {
            fprintf(stderr, "%s%s", i == 0 ? ", cut at " : ", ", dt_texts_at(&dist->cut, i));
        }
        fputc('\n', stderr);
        if (dist->allreduce != DT_ALLREDUCE_AUTO) {
            fprintf(stderr,
                    "  distributed.allreduce has no effect: a pipeline adds no gradients\n");
        }
        return;
    }
    if (a->n_servers > 0) {
        fprintf(stderr, "  weights in %d piece%s with %d server%s: %s", a->n_buckets,
                a->n_buckets == 1 ? "" : "s", a->n_servers, a->n_servers == 1 ? "" : "s",
                a->allreduce);
    } else {
        fprintf(stderr, "  allreduce of gradients: %d bucket%s, %s", a->n_buckets,
                a->n_buckets == 1 ? "" : "s", a->allreduce);
    }
    if (a->across != NULL) {
        fprintf(stderr, " in each of %d hosts, %s between them", a->n_hosts, a->across);
    }
    fprintf(stderr, "%s",
            folder->config->dist.order == DT_ORDER_PRIORITY ? ", by priority"
            : folder->config->dist.deterministic            ? ", as integers"
                                                            : "");
    dt_text_print(stderr, "%s%s", a->why[0] != '\0' ? ", because " : "", a->why);
    print_compression(a->codec, run->n_parameters);
    if (a->traffic.known && a->traffic.messages > 0) {
        char text[120], gradients[DT_BYTES_TEXT_SIZE];
        dt_traffic_text(&a->traffic, text, sizeof text);
        fprintf(stderr, "  a step: %s (%s of gradients)\n", text,
                dt_bytes_text((double)run->gradient_bytes, gradients));
        dt_traffic_print_between(stderr, &a->traffic);
    }
}

static void print_statistics(const struct dt_config *c, const struct dt_run_event *run)
{
    int n_own = 0, n_synced = 0;
    for (int i = 0; i < c->model.n_layers && run->n_workers > 1; i++) {
        const struct dt_layer_spec *layer = &c->model.layers[i];
        n_synced += layer->sync;
        n_own += layer->type == DT_LAYER_BATCH_NORM && !layer->sync;
    }
    if (n_own > 0) {
        fprintf(stderr, "  batch_norm: each rank normalizes by its own samples; rank 0's running "
                        "statistics are kept\n");
    }
    if (n_synced > 0) {
        fprintf(stderr,
                "  batch_norm with sync: normalizes by all ranks' samples, which takes "
                "%lld more small allreduces a step\n",
                2LL * n_synced * (long long)c->accumulate);
    }
}

static void print_switches(const struct dt_config *c)
{
    if (!c->dist.average) {
        fprintf(
            stderr,
            "  averaging is off: each rank steps with its own gradient, so the replicas drift "
            "apart,\n"
            "  and the test result mixes them: each rank tests its share with its own weights\n");
    }
    if (!c->dist.broadcast) {
        fprintf(stderr, "  broadcast is off: each rank keeps the weights it began with\n");
    }
    if (c->sharding == DT_SHARDING_REPLICATE) {
        fprintf(stderr, "  sharding is \"replicate\": every rank goes through all samples, which "
                        "is rarely what is wanted\n");
    }
}

static void print_validation(const struct dt_run_event *run)
{
    char held[32];
    if (run->n_validation > 0) {
        fprintf(stderr,
                "  %s validation sample%s held out; the test set is evaluated once, at the end\n",
                dt_count_text((double)run->n_validation, held, sizeof held),
                run->n_validation == 1 ? "" : "s");
    }
}

static void print_faults(const struct dt_faults *faults)
{
    for (int i = 0; faults != NULL && i < faults->n; i++) {
        dt_text_print(stderr, "  INJECTED FAULT: %s", faults->faults[i].text);
    }
}

static void print_origin(const struct dt_folder_event *folder, const struct dt_run_event *run)
{
    dt_text_print(stderr, "  run   %s", folder->dir->path);
    if (run->weights != NULL) {
        dt_text_print(stderr, "  weights from %s", run->weights);
    }
    if (folder->resumes && run->resumed_from[0] == '\0') {
        dt_text_print(stderr, "  %s has no checkpoint: training starts at step 0",
                      folder->dir->path);
    } else if (run->resumed_from[0] != '\0') {
        dt_text_print(stderr, "  resumed at step %llu (%llu epoch%s done), from %s",
                      (unsigned long long)run->step, (unsigned long long)run->n_epochs,
                      run->n_epochs == 1 ? "" : "s", run->resumed_from);
        if (run->changes[0] != '\0') {
            dt_text_print(stderr, "  changed since then: %s", run->changes);
        }
    }
}

void dt_banner_print(const struct dt_folder_event *folder, const struct dt_run_event *run)
{
    const struct dt_config *c = folder->config;
    const int n = folder->world_size;
    char n_parameters[32];
    dt_text_print(stderr, "dtrain %s: %s, %s parameters, %s, %d rank%s", dt_version, c->name,
                  dt_count_text((double)run->n_parameters, n_parameters, sizeof n_parameters),
                  optimizer_names[c->optimizer.type], n, n == 1 ? "" : "s");
    print_ranks(folder, run);
    print_device(c, run);
    print_shared_cores(folder, run);
    print_arithmetic(folder, run);
    print_schedule(c, run);
    print_validation(run);
    print_averaging(folder, run);
    print_switches(c);
    print_statistics(c, run);
    print_faults(run->faults);
    print_origin(folder, run);
}
