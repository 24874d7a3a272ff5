#include "dist/strategy/strategies.h"

enum dt_status dt_strategy_open(const struct dt_strategy_spec *spec, struct dt_strategy **out)
{
    *out = NULL;
    return spec->dist.average ? dt_mirrored_open(spec, out) : dt_alone_open(spec, out);
}
