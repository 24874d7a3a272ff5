/* Events for TensorBoard (cli/sinks/event_file.h). The numbers are those of metrics.jsonl, under
 * the same steps; each epoch adds histograms of weights and of the last step's mean gradient,
 * tensor by tensor, and the confusion of the samples that it is evaluated on. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "cli/sinks/fields.h"
#include "cli/sinks/protobuf.h"
#include "tensorboard.pb-c.h"
#include "train/watch/inspect.h"
#include "view/image.h"

#define N_BUCKETS 30
#define SMALL 2048 /* bytes, of an event that needs no memory */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Nothing can follow a record that is not whole; it is reported once. */
static void give_up(struct dt_sinks *sinks, int error)
{
    fclose(sinks->events);
    sinks->events = NULL;
    sinks->events_failed = true;
    dt_text_print(stderr,
                  "dtrain: warning: %s/tensorboard: %s (training continues, without more events)",
                  sinks->folder.dir->path, strerror(error));
}

static void put(struct dt_sinks *sinks, Tensorboard__Event *event, uint64_t step)
{
    uint8_t small[SMALL];
    event->wall_time = now_s();
    event->step = (int64_t)step;
    const size_t n = tensorboard__event__get_packed_size(event);
    uint8_t *bytes = n <= sizeof small ? small : malloc(n);
    if (bytes == NULL) {
        give_up(sinks, ENOMEM);
        return;
    }
    tensorboard__event__pack(event, bytes);
    if (!dt_event_file_put(sinks->events, bytes, n)) {
        give_up(sinks, errno);
    }
    if (bytes != small) {
        free(bytes);
    }
}

/* ---- scalars */

struct scalars {
    int n;
    Tensorboard__Summary__Value values[DT_MAX_FIELDS], *list[DT_MAX_FIELDS];
};

/* Values that are no numbers are left out. */
static void add_scalar(struct scalars *s, const char *tag, double number)
{
    if (!isfinite(number)) {
        return;
    }
    Tensorboard__Summary__Value *value = s->list[s->n] = &s->values[s->n];
    *value = (Tensorboard__Summary__Value)TENSORBOARD__SUMMARY__VALUE__INIT;
    value->tag = (char *)tag; /* the library only reads it */
    value->value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
    value->simple_value = (float)number;
    s->n++;
}

static void put_values(struct dt_sinks *sinks, Tensorboard__Summary__Value **values, int n,
                       uint64_t step)
{
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
    summary.value = values;
    summary.n_value = (size_t)n;
    event.what_case = TENSORBOARD__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    put(sinks, &event, step);
}

/* Those fields that have a tag. */
static void put_scalars(struct dt_sinks *sinks, const struct dt_fields *fields,
                        const struct dt_event *event, uint64_t step)
{
    struct dt_field_value values[DT_MAX_FIELDS];
    struct scalars s = {0};
    fields->read(sinks, event, values);
    for (int i = 0; i < fields->n; i++) {
        if (fields->rows[i].tag[0] != '\0' && values[i].is_number) {
            add_scalar(&s, fields->rows[i].tag, values[i].number);
        }
    }
    put_values(sinks, s.list, s.n, step);
}

/* ---- histograms */

/* Range and sums of the finite ones of some numbers. */
struct range {
    float min, max;
    size_t n;
    double sum, sum_squares;
};

static struct range measure(const float *numbers, size_t n)
{
    struct range r = {.min = INFINITY, .max = -INFINITY};
    for (size_t i = 0; i < n; i++) {
        const float x = numbers[i];
        if (isfinite(x)) {
            r.min = x < r.min ? x : r.min;
            r.max = x > r.max ? x : r.max;
            r.n++;
            r.sum += (double)x;
            r.sum_squares += (double)x * (double)x;
        }
    }
    return r;
}

