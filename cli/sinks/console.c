/* The text of a run for people (a row of cli/sinks/sinks.h): banner, roster, progress, epochs,
 * where the time went, the result. Log on stderr, result on stdout. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/sinks/fields.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "dist/strategy/facts/facts.h"
#include "dist/strategy/pipeline/pipeline_schedule.h"
#include "dist/strategy/roles.h"
#include "train/watch/inject.h"
#include "train/watch/learned.h"
#include "train/watch/timeline.h"

#define NAME(constant, name) name,
static const char *const optimizer_names[] = {DT_OPTIMIZER_LIST(NAME)};
static const char *const scaling_names[] = {DT_LR_SCALING_LIST(NAME)};
static const char *const schedule_names[] = {DT_SCHEDULE_LIST(NAME)};

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
        const bool grows =
            run->lr_scale != 1; /* warm-up is the way from the unscaled to the scaled rate */
        fprintf(stderr, ", %swarm-up %g epoch%s%s", grows ? "" : "no ", c->warmup_epochs,
                c->warmup_epochs == 1 ? "" : "s", grows ? "" : " (the rate is not scaled)");
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
                !c->cuda_graph ? "cuda.graph is off"
                : c->ema > 0   ? "train.ema adds each step's weights"
                               : "gradients pass through the host");
    }
}

static int n_parts_of(const struct dt_config *config)
{
    return dt_pipeline_n_parts(&config->dist, config->batch_per_rank + config->batch_global);
}

