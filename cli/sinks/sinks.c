#include "cli/sinks/sinks.h"
#include "cli/sinks/protobuf.h"

#include <math.h>
#include <time.h>

#include "base/clock.h"

#define POSITION_INTERVAL_S 1.0

/* Rounded to the millisecond, so that the files have every digit. */
static double since_1970(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return floor((double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6) * 1e-3;
}

enum dt_status dt_sinks_check(const struct dt_config *config)
{
    return config->tensorboard ? dt_protobuf_check("\"tensorboard\": true") : DT_OK;
}

enum dt_status dt_sinks_emit(void *context, struct dt_event *event)
{
#define ROW(name) dt_##name##_take,
    static enum dt_status (*const rows[])(struct dt_sinks *,
                                          const struct dt_event *) = {DT_SINK_LIST(ROW)};
    struct dt_sinks *sinks = context;
    enum dt_status failed = DT_OK;
    if (event->kind == DT_EVENT_FOLDER) {
        sinks->folder = *event->folder;
        sinks->started_s = since_1970();
        sinks->clock_s = dt_clock_s();
    }
    const size_t n = sizeof rows / sizeof rows[0];
    const bool taken = sinks->folder.config != NULL || event->kind == DT_EVENT_WARNING;
    for (size_t i = 0; i <= n && taken; i++) {
        enum dt_status (*const take)(struct dt_sinks *, const struct dt_event *) =
            i < n                   ? rows[i]
            : sinks->reader != NULL ? sinks->reader->take
                                    : NULL;
        const enum dt_status s = take != NULL ? take(sinks, event) : DT_OK;
        event->status = event->status == DT_OK ? s : event->status;
        failed = failed == DT_OK ? s : failed;
    }
    return failed;
}

/* Shows readers of the folder that the run moves, however far apart its records are. */
enum dt_status dt_position_take(struct dt_sinks *sinks, const struct dt_event *event)
{
    const double now_s = event->kind == DT_EVENT_STEP ? dt_clock_s() : 0;
    if (now_s - sinks->position_s >= POSITION_INTERVAL_S) {
        dt_run_dir_note_step(sinks->folder.dir, event->step->step);
        sinks->position_s = now_s;
    }
    return DT_OK;
}

void dt_sinks_close(struct dt_sinks *sinks)
{
    dt_progress_clear(&sinks->progress);
    dt_metrics_close(&sinks->files);
    if (sinks->events != NULL) {
        fclose(sinks->events);
    }
}
