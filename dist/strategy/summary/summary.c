#include "dist/strategy/summary/summary.h"

#include <math.h>

const struct dt_summary_entry *dt_summary_entry_of(const struct dt_dist_spec *dist)
{
    static const struct dt_summary_entry none = {.strategy = NULL};
    const struct dt_strategy_entry *strategy = dt_strategy_entry_of(dist);
    const struct dt_summary_entry *const *row = strategy != NULL ? dist->rows->facts : NULL;
    while (row != NULL && *row != NULL && (*row)->strategy != strategy) {
        row++;
    }
    return row != NULL && *row != NULL ? *row : &none;
}

/* The default; a row may set another name. */
static const char *adds_by(const struct dt_strategy *strategy)
{
    const bool alone = !strategy->spec.dist.average;
    return strategy->allreduce != NULL ? dt_allreduce_names[strategy->allreduce->type]
           : alone                     ? "none"
                                       : dt_strategy_names[strategy->spec.dist.strategy];
}

/* All but the predicted traffic. */
static struct dt_strategy_summary facts_of(const struct dt_strategy *strategy)
{
    const struct dt_summary_entry *row = dt_summary_entry_of(&strategy->spec.dist);
    struct dt_strategy_summary facts = {.allreduce = adds_by(strategy),
                                        .why = "",
                                        .n_hosts = strategy->spec.comm->n_hosts,
                                        .codec = strategy->spec.codec};
    if (row->facts != NULL) {
        row->facts(strategy, &facts);
    }
    return facts;
}

const char *dt_strategy_adds_by(const struct dt_strategy *strategy)
{
    return facts_of(strategy).allreduce;
}

void dt_strategy_summary(const struct dt_strategy *strategy, struct dt_strategy_summary *out)
{
    const struct dt_summary_entry *row = dt_summary_entry_of(&strategy->spec.dist);
    *out = facts_of(strategy);
    if (row->traffic != NULL) {
        row->traffic(strategy, &out->traffic);
    }
}

enum dt_status dt_strategy_staleness(const struct dt_strategy *strategy, struct dt_staleness *out)
{
    const struct dt_strategy_summary facts = facts_of(strategy);
    *out = facts.staleness != NULL ? *facts.staleness : (struct dt_staleness){{0}};
    return dt_comm_allreduce(strategy->spec.comm, out->counts, DT_STALENESS_BINS, DT_TYPE_U64,
                             DT_REDUCE_SUM, "sum of stalenesses");
}

enum dt_status dt_strategy_traffic(const struct dt_strategy *strategy, uint64_t n_steps,
                                   struct dt_step_traffic *out)
{
    struct dt_comm *comm = strategy->spec.comm;
    const struct dt_strategy_summary facts = facts_of(strategy);
    const bool counted = n_steps > 0 && facts.counted;
    const double n = counted ? (double)n_steps : 1;
    const struct dt_wire_sent mine = counted ? facts.sent : (struct dt_wire_sent){0};
    const double messages = (double)mine.all.messages / n, bytes = (double)mine.all.bytes / n;
    double most[] = {messages, bytes, -messages, -bytes,
                     counted ? 0 : 1}; /* the third and fourth: least */
    double between[] = {(double)mine.between_hosts.messages, (double)mine.between_hosts.bytes};
    DT_TRY(
        dt_comm_allreduce(comm, most, 5, DT_TYPE_F64, DT_REDUCE_MAX, "exchange of what was sent"));
    DT_TRY(dt_comm_allreduce(comm, between, 2, DT_TYPE_F64, DT_REDUCE_SUM, "sum of what was sent"));
    DT_ASSERT(most[0] >= -most[2] && most[1] >= -most[3]);
    *out = (struct dt_step_traffic){
        .known = most[4] == 0, .messages = most[0], .bytes = most[1], .n_hosts = comm->n_hosts};
    out->by_each = most[0] == -most[2] && fabs(most[1] + most[3]) <= 0.001 * most[1];
    out->messages_between = between[0] / n;
    out->bytes_between = between[1] / n;
    return DT_OK;
}

bool dt_strategy_has_gradient(const struct dt_strategy *strategy)
{
    return strategy->ops->each_sum != NULL && !strategy->free_running;
}

enum dt_status dt_strategy_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context)
{
    DT_ASSERT(dt_strategy_has_gradient(strategy));
    return strategy->ops->each_sum(strategy, fn, context);
}

struct squares {
    const struct dt_strategy_spec *spec;
    double sum;
};

/* A dt_sums_fn: of the parameters' elements, between which an arena has gaps. */
static enum dt_status add_squares(void *context, size_t begin, size_t end, const float *sums)
{
    DT_ASSERT(begin <= end && end <= ((struct squares *)context)->spec->model->arena_elems);
    struct squares *squares = context;
    const struct dt_model *model = squares->spec->model;
    struct dt_backend *backend = squares->spec->backend;
    for (int i = 0; i < model->n_params; i++) {
        const size_t first = model->params[i].offset, last = first + model->params[i].n_elems;
        const size_t from = first > begin ? first : begin, to = last < end ? last : end;
        double sum = 0;
        if (from < to) {
            DT_TRY(backend->ops->sum_squares(backend, to - from, sums + (from - begin), &sum));
            squares->sum += sum;
        }
    }
    return DT_OK;
}

enum dt_status dt_strategy_grad_norm(struct dt_strategy *strategy, double *out)
{
    struct squares squares = {.spec = &strategy->spec};
    DT_TRY(dt_strategy_each_sum(strategy, add_squares, &squares));
    DT_TRY(dt_comm_allreduce(strategy->spec.comm, &squares.sum, 1, DT_TYPE_F64, DT_REDUCE_SUM,
                             "sum of the gradient's squares"));
    *out = sqrt(squares.sum) * (double)strategy->grad_scale;
    return DT_OK;
}