/* How many lie in each of N_BUCKETS parts of the range, which are of one width. */
static void count(const float *numbers, size_t n, const struct range *r, uint32_t counts[N_BUCKETS])
{
    const double per_width = N_BUCKETS / ((double)r->max - (double)r->min);
    for (size_t i = 0; i < n; i++) {
        if (isfinite(numbers[i])) {
            const uint32_t k = (uint32_t)(((double)numbers[i] - (double)r->min) * per_width);
            counts[k < N_BUCKETS ? k : N_BUCKETS - 1]++;
        }
    }
}

/* A histogram of each number times `scale`. The buckets' memory is there already. */
static void fill_histogram(const float *numbers, size_t n, double scale,
                           Tensorboard__HistogramProto *out)
{
    const struct range r = measure(numbers, n);
    uint32_t counts[N_BUCKETS] = {0};
    if (r.n == 0) {
        return;
    }
    if (r.max > r.min) {
        count(numbers, n, &r, counts);
    } else {
        counts[N_BUCKETS - 1] = (uint32_t)r.n;
    }
    out->min = (double)r.min * scale;
    out->max = (double)r.max * scale;
    out->num = (double)r.n;
    out->sum = r.sum * scale;
    out->sum_squares = r.sum_squares * scale * scale;
    out->n_bucket = out->n_bucket_limit = N_BUCKETS;
    for (int k = 0; k < N_BUCKETS; k++) {
        out->bucket_limit[k] = out->min + (out->max - out->min) * (k + 1) / N_BUCKETS;
        out->bucket[k] = counts[k];
    }
}

static void put_histogram(struct dt_sinks *sinks, const char *what, const struct dt_param *param,
                          const float *arena, double scale, uint64_t step)
{
    double limits[N_BUCKETS], buckets[N_BUCKETS];
    char tag[64];
    Tensorboard__HistogramProto histogram = TENSORBOARD__HISTOGRAM_PROTO__INIT;
    Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT, *list = &value;
    snprintf(tag, sizeof tag, "%s/%s", what, param->name);
    histogram.bucket_limit = limits;
    histogram.bucket = buckets;
    fill_histogram(arena + param->offset, param->n_elems, scale, &histogram);
    value.tag = tag;
    value.value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_HISTO;
    value.histo = &histogram;
    put_values(sinks, &list, 1, step);
}

static void put_histograms(struct dt_sinks *sinks, const char *what, const struct dt_model *model,
                           const float *arena, double scale, uint64_t step)
{
    for (int i = 0; i < model->n_params && arena != NULL && !sinks->events_failed; i++) {
        put_histogram(sinks, what, &model->params[i], arena, scale, step);
    }
}

/* ---- confusion */

#define CELL_W 46 /* pixels: six digits */
#define CELL_H 22
#define DIGIT_W 3 /* of a digit's dots, which are DOT pixels wide and high */
#define DIGIT_H 5
#define DOT 2

/* Rows from the top, three dots each, the left one the highest bit. */
static const uint16_t digits[10] = {075557, 026227, 071747, 071717, 055711,
                                    074717, 074757, 071111, 075757, 075717};

struct color {
    uint8_t r, g, b;
};
static const struct color black = {20, 20, 20}, white = {255, 255, 255}, grey = {225, 225, 225},
                          line = {205, 205, 205};
static const struct color right = {31, 97, 165}, wrong = {196, 60, 40};

struct canvas {
    int width, height;
    struct color *pixels;
};

static void fill(struct canvas *c, int x, int y, int width, int height, struct color color)
{
    for (int row = y; row < y + height; row++) {
        for (int column = x; column < x + width; column++) {
            c->pixels[(size_t)row * (size_t)c->width + (size_t)column] = color;
        }
    }
}

static void draw_digit(struct canvas *c, int x, int y, int digit, struct color color)
{
    for (int dot = 0; dot < DIGIT_W * DIGIT_H; dot++) {
        if ((digits[digit] >> (DIGIT_W * DIGIT_H - 1 - dot) & 1) != 0) {
            fill(c, x + dot % DIGIT_W * DOT, y + dot / DIGIT_W * DOT, DOT, DOT, color);
        }
    }
}

