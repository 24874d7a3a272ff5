#include "dist/strategy/replica_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HASH_BYTES sizeof(XXH128_canonical_t)

static size_t largest_tensor(const struct dt_model *model)
{
    size_t largest = 1;
    for (int i = 0; i < model->n_params; i++) {
        largest = model->params[i].n_elems > largest ? model->params[i].n_elems : largest;
    }
    return largest;
}

enum dt_status dt_replica_check_open(struct dt_comm *comm, const struct dt_model *model, struct dt_replica_check *out)
{
    *out = (struct dt_replica_check){.comm = comm, .model = model};
    out->host = malloc(largest_tensor(model) * sizeof *out->host);
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

static enum dt_status hash_tensors(struct dt_replica_check *check, struct dt_network *network, XXH128_canonical_t *hashes)
{
    struct dt_backend *backend = network->backend;
    for (int i = 0; i < check->model->n_params; i++) {
        const struct dt_param *param = &check->model->params[i];
        const size_t n_bytes = param->n_elems * sizeof(float);
        DT_TRY(backend->ops->copy_out(backend, check->host, network->params + param->offset, n_bytes));
        XXH128_canonicalFromHash(&hashes[i], XXH3_128bits(check->host, n_bytes));
    }
    return DT_OK;
}

enum dt_status dt_replica_check_run(struct dt_replica_check *check, struct dt_network *network)
{
    const int n_params = check->model->n_params;
    XXH128_canonical_t *mine = check->hashes;
    XXH128_canonical_t *all = mine + n_params;
    DT_TRY(hash_tensors(check, network, mine));
    DT_TRY(dt_comm_allgather(check->comm, mine, all, (size_t)n_params * HASH_BYTES, "comparison of replicas"));
    for (int i = 0; i < n_params; i++) {
        for (int rank = 1; rank < check->comm->size; rank++) {
            if (memcmp(&all[i], &all[rank * n_params + i], HASH_BYTES) != 0) {
                return dt_error_agreed(
                    dt_error(DT_INTERNAL,
                             "replicas differ: tensor '%s' of rank %d is not rank 0's (gradients not averaged, weights not "
                             "broadcast, or faulty memory)",
                             check->model->params[i].name, rank));
            }
        }
    }
    return DT_OK;
}
