/* Horovod's worked example of the gradient tape (horovod.tensorflow.DistributedGradientTape),
 * reproduced to the last printed digit. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/args.h"
#include "cli/text.h"
#include "lab/gradtape.h"
#include "lab/training.h"
#include "model/stages.h"
#include "report/page/layout.h"
#include "report/page/page.h"

/* ---- the page */

struct tape_page {
    const struct dt_tape *tapes;
    const struct dt_golden *golden;
};

/* ---- the picture: a column a rank, downwards in the order of time */

#define COLUMN 212 /* width of a rank's box */
#define GAP 16     /* between both */
#define ROW 74

static int left_of(int rank)
{
    return rank * (COLUMN + GAP);
}

static void draw_box(FILE *out, int x, int row, int width, const char *title, const char *numbers)
{
    const int y = row * ROW;
    fprintf(out, "<rect class=\"box\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"48\" rx=\"8\"/>",
            x + 1, y, width - 2);
    fprintf(out, "<text x=\"%d\" y=\"%d\">%s</text>", x + width / 2, y + 19, title);
    fprintf(out, "<text class=\"dark\" x=\"%d\" y=\"%d\">%s</text>\n", x + width / 2, y + 38,
            numbers);
}

static void draw_arrow(FILE *out, const char *class, int x1, int y1, int x2, int y2)
{
    fprintf(out, "<path class=\"%s\" marker-end=\"url(#tip)\" d=\"M%d %dL%d %d\"/>\n", class, x1,
            y1, x2, y2);
}

static void draw_down(FILE *out, int row)
{
    for (int rank = 0; rank < 2; rank++) {
        const int x = left_of(rank) + COLUMN / 2;
        draw_arrow(out, rank == 0 ? "s0" : "s1", x, row * ROW + 49, x, (row + 1) * ROW - 3);
    }
}

#define LAYER_SIZE 112
static const char *layer_text(const struct dt_tape_layer *l, const char *comma,
                              const char *semicolon, char out[LAYER_SIZE])
{
    char a[32], b[32], c[32];
    snprintf(out, LAYER_SIZE, "%s%s%s%s%s", dt_float_text(l->weight[0], a), comma,
             dt_float_text(l->weight[1], b), semicolon, dt_float_text(l->bias, c));
    return out;
}

static void draw_layers(FILE *out, int row, const char *title, const struct dt_tape_layer *a,
                        const struct dt_tape_layer *b)
{
    char text[LAYER_SIZE];
    draw_box(out, left_of(0), row, COLUMN, title, layer_text(a, ", ", "; ", text));
    draw_box(out, left_of(1), row, COLUMN, title, layer_text(b, ", ", "; ", text));
}

static void draw_start(FILE *out, const struct dt_tape *t)
{
    for (int rank = 0; rank < 2; rank++) {
        char title[40], text[80], loss[32];
        snprintf(title, sizeof title, "rank %d begins with", rank);
        snprintf(text, sizeof text, "%s, %s; %s", rank == 0 ? "1" : "0", rank == 0 ? "1" : "0",
                 rank == 0 ? "1" : "0");
        draw_box(out, left_of(rank), 0, COLUMN, title, text);
        draw_box(out, left_of(rank), 1, COLUMN, "loss: sum of outputs",
                 dt_float_text(t[rank].loss, loss));
    }
}

static void draw(FILE *out, const struct dt_tape *t)
{
    char mean[LAYER_SIZE];
    const int width = 2 * COLUMN + GAP;
    fprintf(out,
            "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"the ranks' numbers from the loss "
            "to the broadcast\"><defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" "
            "refY=\"5\" markerWidth=\"5\" markerHeight=\"5\" orient=\"auto\"><path d=\"M0 0L10 5L0 "
            "10z\" fill=\"context-stroke\"/></marker></defs>\n",
            width, 5 * ROW + 50);
    draw_start(out, t);
    draw_layers(out, 2, "gradient, its own", &t[0].own, &t[1].own);
    draw_box(out, 0, 3, width, "allreduce: the mean of both",
             layer_text(&t[0].mean, ", ", "; ", mean));
    draw_layers(out, 4, "weights after the step", &t[0].stepped, &t[1].stepped);
    draw_layers(out, 5, "after the broadcast", &t[0].sent, &t[1].sent);
    for (int row = 0; row < 4; row++) {
        draw_down(out, row);
    }
    for (int rank = 0; rank < 2; rank++) {
        draw_arrow(out, "s0", left_of(0) + COLUMN / 2, 4 * ROW + 49, left_of(rank) + COLUMN / 2,
                   5 * ROW - 3);
    }
    fputs("</svg>\n", out);
}

/* ---- the table */

