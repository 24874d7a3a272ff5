#include "report/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/model_table.h"
#include "cli/config/schema.h"
#include "cli/text.h"
#include "model/block.h"
#include "report/page/page.h"

#define VALUE_SIZE 4096

/* ---- the model */

static double put_blocks(FILE *out, const struct dt_model *model)
{
    double flops = 0;
    char count[32];
    for (int b = 0; b < model->n_blocks; b++) {
        struct dt_block_row row;
        dt_block_row_make(model, b, &row);
        fprintf(out, "<tr><td>%s<td>%s<td>%s", row.name, row.in, row.out);
        fprintf(out, "<td>%s", dt_count_text((double)row.n_parameters, count, sizeof count));
        fprintf(out, "<td>%s<td>%s\n", dt_count_text(row.flops, count, sizeof count), row.layers);
        flops += row.flops;
    }
    return flops;
}

static void tell_steps(FILE *out, const struct dt_record *r)
{
    const struct dt_config *c = &r->config;
    const double batch = dt_record_number(r->start, "global_batch"),
                 workers = dt_record_number(r->start, "workers");
    const double per_epoch = dt_record_number(r->start, "steps_per_epoch"),
                 n = dt_record_number(r->start, "train_samples");
    char samples[32];
    if (!(batch > 0 && workers > 0 && per_epoch > 0 && n > 0)) {
        return;
    }
    if (c->batch_per_rank > 0) {
        fprintf(out, "<p>A step takes %lld samples on each of %.0f ranks: %.0f.",
                (long long)c->batch_per_rank, workers, batch);
    } else {
        fprintf(out,
                "<p>A step takes %.0f samples, however many ranks there are; here %.0f share them.",
                batch, workers);
    }
    fprintf(out,
            " %s training samples are %.0f such steps an epoch, and %lld epoch%s are %.0f%s.</p>\n",
            dt_count_text(n, samples, sizeof samples), per_epoch, (long long)c->epochs,
            c->epochs == 1 ? "" : "s", per_epoch * (double)c->epochs,
            r->n_starts > 1 ? " at this number of ranks" : "");
}

static void tell_rate(FILE *out, const struct dt_record *r)
{
    static const char *const why[] = {
        "is not scaled", "grows with the ranks, which take as many batches in one step",
        "grows with the root of the number of ranks"};
    const struct dt_config *c = &r->config;
    const double lr = dt_record_number(r->start, "lr"),
                 scale = dt_record_number(r->start, "lr_scale");
    if (!isfinite(lr) || !isfinite(scale)) {
        return;
    }
    if (scale != 1) {
        fprintf(out, "<p>The learning rate %s: %g × %g = %g (<code>train.lr_scaling</code>).",
                why[c->lr_scaling], c->optimizer.lr, scale, lr);
    } else {
        fprintf(out, "<p>The learning rate is %g, not scaled.", lr);
    }
    if (c->warmup_epochs > 0 && scale != 1) {
        fprintf(out, " In the first %g epoch%s it grows from %g to that.", c->warmup_epochs,
                c->warmup_epochs == 1 ? "" : "s", c->optimizer.lr);
    }
    fputs("</p>\n", out);
}

static void tell_flops(FILE *out, const struct dt_record *r, double flops)
{
    const double speed = dt_record_last(&r->epochs, DT_EPOCH_IMAGES);
    char count[32];
    fprintf(out,
            "<p>A sample takes %s operations forward, and about three times as many in a step of "
            "training",
            dt_count_text(flops, count, sizeof count));
    if (isfinite(speed)) {
        fprintf(out, "; at the last epoch's throughput these are %.3g GFLOP/s, all ranks together",
                3e-9 * flops * speed);
    }
    fputs(".</p>\n", out);
}

void dt_run_model_draw(FILE *out, const struct dt_record *r)
{
    static struct dt_model model; /* large for a stack */
    char count[32];
    const bool waiting = dt_error_text()[0] != '\0'; /* the error that ended the run */
    if (dt_model_lower(&r->config.model, &model) !=
        DT_OK) { /* as a configuration of another version may be */
        if (!waiting) {
            dt_error_clear();
        }
        return;
    }
    fputs("<h2 class=\"part\">Model</h2>\n<div class=\"wide\"><table "
          "class=\"model\"><thead><tr><th>block<th>input<th>output<th>parameters"
          "<th>flop a sample<th>layers</thead><tbody>\n",
          out);
    const double flops = put_blocks(out, &model);
    fprintf(out, "<tr class=\"this\"><td>total<td><td><td>%s",
            dt_count_text((double)model.n_parameters, count, sizeof count));
    fprintf(out, "<td>%s<td>forward pass</tbody></table></div>\n",
            dt_count_text(flops, count, sizeof count));
    tell_steps(out, r);
    tell_rate(out, r);
    tell_flops(out, r, flops);
}

/* ---- the configuration */

/* A key of the configuration, or of its layer number `layer`; key NULL: the whole layer. */
struct leaf {
    const struct dt_key *key;
    int layer; /* -1: none */
};

