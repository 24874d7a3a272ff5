#include "cli/sinks/staleness.h"

#define BAR_WIDTH 40

int dt_staleness_n_bins(const struct dt_staleness *s)
{
    int n = DT_STALENESS_BINS;
    while (n > 0 && s->counts[n - 1] == 0) {
        n--;
    }
    return n;
}

static double count_all(const struct dt_staleness *s)
{
    double n = 0;
    for (int i = 0; i < DT_STALENESS_BINS; i++) {
        n += (double)s->counts[i];
    }
    return n;
}

double dt_staleness_mean(const struct dt_staleness *s)
{
    double sum = 0;
    for (int i = 0; i < DT_STALENESS_BINS; i++) {
        sum += (double)i * (double)s->counts[i];
    }
    return sum / count_all(s);
}

void dt_staleness_print(FILE *out, const struct dt_staleness *s)
{
    static const char bar[BAR_WIDTH + 1] = "########################################";
    const int n_bins = dt_staleness_n_bins(s);
    const double n = count_all(s);
    if (n_bins == 0) {
        return;
    }
    fprintf(out, "staleness of gradients, in steps: mean %.2f, most %d\n", dt_staleness_mean(s),
            n_bins - 1);
    for (int i = 0; i < n_bins; i++) {
        const double share = (double)s->counts[i] / n;
        fprintf(out, "  %3d %6.1f %%  %.*s\n", i, 100 * share, (int)(share * BAR_WIDTH + 0.5), bar);
    }
}
