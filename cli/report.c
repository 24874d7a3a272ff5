#include "cli/report.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/text.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/terminal.h"
#include "cli/version.h"

static const char *const phase_names[] = {
#define DT_NAME(constant, name) name,
    DT_PHASE_LIST(DT_NAME)};
static const char *const optimizer_names[] = {DT_OPTIMIZER_LIST(DT_NAME)};
static const char *const scaling_names[] = {DT_LR_SCALING_LIST(DT_NAME)};
static const char *const schedule_names[] = {DT_SCHEDULE_LIST(DT_NAME)};
static const char *const sharding_names[] = {DT_SHARDING_LIST(DT_NAME)};

static bool classifies(const struct dt_trainer *t)
{
    return t->config.model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
}

/* "cuda NVIDIA H200, bf16, 1a2b3c4d": of a GPU also the beginning of its UUID, "GPU-1a2b3c4d-...", to tell which one it is. */
static void describe_device(const struct dt_trainer *t, char *text, size_t size)
{
    const int n = snprintf(text, size, "%s %s", t->backend->ops->name, t->backend->description);
    const char *dash = t->device.cuda != NULL ? strchr(t->device.gpu.uuid, '-') : NULL;
    if (dash != NULL && n > 0 && (size_t)n < size) {
        snprintf(text + n, size - (size_t)n, ", %.8s", dash + 1);
    }
}

static void describe_rank(const struct dt_trainer *t, struct dt_rank_info *me)
{
    char n_rows[32], n_total[32];
    memset(me, 0, sizeof *me); /* padding too: it travels */
    me->rank = t->world->rank;
    me->local_rank = t->world->local_rank;
    me->n_threads = t->n_threads;
    memcpy(me->host, t->world->host, sizeof me->host);
    describe_device(t, me->device, sizeof me->device);
    snprintf(me->data, sizeof me->data, "%s: %s of %s samples", sharding_names[t->config.sharding],
             dt_count_text((double)t->data.samples.n, n_rows, sizeof n_rows),
             dt_count_text((double)t->loader.shard.n_total, n_total, sizeof n_total));
}

/* "batch 128 × 4 = 512, lr 0.001 × 4 = 0.004 (linear)" */
static void print_arithmetic(const struct dt_trainer *t)
{
    const struct dt_config *c = &t->config;
    const int n = t->world->size;
    const char *times = dt_terminal_times();
    if (c->batch_global > 0) {
        fprintf(stderr, "  batch %lld over %d rank%s, lr %g", (long long)c->batch_global, n, n == 1 ? "" : "s", t->schedule.lr);
    } else {
        fprintf(stderr, "  batch %lld %s %d = %zu, lr %g %s %g = %g (%s)", (long long)c->batch_per_rank, times, n,
                t->loader.shard.global_batch, c->optimizer.lr, times, t->schedule.scale, t->schedule.lr,
                scaling_names[c->lr_scaling]);
    }
    if (c->accumulate > 1) {
        fprintf(stderr, ", %lld micro-batches", (long long)c->accumulate);
    }
    fputc('\n', stderr);
}

/* "schedule cosine, warm-up 1 epoch; 118 steps/epoch, 12 epochs" */
static void print_schedule(const struct dt_trainer *t)
{
    const struct dt_config *c = &t->config;
    fprintf(stderr, "  schedule %s", schedule_names[c->schedule]);
    if (c->warmup_epochs > 0) {
        const bool grows = t->schedule.scale != 1; /* warm-up is the way from the unscaled to the scaled rate */
        fprintf(stderr, ", %swarm-up %g epoch%s%s", grows ? "" : "no ", c->warmup_epochs, c->warmup_epochs == 1 ? "" : "s",
                grows ? "" : " (the rate is not scaled)");
    }
    fprintf(stderr, "; %llu step%s/epoch, %lld epoch%s\n", (unsigned long long)t->steps_per_epoch,
            t->steps_per_epoch == 1 ? "" : "s", (long long)c->epochs, c->epochs == 1 ? "" : "s");
}

/* Of "auto": why not the GPU. Of a GPU: whether it takes steps on its own. */
static void print_device(const struct dt_trainer *t)
{
    if (t->config.device == DT_DEVICE_AUTO && t->device.cuda == NULL) {
        dt_text_print(stderr, "  device: cpu, because %s", t->device.why);
    } else if (t->graph != NULL) {
        fprintf(stderr, "  steps recorded as a CUDA graph\n");
    } else if (t->device.cuda != NULL) {
        fprintf(stderr, "  steps call by call: %s\n",
                t->config.cuda_graph ? "gradients pass through the host" : "cuda.graph is off");
    }
}