/* Its value as JSON in a line; "": it has none here. */
static void leaf_text(struct leaf leaf, const struct dt_config *config, char text[VALUE_SIZE])
{
    const struct dt_model_spec *model = &config->model;
    const void *base = config;
    bool shown = leaf.layer < model->n_layers;
    if (leaf.layer >= 0) {
        base = &model->layers[leaf.layer];
    } else {
        shown = dt_key_is_shown(leaf.key, config);
    }
    FILE *out = shown ? fmemopen(memset(text, 0, VALUE_SIZE), VALUE_SIZE - 1, "w") : NULL;
    if (out == NULL) {
        text[0] = '\0';
        (void)(shown ? dt_error(DT_NO_MEMORY, "no memory for the keys of a configuration") : DT_OK);
        return;
    }
    if (leaf.key != NULL) {
        dt_key_print(out, leaf.key, base);
    } else {
        fputc('{', out);
        dt_layer_print(out, base);
        fputc('}', out);
    }
    fclose(out);
}

static bool is_default(const struct dt_key *key, const char *text)
{
    const size_t n = strlen(key->default_text);
    if (key->kind == DT_KEY_INT || key->kind == DT_KEY_REAL) {
        const bool batch = key->offset == offsetof(struct dt_config, batch_per_rank);
        const double usual = batch   ? DT_DEFAULT_BATCH
                             : n > 0 ? strtod(key->default_text, NULL)
                                     : (double)NAN;
        return strtod(text, NULL) == usual;
    }
    return dt_key_is_word(key)
               ? strlen(text) == n + 2 && strncmp(text + 1, key->default_text, n) == 0
               : strcmp(text, key->default_text) == 0;
}

static void put_key(FILE *out, const struct dt_key *key, const char *text)
{
    const bool other = key->default_text != NULL && !is_default(key, text);
    fprintf(out, "<tr%s><td>%s<td>", other ? " class=\"this\"" : "", key->path);
    dt_page_text(out, text);
    fputs("<td>", out);
    dt_page_text(out, !other ? "" : key->default_text[0] != '\0' ? key->default_text : "absent");
    fputc('\n', out);
}

void dt_run_config_draw(FILE *out, const struct dt_record *r)
{
    static char text[VALUE_SIZE];
    const struct dt_key_list list = dt_config_keys();
    fputs("<h2 class=\"part\">Configuration</h2>\n<p>What differs from the defaults stands "
          "out.</p>\n<div class=\"wide\"><table "
          "class=\"config\"><thead><tr><th>key<th>value<th>default</thead><tbody>\n",
          out);
    for (int i = 0; i < list.n; i++) {
        leaf_text((struct leaf){&list.keys[i], -1}, &r->config, text);
        if (text[0] != '\0' &&
            list.keys[i].kind != DT_KEY_LAYERS) { /* those are in the model's table */
            put_key(out, &list.keys[i], text);
        }
    }
    fputs("</tbody></table></div>\n", out);
}

/* ---- where runs differ */

struct telling {
    const struct dt_record *records;
    int n;
    dt_run_difference_fn tell;
    void *context;
};

static void tell_if_other(const struct telling *t, struct leaf leaf)
{
    static char texts[DT_REPORT_MAX_RUNS][VALUE_SIZE];
    const char *values[DT_REPORT_MAX_RUNS];
    char path[96];
    bool same = true;
    for (int i = 0; i < t->n && i < DT_REPORT_MAX_RUNS; i++) {
        leaf_text(leaf, &t->records[i].config, texts[i]);
        values[i] = texts[i];
        same = same && strcmp(texts[i], texts[0]) == 0;
    }
    if (leaf.layer >= 0) {
        snprintf(path, sizeof path, "model.layers.%d%s%s", leaf.layer, leaf.key != NULL ? "." : "",
                 leaf.key != NULL ? leaf.key->path : "");
    }
    if (!same) {
        t->tell(t->context, leaf.layer >= 0 ? path : leaf.key->path, values);
    }
}

static void tell_layer(const struct telling *t, int layer)
{
    const struct dt_model_spec *first = &t->records[0].config.model;
    bool alike = true;
    for (int i = 0; i < t->n; i++) {
        const struct dt_model_spec *model = &t->records[i].config.model;
        alike = alike && layer < model->n_layers && layer < first->n_layers &&
                model->layers[layer].type == first->layers[layer].type;
    }
    if (!alike) {
        tell_if_other(t, (struct leaf){NULL, layer});
        return;
    }
    const struct dt_key_list list = dt_layer_keys(first->layers[layer].type);
    for (int k = 0; k < list.n; k++) {
        tell_if_other(t, (struct leaf){&list.keys[k], layer});
    }
}

void dt_run_differences(const struct dt_record *records, int n, dt_run_difference_fn tell,
                        void *context)
{
    const struct telling t = {records, n, tell, context};
    const struct dt_key_list list = dt_config_keys();
    for (int k = 0; k < list.n; k++) {
        for (int layer = 0; list.keys[k].kind == DT_KEY_LAYERS && layer < DT_MAX_LAYERS; layer++) {
            tell_layer(&t, layer);
        }
        if (list.keys[k].kind != DT_KEY_LAYERS) {
            tell_if_other(&t, (struct leaf){&list.keys[k], -1});
        }
    }
}
