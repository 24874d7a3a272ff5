/* `dtrain predict`: the classes that a trained model gives to images. Rows of tables:
 * predict_table.c. */
#include "cli/commands/eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/commands/model_table.h"
#include "cli/commands/predict_table.h"
#include "cli/result.h"
#include "data/formats/picture.h"
#include "data/transform.h"
#include "model/network.h"
#include "view/image.h"

#define TOP 5 /* classes of an image that are shown */

enum invert { INVERT_AUTO, INVERT_YES, INVERT_NO };

struct prediction {
    struct dt_inference inference;
    struct dt_samples samples; /* the one image */
    struct dt_transform *transform;
    uint8_t *pixels; /* (C, H, W) */
    float *logits;
    double *probabilities;
    const char *file; /* the weights', for messages */
};

static enum dt_status open_prediction(const struct dt_trained *from, struct prediction *p)
{
    p->file = from->file;
    const struct dt_model *model = &p->inference.model;
    const struct dt_shape shape = model->spec.input;
    if (model->spec.loss != DT_LOSS_SOFTMAX_CROSS_ENTROPY || (shape.c != 1 && shape.c != 3)) {
        return dt_error(DT_CONFIG,
                        "%s: neither a classifier of grey or RGB images nor a model of tables "
                        "(predict needs one)",
                        from->file);
    }
    p->pixels = calloc(dt_shape_elems(shape), 1);
    p->logits = calloc((size_t)model->n_outputs, sizeof *p->logits);
    p->probabilities = calloc((size_t)model->n_outputs, sizeof *p->probabilities);
    if (p->pixels == NULL || p->logits == NULL || p->probabilities == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for an image");
    }
    DT_TRY(dt_transform_open(&p->inference.config.data, DT_SPLIT_TEST, &p->transform));
    p->samples = (struct dt_samples){.n = 1,
                                     .shape = shape,
                                     .pixels = p->pixels,
                                     .scale = 1.0f / 255.0f,
                                     .transform = p->transform,
                                     .n_total = 1};
    return DT_OK;
}

static void close_prediction(struct prediction *p)
{
    dt_inference_close(&p->inference);
    free(p->pixels);
    free(p->transform);
    free(p->logits);
    free(p->probabilities);
}

/* Binds each image anew: bound samples must not change, and a GPU holds a copy of them. */
static enum dt_status compute_logits(struct prediction *p)
{
    const struct dt_inference *inference = &p->inference;
    const struct dt_backend_ops *ops = inference->backend->ops;
    const uint32_t row = 0;
    const struct dt_batch batch = {.n = 1, .rows = &row, .ids = &row};
    const struct dt_pass pass = {.batch = &batch};
    struct dt_bound_samples *bound;
    DT_TRY(ops->samples_open(inference->backend, &p->samples, &bound));
    enum dt_status s;
    DT_TRY_GOTO(s, dt_network_gather(inference->network, bound, &batch), out);
    DT_TRY_GOTO(s, dt_network_forward(inference->network, &pass), out);
    s = ops->copy_out(inference->backend, p->logits, dt_network_logits(inference->network),
                      (size_t)inference->model.n_outputs * sizeof *p->logits);
out:
    ops->samples_close(inference->backend, bound);
    return s;
}

/* The outputs of finite, but large weights may not be finite. */
static enum dt_status check_logits(const struct prediction *p, const char *path)
{
    for (int k = 0; k < p->inference.model.n_outputs; k++) {
        if (!isfinite(p->logits[k])) {
            return dt_error(DT_NON_FINITE,
                            "%s: output for %s is not finite (its training diverged: take an "
                            "earlier checkpoint)",
                            p->file, path);
        }
    }
    return DT_OK;
}

static void compute_probabilities(struct prediction *p)
{
    const int n = p->inference.model.n_outputs;
    double largest = p->logits[0], sum = 0;
    for (int k = 1; k < n; k++) {
        largest = fmax(largest, p->logits[k]);
    }
    for (int k = 0; k < n; k++) {
        sum += p->probabilities[k] = exp(p->logits[k] - largest);
    }
    for (int k = 0; k < n; k++) {
        p->probabilities[k] /= sum;
    }
}

static enum dt_status read_invert(const char *text, enum invert *out)
{
    static const char *const names[] = {"auto", "yes", "no"};
    for (int i = 0; i < 3; i++) {
        if (text == NULL || strcmp(text, names[i]) == 0) {
            *out = (enum invert)i;
            return DT_OK;
        }
    }
    return dt_error(DT_USAGE, "--invert: expected auto, yes or no, got '%.60s'", text);
}

/* Inverts the image if the user says so, or if it is grey and no training image had such a border.
 * Returns a remark about it. */
