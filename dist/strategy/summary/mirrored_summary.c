/* Facts of mirrored weights: their buckets, and the messages of the allreduce. */
#include <math.h>
#include <stdlib.h>

#include "dist/allreduce/formula.h"
#include "dist/strategy/micro_batches.h"
#include "dist/strategy/mirrored.h"
#include "dist/strategy/summary/traffic_plan.h"

static void facts(const struct dt_strategy *strategy, struct dt_strategy_summary *out)
{
    DT_ASSERT(strategy->allreduce != NULL);
    const struct dt_mirrored *self = (const struct dt_mirrored *)strategy;
    const struct dt_allreduce *a = strategy->allreduce;
    const bool across = a->shared != NULL && strategy->spec.comm->n_hosts > 1;
    out->across = !across ? NULL : a->algorithm != NULL ? a->algorithm->name : "mpi";
    out->why = a->why;
    out->n_buckets = self->sync.n_buckets;
    out->counted = dt_allreduce_sent(a, &out->sent);
}

/* The ranks that send: all of them, each bucket as a whole; or those with the same number on their
 * hosts, slices of it. */
struct senders {
    const struct dt_algorithm *algorithm;
    const struct dt_codec *codec;
    const struct dt_comm *comm;
    bool shared;
    const struct dt_grad_sync *sync;
    struct dt_move *moves; /* room for a round */
};

static int size_of(const struct senders *s)
{
    return s->shared ? s->comm->n_hosts : s->comm->size;
}

/* In bytes, of a range that begins at `begin`: encodings that can be added are as long in parts as
 * in one; all others are sent whole. */
static struct dt_traffic encoded(const struct dt_codec *codec, size_t begin,
                                 const struct dt_traffic *traffic)
{
    DT_ASSERT(codec->ops->summable || traffic->messages == 0 ||
              traffic->bytes % traffic->messages == 0);
    const size_t n_parts = codec->ops->summable || traffic->messages == 0 ? 1 : traffic->messages;
    return (struct dt_traffic){
        .messages = traffic->messages,
        .bytes = n_parts * dt_codec_bytes(codec, begin, traffic->bytes / sizeof(float) / n_parts)};
}

/* The traffic of a rank for slice `slice` of all buckets of a step, or its part to other hosts. */
static struct dt_traffic of_rank(const struct senders *s, int rank, int slice,
                                 const int *host_roots)
{
    DT_ASSERT(rank >= 0 && rank < size_of(s) && slice >= 0);
    struct dt_traffic sent = {0};
    for (int i = 0; i < s->sync->n_buckets; i++) {
        const size_t n = s->sync->buckets[i].end - s->sync->buckets[i].begin;
        const int n_slices = s->shared ? dt_allreduce_n_slices(s->comm, n) : 1;
        if (slice < n_slices) {
            const size_t begin = dt_piece_begin(n, slice, n_slices),
                         n_elems = dt_piece_begin(n, slice + 1, n_slices) - begin;
            const struct dt_traffic part =
                dt_algorithm_traffic(s->algorithm, rank, size_of(s), n_elems, host_roots, s->moves);
            dt_traffic_add(&sent, encoded(s->codec, s->sync->buckets[i].begin + begin, &part));
        }
    }
    return sent;
}

static void add_rank(const struct senders *s, int rank, int slice, struct dt_step_traffic *most)
{
    const struct dt_traffic sent = of_rank(s, rank, slice, NULL);
    const struct dt_traffic between =
        s->shared ? sent : of_rank(s, rank, slice, s->comm->host_roots);
    const double messages = (double)sent.messages, bytes = (double)sent.bytes;
    const bool is_first = rank == 0 && slice == 0;
    most->by_each =
        most->by_each &&
        (is_first || (messages == most->messages && fabs(bytes - most->bytes) <= 0.001 * bytes));
    most->messages = fmax(most->messages, messages);
    most->bytes = fmax(most->bytes, bytes);
    most->messages_between += (double)between.messages;
    most->bytes_between += (double)between.bytes;
}

static struct dt_step_traffic of_all(const struct senders *s)
{
    const int n_slices = s->shared ? s->comm->n_across : 1;
    struct dt_step_traffic most = {.known = true,
                                   .by_each =
                                       size_of(s) * n_slices == s->comm->size || n_slices == 0,
                                   .n_hosts = s->comm->n_hosts};
    for (int rank = 0; rank < size_of(s); rank++) {
        for (int slice = 0; slice < n_slices; slice++) {
            add_rank(s, rank, slice, &most);
        }
    }
    return most;
}

/* Messages by an algorithm between all ranks or, with `shared`, between hosts. */
static struct dt_step_traffic messages_of(const struct dt_algorithm *algorithm,
                                          const struct dt_codec *codec, const struct dt_comm *comm,
                                          bool shared, const struct dt_grad_sync *sync)
{
    struct senders s = {
        .algorithm = algorithm, .codec = codec, .comm = comm, .shared = shared, .sync = sync};
    s.moves = calloc((size_t)DT_MAX_MOVES(size_of(&s)), sizeof *s.moves);
    const struct dt_step_traffic most =
        s.moves != NULL ? of_all(&s) : (struct dt_step_traffic){.known = false};
    free(s.moves);
    return most;
}

/* By the algorithm, bucket by bucket. Not known where shared memory and messages are mixed. */
static void traffic(const struct dt_strategy *strategy, struct dt_step_traffic *out)
{
    const struct dt_mirrored *self = (const struct dt_mirrored *)strategy;
    const struct dt_allreduce *a = strategy->allreduce;
    const struct dt_comm *comm = a->comm;
    if (a->algorithm == NULL) {
        *out = (struct dt_step_traffic){.known = a->shared != NULL && comm->n_hosts == 1,
                                        .by_each = true,
                                        .n_hosts = comm->n_hosts};
        return;
    }
    *out = messages_of(a->algorithm, dt_codec_or_none(strategy->spec.codec), comm,
                       a->shared != NULL, &self->sync);
}

/* As if the ranks of a host could share memory. */
static enum dt_status plan(const struct dt_dist_spec *dist, const struct dt_model *model,
                           const struct dt_comm *comm, struct dt_planned_traffic *out)
{
    const bool hierarchical = dist->allreduce == DT_ALLREDUCE_HIERARCHICAL;
    struct dt_grad_sync sync;
    dt_grad_sync_open(NULL, model, dist, &sync);
    dt_micro_batches_widen(dist->deterministic ? dt_fixed_n_digits(comm->size) : 1, &sync);
    out->allreduce = dt_allreduce_for_compression(dist->allreduce, &out->codec);
    out->n_buckets = sync.n_buckets;
    const struct dt_algorithm *algorithm = dt_allreduce_algorithm(
        &dist->rows->allreduce,
        hierarchical ? DT_ALLREDUCE_OF_ALGORITHM(dist->across) : out->allreduce);
    if (algorithm != NULL) {
        out->step = messages_of(algorithm, &out->codec, comm,
                                hierarchical && comm->n_hosts < comm->size, &sync);
    }
    return DT_OK;
}

const struct dt_summary_entry dt_mirrored_summary = {
    .strategy = &dt_mirrored_strategy, .facts = facts, .traffic = traffic, .plan = plan};
const struct dt_summary_entry dt_priority_summary = {
    .strategy = &dt_priority_strategy, .facts = facts, .traffic = traffic, .plan = plan};
const struct dt_summary_entry dt_deterministic_summary = {
    .strategy = &dt_deterministic_strategy, .facts = facts, .traffic = traffic, .plan = plan};
