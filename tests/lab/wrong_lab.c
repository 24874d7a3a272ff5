/* dtrain, but rank 1 of a ring replaces in the second round what it should add, steps are a
 * hundredth too long, and a batch has its first sample twice; a block has a few operations more; a
 * pipeline of 1f1b keeps all, as gpipe's; error feedback keeps a little too much; late ranks are
 * half as late; a lowest digit is one too large. */
#include "data/shard.h"
#include "dist/allreduce/algorithm.h"
#include "dist/compression/error_feedback.h"
#include "dist/compression/fixed_point.h"
#include "dist/strategy/pipeline/pipeline_schedule.h"
#include "dist/strategy/strategy.h"
#include "model/block.h"
#include "tests/lib/wrap.h"
#include "train/hooks/inject.h"

WRAP(int, dt_ring_round, int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    const int n = __real_dt_ring_round(rank, size, n_elems, round, moves);
    if (rank == 1 && round == 1) {
        moves[1].kind = DT_REPLACE;
    }
    return n;
}

WRAP(struct dt_update, dt_strategy_next_update, struct dt_strategy *strategy, double lr,
     size_t n_global, size_t n_local)
{
    return __real_dt_strategy_next_update(strategy, 1.01 * lr, n_global, n_local);
}

WRAP(struct dt_batch, dt_loader_batch, struct dt_loader *loader, uint32_t epoch, uint64_t step)
{
    const struct dt_batch batch = __real_dt_loader_batch(loader, epoch, step);
    if (batch.n > 1) {
        loader->rows[1] = loader->rows[0];
        loader->ids[1] = loader->ids[0];
    }
    return batch;
}

WRAP(double, dt_block_flops, const struct dt_block *block)
{
    return __real_dt_block_flops(block) + 4;
}

WRAP(struct dt_pipeline_op, dt_pipeline_op, enum dt_pipeline_schedule schedule, int stage,
     int n_stages, int n_micro_batches, int i)
{
    (void)schedule;
    return __real_dt_pipeline_op(DT_PIPELINE_GPIPE, stage, n_stages, n_micro_batches, i);
}

WRAP(void, dt_error_feedback_encode, struct dt_error_feedback *feedback, uint64_t draw,
     size_t begin, size_t end, float *values, void *bytes)
{
    __real_dt_error_feedback_encode(feedback, draw, begin, end, values, bytes);
    if (feedback->left != NULL) {
        feedback->left[begin] += 0.25f;
    }
}

WRAP(unsigned, dt_fault_delay_ms, const struct dt_fault *fault, uint64_t seed, int rank,
     uint64_t step)
{
    return __real_dt_fault_delay_ms(fault, seed, rank, step) / 2;
}

WRAP(void, dt_fixed_split, int n_digits, size_t n, const int64_t *sums, float *digits)
{
    __real_dt_fixed_split(n_digits, n, sums, digits);
    digits[0] += 1;
}
