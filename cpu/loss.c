#include "cpu/loss.h"

#include <math.h>

void dt_cpu_cross_entropy(int label, int n, const float *z, float *dz, struct dt_metrics *metrics)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (z[i] > z[best]) {
            best = i;
        }
    }
    const double largest = (double)z[best];
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const double e = exp((double)z[i] - largest);
        sum += e;
        if (dz != NULL) {
            dz[i] = (float)e;
        }
    }
    metrics->loss_sum += log(sum) + largest - (double)z[label];
    metrics->n_correct += best == label;
    if (dz != NULL) {
        const float share = (float)(1.0 / sum);
        for (int i = 0; i < n; i++) {
            dz[i] *= share;
        }
        dz[label] -= 1.0f;
    }
}

void dt_cpu_squared_error(const float *target, int n, const float *z, float *dz,
                          struct dt_metrics *metrics)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const double error = (double)z[i] - (double)target[i];
        sum += error * error;
        if (dz != NULL) {
            dz[i] = (float)(2.0 * error / n);
        }
    }
    metrics->loss_sum += sum / n;
}
