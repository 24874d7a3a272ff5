#include "dist/strategy/stages.h"

#include <math.h>

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
    struct dt_stage stage = {.begin = begin, .end = end};
    for (int b = begin; b < end; b++) {
        add_block(&model->blocks[b], &stage);
    }
    return stage;
}

/* The least that the largest of the stages of blocks [0, end) can come to, `*begin`: where the last of them then begins; INFINITY:
 * they cannot have parameters each. `of_fewer`: the same with a stage less, for each end. */
static double best_cut(const struct dt_model *model, const double *of_fewer, int end, int *begin)
{
    double best = INFINITY;
    for (int b = 0; b < end; b++) {
        const struct dt_stage last = stage_of(model, b, end);
        const double largest = last.grad_end > last.grad_begin ? fmax(of_fewer[b], last.flops) : INFINITY;
        if (largest < best) {
            best = largest;
            *begin = b;
        }
    }
    return best;
}

static enum dt_status check(const struct dt_model *model, int n_stages)
{
    int n_trained = 0;
    for (int b = 0; b < model->n_blocks; b++) {
        n_trained += has_params(&model->blocks[b]);
    }
    if (n_stages > n_trained) {
        return dt_error(DT_CONFIG,
                        "distributed.strategy \"pipeline\": %d ranks, but only %d block%s with parameters to share out (use fewer "
                        "ranks)",
                        n_stages, n_trained, n_trained == 1 ? "" : "s");
    }
    return DT_OK;
}

enum dt_status dt_stages_make(const struct dt_model *model, int n_stages, struct dt_stages *out)
{
    double largest[DT_MAX_LAYERS + 1][DT_MAX_LAYERS + 1]; /* of so many stages, of so many blocks */
    int begins[DT_MAX_LAYERS + 1][DT_MAX_LAYERS + 1] = {0};
    *out = (struct dt_stages){.n = n_stages};
    DT_TRY(check(model, n_stages));
    for (int end = 0; end <= model->n_blocks; end++) {
        largest[0][end] = end == 0 ? 0 : INFINITY;
    }
    for (int n = 1; n <= n_stages; n++) {
        for (int end = 0; end <= model->n_blocks; end++) {
            largest[n][end] = best_cut(model, largest[n - 1], end, &begins[n][end]);
        }
    }
    for (int n = n_stages, end = model->n_blocks; n > 0; n--) {
        out->stages[n - 1] = stage_of(model, begins[n][end], end);
        end = begins[n][end];
    }
    return DT_OK;
}
