/* summary.json: how the run ended, whatever the status. */
#include <cjson/cJSON.h>

#include "base/version.h"
#include "cli/sinks/json.h"
#include "cli/sinks/sinks.h"
#include "cli/sinks/staleness.h"
#include "cli/text.h"

#define NAME(constant, name) name,
static const char *const phase_names[] = {DT_PHASE_LIST(NAME)};

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
    summary->complete =
        cJSON_AddStringToObject(summary->json, key, text) != NULL && summary->complete;
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

/* Milliseconds of a step. */
static void add_phases(struct summary *summary, cJSON *object, const struct dt_phase_times *times,
                       uint64_t n_steps)
{
    summary->complete = object != NULL && summary->complete;
    for (int p = 0; p < DT_N_PHASES; p++) {
        if (times->s[p] > 0) {
            add_number(summary, object, phase_names[p], 1e3 * times->s[p] / (double)n_steps);
        }
    }
}

static void add_item(struct summary *summary, cJSON *array, cJSON *item)
{
    if (!cJSON_AddItemToArray(array, item)) {
        summary->complete = false;
        cJSON_Delete(item);
    }
}

static void add_times(struct summary *summary, const struct dt_end_event *end, int world_size)
{
    if (end->n_timed_steps == 0) {
        return;
    }
    add_phases(summary, cJSON_AddObjectToObject(summary->json, "rank0_ms_per_step"), &end->rank0,
               end->n_timed_steps);
    cJSON *ranks =
        end->ranks != NULL ? cJSON_AddArrayToObject(summary->json, "ranks_ms_per_step") : NULL;
    for (int r = 0; r < world_size && end->ranks != NULL; r++) {
        cJSON *rank = cJSON_CreateObject();
        add_phases(summary, rank, &end->ranks[r], end->n_timed_steps);
        add_item(summary, ranks, rank);
    }
}

static void add_lines(struct summary *summary, const struct dt_line *lines, int n)
{
    cJSON *array = lines != NULL ? cJSON_AddArrayToObject(summary->json, "lines") : NULL;
    for (int r = 0; r < n && lines != NULL; r++) {
        cJSON *line = cJSON_CreateObject();
        add_number(summary, line, "slope", (double)lines[r].slope);
        add_number(summary, line, "intercept", (double)lines[r].intercept);
        add_item(summary, array, line);
    }
}

static void add_result(struct summary *summary, const struct dt_sinks *sinks,
                       const struct dt_end_event *end)
{
    if (end->signal != 0) {
        add_number(summary, summary->json, "signal", end->signal);
    } else if (end->test.n_samples > 0) {
        add_number(summary, summary->json, "test_loss", dt_metrics_loss(&end->test));
        if (dt_sinks_classify(sinks)) {
            add_number(summary, summary->json, "test_accuracy", dt_metrics_accuracy(&end->test));
        }
    }
    add_lines(summary, end->lines, sinks->folder.world_size);
}

/* Why it ended before its last epoch, and which checkpoint was the best. */
static void add_monitored(struct summary *summary, const struct dt_end_event *end)
{
    const struct dt_monitored *best = &end->best;
    char text[128];
    if (end->stopped_early) {
        add_text(summary, "stopped_early", dt_stopping_text(&end->stopping, text, sizeof text));
    }
    if (best->epoch > 0) {
        add_text(summary, "best_checkpoint", end->best_checkpoint);
        add_text(summary, "best_metric", dt_metric_name(best->metric));
        add_number(summary, summary->json, "best_value", best->best);
        add_number(summary, summary->json, "best_epoch", (double)best->epoch);
    }
}

static void add_traffic(struct summary *summary, const struct dt_end_event *end)
{
    if (end->traffic.known) {
        add_number(summary, summary->json, "messages_per_step", end->traffic.messages);
        add_number(summary, summary->json, "bytes_sent_per_step", end->traffic.bytes);
        add_number(summary, summary->json, "messages_between_hosts_per_step",
                   end->traffic.messages_between);
        add_number(summary, summary->json, "bytes_between_hosts_per_step",
                   end->traffic.bytes_between);
    }
    add_text(summary, "allreduce", end->allreduce);
    if (dt_staleness_n_bins(&end->staleness) > 0) {
        add_number(summary, summary->json, "staleness_mean", dt_staleness_mean(&end->staleness));
        add_number(summary, summary->json, "staleness_most",
                   dt_staleness_n_bins(&end->staleness) - 1);
    }
}

static void add_all(struct summary *summary, const struct dt_sinks *sinks,
                    const struct dt_end_event *end, enum dt_status status)
{
    add_number(summary, summary->json, "exit_code", status);
    add_text(summary, "outcome", dt_status_meaning(status));
    if (dt_error_text()[0] != '\0') {
        add_text(summary, "error", dt_error_text());
    }
    add_number(summary, summary->json, "epochs", (double)end->epochs);
    add_number(summary, summary->json, "steps", (double)end->steps);
    add_result(summary, sinks, end);
    add_monitored(summary, end);
    add_number(summary, summary->json, "world_size", sinks->folder.world_size);
    add_number(summary, summary->json, "seconds", end->seconds);
    add_times(summary, end, sinks->folder.world_size);
    add_traffic(summary, end);
    add_memory(summary, &end->memory);
    add_text(summary, "checkpoint", end->checkpoint);
    add_number(summary, summary->json, "started", sinks->started_s);
    add_text(summary, "version", dt_version);
}

static enum dt_status write_summary(const struct dt_sinks *sinks, const struct dt_end_event *end,
                                    enum dt_status status)
{
    const struct dt_run_dir *dir = sinks->folder.dir;
    struct summary summary = {.json = cJSON_CreateObject(), .complete = true};
    add_all(&summary, sinks, end, status);
    char *text = summary.complete ? dt_json_print(summary.json, true) : NULL;
    const enum dt_status s =
        text != NULL ? dt_run_dir_write(dir, "summary.json", text)
                     : dt_error(DT_IO, "%s/summary.json: not written, out of memory", dir->path);
    cJSON_free(text);
    cJSON_Delete(summary.json);
    return s;
}

enum dt_status dt_summary_take(struct dt_sinks *sinks, const struct dt_event *event)
{
    if (event->kind == DT_EVENT_END) {
        return write_summary(sinks, event->end, event->status);
    }
    if (event->kind == DT_EVENT_FAULT) {
        return write_summary(sinks, event->fault, event->status);
    }
    return DT_OK;
}
