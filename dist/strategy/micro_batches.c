#include "dist/strategy/micro_batches.h"

#include <math.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/clock.h"

#define N_BLOCK 1024 /* elements whose sums stay in the nearest cache while leaves are added */

enum dt_status dt_micro_batches_open(const struct dt_strategy_spec *spec, int n_ranks,
                                     struct dt_micro_batches *out)
{
    const size_t n_elems = spec->model->arena_elems;
    void *sums = NULL;
    DT_ASSERT(n_elems % DT_FIXED_GROUP == 0);
    *out = (struct dt_micro_batches){.n_digits = dt_fixed_n_digits(n_ranks), .n_elems = n_elems};
    DT_TRY(dt_floats_alloc(spec->backend, "the leaves' gradients", "", DT_LEAVES_AT_ONCE * n_elems,
                           &out->grads));
    DT_TRY(spec->backend->ops->alloc(spec->backend, n_elems * sizeof *out->sums, &sums));
    out->sums = sums;
    return DT_OK;
}

void dt_micro_batches_close(struct dt_backend *backend, struct dt_micro_batches *leaves)
{
    dt_floats_free(backend, leaves->grads);
    backend->ops->free(backend, leaves->sums);
}

size_t dt_micro_batches_n_bytes(const struct dt_model *model, int n_ranks)
{
    const size_t n_floats = DT_LEAVES_AT_ONCE - 1 + (size_t)dt_fixed_n_digits(n_ranks);
    return model->arena_elems * (n_floats * sizeof(float) + sizeof(int64_t));
}

void dt_micro_batches_widen(int n_digits, struct dt_grad_sync *buckets)
{
    DT_ASSERT(n_digits >= 1);
    for (int i = 0; i < buckets->n_buckets; i++) {
        buckets->buckets[i].begin *= (size_t)n_digits;
        buckets->buckets[i].end *= (size_t)n_digits;
    }
}

/* The leaves that are kept, added to the sums: a block's worth at a time. A number that no sum
 * holds is NaN to those who add the digits. */
static void add_block(struct dt_micro_batches *l, size_t at, size_t n)
{
    DT_ASSERT(n <= N_BLOCK && at + n <= l->n_elems);
    int64_t sums[N_BLOCK] = {0};
    if (!l->first) {
        memcpy(sums, l->sums + at, n * sizeof *sums);
    }
    for (int i = 0; i < l->n_kept; i++) {
        l->n_wrong += dt_fixed_add(n, l->grads + (size_t)i * l->n_elems + at, sums);
    }
    if (!l->last) {
        memcpy(l->sums + at, sums, n * sizeof *sums);
        return;
    }
    float *digits = l->digits + (size_t)l->n_digits * at;
    dt_fixed_split(l->n_digits, n, sums, digits);
    digits[0] = l->n_wrong == 0 ? digits[0] : NAN;
}

void dt_micro_batches_begin(struct dt_micro_batches *l, struct dt_strategy_step *step,
                            float *digits)
{
    l->n_wrong = 0;
    l->n_kept = 0;
    l->first = true;
    l->last = false;
    l->digits = digits;
    l->step = step;
}

void dt_micro_batches_next(struct dt_micro_batches *l, struct dt_network *network, bool last)
{
    DT_ASSERT(l->n_kept <= DT_LEAVES_AT_ONCE && !l->last);
    if (l->n_kept == DT_LEAVES_AT_ONCE) { /* they were added */
        l->n_kept = 0;
        l->first = false;
    }
    l->last = last;
    network->grads = l->grads + (size_t)l->n_kept++ * l->n_elems;
}

enum dt_status dt_micro_batches_ready(void *leaves, size_t begin, size_t end)
{
    struct dt_micro_batches *l = leaves;
    const struct dt_strategy_ops *ops = l->step->strategy->ops;
    const bool adds = l->last || l->n_kept == DT_LEAVES_AT_ONCE;
    for (size_t at = begin; adds && at < end; at += N_BLOCK) {
        add_block(l, at, dt_min_size(end - at, N_BLOCK));
    }
    return l->last && ops->ready != NULL ? ops->ready(l->step, begin, end) : DT_OK;
}

