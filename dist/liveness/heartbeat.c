#include "dist/liveness/heartbeat.h"

#include <string.h>

#include "dist/ranks/comm_private.h"

#define DOZE_MS 5

enum dt_status dt_heartbeat_start(struct dt_heartbeat *beat)
{
    memcpy(beat->sum, beat->mine, beat->n * sizeof *beat->sum);
    beat->patience = dt_patience_begin();
    return dt_comm_allreduce_start(beat->comm, beat->sum, beat->n, DT_TYPE_F64, DT_REDUCE_SUM,
                                   beat->name, &beat->request);
}

/* Ends one sign of life, and begins the next where a rank still works. */
static enum dt_status next(struct dt_heartbeat *beat, bool *all)
{
    DT_TRY(dt_comm_wait(beat->comm, &beat->request));
    if (beat->take != NULL) {
        beat->take(beat->context);
    }
    *all = (int)beat->sum[0] == beat->comm->size;
    return *all ? DT_OK : dt_heartbeat_start(beat);
}

static enum dt_status look(struct dt_heartbeat *beat)
{
    bool done = false, all;
    dt_comm_alive(beat->comm);
    DT_TRY(dt_comm_test(beat->comm, &beat->request, &done));
    return done ? next(beat, &all)
                : dt_comm_judge(beat->comm, &beat->request, dt_patience_look(&beat->patience));
}

enum dt_status dt_heartbeat_look(struct dt_heartbeat *beat)
{
    beat->failed = beat->failed == DT_OK ? look(beat) : beat->failed;
    return beat->failed;
}

void dt_heartbeat_show(void *heartbeat)
{
    (void)dt_heartbeat_look(heartbeat);
}

/* For dt_comm_meanwhile: a rank that waits for long leaves its core to those that work. */
static void doze(void *unused)
{
    (void)unused;
    dt_sleep_ms(DOZE_MS);
}

enum dt_status dt_heartbeat_finish(struct dt_heartbeat *beat)
{
    enum dt_status s = beat->failed;
    beat->mine[0] = 1;
    dt_comm_meanwhile(beat->comm, doze, NULL);
    for (bool all = false; s == DT_OK && !all;) {
        s = next(beat, &all);
    }
    dt_comm_meanwhile(beat->comm, NULL, NULL);
    return s;
}
