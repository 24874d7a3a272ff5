#include "dist/strategy/grad_sync.h"

#include <stdio.h>

_Static_assert(DT_MAX_LAYERS <= DT_MAX_BUCKETS, "each block may have a bucket of its own");

void dt_grad_sync_open(struct dt_allreduce *allreduce, const struct dt_model *model,
                       const struct dt_dist_spec *dist, struct dt_grad_sync *out)
{
    DT_ASSERT(model->n_blocks <= DT_MAX_BUCKETS);
    const size_t trained = model->arena_elems - model->frozen_elems; /* no others are sent */
    size_t begin = 0;
    *out = (struct dt_grad_sync){.allreduce = allreduce, .overlap = dist->overlap};
    for (int b = model->n_blocks - 1; b >= 0; b--) { /* the arena's order: last block first */
        const size_t end = model->blocks[b].grad_end;
        const bool full = (end - begin) * sizeof(float) >= dist->bucket_bytes;
        if (end > begin && end <= trained && (full || end == trained)) {
            struct dt_bucket *bucket = &out->buckets[out->n_buckets];
            *bucket = (struct dt_bucket){.begin = begin, .end = end};
            DT_ASSERT(out->n_buckets == 0 || bucket[-1].end == begin);
            snprintf(bucket->name, sizeof bucket->name, "allreduce of gradient bucket %d",
                     out->n_buckets);
            DT_ASSERT(out->n_buckets < DT_MAX_BUCKETS);
            out->n_buckets++;
            begin = end;
        }
    }
}

void dt_grad_sync_begin(struct dt_grad_sync *sync)
{
    DT_ASSERT(sync->n_buckets == 0 || sync->buckets[0].begin == 0);
    sync->n_started = 0;
    sync->n_ready = 0;
    sync->failed = DT_OK;
}

/* Its sum is there. */
static enum dt_status note_sum(struct dt_grad_sync *sync, int index)
{
    const struct dt_span span = {.kind = DT_SPAN_BUCKET, .block = index};
    return dt_span_end(sync->trace, &span);
}

static enum dt_status test_bucket(struct dt_grad_sync *sync, int index)
{
    DT_ASSERT(index < sync->n_started);
    struct dt_request *request = &sync->buckets[index].request;
    const bool active = request->active;
    bool done;
    DT_TRY(dt_comm_test(sync->allreduce->comm, request, &done));
    return active && done ? note_sum(sync, index) : DT_OK;
}

static enum dt_status start_ready(struct dt_grad_sync *sync)
{
    for (int i = sync->n_started; i < sync->n_buckets && sync->buckets[i].end <= sync->n_ready;
         i++) {
        struct dt_bucket *bucket = &sync->buckets[i];
        DT_ASSERT(!bucket->request.active && i == sync->n_started);
        const struct dt_span span = {.kind = DT_SPAN_BUCKET, .block = i};
        DT_TRY(dt_span_begin(sync->trace, &span));
        DT_TRY(dt_allreduce_start(sync->allreduce, i, bucket->begin, bucket->end, bucket->name,
                                  &bucket->request));
        sync->n_started++;
    }
    return DT_OK;
}

enum dt_status dt_grad_sync_ready(void *context, size_t begin, size_t end)
{
    struct dt_grad_sync *sync = context;
    if (begin != sync->n_ready || end < begin) {
        return dt_error(DT_INTERNAL, "gradients [%zu, %zu) came ready where [%zu, ...) was next",
                        begin, end, sync->n_ready);
    }
    sync->n_ready = end;
    if (sync->overlap) {
        DT_TRY(start_ready(sync));
        dt_grad_sync_poll(sync);
    }
    return DT_OK;
}

void dt_grad_sync_poll(void *context)
{
    struct dt_grad_sync *sync = context;
    for (int i = 0; !sync->quiet && i < sync->n_started && sync->failed == DT_OK; i++) {
        sync->failed = test_bucket(sync, i);
    }
}

enum dt_status dt_grad_sync_end(struct dt_grad_sync *sync)
{
    DT_TRY(sync->failed);
    DT_TRY(start_ready(sync));
    if (sync->n_started < sync->n_buckets) {
        return dt_error(DT_INTERNAL,
                        "only %zu gradients came ready before the wait for all of them",
                        sync->n_ready);
    }
    DT_ASSERT(sync->n_ready >= sync->buckets[sync->n_buckets - 1].end);
    return DT_OK;
}

enum dt_status dt_grad_sync_wait(struct dt_grad_sync *sync, int index)
{
    DT_ASSERT(index >= 0 && index < sync->n_started);
    struct dt_bucket *bucket = &sync->buckets[index];
    DT_TRY(sync->failed);
    const bool active = bucket->request.active;
    DT_TRY(dt_comm_wait(sync->allreduce->comm, &bucket->request));
    DT_ASSERT(!bucket->request.active);
    return active ? note_sum(sync, index) : DT_OK;
}