static const char *invert_pixels(const struct prediction *p, enum invert invert)
{
    const struct dt_shape shape = p->samples.shape;
    const enum dt_ground ground = p->inference.ground;
    const bool bright = dt_border_is_bright(shape, p->pixels), asked = invert != INVERT_AUTO;
    if (!asked && shape.c == 1 && bright && ground == DT_GROUND_UNKNOWN) {
        return " (dark on light: --invert yes if the training images were light on dark)";
    }
    if (asked ? invert == INVERT_NO
              : shape.c != 1 || ground != (bright ? DT_GROUND_DARK : DT_GROUND_BRIGHT)) {
        return "";
    }
    for (size_t i = 0; i < dt_shape_elems(shape); i++) {
        p->pixels[i] = (uint8_t)(255 - p->pixels[i]);
    }
    return asked    ? " (inverted)"
           : bright ? " (dark on light: inverted)"
                    : " (light on dark: inverted)";
}

/* The image as training sees it; where that has no images to scale, of any size. A transparent
 * image lies on the background, but may lie on black if no training image had so bright a border.
 */
static enum dt_status read_image(const struct prediction *p, const char *path,
                                 struct dt_picture *picture)
{
    const struct dt_shape shape = p->samples.shape;
    const struct dt_data_spec *data = &p->inference.config.data;
    const bool scales = data->format == DT_DATA_IMAGES;
    *picture = (struct dt_picture){
        .resize = scales && data->resize != DT_RESIZE_NONE ? data->resize : DT_RESIZE_STRETCH,
        .background = scales ? dt_background(data) : 255};
    DT_TRY(dt_picture_read(path, shape, picture, p->pixels));
    picture->may_be_black = picture->transparent && p->inference.ground == DT_GROUND_DARK &&
                            dt_border_is_bright(shape, p->pixels);
    return picture->may_be_black ? dt_picture_read(path, shape, picture, p->pixels) : DT_OK;
}

/* The document of all images. */
struct answers {
    struct dt_doc *doc;
    size_t top;          /* so many classes of each */
    struct dt_part *all; /* a row for each image */
};

/* The likeliest class behind this one, -1 the first; equal ones in the order of their numbers. */
static int next_class(const struct prediction *p, int class)
{
    const double *of = p->probabilities;
    int next = -1;
    for (int k = 0; k < p->inference.model.n_outputs; k++) {
        const bool behind = class < 0 || of[k] < of[class] || (of[k] == of[class] && k > class);
        next = behind && (next < 0 || of[k] > of[next]) ? k : next;
    }
    return next;
}

/* The picture in characters as the model sees it, the class, and the probabilities. `note`: what
 * was done to it. */
static void add_prediction(const struct answers *a, const char *path, const struct prediction *p,
                           const struct dt_picture *picture, const char *note)
{
    const uint8_t grey = picture->background;
    const char *background = !picture->transparent ? ""
                             : grey == 255         ? " (transparent: on white)"
                             : grey == 0
                                 ? " (transparent: on black)"
                                 : dt_doc_print(a->doc, " (transparent: on grey, %d)", grey);
    const char *names = p->inference.class_names;
    const int n = p->inference.model.n_outputs;
    char *drawing = NULL;
    size_t n_bytes = 0;
    const int best = next_class(p, -1);
    FILE *out = open_memstream(&drawing, &n_bytes);
    if (out != NULL) {
        dt_digit_draw(out, p->pixels, p->samples.shape);
        dt_text_close(out, &drawing);
    }
    dt_doc_section(a->doc, "%s", path);
    dt_doc_code(a->doc, NULL, drawing != NULL ? drawing : "");
    free(drawing);
    struct dt_part *table = dt_doc_table(a->doc, dt_doc_print(a->doc, "%s, probabilities", path),
                                         "class|probability::%");
    dt_doc_caption(table, "class %s, probability %.2f %%%s%s", dt_class_text(a->doc, names, best),
                   100 * p->probabilities[best], background, note);
    int k = best;
    for (size_t i = 0; i < (size_t)n && i < a->top; i++, k = next_class(p, k)) {
        dt_doc_row(table, dt_t(dt_class_text(a->doc, names, k)), dt_n(p->probabilities[k]));
        if (k == best) {
            dt_doc_emphasize(table);
        }
    }
    dt_doc_row(a->all, dt_t(path), dt_t(dt_class_text(a->doc, names, best)),
               dt_n(p->probabilities[best]), dt_t(background[0] != '\0' ? background + 1 : ""),
               dt_t(note[0] != '\0' ? note + 1 : ""));
}

