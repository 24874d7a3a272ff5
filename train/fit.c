#include "train/parts.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

#define SMALLER " (use a smaller batch, model or data set)"
#define SPARE_SHARE 64 /* of a GPU's memory, where a batch is said to fit */

enum dt_status dt_fit_check(const struct dt_trainer *t)
{
    if (t->device.info.total_bytes > 0) {
        return DT_OK;
    }
    const double gib = 1024.0 * 1024.0 * 1024.0;
    const double need =
        (double)dt_model_n_bytes(&t->model, dt_trainer_capacity(t),
                                 dt_optimizer_n_states(&t->config.optimizer) + (t->config.ema > 0));
    const double have =
        (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE) / t->world->local_size;
    if (need > have) {
        return dt_error(DT_CONFIG,
                        "model needs %.1f GiB a rank, this host has %.1f GiB for each of its %d "
                        "ranks (use a smaller model or batch)",
                        need / gib, have / gib, t->world->local_size);
    }
    return DT_OK;
}

/* Room for what is only allocated later: NCCL's buffers, kernels when they first run. */
static bool has_spare_memory(struct dt_trainer *t)
{
    void *spare;
    if (t->backend->ops->alloc(t->backend, t->device.info.total_bytes / SPARE_SHARE, &spare) !=
        DT_OK) {
        return false;
    }
    t->backend->ops->free(t->backend, spare);
    return true;
}

/* A half, a quarter, ... of a micro-batch that fits; 0: none does, or none was found in half of the
 * time that others wait. */
static int find_fitting_batch(struct dt_trainer *t)
{
    const double end_s = dt_clock_s() + dt_comm_timeout_s(t->world->comm) / 2;
    enum dt_status s = DT_NO_MEMORY;
    int n = dt_trainer_capacity(t);
    dt_comm_phase(t->world->comm, "search for a batch that fits");
    while (s == DT_NO_MEMORY && n > 1 && dt_clock_s() < end_s) {
        n /= 2;
        dt_trainer_close_network(t);
        s = dt_trainer_open_network(t, n);
        s = s == DT_OK && !has_spare_memory(t) ? DT_NO_MEMORY : s;
        dt_error_clear();
    }
    DT_ASSERT(n >= 1);
    return s == DT_OK ? n : 0;
}

enum dt_status dt_fit_advise(struct dt_trainer *t, bool search)
{
    DT_ASSERT(t->device.info.total_bytes > 0 && dt_error_text()[0] != '\0');
    char text[DT_ERROR_TEXT_SIZE], cure[160];
    const long long k = t->config.accumulate;
    const int capacity = dt_trainer_capacity(t);
    const bool shared = t->device.why[0] != '\0'; /* what fits depends on when the others try */
    snprintf(text, sizeof text, "%s", dt_error_text());
    dt_error_clear();
    const int n = shared || !search ? 0 : find_fitting_batch(t);
    if (n > 0) {
        const bool global = t->config.batch_global > 0;
        snprintf(
            cure, sizeof cure,
            " (%d samples at a time would fit: set train.batch.%s=%lld, or train.accumulate=%lld)",
            n, global ? "global" : "per_rank", n * k * (global ? t->world->size : 1),
            k * ((capacity + n - 1) / n));
    } else {
        snprintf(cure, sizeof cure, "%s", SMALLER);
    }
    return dt_error_around(dt_error(DT_NO_MEMORY, "%s", text), "", cure);
}
