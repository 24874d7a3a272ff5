#include "dist/strategy/replica_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/arithmetic.h"

#define HASH_BYTES sizeof(XXH128_canonical_t)
#define MAX_LISTED 8

#define PIECE_ELEMS \
    ((size_t)1 << 16) /* 256 KB: they stay in a core's cache until they are hashed */

enum dt_status dt_replica_check_open(struct dt_comm *comm, const struct dt_model *model,
                                     struct dt_replica_check *out)
{
    *out = (struct dt_replica_check){.comm = comm, .model = model};
    out->host = malloc(PIECE_ELEMS * sizeof *out->host);
    out->hashes = malloc((size_t)(comm->size + 1) * (size_t)model->n_params * HASH_BYTES + 1);
    if (out->host == NULL || out->hashes == NULL) {
        dt_replica_check_close(out);
        return dt_error(DT_NO_MEMORY, "no memory for the replica check");
    }
    return DT_OK;
}

void dt_replica_check_close(struct dt_replica_check *check)
{
    free(check->host);
    free(check->hashes);
    check->host = NULL;
    check->hashes = NULL;
}

static enum dt_status hash_tensor(struct dt_replica_check *check, struct dt_network *network,
                                  const struct dt_param *param, XXH128_canonical_t *hash)
{
    struct dt_backend *backend = network->backend;
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t at = 0, n; at < param->n_elems; at += n) {
        n = dt_min_size(PIECE_ELEMS, param->n_elems - at);
        DT_TRY(backend->ops->copy_out(backend, check->host, network->params + param->offset + at,
                                      n * sizeof(float)));
        XXH3_128bits_update(&state, check->host, n * sizeof(float));
    }
    XXH128_canonicalFromHash(hash, XXH3_128bits_digest(&state));
    return DT_OK;
}

static enum dt_status hash_tensors(struct dt_replica_check *check, struct dt_network *network,
                                   XXH128_canonical_t *hashes)
{
    for (int i = 0; i < check->model->n_params; i++) {
        DT_TRY(hash_tensor(check, network, &check->model->params[i], &hashes[i]));
    }
    return DT_OK;
}

/* ---- which ranks differ */

/* The hashes of one tensor: `hashes[rank * stride]`. */
struct votes {
    const XXH128_canonical_t *hashes;
    int stride, n_ranks;
};

static bool agree(const struct votes *v, int a, int b)
{
    return memcmp(&v->hashes[(size_t)a * (size_t)v->stride],
                  &v->hashes[(size_t)b * (size_t)v->stride], HASH_BYTES) == 0;
}

static int count_agreeing(const struct votes *v, int rank)
{
    int n = 0;
    for (int other = 0; other < v->n_ranks; other++) {
        n += agree(v, rank, other);
    }
    DT_ASSERT(n >= 1 && n <= v->n_ranks);
    return n;
}

/* The first of the ranks of which more than half agree, or -1. */
static int find_majority(const struct votes *v)
{
    for (int rank = 0; rank < v->n_ranks; rank++) {
        if (2 * count_agreeing(v, rank) > v->n_ranks) {
            return rank;
        }
    }
    return -1;
}

/* "rank 0", "ranks 1, 3": those that agree with `one`, or all others. */
static void list_ranks(const struct votes *v, int one, bool agreeing, char *text, size_t n_text)
{
    const int n_agreeing = count_agreeing(v, one),
              n_all = agreeing ? n_agreeing : v->n_ranks - n_agreeing;
    size_t n = (size_t)snprintf(text, n_text, n_all > 1 ? "ranks" : "rank");
    for (int rank = 0, n_listed = 0; rank < v->n_ranks && n_listed < MAX_LISTED && n < n_text;
         rank++) {
        if (agree(v, one, rank) == agreeing) {
            n += (size_t)snprintf(text + n, n_text - n, n_listed++ > 0 ? ", %d" : " %d", rank);
        }
    }
    if (n_all > MAX_LISTED && n < n_text) {
        snprintf(text + n, n_text - n, " and %d more", n_all - MAX_LISTED);
    }
}

/* The first rank whose value no rank before `begin` has, from there on; n_ranks: none. */
static int find_other(const struct votes *v, int begin)
{
    DT_ASSERT(begin >= 1);
    for (int rank = begin; rank < v->n_ranks; rank++) {
        int first = 0;
        while (!agree(v, first, rank)) {
            first++;
        }
        if (first == rank) {
            return rank;
        }
    }
    return v->n_ranks;
}

/* A majority is taken for right; without one nobody is blamed. */
static void explain(const struct votes *v, const char *tensor, char *text, size_t n_text)
{
    char ranks[128];
    const int majority = find_majority(v);
    DT_ASSERT(majority < 0 || count_agreeing(v, majority) < v->n_ranks);
    if (majority >= 0) {
        list_ranks(v, majority, false, ranks, sizeof ranks);
        snprintf(text, n_text, "tensor '%s' of %s differs from that of the other %d ranks", tensor,
                 ranks, count_agreeing(v, majority));
        return;
    }
    size_t n = (size_t)snprintf(text, n_text, "tensor '%s' differs between", tensor);
    for (int rank = 0; rank < v->n_ranks && n < n_text; rank = find_other(v, rank + 1)) {
        list_ranks(v, rank, true, ranks, sizeof ranks);
        n += (size_t)snprintf(text + n, n_text - n, "%s %s", rank > 0 ? " and" : "", ranks);
    }
}

enum dt_status dt_replica_check_run(struct dt_replica_check *check, struct dt_network *network)
{
    DT_ASSERT(check->model == network->model);
    const int n_params = check->model->n_params;
    XXH128_canonical_t *mine = check->hashes;
    XXH128_canonical_t *all = mine + n_params;
    DT_TRY(hash_tensors(check, network, mine));
    DT_TRY(dt_comm_allgather(check->comm, mine, all, (size_t)n_params * HASH_BYTES,
                             "comparison of replicas"));
    DT_ASSERT(memcmp(mine, all + check->comm->rank * n_params, (size_t)n_params * HASH_BYTES) == 0);
    for (int i = 0; i < n_params; i++) {
        const struct votes votes = {
            .hashes = &all[i], .stride = n_params, .n_ranks = check->comm->size};
        if (count_agreeing(&votes, 0) < votes.n_ranks) {
            char text[320];
            explain(&votes, check->model->params[i].name, text, sizeof text);
            return dt_error_agreed(dt_error(DT_INTERNAL,
                                            "replicas differ: %s (gradients not averaged, weights "
                                            "not broadcast, or faulty memory)",
                                            text));
        }
    }
    return DT_OK;
}

enum dt_status dt_replica_check_digest(struct dt_replica_check *check, struct dt_network *network,
                                       char out[DT_DIGEST_SIZE])
{
    const size_t n_bytes = (size_t)check->model->n_params * HASH_BYTES;
    DT_TRY(hash_tensors(check, network, check->hashes));
    const XXH128_hash_t digest = XXH3_128bits(check->hashes, n_bytes);
    snprintf(out, DT_DIGEST_SIZE, "%016llx%016llx", (unsigned long long)digest.high64,
             (unsigned long long)digest.low64);
    return DT_OK;
}
