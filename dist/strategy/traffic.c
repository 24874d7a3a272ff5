#include "dist/strategy/traffic.h"

#include <math.h>
#include <stdlib.h>

/* What a rank sends for all buckets of a step. */
static struct dt_traffic of_rank(const struct dt_algorithm *algorithm, const struct dt_grad_sync *sync, int rank, int size,
                                 struct dt_move *moves)
{
    struct dt_traffic sent = {0};
    for (int i = 0; i < sync->n_buckets; i++) {
        const size_t n = sync->buckets[i].end - sync->buckets[i].begin;
        const struct dt_traffic bucket = dt_algorithm_traffic(algorithm, rank, size, n, moves);
        sent.messages += bucket.messages;
        sent.elements += bucket.elements;
    }
    return sent;
}

static struct dt_step_traffic of_all(const struct dt_algorithm *algorithm, const struct dt_grad_sync *sync, int size,
                                     struct dt_move *moves)
{
    struct dt_step_traffic most = {.known = true, .by_each = true};
    for (int rank = 0; rank < size; rank++) {
        const struct dt_traffic sent = of_rank(algorithm, sync, rank, size, moves);
        const double messages = (double)sent.messages, bytes = (double)(sent.elements * sizeof(float));
        most.by_each = most.by_each && (rank == 0 || (messages == most.messages && fabs(bytes - most.bytes) <= 0.001 * bytes));
        most.messages = fmax(most.messages, messages);
        most.bytes = fmax(most.bytes, bytes);
    }
    return most;
}

/* known: false without memory, too. */
static struct dt_step_traffic foretell(const struct dt_algorithm *algorithm, const struct dt_grad_sync *sync, int size)
{
    const size_t n_elems = sync->n_buckets > 0 ? sync->buckets[sync->n_buckets - 1].end : 0;
    struct dt_move *moves = calloc((size_t)dt_algorithm_max_moves(algorithm, size, n_elems), sizeof *moves);
    const struct dt_step_traffic most =
        moves != NULL ? of_all(algorithm, sync, size, moves) : (struct dt_step_traffic){.known = false};
    free(moves);
    return most;
}

struct dt_step_traffic dt_traffic_foretell(const struct dt_allreduce *allreduce, const struct dt_grad_sync *sync)
{
    if (allreduce->shared != NULL || allreduce->algorithm == NULL) {
        return (struct dt_step_traffic){.known = allreduce->shared != NULL && allreduce->comm->n_hosts == 1, .by_each = true};
    }
    return foretell(allreduce->algorithm, sync, allreduce->comm->size);
}

enum dt_status dt_traffic_plan(const struct dt_dist_spec *dist, const struct dt_model *model, int size,
                               struct dt_planned_traffic *out)
{
    const struct dt_algorithm *algorithm = dt_allreduce_algorithm(dist->allreduce);
    struct dt_grad_sync sync;
    DT_TRY(dt_grad_sync_open(NULL, model, dist, &sync));
    *out = (struct dt_planned_traffic){.n_buckets = sync.n_buckets};
    if (algorithm != NULL) {
        out->step = foretell(algorithm, &sync, size);
    }
    return DT_OK;
}

enum dt_status dt_traffic_measure(struct dt_comm *comm, const struct dt_wire_count *sent, uint64_t n_steps,
                                  struct dt_step_traffic *out)
{
    const bool counted = n_steps > 0 && sent != NULL;
    const double messages = counted ? (double)sent->messages / (double)n_steps : 0;
    const double bytes = counted ? (double)sent->bytes / (double)n_steps : 0;
    double most[] = {messages, bytes, -messages, -bytes, counted ? 0 : 1}; /* the third and fourth: least */
    DT_TRY(dt_comm_allreduce(comm, most, 5, DT_TYPE_F64, DT_REDUCE_MAX, "exchange of what was sent"));
    *out = (struct dt_step_traffic){.known = most[4] == 0, .messages = most[0], .bytes = most[1]};
    out->by_each = most[0] == -most[2] && fabs(most[1] + most[3]) <= 0.001 * most[1];
    return DT_OK;
}
