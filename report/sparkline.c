#include "report/sparkline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define N_LEVELS 8

static const char *const blocks[N_LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const ascii[N_LEVELS] = {".", ":", "-", "=", "+", "*", "%", "#"};

struct cells {
    int n;
    double heights[DT_SPARKLINE_CELLS]; /* NaN: nothing known */
    double least, most;
};

/* The mean of those from `begin` on, before `end`. */
static double mean(const struct dt_sparkline *line, size_t begin, size_t end)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = begin; i < end; i++) {
        const double value = line->values[i * line->stride];
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

static void fill(const struct dt_sparkline *line, int width, struct cells *out)
{
    const size_t most = (size_t)(width < DT_SPARKLINE_CELLS ? width : DT_SPARKLINE_CELLS);
    out->n = (int)(line->n < most ? line->n : most);
    for (size_t i = 0; i < (size_t)out->n; i++) {
        out->heights[i] =
            mean(line, i * line->n / (size_t)out->n, (i + 1) * line->n / (size_t)out->n);
    }
    find_range(out);
    if (line->log && out->least > 0) {
        for (int i = 0; i < out->n; i++) {
            out->heights[i] = log(out->heights[i]);
        }
        find_range(out);
    }
}

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

void dt_sparkline_text(const struct dt_sparkline *line, int width, char *text, size_t n_text)
{
    struct cells cells;
    fill(line, width > 0 ? width : 0, &cells);
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < cells.n && n < n_text; i++) {
        n += (size_t)snprintf(text + n, n_text - n, "%s", cell(&cells, i, line->utf8));
    }
}
