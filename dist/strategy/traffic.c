#include "dist/strategy/traffic.h"

#include <math.h>
#include <stdlib.h>

#include "dist/allreduce/formula.h"

/* Who sends: all ranks, each bucket as a whole; or those with the same number on their hosts,
 * slices of it. */
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
static struct dt_wire_count encoded(const struct dt_codec *codec, size_t begin,
                                    const struct dt_traffic *traffic)
{
    const size_t n_parts = codec->ops->summable || traffic->messages == 0 ? 1 : traffic->messages;
    return (struct dt_wire_count){
        .messages = traffic->messages,
        .bytes = n_parts * dt_codec_bytes(codec, begin, traffic->elements / n_parts)};
}

/* What a rank sends of slice `slice` of all buckets of a step, or of that to other hosts. */
static struct dt_wire_count of_rank(const struct senders *s, int rank, int slice,
                                    const int *host_roots)
{
    struct dt_wire_count sent = {0};
    for (int i = 0; i < s->sync->n_buckets; i++) {
        const size_t n = s->sync->buckets[i].end - s->sync->buckets[i].begin;
        const int n_slices = s->shared ? dt_allreduce_n_slices(s->comm, n) : 1;
        if (slice < n_slices) {
            const size_t begin = dt_piece_begin(n, slice, n_slices),
                         n_elems = dt_piece_begin(n, slice + 1, n_slices) - begin;
            const struct dt_traffic part =
                dt_algorithm_traffic(s->algorithm, rank, size_of(s), n_elems, host_roots, s->moves);
            const struct dt_wire_count bytes =
                encoded(s->codec, s->sync->buckets[i].begin + begin, &part);
            sent.messages += bytes.messages;
            sent.bytes += bytes.bytes;
        }
    }
    return sent;
}

static void add_rank(const struct senders *s, int rank, int slice, struct dt_step_traffic *most)
{
    const struct dt_wire_count sent = of_rank(s, rank, slice, NULL);
    const struct dt_wire_count between =
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

struct dt_step_traffic dt_traffic_of_messages(const struct dt_algorithm *algorithm,
                                              const struct dt_codec *codec,
                                              const struct dt_comm *comm, bool shared,
                                              const struct dt_grad_sync *sync)
{
    struct senders s = {
        .algorithm = algorithm, .codec = codec, .comm = comm, .shared = shared, .sync = sync};
    const size_t n_elems = sync->n_buckets > 0 ? sync->buckets[sync->n_buckets - 1].end : 0;
    s.moves =
        calloc((size_t)dt_algorithm_max_moves(algorithm, size_of(&s), n_elems), sizeof *s.moves);
    const struct dt_step_traffic most =
        s.moves != NULL ? of_all(&s) : (struct dt_step_traffic){.known = false};
    free(s.moves);
    return most;
}

struct dt_step_traffic dt_traffic_predict(const struct dt_allreduce *allreduce,
                                          const struct dt_grad_sync *sync)
{
    const struct dt_comm *comm = allreduce->comm;
    if (allreduce->algorithm == NULL) {
        return (struct dt_step_traffic){.known = allreduce->shared != NULL && comm->n_hosts == 1,
                                        .by_each = true,
                                        .n_hosts = comm->n_hosts};
    }
    return dt_traffic_of_messages(allreduce->algorithm, &allreduce->codec, comm,
                                  allreduce->shared != NULL, sync);
}

enum dt_status dt_traffic_measure(struct dt_comm *comm, const struct dt_wire_sent *sent,
                                  uint64_t n_steps, struct dt_step_traffic *out)
{
    const bool counted = n_steps > 0 && sent != NULL;
    const double n = counted ? (double)n_steps : 1;
    const struct dt_wire_sent mine = counted ? *sent : (struct dt_wire_sent){0};
    const double messages = (double)mine.all.messages / n, bytes = (double)mine.all.bytes / n;
    double most[] = {messages, bytes, -messages, -bytes,
                     counted ? 0 : 1}; /* the third and fourth: least */
    double between[] = {(double)mine.between_hosts.messages, (double)mine.between_hosts.bytes};
    DT_TRY(
        dt_comm_allreduce(comm, most, 5, DT_TYPE_F64, DT_REDUCE_MAX, "exchange of what was sent"));
    DT_TRY(dt_comm_allreduce(comm, between, 2, DT_TYPE_F64, DT_REDUCE_SUM, "sum of what was sent"));
    *out = (struct dt_step_traffic){
        .known = most[4] == 0, .messages = most[0], .bytes = most[1], .n_hosts = comm->n_hosts};
    out->by_each = most[0] == -most[2] && fabs(most[1] + most[3]) <= 0.001 * most[1];
    out->messages_between = between[0] / n;
    out->bytes_between = between[1] / n;
    return DT_OK;
}
