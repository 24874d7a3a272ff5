#include "cli/commands/model_table.h"

#include <stdio.h>
#include <string.h>

#include "train/hooks/learned.h"

static void shape_text(struct dt_shape s, bool flat, char *text, size_t size)
{
    if (flat) {
        snprintf(text, size, "%d", s.c);
    } else {
        snprintf(text, size, "%dx%dx%d", s.c, s.h, s.w);
    }
}

/* "conv2d 64 3x3, relu", "max_pool2d 2". */
static void layer_text(const struct dt_layer_spec *l, char *text, size_t size)
{
    char numbers[64] = "", stride[24] = "", padding[24] = "";
    if (l->stride != (l->kernel > 0 ? 1 : l->size)) {
        snprintf(stride, sizeof stride, " stride %d", l->stride);
    }
    if (l->padding > 0) {
        snprintf(padding, sizeof padding, " padding %d", l->padding);
    }
    if (l->kernel > 0) {
        snprintf(numbers, sizeof numbers, " %d %dx%d%s%s", l->size, l->kernel, l->kernel, stride,
                 l->padding == DT_PADDING_SAME ? " same" : padding);
    } else if (l->size > 0) {
        snprintf(numbers, sizeof numbers, " %d%s", l->size, l->stride > 0 ? stride : "");
    } else if (l->rate > 0) {
        snprintf(numbers, sizeof numbers, " %g", l->rate);
    }
    const bool activates = l->activation != DT_ACTIVATION_NONE;
    snprintf(text, size, "%s%s%s%s", dt_layer_names[l->type], numbers, activates ? ", " : "",
             activates ? dt_activation_names[l->activation] : "");
}

/* The layers that a block was made of, and how it learns: "conv2d 64 3x3, relu; frozen". */
static void layers_text(const struct dt_model *model, int index, char *text, size_t size)
{
    const struct dt_block *b = &model->blocks[index];
    const int end = index + 1 < model->n_blocks ? b[1].first_layer : model->spec.n_layers;
    size_t used = 0;
    text[0] = '\0';
    for (int i = b->first_layer; i < end && used < size; i++) {
        char one[96];
        layer_text(&model->spec.layers[i], one, sizeof one);
        used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", one);
    }
    if (b->lr == 0 && used < size) {
        snprintf(text + used, size - used, "; frozen");
    } else if (b->lr != 1 && used < size) {
        snprintf(text + used, size - used, "; learning rate x %g", (double)b->lr);
    }
}

/* Behind a flatten, and in a model without images, a shape is a number of features. */
static bool is_flat(const struct dt_model *model, int n_blocks)
{
    bool flat = model->n_spatial == 0;
    for (int b = 0; b < n_blocks; b++) {
        flat = flat || model->blocks[b].flatten;
    }
    return flat;
}

double dt_model_table(struct dt_doc *doc, const struct dt_model *model)
{
    double flops = 0;
    struct dt_part *table =
        dt_doc_table(doc, "Blocks", "block|input|output|parameters::0|flop a sample::0|layers");
    for (int b = 0; b < model->n_blocks; b++) {
        const struct dt_block *block = &model->blocks[b];
        char in[32], out[32], layers[256];
        const size_t n_parameters =
            block->weight == DT_NO_PARAM
                ? 0
                : model->params[block->weight].n_elems + model->params[block->bias].n_elems;
        shape_text(block->in, is_flat(model, b), in, sizeof in);
        shape_text(block->out, is_flat(model, b + 1), out, sizeof out);
        layers_text(model, b, layers, sizeof layers);
        dt_doc_row(table, dt_t(block->name), dt_t(in), dt_t(out), dt_n((double)n_parameters),
                   dt_n(dt_block_flops(block)), dt_t(layers));
        flops += dt_block_flops(block);
    }
    dt_doc_row(table, dt_t("total"), dt_t(""), dt_t(""), dt_n((double)model->n_parameters),
               dt_n(flops), dt_t("forward pass"));
    dt_doc_emphasize(table);
    return flops;
}

void dt_model_tell_uneven(struct dt_doc *doc, const struct dt_model *model)
{
    for (int i = 0; i < model->n_blocks; i++) {
        const struct dt_block *b = &model->blocks[i];
        const int top = b->pad_before_h, left = b->pad_before_w,
                  bottom = dt_conv_pad_after(b, b->in.h, top, b->linear_out.h),
                  right = dt_conv_pad_after(b, b->in.w, left, b->linear_out.w);
        if (b->linear == DT_LINEAR_CONV && (bottom > top || right > left)) {
            dt_doc_text(doc,
                        "%s pads unevenly: in PyTorch nn.ZeroPad2d((%d, %d, %d, %d)) before "
                        "nn.Conv2d without padding",
                        b->name, left, right, top, bottom);
        }
    }
}

const char *dt_class_text(struct dt_doc *doc, const char *names, int class)
{
    for (int i = 0; i < class && names != NULL; i++) {
        names = strchr(names, '/');
        names = names != NULL ? names + 1 : NULL;
    }
    return names != NULL ? dt_doc_print(doc, "%.*s", (int)strcspn(names, "/"), names)
                         : dt_doc_print(doc, "%d", class);
}

void dt_confusion_add(struct dt_doc *doc, const struct dt_learned *learned)
{
    const size_t n = (size_t)learned->n_classes;
    const char *names[DT_LEARNED_MAX_CLASSES];
    DT_ASSERT(learned->confusion != NULL && n <= DT_LEARNED_MAX_CLASSES);
    struct dt_part *grid = dt_doc_grid(doc, "Confusion", DT_GRID_COUNTS, n, n, learned->confusion);
    for (size_t k = 0; k < n; k++) {
        names[k] = dt_class_text(doc, learned->class_names, (int)k);
    }
    dt_doc_names(grid, "true class|predicted class", names, names);
}