static void put_inputs(FILE *out, const struct dt_tape *t)
{
    for (int i = 0; i < DT_TAPE_SAMPLES; i++) {
        char text[2][100], a[32], b[32];
        for (int rank = 0; rank < 2; rank++) {
            const float *x = t[rank].x + DT_TAPE_INPUTS * i;
            snprintf(text[rank], sizeof text[rank], "%s<br>%s", dt_float_text(x[0], a),
                     dt_float_text(x[1], b));
        }
        dt_table_row(out, "sample %d|%s|%s", i + 1, text[0], text[1]);
    }
}

static void put_body(FILE *out, const void *context)
{
    const struct tape_page *page = context;
    const struct dt_tape *t = page->tapes;
    fputs("<h1>Horovod's gradient tape, by numbers</h1>\n<p>Two ranks, each with four samples of "
          "two inputs (MT19937 seeded by the "
          "rank) and a dense layer of three units, all of them alike. The loss is the sum of all "
          "outputs, the learning rate 1.</p>\n"
          "<div class=\"cards\"><div class=\"card\"><h2>What each rank has</h2><p>For input 1, for "
          "input 2; for the bias.</p>\n",
          out);
    draw(out, t);
    fputs("</div>\n<div class=\"card\"><h2>What it shows</h2>\n"
          "<p>Each rank's gradient is of its own samples. The mean makes equal steps: both ranks "
          "move alike, and stay 1 apart, as they began. Only the broadcast makes them equal, and "
          "from then on equal steps keep them so.</p>\n",
          out);
    fprintf(out,
            "<p>A slip of sign: the example's text says <i>new = old + gradient</i>. Its numbers, "
            "and dtrain, have <i>new = old − rate · gradient</i>: 1 − %.7f = %.7f.</p>\n"
            "<h2 class=\"part\">Inputs</h2>",
            (double)t[0].mean.weight[0], (double)t[0].stepped.weight[0]);
    dt_table_begin(out, "|rank 0|rank 1");
    put_inputs(out, t);
    dt_table_end(out);
    fprintf(out, "<p class=\"verdict\">%s</p></div></div>\n", page->golden->verdict);
}

/* ---- the lesson */

static const char *const part_names[] = {"of input 1", "of input 2", "of the bias"};

/* The example's own numbers: each rank's loss, gradients, and weights after the step. */
static const struct {
    const char *loss, *own[3], *stepped[3];
} printed[2] = {{"26.431675", {"2.0128188", "2.7977395", "4"}, {"-0.3814857", "-1.129148", "-3"}},
                {"0", {"0.75015247", "1.4605565", "4"}, {"-1.3814857", "-2.129148", "-4"}}};
static const char *const printed_mean[3] = {"1.3814857", "2.129148", "4"};

/* ---- a rank's work */

/* One layer's numbers times `scale`; false: its units differ. */
static bool read_layer(const float *weight, const float *bias, float scale,
                       struct dt_tape_layer *out)
{
    bool alike = true;
    *out = (struct dt_tape_layer){.weight = {weight[0] * scale, weight[1] * scale},
                                  .bias = bias[0] * scale};
    for (int unit = 1; unit < DT_TAPE_UNITS; unit++) {
        alike = alike && weight[2 * unit] == weight[0] && weight[2 * unit + 1] == weight[1] &&
                bias[unit] == bias[0];
    }
    return alike;
}

static void set_weights(struct dt_lab_network *n, float value)
{
    float *weight = dt_lab_param(n, "fc1.weight"), *bias = dt_lab_param(n, "fc1.bias");
    for (int i = 0; i < DT_TAPE_UNITS * DT_TAPE_INPUTS; i++) {
        weight[i] = value;
    }
    for (int i = 0; i < DT_TAPE_UNITS; i++) {
        bias[i] = value;
    }
}

/* The loss is the sum of all outputs, so its gradient with respect to each is 1; then the backward
 * pass, and the step. */
static enum dt_status step(struct dt_lab_network *n, double lr, int n_samples, float *loss)
{
    static const uint32_t rows[DT_TAPE_SAMPLES] = {0, 1, 2, 3};
    const struct dt_batch batch = {.n = n_samples, .rows = rows, .ids = rows};
    struct dt_pass pass = {.batch = &batch, .training = true};
    DT_TRY(dt_network_gather(n->network, n->bound, &batch));
    DT_TRY(dt_network_forward(n->network, &pass));
    double sum = 0;
    for (int i = 0; i < n_samples * DT_TAPE_UNITS; i++) {
        sum += (double)dt_network_logits(n->network)[i];
        dt_network_dlogits(n->network)[i] = 1;
    }
    *loss = (float)sum;
    const struct dt_update update =
        dt_strategy_next(n->strategy, lr, 2, 1); /* the mean of two ranks' gradients */
    struct dt_strategy_step under_way = dt_strategy_begin(n->strategy, &update);
    DT_TRY(dt_strategy_backward(&under_way, n->network, &pass));
    return dt_strategy_wait(&under_way);
}

