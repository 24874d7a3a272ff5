#include "cli/progress.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/metrics.h"

#define TERMINAL_INTERVAL_S 0.1

static pid_t parent_of(pid_t pid)
{
    char path[48], line[128];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL && sscanf(line, "PPid: %d", &parent) != 1) {
    }
    if (file != NULL) {
        fclose(file);
    }
    return parent;
}

/* Under mpirun our stderr is a pipe, and what counts is mpirun's own: rank, proxy, mpirun is the line of descent on its host. */
static bool stderr_is_terminal(void)
{
    if (isatty(STDERR_FILENO) == 1 || getenv("HYDI_CONTROL_FD") == NULL) {
        return isatty(STDERR_FILENO) == 1;
    }
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/fd/2", (int)parent_of(getppid()));
    const int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    const bool terminal = fd >= 0 && isatty(fd) == 1;
    if (fd >= 0) {
        close(fd);
    }
    return terminal;
}

void dt_progress_open(const struct dt_config *config, bool enabled, uint64_t steps_per_epoch, struct dt_progress *out)
{
    const bool terminal = enabled && stderr_is_terminal();
    *out = (struct dt_progress){.enabled = enabled && (terminal || config->log_every_s > 0),
                                .terminal = terminal,
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

void dt_progress_draw(struct dt_progress *p, const struct dt_progress_state *st)
{
    char rate[32], eta[32], accuracy[32] = "";
    if (p->classifies) {
        snprintf(accuracy, sizeof accuracy, "  accuracy %6.2f %%", 100.0 * dt_metrics_accuracy(&st->train));
    }
    fprintf(stderr, "%sepoch %*llu/%llu  step %*llu/%llu  loss %.4f%s  %s images/s  %s left%s", p->terminal ? "\r\033[K" : "",
            dt_digits(p->n_epochs), (unsigned long long)st->epoch, (unsigned long long)p->n_epochs, dt_digits(p->steps_per_epoch),
            (unsigned long long)st->step_in_epoch, (unsigned long long)p->steps_per_epoch, dt_metrics_loss(&st->train), accuracy,
            dt_count_text(st->images_per_s, rate, sizeof rate), dt_duration_text(st->eta_s, eta, sizeof eta),
            p->terminal ? "" : "\n");
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