static void print_averaging(const struct dt_folder_event *folder, const struct dt_run_event *run)
{
    const struct dt_strategy_facts *a = &run->averaging;
    if (folder->world_size == 1 || !folder->config->dist.average) {
        return;
    }
    if (a->n_stages > 0) {
        const struct dt_dist_spec *dist = &folder->config->dist;
        fprintf(stderr, "  pipeline of %d stages, %d micro-batches, %s", a->n_stages,
                n_parts_of(folder->config), dt_pipeline_schedule_name(dist->schedule));
        for (int i = 0; i < dist->cut.n; i++) {
            fprintf(stderr, "%s%s", i == 0 ? ", cut at " : ", ", dist->cut.names[i]);
        }
        fputc('\n', stderr);
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
    dt_compression_print(stderr, a->codec, run->n_parameters);
    if (a->traffic.known && a->traffic.messages > 0) {
        char text[120], gradients[DT_BYTES_TEXT_SIZE];
        dt_traffic_text(&a->traffic, text, sizeof text);
        fprintf(stderr, "  a step: %s (%s of gradients)\n", text,
                dt_bytes_text((double)run->gradient_bytes, gradients));
        dt_traffic_print_between(stderr, &a->traffic);
    }
}

static void print_statistics(const struct dt_model_spec *model, const struct dt_run_event *run)
{
    bool normalizes = false;
    for (int i = 0; i < model->n_layers; i++) {
        normalizes = normalizes || model->layers[i].type == DT_LAYER_BATCH_NORM;
    }
    if (normalizes && run->n_workers > 1) {
        fprintf(stderr, "  batch_norm: each rank normalizes by its own samples; rank 0's running "
                        "statistics are kept\n");
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
        fprintf(stderr, "  %s validation samples held out; the test set comes at the end\n",
                dt_count_text((double)run->n_validation, held, sizeof held));
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
    if (run->resumed_from[0] != '\0') {
        dt_text_print(stderr, "  resumed from %s: %llu epoch%s and %llu steps done",
                      run->resumed_from, (unsigned long long)run->n_epochs,
                      run->n_epochs == 1 ? "" : "s", (unsigned long long)run->step);
    }
}

static void print_banner(const struct dt_folder_event *folder, const struct dt_run_event *run)
{
    const struct dt_config *c = folder->config;
    const int n = folder->world_size;
    char n_parameters[32];
    dt_text_print(stderr, "dtrain %s: %s, %s parameters, %s, %d rank%s", dt_version, c->name,
                  dt_count_text((double)run->n_parameters, n_parameters, sizeof n_parameters),
                  optimizer_names[c->optimizer.type], n, n == 1 ? "" : "s");
    dt_roster_print(stderr, folder, run, dt_terminal_width(STDERR_FILENO));
    print_device(c, run);
    print_arithmetic(folder, run);
    print_schedule(c, run);
    print_validation(run);
    print_averaging(folder, run);
    print_switches(c);
    print_statistics(&c->model, run);
    print_faults(run->faults);
    print_origin(folder, run);
}

/* `room`: 2 for all, 1 without the words for loss and accuracy, 0 without the throughput, too. */
static int compose_epoch(const struct dt_sinks *sinks, const struct dt_epoch_event *r, int room,
                         char *line, size_t size)
{
    char number[32], train[32], test[32], accuracy[64] = "", speed[64] = "",
                                          time[40] = "  no step was left";
    const bool words = room > 1, validated = r->validation.n_samples > 0;
    const struct dt_config *c = sinks->folder.config;
    const struct dt_metrics *m = validated ? &r->validation : &r->test;
    const char *set = validated ? "validation" : "test";
    if (dt_sinks_classify(sinks)) {
        const int n =
            snprintf(accuracy, sizeof accuracy, "%s%s%s %5.2f %%", words ? "  " : "",
                     words ? set : "", words ? " accuracy" : "", 100.0 * dt_metrics_accuracy(m));
        if (words && dt_learned_has_top5(r->learned)) {
            snprintf(accuracy + n, sizeof accuracy - (size_t)n, ", top 5 %5.2f %%",
                     100.0 * r->learned->n_top5 / m->n_samples);
        }
    }
    if (isfinite(r->images_per_s)) {
        if (room > 0) {
            snprintf(speed, sizeof speed, "  %s %s/s",
                     dt_count_text(r->images_per_s, number, sizeof number), dt_unit_name(c));
        }
        snprintf(time, sizeof time, "  %s", dt_duration_text(r->seconds, number, sizeof number));
    }
    return snprintf(line, size, "epoch %*llu/%lld  train %s%s  %s %s%s%s  lr %.3g%s%s",
                    dt_digits((unsigned long long)c->epochs), (unsigned long long)r->epoch,
                    (long long)c->epochs, words ? "loss " : "",
                    dt_loss_text(dt_metrics_loss(&r->train), train, sizeof train), set,
                    words ? "loss " : "", dt_loss_text(dt_metrics_loss(m), test, sizeof test),
                    accuracy, r->lr, speed, time);
}

static void print_epoch(const struct dt_sinks *sinks, const struct dt_epoch_event *r)
{
    char line[256];
    const int width = dt_terminal_width(STDERR_FILENO);
    int room = 2;
    while (compose_epoch(sinks, r, room, line, sizeof line) > width && width > 0 && room > 0) {
        room--;
    }
    fprintf(stderr, "%s\n", line);
    if (r->averaged != NULL) {
        char loss[32], accuracy[32] = "";
        if (dt_sinks_classify(sinks)) {
            snprintf(accuracy, sizeof accuracy, "  test accuracy %5.2f %%",
                     100.0 * dt_metrics_accuracy(r->averaged));
        }
        fprintf(stderr, "  average of the weights: test loss %s%s\n",
                dt_loss_text(dt_metrics_loss(r->averaged), loss, sizeof loss), accuracy);
    }
    if (r->reduced_lr > 0) {
        fprintf(stderr, "  lr %.3g -> %.3g: a plateau of the %s\n", r->lr, r->reduced_lr,
                dt_metric_name(sinks->folder.config->plateau.metric));
    }
}

static void print_save(const struct dt_save_event *save)
{
    if (save->error != NULL) {
        dt_text_print(stderr,
                      "dtrain: warning: %s; training goes on, the next checkpoint is the next try",
                      save->error);
    }
}

static void print_stop(const struct dt_folder_event *folder, const struct dt_stop_event *stop)
{
    dt_text_print(stderr, "stopped by SIG%s at step %llu; saved %s", sigabbrev_np(stop->signal),
                  (unsigned long long)stop->step, stop->checkpoint);
    dt_text_print(stderr, "go on with the same command and --run %s --resume", folder->dir->path);
}

/* Adds the phases over all ranks, and returns the sum of all of them. */
static double add_times(const struct dt_end_event *end, int world_size, struct dt_phase_times *out)
{
    double total = 0;
    *out = (struct dt_phase_times){{0}};
    for (int r = 0; r < world_size; r++) {
        for (int p = 0; p < DT_N_PHASES; p++) {
            out->s[p] += end->ranks[r].s[p];
            total += end->ranks[r].s[p];
        }
    }
    return total;
}

/* The split of a step's time, averaged over all ranks. */
static void print_times(const struct dt_end_event *end, int world_size)
{
    struct dt_phase_times all;
    const double total = add_times(end, world_size, &all);
    if (end->n_timed_steps == 0 || total <= 0) {
        return;
    }
    const double per_step = 1e3 / ((double)end->n_timed_steps * world_size);
    fprintf(stderr, "time of a step, mean over ranks\n");
    for (int p = 0; p < DT_N_PHASES; p++) {
        if (all.s[p] > 0) {
            fprintf(stderr, "  %-13s %9.3f ms  %5.1f %%\n", dt_phase_names[p], all.s[p] * per_step,
                    100 * all.s[p] / total);
        }
    }
    fprintf(stderr, "  %-13s %9.3f ms\n", "total", total * per_step);
}

static void print_traffic(const char *of, const struct dt_step_traffic *counted,
                          const struct dt_step_traffic *predicted)
{
    char text[120];
    if (!counted->known || counted->messages == 0) {
        return;
    }
    const bool as_predicted = predicted->messages == counted->messages &&
                              predicted->bytes == counted->bytes &&
                              predicted->bytes_between == counted->bytes_between;
    dt_traffic_text(counted, text, sizeof text);
    fprintf(stderr, "%s of a step: %s%s\n", of, text,
            !predicted->known ? ""
            : as_predicted    ? ", as predicted"
                              : ", which is NOT as predicted");
    dt_traffic_print_between(stderr, counted);
}

static void print_memory(const struct dt_memory_use *memory)
{
    char host[DT_BYTES_TEXT_SIZE], peak[DT_BYTES_TEXT_SIZE], left[DT_BYTES_TEXT_SIZE],
        all[DT_BYTES_TEXT_SIZE];
    fprintf(stderr, "peak memory per rank: %s", dt_bytes_text(memory->host_peak, host));
    if (memory->gpu_all > 0) {
        fprintf(stderr, "; on its GPU %s of %s, %s left", dt_bytes_text(memory->gpu_peak, peak),
                dt_bytes_text(memory->gpu_all, all), dt_bytes_text(memory->gpu_free, left));
    }
    fprintf(stderr, "\n");
}

static struct dt_roles roles_of(const struct dt_folder_event *folder)
{
    struct dt_roles roles;
    (void)dt_roles_find(&folder->config->dist, 0, folder->world_size, &roles);
    return roles;
}

/* The share of their steps that the stages of a pipeline waited, beside the formula. */
static void print_bubble(const struct dt_sinks *sinks, const struct dt_end_event *end)
{
    const int p = sinks->folder.world_size, m = n_parts_of(sinks->folder.config);
    struct dt_phase_times all;
    const double all_s = add_times(end, p, &all);
    if (roles_of(&sinks->folder).whole && all_s > 0) {
        fprintf(stderr,
                "bubble of the pipeline: %.1f %% of the time waited; (p - 1) / (m + p - 1) = %.1f "
                "%%, p = %d, m = %d\n",
                100 * all.s[DT_PHASE_COMMUNICATION] / all_s, 100 * dt_pipeline_bubble(p, m), p, m);
    }
}

static void print_monitored(const struct dt_end_event *end)
{
    char text[128];
    if (end->stopped_early) {
        fprintf(stderr, "stopped early: %s\n", dt_stopping_text(&end->stopping, text, sizeof text));
    }
    if (end->best.epoch > 0) {
        dt_text_print(stderr, "best  %s: %s", end->best_checkpoint,
                      dt_best_text(&end->best, text, sizeof text));
    }
}

static void print_end(const struct dt_sinks *sinks, const struct dt_end_event *end)
{
    print_monitored(end);
    if (end->signal == 0) {
        dt_text_print(
            stderr, end->checkpoint[0] != '\0' ? "saved %s" : "nothing to do: the run had ended%s",
            end->checkpoint);
    }
    if (end->weights != NULL) {
        fprintf(stderr, "hash of the weights %s\n", end->weights);
    }
    print_times(end, sinks->folder.world_size);
    print_bubble(sinks, end);
    const struct dt_roles roles = roles_of(&sinks->folder);
    print_traffic(roles.whole || roles.n_servers > 0 ? "messages" : "allreduce", &end->traffic,
                  &end->predicted);
    dt_staleness_print(stderr, &end->staleness);
    print_memory(&end->memory);
    if (end->idle_gpus != NULL) {
        dt_text_print(stderr, "warning: the GPUs were idle, because %s", end->idle_gpus);
    }
}

void dt_report_result(const char *set, const struct dt_metrics *m, bool classifies,
                      const char *after)
{
    if (classifies) {
        printf("%s accuracy %.2f %% (%.0f/%.0f)%s\n", set, 100.0 * dt_metrics_accuracy(m),
               m->n_correct, m->n_samples, after);
    } else {
        printf("%s loss %.6g (%.0f samples)%s\n", set, dt_metrics_loss(m), m->n_samples, after);
    }
    fflush(stdout);
}

/* One row for each rank, then the line that the data were made from. */
static void print_lines(const struct dt_folder_event *folder, const struct dt_line *lines)
{
    const struct dt_data_spec *data = &folder->config->data;
    printf("rank       slope   intercept\n");
    for (int r = 0; r < folder->world_size; r++) {
        printf("%4d  %10.4f  %10.4f\n", r, (double)lines[r].slope, (double)lines[r].intercept);
    }
    printf("data  %10.4f  %10.4f\n", data->slope, data->intercept);
}

/* A run whose last checkpoint could not be written ends before it is tested. */
static void print_result(const struct dt_sinks *sinks, const struct dt_end_event *r)
{
    const unsigned long long n = r->within_epoch ? r->steps : r->epochs;
    const struct dt_metrics *m = r->test.n_samples > 0 ? &r->test : &r->validation;
    char after[96];
    if (r->lines != NULL) {
        print_lines(&sinks->folder, r->lines);
    }
    snprintf(after, sizeof after, " after %llu %s%s", n, r->within_epoch ? "step" : "epoch",
             n == 1 && !r->within_epoch ? "" : "s");
    if (r->tested_epoch > 0) {
        snprintf(after, sizeof after, " of the best epoch, %llu of %llu",
                 (unsigned long long)r->tested_epoch, (unsigned long long)r->epochs);
    }
    dt_report_result(m == &r->test ? "test" : "validation", m, dt_sinks_classify(sinks), after);
}

/* ", without the last 1,234 spans (choose fewer steps)", or "" */
static const char *lost_text(const struct dt_timeline_event *e, char *text, size_t size)
{
    char count[32];
    uint64_t n_lost = 0;
    for (int r = 0; r < e->n_ranks; r++) {
        n_lost += e->ranks[r].n_lost;
    }
    snprintf(text, size, ", without the last %s spans (choose fewer steps)",
             dt_count_text((double)n_lost, count, sizeof count));
    return n_lost > 0 ? text : "";
}

/* A training goes on if its line cannot be written. */
static void print_timeline(const struct dt_sinks *sinks, const struct dt_event *event)
{
    const struct dt_timeline_event *e = event->timeline;
    char lost[96];
    if (event->status == DT_OK) {
        dt_text_print(
            stderr,
            "trace of steps %llu to %llu: %s/trace.json (Perfetto and chrome://tracing show it)%s",
            (unsigned long long)e->first, (unsigned long long)e->last, sinks->folder.dir->path,
            lost_text(e, lost, sizeof lost));
    } else if (event->status == DT_IO) {
        dt_text_print(stderr, "dtrain: warning: %s (training goes on without it)", dt_error_text());
        dt_error_clear();
    }
}

static void begin(struct dt_sinks *sinks, const struct dt_run_event *run)
{
    print_banner(&sinks->folder, run);
    dt_progress_open(sinks->folder.config, run->steps_per_epoch, &sinks->progress);
}

enum dt_status dt_terminal_take(struct dt_sinks *sinks, const struct dt_event *event)
{
    if (sinks->silent) {
        return DT_OK;
    }
    if (event->kind != DT_EVENT_STEP) {
        dt_progress_clear(&sinks->progress);
    }
    switch (event->kind) {
    case DT_EVENT_RUN:
        if (event->status == DT_OK) {
            begin(sinks, event->run);
        }
        break;
    case DT_EVENT_STEP:
        dt_progress_show(&sinks->progress, event->step);
        break;
    case DT_EVENT_EPOCH:
        print_epoch(sinks, event->epoch);
        break;
    case DT_EVENT_WARNING:
        dt_text_print(stderr, "dtrain: warning: %s", event->warning);
        break;
    case DT_EVENT_SAVE:
        print_save(event->save);
        break;
    case DT_EVENT_TIMELINE:
        print_timeline(sinks, event);
        break;
    case DT_EVENT_STOP:
        print_stop(&sinks->folder, event->stop);
        break;
    case DT_EVENT_DIFFERENCE:
        dt_text_print(stderr, "as expected, %s", event->difference);
        break;
    case DT_EVENT_END:
        print_end(sinks, event->end);
        break;
    case DT_EVENT_RESULT:
        print_result(sinks, event->result);
        break;
    case DT_EVENT_AUDIT:
    case DT_EVENT_FOLDER:
    case DT_EVENT_FAULT: /* whoever called says why */
        break;
    }
    return DT_OK;
}
