#include "dist/strategy/pipeline/pipeline_schedule.h"

const char *dt_pipeline_schedule_name(enum dt_pipeline_schedule schedule)
{
    static const char *const names[] = {DT_PIPELINE_SCHEDULE_LIST(DT_ENUM_NAME)};
    return names[schedule];
}

/* Forward passes before the first backward pass. */
static int count_first(enum dt_pipeline_schedule schedule, int n_behind, int n_micro_batches)
{
    switch (schedule) {
    case DT_PIPELINE_GPIPE:
        return n_micro_batches;
    case DT_PIPELINE_1F1B:
        return n_behind < n_micro_batches ? n_behind : n_micro_batches;
    }
    return n_micro_batches;
}

struct dt_pipeline_op dt_pipeline_op(enum dt_pipeline_schedule schedule, int stage, int n_stages,
                                     int n_micro_batches, int i)
{
    DT_ASSERT(stage >= 0 && stage < n_stages && i >= 0 && i < 2 * n_micro_batches);
    const int n_first = count_first(schedule, n_stages - 1 - stage, n_micro_batches);
    const int n_alternating = 2 * (n_micro_batches - n_first), at = i - n_first;
    DT_ASSERT(n_first >= 0 && n_first <= n_micro_batches);
    if (at < 0) {
        return (struct dt_pipeline_op){.micro_batch = i};
    }
    if (at < n_alternating) {
        return (struct dt_pipeline_op){.micro_batch = at % 2 == 0 ? n_first + at / 2 : at / 2,
                                       .backward = at % 2 != 0};
    }
    return (struct dt_pipeline_op){.micro_batch = i - n_micro_batches, .backward = true};
}

double dt_pipeline_bubble(int n_stages, int n_micro_batches)
{
    DT_ASSERT(n_stages >= 1 && n_micro_batches >= 1);
    return (double)(n_stages - 1) / (n_micro_batches + n_stages - 1);
}