static void print_averaging(const struct dt_trainer *t)
{
    const int n = t->dist.sync.n_buckets, n_hosts = t->world->comm->n_hosts;
    if (t->world->size == 1 || !t->config.dist.average) {
        return;
    }
    const struct dt_allreduce *a = &t->dist.allreduce;
    const bool across = a->shared.part != NULL && n_hosts > 1;
    const char *why = a->why[0] != '\0' ? a->why : t->device.cuda != NULL && !t->device.nccl ? t->device.why : "";
    fprintf(stderr, "  allreduce of gradients: %d bucket%s, %s", n, n == 1 ? "" : "s", dt_allreduce_names[a->type]);
    if (across) {
        fprintf(stderr, " in each of %d hosts, %s between them", n_hosts, a->type == DT_ALLREDUCE_HIERARCHICAL ? "ring" : "mpi");
    }
    dt_text_print(stderr, "%s%s", why[0] != '\0' ? ", because " : "", why);
    const struct dt_step_traffic traffic = dt_traffic_foretell(t);
    if (traffic.known && traffic.messages > 0) {
        char text[120];
        dt_traffic_text(&traffic, text, sizeof text);
        fprintf(stderr, "  a step: %s (%.2f MB of gradients)\n", text, 1e-6 * sizeof(float) * (double)t->model.arena_elems);
    }
}

static void print_switches(const struct dt_config *c)
{
    if (!c->dist.average) {
        fprintf(stderr, "  averaging is off: each rank steps with its own gradient, so the replicas drift apart,\n"
                        "  and the test result mixes them: each rank tests its share with its own weights\n");
    }
    if (!c->dist.broadcast) {
        fprintf(stderr, "  broadcast is off: each rank keeps the weights it began with\n");
    }
    if (c->sharding == DT_SHARDING_REPLICATE) {
        fprintf(stderr, "  sharding is \"replicate\": every rank goes through all samples, which is rarely what is wanted\n");
    }
}

enum dt_status dt_report_start(struct dt_trainer *t, const struct dt_run_dir *run, const char *resumed_from, const char *weights)
{
    struct dt_rank_info mine, *all = calloc((size_t)t->world->size, sizeof *all);
    DT_TRY(dt_world_agree(t->world, all != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "out of memory for the roster")));
    describe_rank(t, &mine);
    const enum dt_status s = dt_ranks_gather(t->world, &mine, all);
    if (s == DT_OK && t->world->rank == 0) {
        char n_parameters[32];
        dt_text_print(stderr, "dtrain %s: %s, %s parameters, %s, %d rank%s", dt_version, t->config.name,
                      dt_count_text((double)t->model.n_parameters, n_parameters, sizeof n_parameters),
                      optimizer_names[t->config.optimizer.type], t->world->size, t->world->size == 1 ? "" : "s");
        dt_ranks_print(stderr, all, t->world->size, dt_terminal_width(STDERR_FILENO));
        print_device(t);
        print_arithmetic(t);
        print_schedule(t);
        print_averaging(t);
        print_switches(&t->config);
        dt_text_print(stderr, "  run   %s", run->path);
        if (weights != NULL) {
            dt_text_print(stderr, "  weights from %s", weights);
        }
        if (resumed_from[0] != '\0') {
            dt_text_print(stderr, "  resumed from %s: %llu epoch%s and %llu steps done", resumed_from,
                          (unsigned long long)t->state.epoch, t->state.epoch == 1 ? "" : "s", (unsigned long long)t->state.step);
        }
    }
    free(all);
    return s;
}

/* `room`: 2 for all, 1 without the throughput, 0 with the shortest words too. */
static int compose_epoch(const struct dt_trainer *t, const struct dt_epoch_record *r, double seconds, int room, char *line,
                         size_t size)
{
    char number[32], train[32], test[32], accuracy[64] = "", speed[64] = "", time[40] = "  no step was left";
    const bool words = room > 0;
    if (classifies(t)) {
        snprintf(accuracy, sizeof accuracy, "  %saccuracy %5.2f %%", words ? "test " : "", 100.0 * dt_metrics_accuracy(&r->test));
    }
    if (isfinite(r->images_per_s)) {
        if (room > 1) {
            snprintf(speed, sizeof speed, "  %s %s/s", dt_count_text(r->images_per_s, number, sizeof number),
                     dt_unit_name(&t->config));
        }
        snprintf(time, sizeof time, "  %s", dt_duration_text(seconds, number, sizeof number));
    }
    return snprintf(line, size, "epoch %*llu/%lld  %sloss %s  test loss %s%s  lr %.3g%s%s",
                    dt_digits((unsigned long long)t->config.epochs), (unsigned long long)r->epoch, (long long)t->config.epochs,
                    words ? "train " : "", dt_loss_text(dt_metrics_loss(&r->train), train, sizeof train),
                    dt_loss_text(dt_metrics_loss(&r->test), test, sizeof test), accuracy, r->lr, speed, time);
}

