/* Adding what is encoded: in messages of our own, also between devices, because MPI and NCCL add
 * floats alone. The entry chooses the algorithm and leaves the sum to the implementations behind
 * it; its payload encodes what they send.
 *
 * Sums are floats, each rank's own copy rounded as its message was, so that all end with the same
 * bits. A gathering algorithm's messages are whole ranges, which every rank decodes and adds in one
 * order; any other's are sums, which takes a codec whose numbers can be added (codec.h,
 * `summable`). Error feedback covers a rank's own input; what sums lose on their way is lost. */
#include <stdio.h>
#include <stdlib.h>

#include "dist/allreduce/executor.h"
#include "dist/allreduce/formula.h"
#include "dist/compression/error_feedback.h"

/* ---- the payload */

static enum dt_status payload_open(struct dt_executor *e)
{
    e->feedback = calloc(1, sizeof *e->feedback);
    return e->feedback != NULL
               ? dt_error_feedback_open(e->payload.codec, e->payload.rank, e->n_elems, e->feedback)
               : dt_error(DT_NO_MEMORY, "no memory to encode gradients");
}

static void payload_close(struct dt_executor *e)
{
    if (e->feedback != NULL) {
        dt_error_feedback_close(e->feedback);
        free(e->feedback);
    }
}

static uint64_t payload_draw(struct dt_executor *e)
{
    return dt_error_feedback_draw(e->feedback);
}

/* This rank's own encodings. */
static float *outgoing(const struct dt_executor *e)
{
    return e->algorithm->gathers ? dt_executor_incoming(e, e->wire->rank)
                                 : e->incoming + e->n_elems;
}

/* Rounds sums as their encoding does, which then is in its place. */
static void encode_sums(struct dt_executor *e, size_t begin, size_t end)
{
    DT_ASSERT(begin <= end && end <= e->n_elems);
    dt_codec_encode(e->payload.codec, 0, e->data + begin, begin, end - begin, outgoing(e) + begin);
    dt_codec_decode(e->payload.codec, outgoing(e) + begin, begin, end - begin, e->data + begin);
}

/* Unless the algorithm gathers, the input is encoded only where it may leave a residual: it is
 * encoded again with the sums. */
static void payload_start(struct dt_executor *e, uint64_t draw, size_t begin, size_t end)
{
    DT_ASSERT(begin <= end);
    if (e->algorithm->gathers || e->feedback->left != NULL) {
        dt_error_feedback_encode(e->feedback, draw, begin, end, e->data + begin,
                                 outgoing(e) + begin);
    }
}

/* The same sums to several ranks are encoded once. */
static void *payload_message(struct dt_executor *e, const struct dt_execution *x, int index,
                             size_t *n_bytes)
{
    const struct dt_move *move = &x->moves[index];
    *n_bytes = dt_codec_bytes(e->payload.codec, move->begin, move->end - move->begin);
    if (move->kind == DT_ADD || move->kind == DT_REPLACE) {
        return dt_executor_incoming(e, move->peer) + move->begin;
    }
    if (move->kind == DT_SEND && (index == 0 || move[-1].kind != DT_SEND ||
                                  move[-1].begin != move->begin || move[-1].end != move->end)) {
        encode_sums(e, move->begin, move->end);
    }
    return outgoing(e) + move->begin;
}

static void payload_take(struct dt_executor *e, const struct dt_move *move)
{
    (move->kind == DT_REPLACE ? dt_codec_decode : dt_codec_decode_add)(
        e->payload.codec, dt_executor_incoming(e, move->peer) + move->begin, move->begin,
        move->end - move->begin, e->data + move->begin);
}

static void payload_end(struct dt_executor *e, size_t begin, size_t end)
{
    if (!e->algorithm->gathers) {
        encode_sums(e, begin, end);
    }
}

const struct dt_payload_ops dt_encoded_payload = {.n_buffers = 2,
                                                  .open = payload_open,
                                                  .draw = payload_draw,
                                                  .start = payload_start,
                                                  .message = payload_message,
                                                  .take = payload_take,
                                                  .end = payload_end,
                                                  .close = payload_close};

/* ---- the entry */

bool dt_allreduce_compresses(const struct dt_allreduce_entries *rows, enum dt_allreduce_type type,
                             int across, const struct dt_codec *codec)
{
    const struct dt_algorithm *algorithm = dt_allreduce_algorithm(
        rows, type == DT_ALLREDUCE_HIERARCHICAL ? DT_ALLREDUCE_OF_ALGORITHM(across) : type);
    return codec->spec.type == DT_COMPRESSION_NONE || type == DT_ALLREDUCE_AUTO ||
           (algorithm != NULL && (algorithm->gathers || codec->ops->summable));
}

enum dt_allreduce_type dt_allreduce_for_compression(enum dt_allreduce_type type,
                                                    const struct dt_codec *codec)
{
    if (codec->spec.type == DT_COMPRESSION_NONE || type != DT_ALLREDUCE_AUTO) {
        return type;
    }
    return codec->ops->summable ? DT_ALLREDUCE_RING : DT_ALLREDUCE_ALL_TO_ALL;
}

static bool serves(const struct dt_allreduce_spec *spec)
{
    return spec->codec != NULL && spec->comm->size > 1;
}

static enum dt_status open_compressed(const struct dt_allreduce_spec *spec,
                                      struct dt_allreduce **out)
{
    DT_ASSERT(spec->codec->spec.type != DT_COMPRESSION_NONE);
    DT_ASSERT(dt_allreduce_compresses(&spec->rows, spec->type, spec->across, spec->codec));
    const char *name = dt_compression_names[spec->codec->spec.type];
    const struct dt_payload payload = {&dt_encoded_payload, spec->codec, spec->comm->rank};
    struct dt_allreduce_spec messages = *spec;
    messages.type = dt_allreduce_for_compression(spec->type, spec->codec);
    messages.payload = &payload;
    DT_TRY(dt_allreduce_open(&messages, out));
    if (spec->type == DT_ALLREDUCE_AUTO && *out != NULL) {
        snprintf((*out)->why, sizeof(*out)->why, "gradients are sent as %s", name);
    }
    return DT_OK;
}

const struct dt_allreduce_entry dt_compressed_allreduce = {.serves = serves,
                                                           .open = open_compressed};