/* Steps with its own gradient; nothing is sent, and the rate is 0. */
static enum dt_status run_alone(struct dt_lab_network *n, struct dt_tape *tape)
{
    set_weights(n, tape->first);
    DT_TRY(step(n, 0, DT_TAPE_SAMPLES, &tape->loss));
    tape->units_alike =
        read_layer(dt_lab_grad(n, "fc1.weight"), dt_lab_grad(n, "fc1.bias"), 1, &tape->own);
    return DT_OK;
}

/* The gradients of ranks beyond the example's two are zero. */
static enum dt_status run_shared(struct dt_lab_network *n, int rank, struct dt_tape *tape)
{
    float loss;
    set_weights(n, tape->first);
    DT_TRY(step(n, 1, rank < DT_TAPE_RANKS ? DT_TAPE_SAMPLES : 0, &loss));
    tape->units_alike &=
        read_layer(dt_lab_grad(n, "fc1.weight"), dt_lab_grad(n, "fc1.bias"), 0.5f, &tape->mean);
    tape->units_alike &=
        read_layer(dt_lab_param(n, "fc1.weight"), dt_lab_param(n, "fc1.bias"), 1, &tape->stepped);
    DT_TRY(dt_strategy_broadcast(n->strategy));
    tape->units_alike &=
        read_layer(dt_lab_param(n, "fc1.weight"), dt_lab_param(n, "fc1.bias"), 1, &tape->sent);
    return DT_OK;
}

