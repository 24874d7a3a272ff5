/* The text of a run for people (a row of cli/sinks/sinks.h): banner, roster, progress, epochs,
 * where the time went, the result. Log on stderr, result on stdout. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cli_text.h"
#include "cli/sinks/fields.h"
#include "cli/terminal.h"
#include "dist/strategy/pipeline/pipeline_schedule.h"
#include "dist/strategy/roles.h"
#include "dist/strategy/summary/summary.h"
#include "train/hooks/learned.h"
#include "train/hooks/timeline_hook.h"

static int digits_of(unsigned long long value)
{
    return snprintf(NULL, 0, "%llu", value);
}

/* ---- the line of progress */

static void open_progress(const struct dt_config *config, uint64_t steps_per_epoch,
                          struct dt_progress *out)
{
    const bool terminal = dt_terminal_width(STDERR_FILENO) > 0;
    *out = (struct dt_progress){.config = config,
                                .terminal = terminal,
                                .interval_s = terminal ? DT_TERMINAL_LIVE_S : config->log_every_s,
                                .last_s = dt_clock_s(),
                                .steps_per_epoch = steps_per_epoch};
}

/* "  test accuracy 98.31 %", or R2, or neither: ""; without words " 98.31 %". */
static int put_score(const struct dt_config *c, const char *set, bool words,
                     const struct dt_metrics *m, char *text, size_t size)
{
    const bool classifies = c->model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
    text[0] = '\0';
    return !classifies && !dt_config_has_r2(c)
               ? 0
               : snprintf(text, size, classifies ? "%s%s%s %5.2f %%" : "%s%s%s %.4f",
                          words ? "  " : "", words ? set : "",
                          !words       ? ""
                          : classifies ? " accuracy"
                                       : " R2",
                          (classifies ? 100.0 : 1.0) * dt_metrics_accuracy(m));
}

/* How much a line says: each level leaves out more than the next. */
enum detail { DETAIL_BARE, DETAIL_TIME, DETAIL_ACCURACY, DETAIL_RATE, DETAIL_PLACES, DETAIL_WORDS };

static int compose_progress(const struct dt_progress *p, const struct dt_step_event *st,
                            enum detail detail, char *line, size_t size)
{
    char loss[32], number[32], rate[64] = "", accuracy[32] = "", left[40] = "";
    const unsigned long long n_epochs = (unsigned long long)p->config->epochs;
    if (detail >= DETAIL_ACCURACY) {
        put_score(p->config, "train", detail == DETAIL_WORDS, &st->epoch_train, accuracy,
                  sizeof accuracy);
    }
    if (detail >= DETAIL_RATE) {
        snprintf(rate, sizeof rate, "  %s %s/s",
                 dt_count_text(st->images_per_s, number, sizeof number), dt_unit_name(p->config));
    }
    if (detail >= DETAIL_TIME) {
        snprintf(left, sizeof left, "  %s left",
                 dt_duration_text(st->eta_s, number, sizeof number));
    }
    return snprintf(line, size, "epoch %*llu/%llu  %s%*llu/%llu  train %s%s%s%s%s",
                    detail >= DETAIL_PLACES ? digits_of(n_epochs) : 1,
                    (unsigned long long)st->epoch, n_epochs, detail >= DETAIL_PLACES ? "step " : "",
                    digits_of(p->steps_per_epoch), (unsigned long long)st->step_in_epoch,
                    (unsigned long long)p->steps_per_epoch, detail == DETAIL_WORDS ? "loss " : "",
                    dt_loss_text(dt_metrics_loss(&st->epoch_train), loss, sizeof loss), accuracy,
                    rate, left);
}

