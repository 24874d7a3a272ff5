/* The residuals: what compression has not sent yet of each worker's gradients
 * (dist/compression/error_feedback.h), for checkpoints: each rank has its own, and rank 0 writes
 * and reads them all.
 *
 * They belong to the sum over all workers, whoever sends it and how: they stay valid under another
 * codec, strategy, number of hosts or number of workers, added to those of a worker that encodes
 * these elements. */
#ifndef DT_DIST_STRATEGY_RESIDUALS_H
#define DT_DIST_STRATEGY_RESIDUALS_H

#include "dist/strategy/strategy.h"

/* Room for them: (n_workers, arena_elems) on rank 0, one row elsewhere. The caller frees. *out NULL
 * with DT_OK: this training has none, on any rank. Local; DT_NO_MEMORY. */
enum dt_status dt_residuals_alloc(const struct dt_strategy *strategy, float **out);

/* Between steps: rank 0's rows become what each worker has left. Every rank calls it with the
 * memory above; NULL: nothing happens.
 */
enum dt_status dt_residuals_collect(struct dt_strategy *strategy, float *rows);
/* And back, on rank 0 after dt_residuals_settle. */
enum dt_status dt_residuals_give_out(struct dt_strategy *strategy, float *rows);

/* Rank 0's rows, read from a file: what is left of elements that another rank encodes now goes to
 * its row. Under `hierarchical` the ranks of a host encode a slice of its sums each. False: nobody
 * encodes here, though something is left. Local. */
bool dt_residuals_settle(const struct dt_strategy *strategy, float *rows);

/* The number of sums that every worker has begun, from which stochastic rounding draws. Local; rank
 * 0 knows. */
uint64_t dt_residuals_draws(const struct dt_strategy *strategy);
void dt_residuals_set_draws(struct dt_strategy *strategy, uint64_t n_draws);

#endif
