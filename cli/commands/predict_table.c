/* `dtrain predict` for models of tables: a class or targets for each row. */
#include "cli/commands/predict_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/model_table.h"
#include "data/dataset.h"

struct table {
    const struct dt_inference *inference;
    struct dt_doc *doc;
    struct dt_part *part;
    const char *path;
    float *outputs;        /* of a row */
    struct dt_cell *cells; /* of the same */
};

/* "row|price|height". | and : separate columns and units, so names lose theirs. */
static const char *columns_of(struct dt_doc *doc, const struct dt_data_spec *data)
{
    const char *columns = data->n_classes > 0 ? "row::+|class|probability::%" : "row::+";
    for (int k = 0; data->n_classes == 0 && k < data->n_targets; k++) {
        char name[64];
        snprintf(name, sizeof name, "%.63s", dt_texts_at(&data->target, k));
        for (char *at = name; (at = strpbrk(at, "|:")) != NULL;) {
            *at = '_';
        }
        columns = dt_doc_print(doc, "%s|%s::f", columns, name);
    }
    return columns;
}

static enum dt_status add_row(const struct table *t, size_t row)
{
    const struct dt_inference *in = t->inference;
    const struct dt_normalize *scale = &in->config.data.scale[1];
    const int n = in->model.n_outputs;
    const bool classifies = in->model.spec.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
    struct dt_cell *cells = t->cells;
    int best = 0;
    double sum = 0;
    cells[0] = dt_n((double)row + 1);
    for (int k = 0; k < n; k++) {
        if (!isfinite(t->outputs[k])) {
            return dt_error(
                DT_NON_FINITE,
                "%s: the output for row %zu is not finite (its training diverged: take an "
                "earlier checkpoint)",
                t->path, row + 1);
        }
        best = t->outputs[k] > t->outputs[best] ? k : best;
    }
    for (int k = 0; k < n && classifies; k++) {
        sum += exp((double)t->outputs[k] - (double)t->outputs[best]);
    }
    for (int k = 0; k < n && !classifies; k++) {
        cells[k + 1] = dt_n((float)((double)t->outputs[k] * scale->std[k] + scale->mean[k]));
    }
    if (classifies) {
        cells[1] = dt_t(dt_class_text(t->doc, in->class_names, best));
        cells[2] = dt_n(1 / sum);
    }
    dt_doc_add_row(t->part, classifies ? 3 : (size_t)n + 1, cells);
    return DT_OK;
}

static enum dt_status add_rows(const struct table *t, const struct dt_samples *samples)
{
    const struct dt_inference *in = t->inference;
    const struct dt_backend_ops *ops = in->backend->ops;
    struct dt_bound_samples *bound;
    DT_TRY(ops->samples_open(in->backend, samples, &bound));
    enum dt_status s = DT_OK;
    for (uint32_t row = 0; row < samples->n && s == DT_OK; row++) {
        const struct dt_batch batch = {.n = 1, .rows = &row, .ids = &row};
        const struct dt_pass pass = {.batch = &batch};
        DT_TRY_GOTO(s, dt_network_gather(in->network, bound, &batch), out);
        DT_TRY_GOTO(s, dt_network_forward(in->network, &pass), out);
        DT_TRY_GOTO(s,
                    ops->copy_out(in->backend, t->outputs, dt_network_logits(in->network),
                                  (size_t)in->model.n_outputs * sizeof *t->outputs),
                    out);
        s = add_row(t, row);
    }
out:
    ops->samples_close(in->backend, bound);
    return s;
}

enum dt_status dt_predict_table(const struct dt_inference *inference, const char *path,
                                struct dt_doc *doc)
{
    struct dt_data_spec spec = inference->config.data;
    struct dt_dataset data;
    size_t n = 0;
    spec.row = &dt_csv_data;
    spec.validation = 0;
    spec.n_test = 0;
    spec.unanswered = true;
    if (spec.scale[0].n == 0 && spec.shape.h * spec.shape.w == 1) {
        return dt_error(DT_CONFIG,
                        "%s: what its numbers are normalized by is not known (name a "
                        "run, not --weights)",
                        path);
    }
    if (snprintf(spec.dir, sizeof spec.dir, "%s", path) >= (int)sizeof spec.dir) {
        return dt_error(DT_USAGE, "%.60s...: the path is too long", path);
    }
    DT_TRY(dt_dataset_count(&spec, DT_SPLIT_TEST, &n));
    DT_TRY(dt_dataset_open(&spec, DT_SPLIT_TEST, (struct dt_owned){.n = n, .stride = 1}, &data));
    struct table t = {.inference = inference, .doc = doc, .path = path};
    t.outputs = calloc((size_t)inference->model.n_outputs, sizeof *t.outputs);
    t.cells = calloc((size_t)inference->model.n_outputs + 2, sizeof *t.cells);
    t.part = dt_doc_table(doc, path, columns_of(doc, &spec));
    dt_doc_main(t.part);
    const enum dt_status s = t.outputs != NULL && t.cells != NULL
                                 ? add_rows(&t, &data.samples)
                                 : dt_error(DT_NO_MEMORY, "no memory for a row");
    free(t.outputs);
    free(t.cells);
    dt_dataset_close(&data);
    return s;
}