static enum dt_status run_one(struct dt_world *world, bool average, struct dt_tape *tape)
{
    static const float
        targets[DT_TAPE_SAMPLES * DT_TAPE_UNITS]; /* unused: the loss is the sum of the outputs */
    static const struct dt_model_spec model = {
        .input = {DT_TAPE_INPUTS, 1, 1},
        .n_layers = 1,
        .layers = {{.type = DT_LAYER_DENSE, .size = DT_TAPE_UNITS}},
        .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    const struct dt_samples samples = {.n = DT_TAPE_SAMPLES,
                                       .shape = {DT_TAPE_INPUTS, 1, 1},
                                       .values = tape->x,
                                       .targets = targets,
                                       .n_targets = DT_TAPE_UNITS,
                                       .n_total = DT_TAPE_SAMPLES};
    const struct dt_lab_network_spec spec = {.model = &model,
                                             .samples = &samples,
                                             .comm = world->comm,
                                             .average = average,
                                             .capacity = DT_TAPE_SAMPLES};
    struct dt_lab_network network;
    DT_TRY(dt_world_agree(world, dt_lab_network_open(&spec, &network)));
    const enum dt_status s =
        average ? run_shared(&network, world->rank, tape) : run_alone(&network, tape);
    dt_lab_network_close(&network);
    return dt_world_agree(world, s);
}

enum dt_status dt_tape_run(struct dt_world *world, struct dt_tape *tape)
{
    const int role = world->rank % DT_TAPE_RANKS;
    struct dt_mt19937 mt;
    dt_mt19937_seed(&mt, (uint32_t)role);
    for (int i = 0; i < DT_TAPE_SAMPLES * DT_TAPE_INPUTS; i++) {
        tape->x[i] = (float)dt_mt19937_uniform(&mt);
    }
    tape->first = role == 0 ? 1 : 0;
    DT_TRY(run_one(world, false, tape));
    return run_one(world, true, tape);
}

/* ---- expected results */

/* Equal printed digits mean equal floats. */
static void check_float(struct dt_golden *golden, int rank, const char *what, const char *part,
                        float actual, const char *digits)
{
    dt_golden_number(golden, (double)actual, (double)strtof(digits, NULL), 0, "%s%s%s on rank %d",
                     what, part[0] != '\0' ? " " : "", part, rank);
}

static void check_layer(struct dt_golden *golden, int rank, const char *what,
                        const struct dt_tape_layer *layer, const char *const digits[3])
{
    const float parts[] = {layer->weight[0], layer->weight[1], layer->bias};
    for (int i = 0; i < 3; i++) {
        check_float(golden, rank, what, part_names[i], parts[i], digits[i]);
    }
}

void dt_tape_check(const struct dt_tape *t, int rank, int n_ranks, struct dt_golden *golden)
{
    const int role = rank % DT_TAPE_RANKS;
    check_float(golden, rank, "the loss", "", t->loss, printed[role].loss);
    check_layer(golden, rank, "the gradient", &t->own, printed[role].own);
    dt_golden_fact(golden, t->units_alike, "all units have the same");
    if (n_ranks >= DT_TAPE_RANKS) {
        check_layer(golden, rank, "the mean gradient", &t->mean, printed_mean);
        check_layer(golden, rank, "the weight after the step", &t->stepped, printed[role].stepped);
        check_layer(golden, rank, "the weight after the broadcast", &t->sent, printed[0].stepped);
    }
}

static struct dt_golden check(const struct dt_tape tapes[DT_TAPE_RANKS])
{
    struct dt_golden golden = {0};
    for (int rank = 0; rank < DT_TAPE_RANKS; rank++) {
        dt_tape_check(&tapes[rank], rank, DT_TAPE_RANKS, &golden);
    }
    dt_golden_number(&golden, (double)(tapes[0].stepped.bias - tapes[1].stepped.bias), 1, 0,
                     "rank 0's bias less rank 1's, before the broadcast");
    dt_golden_end(&golden);
    return golden;
}

/* ---- the text */

static void print_pair(const char *what, const char *left, const char *right)
{
    printf("%-22s%-28s%s\n", what, left, right);
}

static void print_floats(const char *what, float a, float b)
{
    char left[32], right[32];
    print_pair(what, dt_float_text(a, left), dt_float_text(b, right));
}

static void print_layers(const char *what, const struct dt_tape_layer *a,
                         const struct dt_tape_layer *b)
{
    char left[LAYER_SIZE], right[LAYER_SIZE];
    print_pair(what, layer_text(a, "  ", "  ", left), layer_text(b, "  ", "  ", right));
}

static void print_inputs(const struct dt_tape t[2])
{
    for (int i = 0; i < DT_TAPE_SAMPLES; i++) {
        char text[2][100], a[32], b[32];
        for (int rank = 0; rank < 2; rank++) {
            snprintf(text[rank], sizeof text[rank], "%s  %s", dt_float_text(t[rank].x[2 * i], a),
                     dt_float_text(t[rank].x[2 * i + 1], b));
        }
        print_pair(i == 0 ? "inputs" : "", text[0], text[1]);
    }
}

static void print_lesson(const struct dt_tape t[2])
{
    puts("Horovod's gradient tape by numbers: two ranks, each with 4 samples of 2 inputs\n"
         "(MT19937 seeded by the rank) and a dense layer of 3 units, all of them alike.\n"
         "The loss is the sum of all outputs, the learning rate 1.\n");
    print_pair("", "rank 0", "rank 1");
    print_floats("weights, at first", t[0].first, t[1].first);
    print_inputs(t);
    print_floats("loss", t[0].loss, t[1].loss);
    puts("\nof each unit: input 1, input 2, bias");
    print_layers("gradient, its own", &t[0].own, &t[1].own);
    print_layers("the mean of both", &t[0].mean, &t[1].mean);
    print_layers("weights, stepped", &t[0].stepped, &t[1].stepped);
    print_layers("after the broadcast", &t[0].sent, &t[1].sent);
    puts("\nThe mean makes equal steps: both move alike, and stay 1 apart as they began.\n"
         "Only the broadcast makes them equal; after it, equal steps keep them so.");
    printf("A slip of sign: the example's text says new = old + gradient. Its numbers, and\n"
           "dtrain, have new = old - rate * gradient: 1 - %.7f = %.7f.\n\n",
           (double)t[0].mean.weight[0], (double)t[0].stepped.weight[0]);
}

static enum dt_status lab_gradtape(struct dt_world *world, const struct dt_args *args)
{
    struct dt_tape mine = {.first = 0}, both[DT_TAPE_RANKS];
    DT_TRY(dt_lab_need_ranks(world, "gradtape", DT_TAPE_RANKS));
    DT_TRY(dt_tape_run(world, &mine));
    DT_TRY(dt_comm_allgather(world->comm, &mine, both, sizeof mine, "the numbers of both ranks"));
    const struct dt_golden golden = check(both);
    enum dt_status s = DT_OK;
    if (world->rank == 0) {
        print_lesson(both);
        puts(golden.verdict);
        const struct tape_page page = {both, &golden};
        s = dt_page_write(
            dt_args_text(args, DT_OPTION_HTML),
            &(struct dt_page){.title = "Gradient tape", .body = put_body, .context = &page});
    }
    return dt_world_agree(world, dt_golden_status(&golden, s));
}

const struct dt_command dt_command_lab_gradtape = {
    .word = "lab gradtape",
    .meaning = "what does a distributed step do, number by number?",
    .minutes = 5,
    .usage = "mpirun -np 2 dtrain lab gradtape [--html FILE]",
    .examples = "  mpirun -np 2 dtrain lab gradtape\n",
    .more = "Horovod's gradient tape on two ranks. Like every lesson with golden numbers it ends "
            "with PASS, or with the difference and status 1.",
    .options = {[DT_OPTION_HTML] = {DT_TAKEN}},
    .together = lab_gradtape,
};