void dt_report_epoch(const struct dt_trainer *t, const struct dt_epoch_record *r, double seconds)
{
    char line[256];
    const int width = dt_terminal_width(STDERR_FILENO);
    int room = 2;
    while (compose_epoch(t, r, seconds, room, line, sizeof line) > width && width > 0 && room > 0) {
        room--;
    }
    fprintf(stderr, "%s\n", line);
}

enum dt_status dt_report_times(struct dt_trainer *t)
{
    double seconds[DT_N_PHASES], total = 0;
    memcpy(seconds, t->seconds, sizeof seconds);
    DT_TRY(dt_comm_allreduce(t->world->comm, seconds, DT_N_PHASES, DT_TYPE_F64, DT_REDUCE_SUM, "sum of the ranks' times"));
    for (int p = 0; p < DT_N_PHASES; p++) {
        total += seconds[p];
    }
    if (t->world->rank != 0 || t->n_timed_steps == 0 || total <= 0) {
        return DT_OK;
    }
    const double per_step = 1e3 / ((double)t->n_timed_steps * t->world->size);
    fprintf(stderr, "time of a step, mean over ranks\n");
    for (int p = 0; p < DT_N_PHASES; p++) {
        if (seconds[p] > 0) {
            fprintf(stderr, "  %-13s %9.3f ms  %5.1f %%\n", phase_names[p], seconds[p] * per_step, 100 * seconds[p] / total);
        }
    }
    fprintf(stderr, "  %-13s %9.3f ms\n", "total", total * per_step);
    return DT_OK;
}

/* Of the pages in this process's memory, what others account for: of n processes that share a page, each has an n-th (Linux's
 * "proportional set size"). 0 where the system does not say. */
static double bytes_of_others(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    double resident_kb = 0, own_kb = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        sscanf(line, "Rss: %lf", &resident_kb);
        sscanf(line, "Pss: %lf", &own_kb);
    }
    if (file != NULL) {
        fclose(file);
    }
    return own_kb > 0 ? 1024.0 * (resident_kb - own_kb) : 0;
}

static struct dt_memory_use measure_memory(struct dt_trainer *t)
{
    struct rusage usage;
    struct dt_gpu_memory gpu = {0};
    getrusage(RUSAGE_SELF, &usage);
    if (t->device.cuda != NULL) {
        t->device.cuda->memory(t->backend, &gpu);
    }
    return (struct dt_memory_use){.host_peak = 1024.0 * (double)usage.ru_maxrss - bytes_of_others(),
                                  .gpu_peak = (double)gpu.peak_bytes,
                                  .gpu_free = (double)gpu.free_bytes,
                                  .gpu_all = (double)gpu.total_bytes};
}

enum dt_status dt_report_memory(struct dt_trainer *t, struct dt_memory_use *out)
{
    const struct dt_memory_use mine = measure_memory(t);
    double most[] = {mine.host_peak, mine.gpu_peak, -mine.gpu_free, -mine.gpu_all}; /* the last two: least */
    DT_TRY(dt_comm_allreduce(t->world->comm, most, 4, DT_TYPE_F64, DT_REDUCE_MAX, "largest of the ranks' memory"));
    *out = (struct dt_memory_use){.host_peak = most[0], .gpu_peak = most[1], .gpu_free = -most[2], .gpu_all = -most[3]};
    if (t->world->rank == 0) {
        char host[DT_BYTES_TEXT_SIZE], peak[DT_BYTES_TEXT_SIZE], left[DT_BYTES_TEXT_SIZE], all[DT_BYTES_TEXT_SIZE];
        fprintf(stderr, "peak memory per rank: %s", dt_bytes_text(out->host_peak, host));
        if (t->device.cuda != NULL) {
            fprintf(stderr, "; on its GPU %s of %s, %s left", dt_bytes_text(out->gpu_peak, peak), dt_bytes_text(out->gpu_all, all),
                    dt_bytes_text(out->gpu_free, left));
        }
        fprintf(stderr, "\n");
    }
    return DT_OK;
}

enum dt_status dt_report_traffic(struct dt_trainer *t, struct dt_step_traffic *out)
{
    DT_TRY(dt_traffic_measure(t, out));
    if (t->world->rank == 0 && out->known && out->messages > 0) {
        const struct dt_step_traffic expected = dt_traffic_foretell(t);
        const bool as_foretold = expected.messages == out->messages && expected.bytes == out->bytes;
        char text[120];
        dt_traffic_text(out, text, sizeof text);
        fprintf(stderr, "allreduce of a step: %s%s\n", text,
                !expected.known ? ""
                : as_foretold   ? ", as foretold"
                                : ", which is NOT as foretold");
    }
    return DT_OK;
}

