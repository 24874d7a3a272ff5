#include "dist/strategy/check_compression.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "dist/allreduce/formula.h"

_Static_assert(DT_MAX_LAYERS <= DT_MAX_MATRICES, "a dense layer is a matrix");

struct dt_codec_layout dt_matrices_of(const struct dt_model *model)
{
    struct dt_codec_layout out = {.n_matrices = 0};
    for (int b = model->n_blocks - 1; b >= 0; b--) { /* the arena's order */
        const struct dt_block *block = &model->blocks[b];
        if (block->linear == DT_LINEAR_DENSE) {
            const struct dt_param *weight = &model->params[block->weight];
            DT_ASSERT(weight->n_dims == 2 && weight->n_elems == weight->dims[0] * weight->dims[1]);
            out.matrices[out.n_matrices++] = (struct dt_matrix){
                .begin = weight->offset, .n_rows = weight->dims[0], .n_cols = weight->dims[1]};
        }
    }
    return out;
}

/* From a configuration alone, to name the allreduce implementations that can add this encoding. */
static enum dt_status check_sums(const struct dt_strategy_spec *spec, const char **key)
{
    const struct dt_dist_spec *dist = &spec->dist;
    const struct dt_allreduce_entries *rows = &dist->rows->allreduce;
    struct dt_codec codec;
    char fitting[192] = "";
    DT_TRY(dt_codec_open(dist->rows->codecs, &dist->compression, NULL, &codec));
    if (spec->backend != NULL ||
        dt_allreduce_compresses(rows, dist->allreduce, dist->across, &codec)) {
        return DT_OK;
    }
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES; type++) {
        if (dt_allreduce_compresses(rows, type, dist->across, &codec)) {
            const size_t n = strlen(fitting);
            snprintf(fitting + n, sizeof fitting - n, "%s%s", n > 0 ? ", " : "",
                     dt_allreduce_names[type]);
        }
    }
    *key = "distributed.compression.type";
    return dt_error(DT_CONFIG, "allreduce \"%s\" cannot add what is sent as %s (take one of %s)",
                    dt_allreduce_names[dist->allreduce],
                    dt_compression_names[dist->compression.type], fitting);
}

static enum dt_status open_own(const struct dt_dist_spec *dist, const struct dt_model *model,
                               const struct dt_codec **out)
{
    const struct dt_codec_layout layout = dt_matrices_of(model);
    struct dt_codec *codec = malloc(sizeof *codec);
    if (codec == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a codec");
    }
    const enum dt_status s = dt_codec_open(dist->rows->codecs, &dist->compression, &layout, codec);
    if (s != DT_OK) {
        free(codec);
        return s;
    }
    *out = codec;
    return DT_OK;
}

/* They agree before what they open together. */
static enum dt_status open_codec(const struct dt_strategy_spec *spec, const struct dt_codec **out,
                                 bool *all)
{
    const enum dt_status s = open_own(&spec->dist, spec->model, out);
    const enum dt_status met = dt_comm_all(spec->comm, s == DT_OK, "agreement on codecs", all);
    return s != DT_OK ? s : met;
}

/* Only codecs write into the gaps, and their numbers would come back at the next step. */
static enum dt_status clear_gaps(const struct dt_strategy_spec *spec, float *arena, size_t begin,
                                 size_t end)
{
    DT_ASSERT(begin <= end && end <= spec->model->arena_elems);
    static const float zeros[DT_PARAM_ALIGN];
    const struct dt_model *model = spec->model;
    for (int i = 0; i < model->n_params; i++) {
        const size_t gap = model->params[i].offset + model->params[i].n_elems,
                     n = dt_round_up(gap, DT_PARAM_ALIGN) - gap;
        if (n > 0 && gap >= begin && gap < end) {
            DT_TRY(
                spec->backend->ops->copy_in(spec->backend, arena + gap, zeros, n * sizeof *zeros));
        }
    }
    return DT_OK;
}

const struct dt_compression_ops dt_compression = {
    .check = check_sums, .open = open_codec, .clear_gaps = clear_gaps};
