#include "dist/strategy/summary/traffic_plan.h"

#include "dist/strategy/check_compression.h"

enum dt_status dt_traffic_plan(const struct dt_dist_spec *dist, const struct dt_model *model,
                               const struct dt_comm *comm, struct dt_planned_traffic *out)
{
    const struct dt_summary_entry *row = dt_summary_entry_of(dist);
    const struct dt_codec_layout layout = dt_matrices_of(model);
    *out = (struct dt_planned_traffic){.codec = dt_codec_none(), .allreduce = dist->allreduce};
    if (row->plan == NULL) {
        return DT_OK;
    }
    DT_TRY(dt_codec_open(dist->rows->codecs, &dist->compression, &layout, &out->codec));
    return row->plan(dist, model, comm, out);
}
