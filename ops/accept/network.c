#include <stdlib.h>

#include "base/rng.h"
#include "ops/accept/rows.h"

/* The classes of the network: the numbers that it gives. */
static int n_classes_of(const struct dt_model_spec *spec)
{
    return spec->layers[spec->n_layers - 1].size;
}

static enum dt_status fill(struct dt_accept_network *n)
{
    const size_t n_rows = (size_t)n->batch.n;
    const size_t n_values = n_rows * dt_shape_elems(n->model.spec.input);
    n->values = calloc(n_values, sizeof *n->values);
    n->params = calloc(n->model.arena_elems, sizeof *n->params);
    n->labels = calloc(n_rows, sizeof *n->labels);
    n->order = calloc(n_rows, sizeof *n->order);
    if (n->values == NULL || n->params == NULL || n->labels == NULL || n->order == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a small network");
    }
    for (size_t i = 0; i < n_values; i++) {
        n->values[i] =
            2 * dt_rng_uniform(dt_rng_words(11, DT_RNG_SYNTHETIC, 1, 0, 0, (uint32_t)i).v[0]) - 1;
    }
    for (size_t i = 0; i < n_rows; i++) {
        n->order[i] = (uint32_t)i;
        n->labels[i] = (uint16_t)(i % (size_t)n_classes_of(&n->model.spec));
    }
    n->batch.rows = n->batch.ids = n->order;
    dt_model_init(&n->model, 3, n->params);
    return DT_OK;
}

enum dt_status dt_accept_network_open(struct dt_accept_network *n, const struct dt_model_spec *spec,
                                      int n_rows)
{
    const struct dt_backend_ops *ops = n->backend->ops;
    n->batch.n = n_rows;
    DT_TRY(dt_model_lower(spec, &n->model));
    DT_TRY(fill(n));
    n->samples = (struct dt_samples){.n = (size_t)n_rows,
                                     .shape = spec->input,
                                     .values = n->values,
                                     .scale = 1,
                                     .labels = n->labels,
                                     .n_classes = n_classes_of(spec),
                                     .n_total = (size_t)n_rows,
                                     .id_stride = 1};
    DT_TRY(dt_network_open_alone(&n->model, n->backend, n_rows, &n->network));
    DT_TRY(ops->copy_in(n->backend, n->network->params, n->params,
                        n->model.arena_elems * sizeof(float)));
    DT_TRY(ops->samples_open(n->backend, &n->samples, &n->bound));
    return dt_network_gather(n->network, n->bound, &n->batch);
}

void dt_accept_network_close(struct dt_accept_network *n)
{
    if (n->bound != NULL) {
        n->backend->ops->samples_close(n->backend, n->bound);
    }
    dt_network_close(n->network);
    if (n->backend != NULL) {
        n->backend->ops->close(n->backend);
    }
    free(n->values);
    free(n->params);
    free(n->labels);
    free(n->order);
}