static enum dt_status predict_one(const struct answers *a, struct prediction *p, const char *path,
                                  enum invert invert)
{
    struct dt_picture picture;
    DT_TRY(read_image(p, path, &picture));
    const char *note = invert_pixels(p, invert);
    DT_TRY(compute_logits(p));
    DT_TRY(check_logits(p, path));
    compute_probabilities(p);
    add_prediction(a, path, p, &picture, note);
    return DT_OK;
}

static bool is_table(const struct dt_inference *inference, const char *path)
{
    const struct dt_shape shape = inference->model.spec.input;
    const size_t n = strlen(path);
    return inference->config.data.format == DT_DATA_CSV &&
           (shape.h * shape.w == 1 || (n > 4 && strcmp(path + n - 4, ".csv") == 0));
}

static enum dt_status predict_tables(const struct dt_inference *inference,
                                     const struct dt_args *args)
{
    const struct dt_values files = dt_trained_words(args);
    struct dt_doc *doc = dt_doc_open("predict", "Predictions");
    enum dt_status s = DT_OK;
    for (int i = 0; i < files.n && s == DT_OK; i++) {
        s = dt_predict_table(inference, files.texts[i], doc);
    }
    s = s == DT_OK ? dt_result_show(args, doc) : s;
    dt_doc_close(doc);
    return s;
}

/* If an image fails, the images before it are shown. */
static enum dt_status predict_all(const struct dt_trained *from, const struct dt_args *args)
{
    struct prediction p = {0};
    struct dt_world alone = {.size = 1, .local_size = 1};
    enum invert invert = INVERT_AUTO;
    const struct dt_values images = dt_trained_words(args);
    size_t top = TOP;
    DT_TRY(dt_args_number(args, DT_OPTION_TOP, false, 1, 65536, &top));
    DT_TRY(read_invert(dt_args_text(args, DT_OPTION_INVERT), &invert));
    DT_TRY(dt_inference_open(&alone, from, 1, 1, &p.inference));
    const bool tables = is_table(&p.inference, images.texts[0]);
    enum dt_status s = tables ? predict_tables(&p.inference, args) : open_prediction(from, &p);
    if (s == DT_OK && !tables) {
        struct answers a = {.doc = dt_doc_open("predict", "Predictions"), .top = top};
        a.all = dt_doc_table(a.doc, "Images", "image|class|probability::%|background|inverted");
        dt_doc_main(a.all);
        if (images.n == 1) {
            dt_doc_detail(a.all); /* the caption below the picture says the same */
        }
        int n = 0;
        while (s == DT_OK && n < images.n) {
            s = predict_one(&a, &p, images.texts[n], invert);
            n += s == DT_OK;
        }
        const enum dt_status shown = n > 0 ? dt_result_show(args, a.doc) : DT_OK;
        s = s == DT_OK ? shown : s;
        dt_doc_close(a.doc);
    }
    close_prediction(&p);
    return s;
}

static enum dt_status check(const struct dt_args *args)
{
    return dt_trained_check(args, 1, " IMAGE");
}

/* Rank 0 works, the others wait. Agreed. DT_CONFIG: the model is no classifier of
 * images. DT_USAGE: another --invert. DT_NON_FINITE: what the model computes is not finite. */
static enum dt_status run(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    struct dt_trained trained;
    DT_TRY(dt_trained_find(world, args, &config, &trained));
    return dt_world_agree(world, world->rank == 0 ? predict_all(&trained, args) : DT_OK);
}

const struct dt_command dt_command_predict = {
    .word = "predict",
    .meaning = "classify images, or the rows of a table",
    .usage = "dtrain predict (RUN | --config FILE --weights FILE) IMAGE...|TABLE.csv...\n"
             "      [--ema] [--invert auto|yes|no] [--top K]\n"
             "      [--set KEY.PATH=VALUE]..." DT_RESULT_USAGE,
    .examples = "  dtrain predict runs/night digit.png\n"
                "  dtrain predict \\\n"
                "      runs/night/checkpoints/step-000000001416.safetensors digit.png\n",
    .more = DT_RUN_WORD
    " Prints the class, the five likeliest with their probabilities, and the image as the model "
    "sees it, drawn in "
    "characters. An image is scaled to the model's input by data.resize, as in training, or "
    "else stretched; colours become grey by ITU-R BT.601's luma; gamma, colour profiles and "
    "EXIF orientation are ignored. Transparency is filled with data.background, as in training, "
    "or with black if all training images have dark borders and black gives more contrast. "
    "A model of tables prints the class, or the targets in their own units, of each row of a file "
    "with the columns of data.features.",
    .options = {DT_TRAINED_OPTIONS, [DT_OPTION_INVERT] = {DT_TAKEN}, [DT_OPTION_TOP] = {DT_TAKEN},
                DT_RESULT_OPTIONS},
    .check = check,
    .needs_no_ranks = true,
    .together = run,
};
