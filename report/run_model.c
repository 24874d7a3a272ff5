#include "report/run.h"

#include <math.h>

#include "cli/commands/model_table.h"
#include "cli/text.h"
#include "model/block.h"

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
