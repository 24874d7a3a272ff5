#include "cli/cli_text.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"

const char *dt_duration_text(double seconds, char *text, size_t size)
{
    if (!(seconds >= 0 && seconds < 1e9)) {
        snprintf(text, size, "?");
        return text;
    }
    const long s = (long)(seconds + 0.5);
    if (s >= 3600) {
        snprintf(text, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    } else {
        snprintf(text, size, "%ld:%02ld", s / 60, s % 60);
    }
    return text;
}

const char *dt_count_text(double value, char *text, size_t size)
{
    char digits[32];
    const int n = snprintf(digits, sizeof digits, "%.0f", value >= 0 && value < 1e15 ? value : 0.0);
    size_t used = 0;
    for (int i = 0; i < n && used + 2 < size; i++) {
        if (i > 0 && (n - i) % 3 == 0) {
            text[used++] = ',';
        }
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

const char *dt_unit_name(const struct dt_config *config)
{
    const struct dt_shape input = config->model.input;
    return input.h * input.w == 1 && config->data.format != DT_DATA_SYNTHETIC ? "samples"
                                                                              : "images";
}

const char *dt_loss_text(double loss, char *text, size_t size)
{
    snprintf(text, size, fabs(loss) < 1e6 ? "%.4f" : "%.4g", loss);
    return text;
}

const char *dt_metric_name(enum dt_test_metric metric)
{
#define NAME(constant, config_name, name) name,
    static const char *const names[] = {DT_TEST_METRIC_LIST(NAME)};
    return names[metric];
}

static const char *metric_text(const struct dt_monitored *m, char *text, size_t size)
{
    if (dt_metric_is_loss(m->metric)) {
        return dt_loss_text(m->best, text, size);
    }
    snprintf(text, size, "%.2f %%", 100 * m->best);
    return text;
}

const char *dt_best_text(const struct dt_monitored *best, char *text, size_t size)
{
    char value[32];
    snprintf(text, size, "%s %s at epoch %llu", dt_metric_name(best->metric),
             metric_text(best, value, sizeof value), (unsigned long long)best->epoch);
    return text;
}

const char *dt_stopping_text(const struct dt_monitored *m, char *text, size_t size)
{
    char value[32];
    snprintf(text, size, "%s has not improved for %llu epoch%s; best %s at epoch %llu",
             dt_metric_name(m->metric), (unsigned long long)m->n_since, m->n_since == 1 ? "" : "s",
             metric_text(m, value, sizeof value), (unsigned long long)m->epoch);
    return text;
}

void dt_traffic_text(const struct dt_step_traffic *traffic, char *text, size_t n_text)
{
    char bytes[DT_BYTES_TEXT_SIZE];
    snprintf(text, n_text, "%g message%s and %s sent by %s", traffic->messages,
             traffic->messages == 1 ? "" : "s", dt_bytes_text(traffic->bytes, bytes),
             traffic->by_each ? "each rank" : "the busiest rank");
}

void dt_traffic_print_between(FILE *out, const struct dt_step_traffic *traffic)
{
    char bytes[DT_BYTES_TEXT_SIZE];
    if (traffic->n_hosts > 1) {
        fprintf(out, "  between hosts: %g message%s and %s, all ranks together\n",
                traffic->messages_between, traffic->messages_between == 1 ? "" : "s",
                dt_bytes_text(traffic->bytes_between, bytes));
    }
}