/* A dt_pass.poll. */
static void poll(void *context)
{
    struct dt_strategy_step *step = context;
    step->strategy->ops->poll(step);
}

static enum dt_status run_leaf(struct dt_micro_batches *l, struct dt_network *network,
                               struct dt_bound_samples *samples, const struct dt_pass *leaf)
{
    struct dt_strategy *strategy = l->step->strategy;
    const struct dt_span gather = {.kind = DT_SPAN_GATHER, .n_samples = leaf->batch->n};
    DT_TRY(dt_span_begin(leaf->trace, &gather));
    DT_TRY(dt_network_gather(network, samples, leaf->batch));
    DT_TRY(dt_span_end(leaf->trace, &gather));
    const double begin_s = dt_clock_s();
    DT_TRY(dt_network_forward(network, leaf));
    DT_TRY(dt_network_loss(network, samples, leaf));
    const double middle_s = dt_clock_s();
    DT_TRY(dt_network_backward(network, leaf, dt_micro_batches_ready, l));
    strategy->pass_times.forward_s += middle_s - begin_s;
    strategy->pass_times.backward_s += dt_clock_s() - middle_s;
    return DT_OK;
}

/* A rank's share of a batch begins with a leaf (data/shard.h). */
enum dt_status dt_micro_batches_passes(struct dt_micro_batches *l, struct dt_strategy_step *step,
                                       struct dt_network *network, struct dt_bound_samples *samples,
                                       const struct dt_pass *pass, float *digits)
{
    DT_ASSERT(step->strategy->spec.dist.leaf >= 1);
    const struct dt_batch *batch = pass->batch;
    const int n_leaf = (int)step->strategy->spec.dist.leaf;
    dt_micro_batches_begin(l, step, digits);
    for (int first = 0; first < batch->n; first += n_leaf) {
        struct dt_batch mine = *batch;
        struct dt_pass leaf = *pass;
        mine.n = dt_min(batch->n - first, n_leaf);
        mine.rows += first;
        mine.ids += first;
        leaf.batch = &mine;
        leaf.poll = poll;
        leaf.context = step;
        dt_micro_batches_next(l, network, first + n_leaf >= batch->n);
        DT_TRY(run_leaf(l, network, samples, &leaf));
    }
    l->last = true; /* also without a leaf */
    return batch->n == 0 ? dt_micro_batches_ready(l, 0, l->n_elems) : DT_OK;
}

static enum dt_status check_config(const struct dt_strategy_spec *spec, const char **key)
{
    const struct dt_dist_spec *dist = &spec->dist;
    *key = "distributed.deterministic";
    if (spec->accumulate > 1) {
        return dt_error(DT_CONFIG,
                        "a batch is cut into leaves already (set train.accumulate to 1)");
    }
    if (dist->compression.type != DT_COMPRESSION_NONE) {
        return dt_error(DT_CONFIG, "codecs round what each rank sends (set "
                                   "distributed.compression.type to none)");
    }
    if (dist->order != DT_ORDER_BACKWARD) {
        return dt_error(DT_CONFIG, "a step ends with all its gradients (set distributed.order to "
                                   "backward)");
    }
    if (!dist->average) {
        return dt_error(DT_CONFIG,
                        "replicas that step alone differ (leave distributed.average on)");
    }
    return DT_OK;
}

enum dt_status dt_micro_batches_check(const struct dt_strategy_spec *spec, const char **key)
{
    if (spec->backend == NULL) {
        return check_config(spec, key);
    }
    if (!spec->backend->host_memory) {
        return dt_error(DT_CONFIG, "distributed.deterministic adds gradients in host memory (use "
                                   "\"device\": \"cpu\")");
    }
    if (spec->comm->size > DT_FIXED_MOST_RANKS) {
        return dt_error(DT_CONFIG,
                        "distributed.deterministic adds the gradients of at most %d ranks (take "
                        "fewer, or switch it off)",
                        DT_FIXED_MOST_RANKS);
    }
    return DT_OK;
}
