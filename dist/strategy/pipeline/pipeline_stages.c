#include "dist/strategy/pipeline/pipeline_stages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_params(const struct dt_block *block)
{
    return block->grad_end > block->grad_begin;
}

static void add_block(const struct dt_block *block, struct dt_stage *stage)
{
    stage->flops += 3 * dt_block_flops(block);
    if (has_params(block)) { /* the arena has blocks in reverse order */
        stage->grad_end = stage->grad_end > stage->grad_begin ? stage->grad_end : block->grad_end;
        stage->grad_begin = block->grad_begin;
    }
}

static struct dt_stage stage_of(const struct dt_model *model, int begin, int end)
{
    DT_ASSERT(begin >= 0 && begin <= end && end <= model->n_blocks);
    struct dt_stage stage = {.begin = begin, .end = end};
    for (int b = begin; b < end; b++) {
        add_block(&model->blocks[b], &stage);
    }
    return stage;
}

/* ---- by hand */

static int find_block(const struct dt_model *model, const char *name)
{
    for (int b = 0; b < model->n_blocks; b++) {
        if (strcmp(model->blocks[b].name, name) == 0) {
            return b;
        }
    }
    return -1;
}

static enum dt_status no_such_block(const struct dt_model *model, int i, const char *name)
{
    char names[200] = "";
    for (int b = 0; b < model->n_blocks; b++) {
        const size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", b > 0 ? ", " : "", model->blocks[b].name);
    }
    return dt_error(
        DT_CONFIG,
        "distributed.pipeline.cut[%d]: the model has no block \"%s\" (its blocks are %s)", i, name,
        names);
}

/* The end of stage i, which begins with block `begin`. */
static enum dt_status find_cut(const struct dt_model *model, const struct dt_texts *cut, int i,
                               int begin, int *end)
{
    *end = find_block(model, dt_texts_at(cut, i));
    if (*end < 0) {
        return no_such_block(model, i, dt_texts_at(cut, i));
    }
    if (*end < begin) {
        return dt_error(DT_CONFIG,
                        "distributed.pipeline.cut[%d]: \"%s\" stands before \"%s\" in the model "
                        "(keep to its order)",
                        i, dt_texts_at(cut, i), dt_texts_at(cut, i - 1));
    }
    if (*end == begin) {
        return dt_error(DT_CONFIG,
                        "distributed.pipeline.cut[%d]: no block is left for stage %d, before "
                        "\"%s\" (name a later one)",
                        i, i, dt_texts_at(cut, i));
    }
    return DT_OK;
}

static enum dt_status cut_by_hand(const struct dt_model *model, const struct dt_texts *cut,
                                  struct dt_stages *out)
{
    if (cut->n != out->n - 1) {
        return dt_error(DT_CONFIG,
                        "distributed.pipeline.cut names %d block%s for the stages behind the "
                        "first, but %d ranks make %d of these (name %d, or use %d ranks)",
                        cut->n, cut->n == 1 ? "" : "s", out->n, out->n - 1, out->n - 1, cut->n + 1);
    }
    for (int i = 0, begin = 0, end = model->n_blocks; i < out->n;
         i++, begin = end, end = model->n_blocks) {
        DT_TRY(i < cut->n ? find_cut(model, cut, i, begin, &end) : DT_OK);
        out->stages[i] = stage_of(model, begin, end);
        if (out->stages[i].grad_end == out->stages[i].grad_begin) {
            return dt_error(DT_CONFIG,
                            "distributed.pipeline.cut: stage %d, from \"%s\" on, has no parameters "
                            "(cut elsewhere)",
                            i, model->blocks[begin].name);
        }
    }
    return DT_OK;
}

/* ---- evenly */

/* The least that the largest of the stages of blocks [0, end) can come to, `*begin`: where the last
 * of them then begins; INFINITY: they cannot have parameters each. `of_fewer`: the same with a
 * stage less, for each end. */
static double best_cut(const struct dt_model *model, const double *of_fewer, int end, int *begin)
{
    double best = INFINITY;
    for (int b = 0; b < end; b++) {
        const struct dt_stage last = stage_of(model, b, end);
        const double largest =
            last.grad_end > last.grad_begin ? fmax(of_fewer[b], last.flops) : INFINITY;
        if (largest < best) {
            best = largest;
            *begin = b;
        }
    }
    DT_ASSERT(best == INFINITY || (*begin >= 0 && *begin < end));
    return best;
}

static void cut_evenly(const struct dt_model *model, struct dt_stages *out)
{
    double largest[DT_MAX_LAYERS + 1][DT_MAX_LAYERS + 1]; /* of so many stages, of so many blocks */
    int begins[DT_MAX_LAYERS + 1][DT_MAX_LAYERS + 1] = {0};
    for (int end = 0; end <= model->n_blocks; end++) {
        largest[0][end] = end == 0 ? 0 : INFINITY;
    }
    for (int n = 1; n <= out->n; n++) {
        for (int end = 0; end <= model->n_blocks; end++) {
            largest[n][end] = best_cut(model, largest[n - 1], end, &begins[n][end]);
        }
    }
    for (int n = out->n, end = model->n_blocks; n > 0; n--) {
        out->stages[n - 1] = stage_of(model, begins[n][end], end);
        DT_ASSERT(out->stages[n - 1].grad_begin < out->stages[n - 1].grad_end);
        end = begins[n][end];
    }
}

/* ---- */

static enum dt_status check(const struct dt_model *model, int n_stages)
{
    int n_trained = 0;
    for (int b = 0; b < model->n_blocks; b++) {
        n_trained += has_params(&model->blocks[b]);
    }
    if (n_stages > n_trained) {
        return dt_error(DT_CONFIG,
                        "distributed.strategy \"pipeline\": %d ranks, but only %d block%s with "
                        "parameters to share out (use fewer ranks)",
                        n_stages, n_trained, n_trained == 1 ? "" : "s");
    }
    return DT_OK;
}

enum dt_status dt_stages_make(const struct dt_model *model, int n_stages,
                              const struct dt_texts *cut, struct dt_stages *out)
{
    DT_ASSERT(n_stages >= 1);
    *out = (struct dt_stages){.n = n_stages};
    DT_TRY(check(model, n_stages));
    if (cut->n > 0) {
        return cut_by_hand(model, cut, out);
    }
    cut_evenly(model, out);
    DT_ASSERT(out->stages[0].begin == 0 && out->stages[n_stages - 1].end == model->n_blocks);
    return DT_OK;
}
