#include "dist/strategy/residuals.h"

#include <stdlib.h>
#include <string.h>

#include "dist/compression/error_feedback.h"
#include "dist/strategy/roles.h"

/* The number of rows, if there are any. */
static enum dt_status count_workers(const struct dt_strategy *strategy, int *n_workers)
{
    const struct dt_strategy_spec *spec = &strategy->spec;
    struct dt_roles roles;
    DT_TRY(dt_roles_find(&spec->dist, spec->comm->rank, spec->comm->size, &roles));
    *n_workers = roles.n_workers;
    return DT_OK;
}

enum dt_status dt_residuals_alloc(const struct dt_strategy *strategy, float **out)
{
    const struct dt_strategy_spec *spec = &strategy->spec;
    const struct dt_compression_spec *compression = &spec->dist.compression;
    int n_workers;
    *out = NULL;
    if (compression->type == DT_COMPRESSION_NONE || !compression->error_feedback || !spec->dist.average) {
        return DT_OK;
    }
    DT_TRY(count_workers(strategy, &n_workers));
    const size_t n_rows = spec->comm->rank == 0 ? (size_t)n_workers : 1;
    *out = calloc(n_rows * spec->model->arena_elems + 1, sizeof **out);
    return *out != NULL ? DT_OK
                        : dt_error(DT_NO_MEMORY, "no memory for what compression leaves of %d workers' gradients", n_workers);
}

/* This rank's own, or NULL. */
static float *left_of(const struct dt_strategy *strategy)
{
    return strategy->feedback != NULL ? strategy->feedback->left : NULL;
}

/* From each worker to rank 0, or from there to each worker. */
static enum dt_status move(struct dt_strategy *strategy, float *rows, bool to_first)
{
    struct dt_comm *comm = strategy->spec.comm;
    const size_t n_elems = strategy->spec.model->arena_elems, n_bytes = n_elems * sizeof *rows;
    float *left = left_of(strategy);
    int n_workers;
    DT_TRY(count_workers(strategy, &n_workers));
    for (int worker = 0; worker < n_workers && rows != NULL; worker++) {
        float *row = comm->rank == 0 ? rows + (size_t)worker * n_elems : rows;
        const bool own = comm->rank == worker && left != NULL;
        if (own && to_first) {
            memcpy(row, left, n_bytes);
        }
        DT_TRY(worker == 0 ? DT_OK : dt_comm_broadcast(comm, row, n_bytes, to_first ? worker : 0, "residuals of compression"));
        if (own && !to_first) {
            memcpy(left, row, n_bytes);
        }
    }
    return DT_OK;
}

enum dt_status dt_residuals_collect(struct dt_strategy *strategy, float *rows)
{
    return move(strategy, rows, true);
}

enum dt_status dt_residuals_give_out(struct dt_strategy *strategy, float *rows)
{
    return move(strategy, rows, false);
}

uint64_t dt_residuals_draws(const struct dt_strategy *strategy)
{
    const bool draws = strategy->spec.dist.compression.rounding == DT_ROUNDING_STOCHASTIC && strategy->feedback != NULL;
    return draws ? strategy->feedback->draw - DT_FIRST_DRAW(strategy->spec.comm->rank) : 0;
}

void dt_residuals_set_draws(struct dt_strategy *strategy, uint64_t n_draws)
{
    if (strategy->feedback != NULL) {
        strategy->feedback->draw = DT_FIRST_DRAW(strategy->spec.comm->rank) + n_draws;
    }
}
