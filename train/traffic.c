#include "train/traffic.h"

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

struct dt_step_traffic dt_traffic_foretell(const struct dt_trainer *t)
{
    const struct dt_allreduce *allreduce = &t->dist.allreduce;
    const bool shares = allreduce->shared.part != NULL;
    if (shares || allreduce->wire == NULL) {
        return (struct dt_step_traffic){.known = shares && t->world->comm->n_hosts == 1, .by_each = true};
    }
    return foretell(dt_allreduce_algorithm(allreduce->type), &t->dist.sync, t->world->size);
}

enum dt_status dt_traffic_plan(const struct dt_dist_spec *dist, const struct dt_model *model, int size,
                               struct dt_planned_traffic *out)
{
    const struct dt_algorithm *algorithm = dt_algorithm_find(dt_allreduce_names[dist->allreduce]);
    struct dt_grad_sync sync;
    size_t ends[DT_MAX_LAYERS];
    const int n_ends = dt_dist_grad_ends(model, ends);
    DT_TRY(dt_grad_sync_open(NULL, ends, n_ends, dist->bucket_bytes, dist->overlap, &sync));
    *out = (struct dt_planned_traffic){.n_buckets = sync.n_buckets};
    if (algorithm != NULL) {
        out->step = foretell(algorithm, &sync, size);
    }
    return DT_OK;
}

enum dt_status dt_traffic_measure(struct dt_trainer *t, struct dt_step_traffic *out)
{
    struct dt_wire_count sent = {0};
    const bool counted = t->n_timed_steps > 0 && t->config.dist.average && dt_allreduce_sent(&t->dist.allreduce, &sent);
    const double n = counted ? (double)t->n_timed_steps : 1, messages = (double)sent.messages / n, bytes = (double)sent.bytes / n;
    double most[] = {messages, bytes, -messages, -bytes, counted ? 0 : 1}; /* the third and fourth: least */
    DT_TRY(dt_comm_allreduce(t->world->comm, most, 5, DT_TYPE_F64, DT_REDUCE_MAX, "exchange of what was sent"));
    *out = (struct dt_step_traffic){.known = most[4] == 0, .messages = most[0], .bytes = most[1]};
    out->by_each = most[0] == -most[2] && fabs(most[1] + most[3]) <= 0.001 * most[1];
    return DT_OK;
}
