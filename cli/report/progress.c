#include "cli/report/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/report/metrics.h"
#include "cli/report/terminal.h"

#define TERMINAL_INTERVAL_S 0.1

void dt_progress_open(const struct dt_config *config, bool enabled, uint64_t steps_per_epoch, struct dt_progress *out)
{
    const bool terminal = enabled && dt_terminal_width(STDERR_FILENO) > 0;
    *out = (struct dt_progress){.enabled = enabled && (terminal || config->log_every_s > 0),
                                .terminal = terminal,
                                .unit = dt_unit_name(config),
                                .classifies = config->model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY,
                                .interval_s = terminal ? TERMINAL_INTERVAL_S : config->log_every_s,
                                .last_s = dt_clock_s(),
                                .n_epochs = (uint64_t)config->epochs,
                                .steps_per_epoch = steps_per_epoch};
}

bool dt_progress_due(const struct dt_progress *p)
{
    return p->enabled && dt_clock_s() - p->last_s >= p->interval_s;
}

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

int dt_digits(unsigned long long value)
{
    return snprintf(NULL, 0, "%llu", value);
}

const char *dt_unit_name(const struct dt_config *config)
{
    return config->data.format == DT_DATA_LINEAR ? "samples" : "images";
}

const char *dt_loss_text(double loss, char *text, size_t size)
{
    snprintf(text, size, fabs(loss) < 1e6 ? "%.4f" : "%.4g", loss);
    return text;
}

/* How much a line says: each step down leaves something out. */
enum detail { DETAIL_BARE, DETAIL_TIME, DETAIL_ACCURACY, DETAIL_RATE, DETAIL_ALL };

static int compose(const struct dt_progress *p, const struct dt_step_event *st, enum detail detail, char *line, size_t size)
{
    char loss[32], number[32], rate[64] = "", accuracy[32] = "", left[40] = "";
    if (p->classifies && detail >= DETAIL_ACCURACY) {
        snprintf(accuracy, sizeof accuracy, "  accuracy %5.2f %%", 100.0 * dt_metrics_accuracy(&st->epoch_train));
    }
    if (detail >= DETAIL_RATE) {
        snprintf(rate, sizeof rate, "  %s %s/s", dt_count_text(st->images_per_s, number, sizeof number), p->unit);
    }
    if (detail >= DETAIL_TIME) {
        snprintf(left, sizeof left, "  %s left", dt_duration_text(st->eta_s, number, sizeof number));
    }
    return snprintf(line, size, "epoch %*llu/%llu  %s%*llu/%llu  loss %s%s%s%s", detail == DETAIL_ALL ? dt_digits(p->n_epochs) : 1,
                    (unsigned long long)st->epoch, (unsigned long long)p->n_epochs, detail == DETAIL_ALL ? "step " : "",
                    dt_digits(p->steps_per_epoch), (unsigned long long)st->step_in_epoch, (unsigned long long)p->steps_per_epoch,
                    dt_loss_text(dt_metrics_loss(&st->epoch_train), loss, sizeof loss), accuracy, rate, left);
}

/* One column stays free: in the last one, a terminal may go to the next line, and the first could not be cleared any more. */
void dt_progress_draw(struct dt_progress *p, const struct dt_step_event *st)
{
    char line[256];
    const int width = p->terminal ? dt_terminal_room(STDERR_FILENO) : (int)sizeof line;
    int detail = DETAIL_ALL;
    while (compose(p, st, (enum detail)detail, line, sizeof line) >= width && detail > DETAIL_BARE) {
        detail--;
    }
    fprintf(stderr, "%s%.*s%s", p->terminal ? "\r\033[K" : "", width - 1, line, p->terminal ? "" : "\n");
    fflush(stderr);
    p->shown = p->terminal;
    p->last_s = dt_clock_s();
}

void dt_progress_clear(struct dt_progress *p)
{
    if (p->shown) {
        fputs("\r\033[K", stderr);
        p->shown = false;
    }
}