/* In the middle of a cell. */
static void draw_number(struct canvas *c, int row, int column, double number, struct color color)
{
    char text[32];
    snprintf(text, sizeof text, "%.0f", fmin(number, 999999));
    const int n = (int)strlen(text), step = (DIGIT_W + 1) * DOT;
    int x = column * CELL_W + (CELL_W - n * step + DOT) / 2;
    for (int i = 0; i < n; i++, x += step) {
        draw_digit(c, x, row * CELL_H + (CELL_H - DIGIT_H * DOT) / 2, text[i] - '0', color);
    }
}

/* From white to `full`. */
static struct color shade(struct color full, double share)
{
    const double rest = 1 - share;
    return (struct color){(uint8_t)(full.r * share + 255 * rest),
                          (uint8_t)(full.g * share + 255 * rest),
                          (uint8_t)(full.b * share + 255 * rest)};
}

static void draw_cell(struct canvas *c, int row, int column, double count, struct color color,
                      bool dark)
{
    fill(c, column * CELL_W, row * CELL_H, CELL_W - 1, CELL_H - 1, color);
    if (count >= 0) {
        draw_number(c, row, column, count, dark ? white : black);
    }
}

/* A share of the label's samples shows by its square root: rare mistakes are what one looks for. */
static void draw_label(struct canvas *c, int n, int label, const double *counts)
{
    double sum = 0;
    for (int said = 0; said < n; said++) {
        sum += counts[said];
    }
    draw_cell(c, label + 1, 0, label, grey, false);
    for (int said = 0; said < n; said++) {
        const double share = counts[said] > 0 ? sqrt(counts[said] / sum) : 0;
        draw_cell(c, label + 1, said + 1, counts[said] > 0 ? counts[said] : -1,
                  shade(said == label ? right : wrong, share), share > 0.6);
    }
}

/* A picture of a confusion matrix: a row per label, a column per prediction. `counts`: (n, n)
 * [label][predicted], at most 999,999 each are legible. The caller frees out->bytes. False: no
 * memory. */
static bool draw_confusion(int n, const double *counts, struct dt_png *out)
{
    struct canvas c = {.width = (n + 1) * CELL_W, .height = (n + 1) * CELL_H};
    c.pixels = calloc((size_t)c.width * (size_t)c.height, sizeof *c.pixels);
    if (c.pixels == NULL) {
        return false;
    }
    fill(&c, 0, 0, c.width, c.height, line);
    draw_cell(&c, 0, 0, -1, grey, false);
    for (int k = 0; k < n; k++) {
        draw_cell(&c, 0, k + 1, k, grey, false);
        draw_label(&c, n, k, counts + (size_t)k * (size_t)n);
    }
    const bool made = dt_png_make(c.width, c.height, 3, &c.pixels[0].r, out);
    free(c.pixels);
    return made;
}

static void put_confusion(struct dt_sinks *sinks, int n_classes, const double *counts,
                          uint64_t step)
{
    Tensorboard__Summary__Image image = TENSORBOARD__SUMMARY__IMAGE__INIT;
    Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT, *list = &value;
    struct dt_png png;
    if (!draw_confusion(n_classes, counts, &png)) {
        give_up(sinks, ENOMEM);
        return;
    }
    image.width = png.width;
    image.height = png.height;
    image.colorspace = 3;
    image.encoded_image_string = (ProtobufCBinaryData){.data = png.bytes, .len = png.n_bytes};
    value.tag = "confusion";
    value.value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_IMAGE;
    value.image = &image;
    put_values(sinks, &list, 1, step);
    free(png.bytes);
}

static void put_inside(struct dt_sinks *sinks, const struct dt_inspection *inside, uint64_t step)
{
    put_histograms(sinks, "weights", inside->model, inside->weights, 1, step);
    put_histograms(sinks, "gradients", inside->model, inside->gradients, 1 / inside->n_samples,
                   step);
    if (inside->confusion != NULL && !sinks->events_failed) {
        put_confusion(sinks, inside->model->n_outputs, inside->confusion, step);
    }
}

/* ---- the run */