static void show_progress(struct dt_progress *p, const struct dt_step_event *st)
{
    char line[256];
    if (p->interval_s <= 0 || dt_clock_s() - p->last_s < p->interval_s) {
        return;
    }
    const int width = p->terminal ? dt_terminal_width(STDERR_FILENO) : 0;
    int detail = DETAIL_WORDS;
    while (compose_progress(p, st, (enum detail)detail, line, sizeof line) >= width && width > 0 &&
           detail > DETAIL_BARE) {
        detail--;
    }
    if (p->terminal) {
        dt_terminal_live("%s", line);
    } else {
        fprintf(stderr, "%s\n", line);
    }
    p->shown = p->terminal;
    p->last_s = dt_clock_s();
}

void dt_progress_clear(struct dt_progress *p)
{
    if (p->shown) {
        dt_terminal_live(NULL);
        p->shown = false;
    }
}

/* ---- the line of an epoch */

/* `room`: 2 for all, 1 without the words for loss and accuracy, 0 without the throughput, too. */
static int compose_epoch(const struct dt_sinks *sinks, const struct dt_epoch_event *r, int room,
                         char *line, size_t size)
{
    char number[32], train[32], loss[32], test[64] = "", accuracy[64] = "", speed[64] = "",
                                          time[40] = "  no step was left";
    const bool words = room > 1, validated = r->validation.n_samples > 0;
    const struct dt_config *c = sinks->folder.config;
    const struct dt_metrics *m = validated ? &r->validation : &r->test;
    const char *set = validated ? "validation" : "test";
    if (m->n_samples > 0) {
        snprintf(test, sizeof test, "  %s %s%s", set, words ? "loss " : "",
                 dt_loss_text(dt_metrics_loss(m), loss, sizeof loss));
    }
    if (m->n_samples > 0) {
        const int n = put_score(c, set, words, m, accuracy, sizeof accuracy);
        if (words && dt_learned_has_top5(r->learned)) {
            snprintf(accuracy + n, sizeof accuracy - (size_t)n, ", top 5 %5.2f %%",
                     100.0 * r->learned->answers.n_top5 / m->n_samples);
        }
    }
    if (isfinite(r->images_per_s)) {
        if (room > 0) {
            snprintf(speed, sizeof speed, "  %s %s/s",
                     dt_count_text(r->images_per_s, number, sizeof number), dt_unit_name(c));
        }
        snprintf(time, sizeof time, "  %s", dt_duration_text(r->seconds, number, sizeof number));
    }
    return snprintf(line, size, "epoch %*llu/%lld  train %s%s%s%s  lr %.3g%s%s",
                    digits_of((unsigned long long)c->epochs), (unsigned long long)r->epoch,
                    (long long)c->epochs, words ? "loss " : "",
                    dt_loss_text(dt_metrics_loss(&r->train), train, sizeof train), test, accuracy,
                    r->lr, speed, time);
}

static void print_average(const struct dt_sinks *sinks, const char *set, const struct dt_metrics *m)
{
    char loss[32], accuracy[40] = "";
    if (m->n_samples == 0) {
        return;
    }
    put_score(sinks->folder.config, set, true, m, accuracy, sizeof accuracy);
    fprintf(stderr, "  average of the weights: %s loss %s%s\n", set,
            dt_loss_text(dt_metrics_loss(m), loss, sizeof loss), accuracy);
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
    print_average(sinks, r->validation.n_samples > 0 ? "validation" : "test", &r->averaged);
    if (r->reduced_lr > 0) {
        fprintf(stderr, "  lr %.3g -> %.3g: a plateau of the %s\n", r->lr, r->reduced_lr,
                dt_metric_name(sinks->folder.config->plateau.metric));
    }
}

static void print_save(const struct dt_save_event *save)
{
    if (save->error != NULL) {
        dt_text_print(
            stderr, "dtrain: warning: %s; training continues, the next checkpoint is the next try",
            save->error);
    }
}