/* What goes into summary.json: all of it, or none. */
struct summary {
    cJSON *json;
    bool complete; /* so far: there was memory for everything */
};

static void add_number(struct summary *summary, cJSON *object, const char *key, double value)
{
    summary->complete = cJSON_AddNumberToObject(object, key, value) != NULL && summary->complete;
}

static void add_text(struct summary *summary, const char *key, const char *text)
{
    summary->complete = cJSON_AddStringToObject(summary->json, key, text) != NULL && summary->complete;
}

static void add_memory(struct summary *summary, const struct dt_memory_use *memory)
{
    if (memory->host_peak > 0) {
        add_number(summary, summary->json, "host_memory_peak_bytes", memory->host_peak);
    }
    if (memory->gpu_all > 0) {
        add_number(summary, summary->json, "gpu_memory_peak_bytes", memory->gpu_peak);
        add_number(summary, summary->json, "gpu_memory_free_bytes", memory->gpu_free);
        add_number(summary, summary->json, "gpu_memory_bytes", memory->gpu_all);
    }
}

static void add_times(struct summary *summary, const struct dt_trainer *t)
{
    if (t->n_timed_steps == 0) {
        return;
    }
    cJSON *times = cJSON_AddObjectToObject(summary->json, "rank0_ms_per_step");
    summary->complete = times != NULL && summary->complete;
    for (int p = 0; p < DT_N_PHASES; p++) {
        if (t->seconds[p] > 0) {
            add_number(summary, times, phase_names[p], 1e3 * t->seconds[p] / (double)t->n_timed_steps);
        }
    }
}

static void add_lines(struct summary *summary, const struct dt_line *lines, int n)
{
    cJSON *array = lines != NULL ? cJSON_AddArrayToObject(summary->json, "lines") : NULL;
    for (int r = 0; r < n && lines != NULL; r++) {
        cJSON *line = cJSON_CreateObject();
        add_number(summary, line, "slope", (double)lines[r].slope);
        add_number(summary, line, "intercept", (double)lines[r].intercept);
        if (!cJSON_AddItemToArray(array, line)) {
            summary->complete = false;
            cJSON_Delete(line);
        }
    }
}

enum dt_status dt_report_summary(const struct dt_trainer *t, const struct dt_run_dir *run, const struct dt_outcome *o,
                                 enum dt_status status)
{
    struct summary summary = {.json = cJSON_CreateObject(), .complete = true};
    add_number(&summary, summary.json, "exit_code", status);
    add_text(&summary, "outcome", dt_status_meaning(status));
    if (dt_error_text()[0] != '\0') {
        add_text(&summary, "error", dt_error_text());
    }
    add_number(&summary, summary.json, "epochs", (double)o->epochs);
    add_number(&summary, summary.json, "steps", (double)o->steps);
    if (o->signal != 0) {
        add_number(&summary, summary.json, "signal", o->signal);
    } else if (o->test.n_samples > 0) {
        add_number(&summary, summary.json, "test_loss", dt_metrics_loss(&o->test));
        if (classifies(t)) {
            add_number(&summary, summary.json, "test_accuracy", dt_metrics_accuracy(&o->test));
        }
    }
    add_lines(&summary, o->lines, t->world->size);
    add_number(&summary, summary.json, "world_size", t->world->size);
    add_number(&summary, summary.json, "seconds", o->seconds);
    add_times(&summary, t);
    if (o->traffic.known) {
        add_number(&summary, summary.json, "messages_per_step", o->traffic.messages);
        add_number(&summary, summary.json, "bytes_sent_per_step", o->traffic.bytes);
    }
    add_text(&summary, "allreduce", dt_allreduce_names[t->dist.allreduce.type]);
    add_memory(&summary, &o->memory);
    add_text(&summary, "checkpoint", o->checkpoint);
    add_text(&summary, "version", dt_version);
    char *text = summary.complete ? cJSON_Print(summary.json) : NULL;
    const enum dt_status s = text != NULL ? dt_run_dir_write(run, "summary.json", text)
                                          : dt_error(DT_IO, "%s/summary.json: not written, out of memory", run->path);
    cJSON_free(text);
    cJSON_Delete(summary.json);
    return s;
}

void dt_report_result(const struct dt_metrics *test, bool accuracy, const char *after)
{
    if (accuracy) {
        printf("test accuracy %.2f %% (%.0f/%.0f)%s\n", 100.0 * dt_metrics_accuracy(test), test->n_correct, test->n_samples, after);
    } else {
        printf("test loss %.6g (%.0f samples)%s\n", dt_metrics_loss(test), test->n_samples, after);
    }
    fflush(stdout);
}