/* Makes TensorBoard drop an earlier start's events of steps that are repeated now. */
static void put_start(struct dt_sinks *sinks, uint64_t step)
{
    Tensorboard__SessionLog start = TENSORBOARD__SESSION_LOG__INIT;
    Tensorboard__Event version = TENSORBOARD__EVENT__INIT, event = TENSORBOARD__EVENT__INIT;
    version.what_case = TENSORBOARD__EVENT__WHAT_FILE_VERSION;
    version.file_version = "brain.Event:2";
    put(sinks, &version, 0);
    start.status = TENSORBOARD__SESSION_LOG__SESSION_STATUS__START;
    event.what_case = TENSORBOARD__EVENT__WHAT_SESSION_LOG;
    event.session_log = &start;
    if (!sinks->events_failed) {
        put(sinks, &event, step + 1);
    }
}

static enum dt_status begin(struct dt_sinks *sinks, const struct dt_event *event)
{
    if (!sinks->folder.config->tensorboard || event->status != DT_OK) {
        return DT_OK;
    }
    DT_TRY(dt_event_file_open(sinks->folder.dir, &sinks->events));
    put_start(sinks, event->folder->step);
    return DT_OK;
}

static void put_epoch(struct dt_sinks *sinks, const struct dt_event *event)
{
    const struct dt_epoch_event *epoch = event->epoch;
    put_scalars(sinks, &dt_epoch_fields, event, epoch->step);
    if (epoch->inside != NULL && !sinks->events_failed) {
        put_inside(sinks, epoch->inside, epoch->step);
    }
}

/* Of an epoch's field of that name; NULL: there is none, or it is not of the test samples. */
static const char *tag_of_test(const char *name)
{
    for (int i = 0; i < dt_epoch_fields.n; i++) {
        if (strcmp(dt_epoch_fields.rows[i].name, name) == 0 && strstr(name, "test_") != NULL) {
            return dt_epoch_fields.rows[i].tag;
        }
    }
    return NULL;
}

/* Of a run with a validation set, which is tested but once; under the tags of other runs. */
static void put_test(struct dt_sinks *sinks, const struct dt_event *event)
{
    const struct dt_end_event *end = event->end;
    struct dt_field_value values[DT_MAX_FIELDS];
    struct scalars s = {0};
    if (sinks->events == NULL || end->validation.n_samples == 0 || end->test.n_samples == 0) {
        return;
    }
    dt_end_fields.read(sinks, event, values);
    for (int i = 0; i < dt_end_fields.n; i++) {
        const char *tag = tag_of_test(dt_end_fields.rows[i].name);
        if (tag != NULL && values[i].is_number) {
            add_scalar(&s, tag, values[i].number);
        }
    }
    put_values(sinks, s.list, s.n, end->steps);
}

static enum dt_status check_events(const struct dt_sinks *sinks, enum dt_status status)
{
    if (status != DT_OK || !sinks->events_failed) {
        return DT_OK;
    }
    return dt_error(
        DT_IO,
        "%s/tensorboard: events are missing, as the warning above says (the result is whole)",
        sinks->folder.dir->path);
}

enum dt_status dt_tensorboard_take(struct dt_sinks *sinks, const struct dt_event *event)
{
    if (event->kind == DT_EVENT_FOLDER) {
        return begin(sinks, event);
    }
    if (event->kind == DT_EVENT_END) {
        put_test(sinks, event);
        return check_events(sinks, event->status);
    }
    if (event->kind == DT_EVENT_STEP && sinks->events != NULL && event->step->recorded) {
        put_scalars(sinks, &dt_step_fields, event, event->step->step);
    }
    if (event->kind == DT_EVENT_EPOCH && sinks->events != NULL) {
        put_epoch(sinks, event);
    }
    return DT_OK;
}

/* ---- the library */

const char *dt_protobuf_library(void)
{
    static char text[32];
    snprintf(text, sizeof text, "protobuf-c %s", protobuf_c_version());
    return text;
}

enum dt_status dt_protobuf_check(const char *what)
{
    (void)what;
    return DT_OK;
}
