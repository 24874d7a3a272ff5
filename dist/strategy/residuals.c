#include "dist/strategy/residuals.h"

#include <stdlib.h>
#include <string.h>

#include "dist/allreduce/formula.h"
#include "dist/compression/error_feedback.h"
#include "dist/strategy/grad_sync.h"
#include "dist/strategy/roles.h"

/* The number of rows, if there are any. */
static int count_workers(const struct dt_strategy *strategy)
{
    const struct dt_strategy_spec *spec = &strategy->spec;
    struct dt_roles roles;
    return dt_roles_find(&spec->dist, spec->comm->rank, spec->comm->size, &roles) == DT_OK
               ? roles.n_workers
               : 0;
}

enum dt_status dt_residuals_alloc(const struct dt_strategy *strategy, float **out)
{
    const struct dt_strategy_spec *spec = &strategy->spec;
    const struct dt_compression_spec *compression = &spec->dist.compression;
    const int n_workers = count_workers(strategy);
    *out = NULL;
    if (compression->type == DT_COMPRESSION_NONE || !compression->error_feedback ||
        !spec->dist.average) {
        return DT_OK;
    }
    const size_t n_rows = spec->comm->rank == 0 ? (size_t)n_workers : 1;
    *out = calloc(n_rows * spec->model->arena_elems + 1, sizeof **out);
    return *out != NULL ? DT_OK
                        : dt_error(DT_NO_MEMORY,
                                   "no memory for what compression leaves of %d workers' gradients",
                                   n_workers);
}

/* This rank's own, or NULL. */
static float *left_of(const struct dt_strategy *strategy)
{
    return strategy->feedback != NULL ? strategy->feedback->left : NULL;
}

/* Rows travel from each worker to rank 0, or from rank 0 to each worker. */
static enum dt_status move(struct dt_strategy *strategy, float *rows, bool to_first)
{
    DT_ASSERT(strategy->spec.dist.average || rows == NULL);
    struct dt_comm *comm = strategy->spec.comm;
    const size_t n_elems = strategy->spec.model->arena_elems, n_bytes = n_elems * sizeof *rows;
    float *left = left_of(strategy);
    for (int worker = 0; worker < count_workers(strategy) && rows != NULL; worker++) {
        float *row = comm->rank == 0 ? rows + (size_t)worker * n_elems : rows;
        const bool own = comm->rank == worker;
        if (own && to_first && left != NULL) {
            memcpy(row, left, n_bytes);
        } else if (own && to_first) { /* where others' have passed through */
            memset(row, 0, n_bytes);
        }
        DT_TRY(worker == 0 ? DT_OK
                           : dt_comm_broadcast(comm, row, n_bytes, to_first ? worker : 0,
                                               "residuals of compression"));
        if (own && !to_first && left != NULL) {
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

static bool any_left(const float *rows, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        any = any || rows[i] != 0;
    }
    return any;
}

/* The k-th rank of the host that a rank is on. */
static int rank_beside(const struct dt_comm *comm, int rank, int k)
{
    DT_ASSERT(k >= 0 && k < comm->n_across);
    int beside = comm->host_roots[rank];
    for (int n = 0; n < k; n++) {
        do {
            beside++;
        } while (comm->host_roots[beside] != comm->host_roots[rank]);
    }
    return beside;
}

/* A zero is not added: a rank's own numbers keep their bits. */
static void move_elements(float *from, float *to, size_t begin, size_t end)
{
    for (size_t i = begin; i < end && from != to; i++) {
        to[i] = from[i] != 0 ? to[i] + from[i] : to[i];
        from[i] = 0;
    }
}

/* The elements of a bucket, slice by slice, to the ranks that carry them between the hosts. */
static void settle_bucket(const struct dt_comm *comm, const struct dt_bucket *bucket,
                          size_t n_elems, float *rows)
{
    DT_ASSERT(bucket->begin < bucket->end && bucket->end <= n_elems);
    const size_t n = bucket->end - bucket->begin;
    const int n_slices = dt_allreduce_n_slices(comm, n);
    for (int k = 0; k < n_slices; k++) {
        const size_t begin = bucket->begin + dt_piece_begin(n, k, n_slices),
                     end = bucket->begin + dt_piece_begin(n, k + 1, n_slices);
        for (int rank = 0; rank < comm->size; rank++) {
            move_elements(rows + (size_t)rank * n_elems,
                          rows + (size_t)rank_beside(comm, rank, k) * n_elems, begin, end);
        }
    }
}

bool dt_residuals_settle(const struct dt_strategy *strategy, float *rows)
{
    const struct dt_strategy_spec *spec = &strategy->spec;
    const size_t n_elems = spec->model->arena_elems;
    struct dt_grad_sync sync = {.n_buckets = 0};
    if (left_of(strategy) == NULL) {
        return !any_left(rows, (size_t)count_workers(strategy) * n_elems);
    }
    if (strategy->allreduce != NULL && strategy->allreduce->shared != NULL) {
        dt_grad_sync_open(NULL, spec->model, &spec->dist, &sync);
    }
    for (int i = 0; i < sync.n_buckets; i++) {
        settle_bucket(spec->comm, &sync.buckets[i], n_elems, rows);
    }
    return true;
}

uint64_t dt_residuals_draws(const struct dt_strategy *strategy)
{
    DT_ASSERT(strategy->feedback == NULL ||
              strategy->feedback->draw >= DT_FIRST_DRAW(strategy->spec.comm->rank));
    const bool draws = strategy->spec.dist.compression.rounding == DT_ROUNDING_STOCHASTIC &&
                       strategy->feedback != NULL;
    return draws ? strategy->feedback->draw - DT_FIRST_DRAW(strategy->spec.comm->rank) : 0;
}

void dt_residuals_set_draws(struct dt_strategy *strategy, uint64_t n_draws)
{
    DT_ASSERT(n_draws < DT_FIRST_DRAW(1));
    if (strategy->feedback != NULL) {
        strategy->feedback->draw = DT_FIRST_DRAW(strategy->spec.comm->rank) + n_draws;
    }
}