static void print_stop(const struct dt_folder_event *folder, const struct dt_stop_event *stop)
{
    dt_text_print(stderr, "stopped by SIG%s at step %llu; saved %s", sigabbrev_np(stop->signal),
                  (unsigned long long)stop->step, stop->checkpoint);
    dt_text_print(stderr, "resume with the same command and --run %s --resume", folder->dir->path);
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
    const struct dt_config *c = sinks->folder.config;
    const int p = sinks->folder.world_size,
              m = dt_pipeline_n_parts(&c->dist, c->batch_per_rank + c->batch_global);
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
        dt_text_print(stderr, "best  %s: %s%s", end->best_checkpoint,
                      dt_best_text(&end->best, text, sizeof text),
                      dt_metric_is_of_average(end->best.metric) ? " (--ema takes it)" : "");
    }
}

/* The test results of a run whose epochs measured validation samples. */
static void print_test(const struct dt_sinks *sinks, const struct dt_end_event *end)
{
    if (end->validation.n_samples == 0 || end->test.n_samples == 0) {
        return;
    }
    if (dt_learned_has_top5(end->learned)) {
        fprintf(stderr, "test top-5 accuracy %.2f %%\n",
                100 * end->learned->answers.n_top5 / end->test.n_samples);
    }
    print_average(sinks, "test", &end->averaged);
}

/* A hint after a run that went to its end and learned nothing. */
static void print_chance(const struct dt_sinks *sinks, const struct dt_end_event *end)
{
    const struct dt_model_spec *model = &sinks->folder.config->model;
    const int n = model->n_layers > 0 ? model->layers[model->n_layers - 1].size : 0;
    if (dt_sinks_classify(sinks) && n > 2 && end->signal == 0 && end->epochs > 0 &&
        end->test.n_samples > 0 && dt_metrics_accuracy(&end->test) < 2.0 / n) {
        fprintf(stderr, "accuracy is near chance (%.3g %%): try a lower train.optimizer.lr\n",
                100.0 / n);
    }
}

static void print_end(const struct dt_sinks *sinks, const struct dt_end_event *end)
{
    print_monitored(end);
    print_test(sinks, end);
    print_chance(sinks, end);
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

void dt_result_text(const char *set, const struct dt_metrics *m, const struct dt_config *config,
                    const char *after, char *text, size_t size)
{
    if (dt_config_has_r2(config)) {
        snprintf(text, size, "%s R2 %.4f, loss %.6g (%.0f samples)%s", set, dt_metrics_accuracy(m),
                 dt_metrics_loss(m), m->n_samples, after);
    } else if (config->model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY) {
        snprintf(text, size, "%s accuracy %.2f %% (%.0f/%.0f)%s", set,
                 100.0 * dt_metrics_accuracy(m), m->n_correct, m->n_samples, after);
    } else {
        snprintf(text, size, "%s loss %.6g (%.0f samples)%s", set, dt_metrics_loss(m), m->n_samples,
                 after);
    }
}

/* One row for each rank, then the line that the data were made from. */
static void print_lines(const struct dt_folder_event *folder, const struct dt_fit *lines)
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
    char after[96], line[256];
    if (r->lines != NULL) {
        print_lines(&sinks->folder, r->lines);
    }
    snprintf(after, sizeof after, " after %llu %s%s", n, r->within_epoch ? "step" : "epoch",
             n == 1 && !r->within_epoch ? "" : "s");
    if (r->tested_epoch > 0) {
        snprintf(after, sizeof after, " of the best epoch, %llu of %llu",
                 (unsigned long long)r->tested_epoch, (unsigned long long)r->epochs);
    }
    dt_result_text(m == &r->test ? "test" : "validation", m, sinks->folder.config, after, line,
                   sizeof line);
    puts(line);
    fflush(stdout);
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

/* A training continues if its line cannot be written. */
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
        dt_text_print(stderr, "dtrain: warning: %s (training continues without it)",
                      dt_error_text());
        dt_error_clear();
    }
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
            dt_banner_print(&sinks->folder, event->run);
            open_progress(sinks->folder.config, event->run->steps_per_epoch, &sinks->progress);
        }
        break;
    case DT_EVENT_STEP:
        show_progress(&sinks->progress, event->step);
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
    case DT_EVENT_FAULT: /* the caller prints the error */
        break;
    }
    return DT_OK;
}
