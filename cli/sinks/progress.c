#include "cli/sinks/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/sinks/fields.h"
#include "cli/terminal.h"
#include "cli/text.h"

#define TERMINAL_INTERVAL_S 0.1

void dt_progress_open(const struct dt_config *config, uint64_t steps_per_epoch,
                      struct dt_progress *out)
{
    const bool terminal = dt_terminal_width(STDERR_FILENO) > 0;
    *out = (struct dt_progress){.config = config,
                                .terminal = terminal,
                                .interval_s = terminal ? TERMINAL_INTERVAL_S : config->log_every_s,
                                .last_s = dt_clock_s(),
                                .steps_per_epoch = steps_per_epoch};
}

/* How much a line says: each step down leaves something out. */
enum detail { DETAIL_BARE, DETAIL_TIME, DETAIL_ACCURACY, DETAIL_RATE, DETAIL_PLACES, DETAIL_WORDS };

static int compose(const struct dt_progress *p, const struct dt_step_event *st, enum detail detail,
                   char *line, size_t size)
{
    char loss[32], number[32], rate[64] = "", accuracy[32] = "", left[40] = "";
    const unsigned long long n_epochs = (unsigned long long)p->config->epochs;
    if (p->config->model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY && detail >= DETAIL_ACCURACY) {
        snprintf(accuracy, sizeof accuracy, "%s %5.2f %%",
                 detail == DETAIL_WORDS ? "  train accuracy" : "",
                 100.0 * dt_metrics_accuracy(&st->epoch_train));
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
                    detail >= DETAIL_PLACES ? dt_digits(n_epochs) : 1,
                    (unsigned long long)st->epoch, n_epochs, detail >= DETAIL_PLACES ? "step " : "",
                    dt_digits(p->steps_per_epoch), (unsigned long long)st->step_in_epoch,
                    (unsigned long long)p->steps_per_epoch, detail == DETAIL_WORDS ? "loss " : "",
                    dt_loss_text(dt_metrics_loss(&st->epoch_train), loss, sizeof loss), accuracy,
                    rate, left);
}

/* One column stays free: in the last one, a terminal may go to the next line, and the first could
 * not be cleared any more. */
static void draw(struct dt_progress *p, const struct dt_step_event *st)
{
    char line[256];
    const int width = p->terminal ? dt_terminal_room(STDERR_FILENO) : (int)sizeof line;
    int detail = DETAIL_WORDS;
    while (compose(p, st, (enum detail)detail, line, sizeof line) >= width &&
           detail > DETAIL_BARE) {
        detail--;
    }
    fprintf(stderr, "%s%.*s%s", p->terminal ? DT_TERMINAL_CLEAR : "", width - 1, line,
            p->terminal ? "" : "\n");
    fflush(stderr);
    p->shown = p->terminal;
    p->last_s = dt_clock_s();
}

void dt_progress_show(struct dt_progress *p, const struct dt_step_event *step)
{
    if (p->interval_s > 0 && dt_clock_s() - p->last_s >= p->interval_s) {
        draw(p, step);
    }
}

void dt_progress_clear(struct dt_progress *p)
{
    if (p->shown) {
        fputs(DT_TERMINAL_CLEAR, stderr);
        p->shown = false;
    }
}
