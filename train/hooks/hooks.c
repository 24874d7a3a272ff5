#include "train/hooks/hooks.h"

#include <stdio.h>

#include "train/hooks/audit.h"
#include "train/hooks/inject.h"
#include "train/hooks/inspect.h"
#include "train/hooks/learned.h"
#include "train/hooks/timeline_hook.h"
#include "train/rank_checks.h"

/* Hosts may have copies of the data that differ, each of them good. */
static enum dt_status compare_data(struct dt_trainer *t)
{
    char text[96];
    snprintf(text, sizeof text, "%llu %llu %zu %u", (unsigned long long)t->state.n_train,
             (unsigned long long)t->state.data_crc, t->evaluator.set.data.samples.n_total,
             (unsigned)t->evaluator.set.data.crc);
    return dt_ranks_same(t->world, "data set (number of samples, or labels)", text);
}

enum dt_status dt_hooks_open(const void *context, struct dt_trainer *t,
                             const struct dt_emitter *emitter)
{
    DT_TRY(compare_data(t));
    DT_TRY(dt_measure_open(t));
    DT_TRY(dt_inject_open(t, context));
    DT_TRY(dt_timeline_open(t, emitter));
    DT_TRY(dt_learned_hook(t)); /* first: the inspection takes its confusion matrix */
    DT_TRY(dt_inspect_open(t));
    DT_TRY(dt_audit_open(t, emitter));
    return dt_line_open(t);
}
