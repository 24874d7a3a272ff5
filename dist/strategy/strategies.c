#include "dist/strategy/strategies.h"

#include "dist/strategy/matrices.h"

static enum dt_status open_strategy(const struct dt_strategy_spec *spec, struct dt_strategy **out)
{
    if (!spec->dist.average) {
        return dt_alone_open(spec, out);
    }
    switch (spec->dist.strategy) {
    case DT_STRATEGY_ALLREDUCE:
        return dt_mirrored_open(spec, out);
    case DT_STRATEGY_PARAMETER_SERVER:
    case DT_STRATEGY_CENTRAL:
        return dt_parameter_server_open(spec, out);
    case DT_STRATEGY_PIPELINE:
        return dt_pipeline_open(spec, out);
    }
    return dt_error(DT_INTERNAL, "no such strategy");
}

enum dt_status dt_strategy_open(const struct dt_strategy_spec *spec, struct dt_strategy **out)
{
    struct dt_strategy_spec of_model = *spec;
    of_model.dist.compression = dt_matrices_add(&spec->dist.compression, spec->model);
    *out = NULL;
    return open_strategy(&of_model, out);
}
