#include "report/page/histogram.h"

#define WIDTH 440
#define HEIGHT 120

void dt_histogram_draw(FILE *out, const char *label, int n, const uint64_t *counts)
{
    double most = 1;
    for (int i = 0; i < n; i++) {
        most = (double)counts[i] > most ? (double)counts[i] : most;
    }
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", WIDTH, HEIGHT + 24,
            label);
    for (int i = 0; i < n; i++) {
        const double width = (double)WIDTH / n, tall = (double)counts[i] / most * (HEIGHT - 20);
        fprintf(
            out,
            "<rect class=\"d0\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\"/>",
            i * width + 2, HEIGHT - tall, width - 4, tall);
        fprintf(out, "<text x=\"%.1f\" y=\"%d\">%d</text>\n", (i + 0.5) * width, HEIGHT + 18, i);
    }
    fputs("</svg>\n", out);
}
