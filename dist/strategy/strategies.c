#include "dist/strategy/strategy.h"

#include <stdlib.h>

const char *const dt_strategy_names[] = {DT_STRATEGY_LIST(DT_ENUM_NAME)};

const struct dt_strategy_entry *dt_strategy_entry_of(const struct dt_dist_spec *dist)
{
    static const struct dt_strategy_entry *const none[] = {NULL};
    const struct dt_strategy_entry *const *row = dist->rows != NULL ? dist->rows->strategies : none;
    while (*row != NULL && !(*row)->serves(dist)) {
        row++;
    }
    return *row;
}

enum dt_status dt_strategy_check(const struct dt_strategy_spec *spec, const char **key)
{
    const struct dt_strategy_entry *row = dt_strategy_entry_of(&spec->dist);
    return row != NULL && row->check != NULL ? row->check(spec, key) : DT_OK;
}

enum dt_status dt_strategy_open(const struct dt_strategy_spec *spec, struct dt_strategy **out)
{
    const struct dt_dist_spec *dist = &spec->dist;
    const struct dt_strategy_entry *row = dt_strategy_entry_of(dist);
    struct dt_strategy_spec encoded = *spec;
    const char *key = NULL;
    *out = NULL;
    if (row == NULL) {
        return dt_error(DT_INTERNAL, "this program links no strategy \"%s\"",
                        dt_strategy_names[dist->strategy]);
    }
    DT_TRY(dt_strategy_check(spec, &key));
    encoded.elementwise = spec->optimizer.clip_norm == 0;
    if (row->needs_elementwise != NULL && !encoded.elementwise) {
        return dt_error(DT_CONFIG, "train.optimizer.clip_norm needs %s", row->needs_elementwise);
    }
    bool all = true;
    if (dist->compression.type != DT_COMPRESSION_NONE) {
        DT_TRY(dist->rows->compression != NULL
                   ? dist->rows->compression->open(spec, &encoded.codec, &all)
                   : dt_error(DT_INTERNAL, "this program links no codec"));
    }
    const enum dt_status s = all ? row->open(&encoded, out) : DT_OK;
    if (*out == NULL) {
        free((void *)encoded.codec);
    }
    DT_ASSERT(*out == NULL || (s == DT_OK && (*out)->ops->finish != NULL));
    return s;
}

/* ---- of strategy.h: slots that only some strategies fill */

enum dt_status dt_strategy_share_weights(struct dt_strategy *strategy)
{
    return strategy->ops->share != NULL ? strategy->ops->share(strategy, DT_SHARED_WEIGHTS) : DT_OK;
}

enum dt_status dt_strategy_collect_state(struct dt_strategy *strategy)
{
    return strategy->ops->share != NULL ? strategy->ops->share(strategy, DT_SHARED_STATE) : DT_OK;
}

bool dt_strategy_splits(const struct dt_strategy *strategy)
{
    return strategy->ops->passes != NULL;
}

enum dt_status dt_strategy_passes(struct dt_strategy_step *step, struct dt_network *network,
                                  struct dt_bound_samples *samples, const struct dt_pass *pass)
{
    DT_ASSERT(dt_strategy_splits(step->strategy) && pass->training);
    return step->strategy->ops->passes(step, network, samples, pass);
}
