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
#include "train/hooks/inspect.h"
#include "train/hooks/learned.h"
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
    dt_fields_read(fields, sinks, event, values);
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

/* Counts the numbers in each of N_BUCKETS equal parts of the range. */
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

#define CELL 24 /* pixels */

/* From white to the color of right or of wrong answers. The shade follows the square root of the
 * share of the label's samples, so that rare mistakes can be seen. */
static void shade(uint8_t pixel[3], double share, bool right)
{
    static const uint8_t colors[2][3] = {{196, 60, 40}, {31, 97, 165}};
    for (int k = 0; k < 3; k++) {
        pixel[k] = (uint8_t)(255 - (255 - colors[right][k]) * sqrt(share) + 0.5);
    }
}

static double sum_of(const double *counts, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += counts[i];
    }
    return sum;
}

/* A picture of a confusion matrix: a row of cells per label, a column per prediction. `counts`: (n,
 * n) [label][predicted]. The caller frees out->bytes. False: no memory. */
static bool draw_confusion(int n, const double *counts, struct dt_png *out)
{
    const size_t width = (size_t)n * CELL;
    uint8_t(*pixels)[3] = calloc(width * width, sizeof *pixels);
    for (size_t y = 0; y < width && pixels != NULL; y++) {
        const double *label = counts + y / CELL * (size_t)n;
        const double sum = fmax(1, sum_of(label, n));
        for (size_t x = 0; x < width; x++) {
            shade(pixels[y * width + x], label[x / CELL] / sum, x / CELL == y / CELL);
        }
    }
    const bool made = pixels != NULL && dt_png_make((int)width, (int)width, 3, pixels[0], out);
    free(pixels);
    return made;
}

/* What TensorBoard shows beside the picture: the names, "cat/dog", or NULL. */
static void describe_confusion(const char *names, char *text, size_t n_text)
{
    snprintf(text, n_text, "a row for each true class, a column for each predicted class%s%s",
             names != NULL ? ": " : "", names != NULL ? names : "");
}

static void put_confusion(struct dt_sinks *sinks, const struct dt_learned *learned, uint64_t step)
{
    char text[4096];
    Tensorboard__SummaryMetadata metadata = TENSORBOARD__SUMMARY_METADATA__INIT;
    Tensorboard__Summary__Image image = TENSORBOARD__SUMMARY__IMAGE__INIT;
    Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT, *list = &value;
    struct dt_png png;
    if (!draw_confusion(learned->n_classes, learned->confusion, &png)) {
        give_up(sinks, ENOMEM);
        return;
    }
    image.width = png.width;
    image.height = png.height;
    image.colorspace = 3;
    image.encoded_image_string = (ProtobufCBinaryData){.data = png.bytes, .len = png.n_bytes};
    describe_confusion(learned->class_names, text, sizeof text);
    metadata.summary_description = text;
    value.metadata = &metadata;
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
    const struct dt_learned *learned = inside->learned;
    if (learned != NULL && learned->confusion != NULL && !sinks->events_failed) {
        put_confusion(sinks, learned, step);
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

static void add_metrics(struct scalars *s, const struct dt_sinks *sinks, int loss,
                        const struct dt_metrics *m)
{
    add_scalar(s, dt_epoch_fields.rows[loss].tag, dt_metrics_loss(m));
    if (dt_sinks_classify(sinks)) {
        add_scalar(s, dt_epoch_fields.rows[loss + 1].tag, dt_metrics_accuracy(m));
    }
}

/* The test result of a run with a validation set, under the tags that other runs use. */
static void put_test(struct dt_sinks *sinks, const struct dt_end_event *end)
{
    struct scalars s = {0};
    if (sinks->events == NULL || end->validation.n_samples == 0 || end->test.n_samples == 0 ||
        end->signal != 0) {
        return;
    }
    add_metrics(&s, sinks, DT_EPOCH_TEST_LOSS, &end->test);
    if (dt_learned_has_top5(end->learned)) {
        add_scalar(&s, dt_epoch_fields.rows[DT_EPOCH_TEST_TOP5].tag,
                   end->learned->answers.n_top5 / end->test.n_samples);
    }
    add_metrics(&s, sinks, DT_EPOCH_EMA_TEST_LOSS, &end->averaged); /* of none: no numbers */
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
        put_test(sinks, event->end);
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
