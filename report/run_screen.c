#include "report/run.h"

#include <math.h>
#include <stdarg.h>

#include "base/text.h"
#include "cli/text.h"

#define NAME_WIDTH 14
#define NUMBER_WIDTH 9
#define BAR_WIDTH 24
#define LEAST_CURVE 8 /* columns */

/* ---- a curve in one line of text */

#define SPARKLINE_CELLS 400

#define N_LEVELS 8

static const char *const blocks[N_LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const ascii[N_LEVELS] = {".", ":", "-", "=", "+", "*", "%", "#"};

/* A column of a table: a cell for each number or for several of them. */
struct cells {
    int n;
    double heights[SPARKLINE_CELLS]; /* means; NaN: nothing known */
    double least, most;
};

/* The mean of the rows from `begin` on, before `end`; NaN and infinities are left out. */
static double mean(const struct dt_record_table *table, int column, size_t begin, size_t end)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = begin; i < end; i++) {
        const double value = dt_record_cell(table, i, column);
        sum += isfinite(value) ? value : 0;
        n += isfinite(value);
    }
    return n > 0 ? sum / (double)n : (double)NAN;
}

static void find_range(struct cells *cells)
{
    cells->least = cells->most = NAN;
    for (int i = 0; i < cells->n; i++) {
        cells->least = fmin(cells->least, cells->heights[i]);
        cells->most = fmax(cells->most, cells->heights[i]);
    }
}

/* `log_scale`: heights by the logarithm, where all numbers are above 0. */
static void fill_cells(const struct dt_record_table *table, int column, int width, bool log_scale,
                       struct cells *out)
{
    const size_t most = (size_t)(width < SPARKLINE_CELLS ? width : SPARKLINE_CELLS);
    const size_t n = table->n < most ? table->n : most;
    out->n = (int)n;
    for (size_t i = 0; i < n; i++) {
        out->heights[i] = mean(table, column, i * table->n / n, (i + 1) * table->n / n);
    }
    find_range(out);
    if (log_scale && out->least > 0) {
        for (size_t i = 0; i < n; i++) {
            out->heights[i] = log(out->heights[i]);
        }
        find_range(out);
    }
}

/* Eighths of a block, else eight characters from '.' to '#'; from the least mean to the largest. */
static const char *cell(const struct cells *cells, int i, bool utf8)
{
    const double range = cells->most - cells->least, height = cells->heights[i];
    if (isnan(height)) {
        return " ";
    }
    const int level =
        range > 0 ? (int)fmin(N_LEVELS - 1, N_LEVELS * ((height - cells->least) / range)) : 0;
    return (utf8 ? blocks : ascii)[level];
}

/* ---- the screen */

struct painter {
    FILE *out;
    struct dt_screen screen;
    int n; /* lines so far */
};

/* One line, cut off at the screen's right. A character counts as a column. */
static void put_line(struct painter *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void put_line(struct painter *p, const char *format, ...)
{
    char line[DT_LINE_SIZE];
    va_list args;
    va_start(args, format);
    dt_text_format(line, sizeof line, format, args);
    va_end(args);
    if (p->n == p->screen.height) {
        return;
    }
    p->n++;
    int left = p->screen.width - 1; /* in the last column a terminal may go to the next line */
    for (const char *c = line; *c != '\0'; c++) {
        left -= (*c & 0xC0) != 0x80;
        if (left < 0) {
            break;
        }
        fputc(*c, p->out);
    }
    fputc('\n', p->out);
}

static void bar_text(const struct dt_screen *screen, int width, double share, char *text,
                     size_t n_text)
{
    const int full = (int)(width * fmin(1, fmax(0, share)));
    size_t n = 0;
    for (int i = 0; i < width && n < n_text; i++) {
        const char *mark = i < full ? (screen->utf8 ? "█" : "#") : (screen->utf8 ? "░" : "-");
        n += (size_t)snprintf(text + n, n_text - n, "%s", mark);
    }
}

/* Until its last step, at the pace of now. */
static double seconds_left(const struct dt_record *r, const struct dt_record_progress *at)
{
    const double speed = dt_record_last(&r->steps, DT_STEP_IMAGES),
                 batch = dt_record_number(r->start, "global_batch");
    return r->state == DT_RUN_GOING && speed > 0 ? (at->all - at->step) * batch / speed
                                                 : (double)NAN;
}

static void put_progress(struct painter *p, const struct dt_record *r)
{
    const struct dt_record_progress at = dt_record_progress(r);
    char bar[3 * BAR_WIDTH + 1] = "", number[32], step[32], all[32], done[128], left[64] = "";
    if (!(at.all > 0) || isnan(at.step)) {
        put_line(p, at.step > 0 ? "step %s" : "no step yet",
                 dt_count_text(at.step, step, sizeof step));
        return;
    }
    const double seconds = seconds_left(r, &at);
    int room = p->screen.width - 1;
    room -= snprintf(done, sizeof done, "epoch %.0f/%.0f  step %s of %s  ", at.epoch,
                     at.all_epochs, dt_count_text(at.step, step, sizeof step),
                     dt_count_text(at.all, all, sizeof all));
    if (isfinite(seconds)) {
        dt_duration_text(seconds, number, sizeof number);
    }
    room -= snprintf(left, sizeof left, isfinite(seconds) ? " %3.0f %%  %s left" : " %3.0f %%",
                     100 * at.step / at.all, number);
    bar_text(&p->screen, room < BAR_WIDTH ? room : BAR_WIDTH, at.step / at.all, bar, sizeof bar);
    put_line(p, "%s%s%s", done, bar, left);
}

/* Below the result of the weights. */
static void put_average(struct painter *p, const struct dt_record_result *result)
{
    char loss[32];
    dt_loss_text(result->ema_loss, loss, sizeof loss);
    if (isfinite(result->ema_accuracy)) {
        put_line(p, "%-*s accuracy %.2f %%, loss %s", NAME_WIDTH, "  EMA",
                 100 * result->ema_accuracy, loss);
    } else if (isfinite(result->ema_loss)) {
        put_line(p, "%-*s loss %s", NAME_WIDTH, "  EMA", loss);
    }
}

static void put_result(struct painter *p, const struct dt_record *r, const char *set,
                       struct dt_record_result result)
{
    char loss[32];
    if (isnan(result.loss)) {
        return;
    }
    dt_loss_text(result.loss, loss, sizeof loss);
    if (isfinite(result.margin)) {
        put_line(p, "%-*s accuracy %.2f %% (%s %.2f %%), loss %s, after %.0f steps", NAME_WIDTH,
                 set, 100 * result.accuracy, p->screen.utf8 ? "±" : "+-", 100 * result.margin, loss,
                 dt_record_last(&r->epochs, DT_EPOCH_STEP));
    } else {
        put_line(p, "%-*s loss %s, after %.0f steps", NAME_WIDTH, set, loss,
                 dt_record_last(&r->epochs, DT_EPOCH_STEP));
    }
    if (isfinite(result.top5)) {
        put_line(p, "%-*s %.2f %%", NAME_WIDTH, "  top 5", 100 * result.top5);
    }
    put_average(p, &result);
}

/* A column of the steps' table: its last number, and all of them. */
static void put_curve(struct painter *p, const struct dt_record *r, const char *name,
                      enum dt_step_field column, const char *last)
{
    char line[3 * SPARKLINE_CELLS + 1] = "";
    struct cells cells;
    size_t n = 0;
    const int width = p->screen.width - NAME_WIDTH - NUMBER_WIDTH - 4;
    if (r->steps.n == 0 || isnan(dt_record_last(&r->steps, column))) {
        return;
    }
    fill_cells(&r->steps, (int)column, width >= LEAST_CURVE ? width : 0, column == DT_STEP_LOSS,
               &cells);
    for (int i = 0; i < cells.n; i++) {
        n += (size_t)snprintf(line + n, sizeof line - n, "%s", cell(&cells, i, p->screen.utf8));
    }
    put_line(p, "%-*s %*s  %s", NAME_WIDTH, name, NUMBER_WIDTH, last, line);
}

static void put_curves(struct painter *p, const struct dt_record *r)
{
    char text[32], rate[16];
    snprintf(rate, sizeof rate, "%s/s", dt_unit_name(&r->config));
    put_curve(p, r, "train loss", DT_STEP_LOSS,
              dt_loss_text(dt_record_last(&r->steps, DT_STEP_LOSS), text, sizeof text));
    snprintf(text, sizeof text, "%.2f %%", 100 * dt_record_last(&r->steps, DT_STEP_ACCURACY));
    put_curve(p, r, "train accuracy", DT_STEP_ACCURACY, text);
    snprintf(text, sizeof text, "%.4g", dt_record_last(&r->steps, DT_STEP_LR));
    put_curve(p, r, "lr", DT_STEP_LR, text);
    put_curve(p, r, rate, DT_STEP_IMAGES,
              dt_count_text(dt_record_last(&r->steps, DT_STEP_IMAGES), text, sizeof text));
}

/* Where the time of rank 0's steps goes, so far; in several lines where one has no room. */
static void put_phases(struct painter *p, const struct dt_record *r)
{
    const cJSON *source = r->summary != NULL ? r->summary : r->last_epoch;
    const cJSON *phases = cJSON_GetObjectItemCaseSensitive(source, "rank0_ms_per_step");
    char text[DT_LINE_SIZE] = "", piece[64];
    double sum = 0;
    int n = 0;
    for (int i = 0; i < DT_N_PHASES; i++) {
        sum += fmax(0, dt_record_number(phases, dt_phase_names[i]));
    }
    if (!(sum > 0)) {
        return;
    }
    n = snprintf(text, sizeof text, "%-*s %.4g ms on rank 0", NAME_WIDTH, "a step", sum);
    for (int i = 0; i < DT_N_PHASES; i++) {
        const double share = fmax(0, dt_record_number(phases, dt_phase_names[i])) / sum;
        const int n_piece = share > 0.005 ? snprintf(piece, sizeof piece, ", %s %.0f %%",
                                                     dt_phase_names[i], 100 * share)
                                          : 0;
        const bool fits = n_piece == 0 || n + n_piece + 1 < p->screen.width;
        if (!fits) {
            put_line(p, "%s,", text);
            n = snprintf(text, sizeof text, "%*s", NAME_WIDTH + 1, "");
        }
        n += n_piece > 0 ? snprintf(text + n, sizeof text - (size_t)n, "%s", piece + (fits ? 0 : 2))
                         : 0;
    }
    put_line(p, "%s", text);
}

static void put_ranks(struct painter *p, const struct dt_record *r)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(r->start, "ranks"),
                *rank = cJSON_GetArrayItem(ranks, 0);
    const int n = cJSON_GetArraySize(ranks);
    char samples[32];
    if (n > 0) {
        put_line(p, "rank  threads  samples  host and device");
    }
    for (int i = 0; i < n; i++, rank = rank->next) {
        if (p->n + 1 == p->screen.height && i + 1 < n) {
            put_line(p, "... and %d more", n - i);
            return;
        }
        put_line(p, "%4d %8.0f %8s  %.64s, %.100s", i, dt_record_number(rank, "threads"),
                 dt_count_text(dt_record_number(rank, "samples"), samples, sizeof samples),
                 dt_record_text(rank, "host"), dt_record_text(rank, "device"));
    }
}

void dt_run_screen_draw(FILE *out, const struct dt_record *r, struct dt_screen screen)
{
    static struct dt_facts facts; /* large for a stack */
    struct painter painter = {.out = out, .screen = screen}, *p = &painter;
    dt_facts_find(r, &facts);
    put_line(p, "%s: %s, %s", r->path, dt_record_name(r), facts.texts[DT_FACT_VERDICT]);
    put_progress(p, r);
    put_result(p, r, "validation", dt_record_validation(r));
    put_result(p, r, "test", dt_record_result(r));
    put_curves(p, r);
    put_phases(p, r);
    put_ranks(p, r);
}
