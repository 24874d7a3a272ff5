/* Horovod's worked example of the gradient tape (horovod.tensorflow.DistributedGradientTape),
 * reproduced to the last printed digit. */
#include "lab/gradtape.h"

#include <stdlib.h>
#include <string.h>

#include "cli/result.h"
#include "lab/training.h"
#include "model/network.h"

/* The numbers that the example prints: each rank's loss, and of each stage the parts. */
static const struct {
    const char *loss, *numbers[DT_TAPE_STAGES][DT_TAPE_PARTS];
} printed[DT_TAPE_RANKS] = {{"26.431675",
                             {{"1", "1", "1"},
                              {"2.0128188", "2.7977395", "4"},
                              {"1.3814857", "2.129148", "4"},
                              {"-0.3814857", "-1.129148", "-3"},
                              {"-0.3814857", "-1.129148", "-3"}}},
                            {"0",
                             {{"0", "0", "0"},
                              {"0.75015247", "1.4605565", "4"},
                              {"1.3814857", "2.129148", "4"},
                              {"-1.3814857", "-2.129148", "-4"},
                              {"-0.3814857", "-1.129148", "-3"}}}};

static const char *const stage_names[DT_TAPE_STAGES] = {
    "weights at first", "gradient of the rank", "mean of the gradients", "weights after the step",
    "weights after the broadcast"};
static const char *const part_names[DT_TAPE_PARTS] = {"input 1", "input 2", "bias"};

/* ---- Matsumoto and Nishimura's generator (mt19937ar: init_genrand, genrand_int32, genrand_res53).
 * NumPy and the example draw from it. dtrain itself draws without a state (base/rng.h). */

struct mt19937 {
    uint32_t state[624];
    int next;
};

static void seed(struct mt19937 *mt, uint32_t value)
{
    mt->state[0] = value;
    for (uint32_t i = 1; i < 624; i++) {
        mt->state[i] = 1812433253u * (mt->state[i - 1] ^ mt->state[i - 1] >> 30) + i;
    }
    mt->next = 624;
}

static void refill(struct mt19937 *mt)
{
    for (int i = 0; i < 624; i++) {
        const uint32_t y = (mt->state[i] & 0x80000000u) | (mt->state[(i + 1) % 624] & 0x7fffffffu);
        mt->state[i] = mt->state[(i + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    mt->next = 0;
}

static uint32_t draw_word(struct mt19937 *mt)
{
    if (mt->next == 624) {
        refill(mt);
    }
    uint32_t y = mt->state[mt->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* In [0, 1), 53 bits: NumPy's random.rand. */
static double draw(struct mt19937 *mt)
{
    const uint32_t a = draw_word(mt) >> 5, b = draw_word(mt) >> 6;
    return (a * 67108864.0 + b) / 9007199254740992.0;
}

/* ---- a rank's work */

/* Reads the numbers of a stage, and whether the units differ. After an allreduce the rank has the
 * sum of both ranks' gradients: half of it is the mean. */
static void read_stage(struct dt_lab_network *n, struct dt_tape *tape, enum dt_tape_stage stage)
{
    const bool grads = stage == DT_TAPE_GRADIENT || stage == DT_TAPE_MEAN;
    const float *weight = grads ? dt_lab_grad(n, "fc1.weight") : dt_lab_param(n, "fc1.weight"),
                *bias = grads ? dt_lab_grad(n, "fc1.bias") : dt_lab_param(n, "fc1.bias");
    const float scale = stage == DT_TAPE_MEAN ? 0.5f : 1;
    float *out = tape->numbers[stage];
    for (int i = 0; i < DT_TAPE_INPUTS; i++) {
        out[i] = weight[i] * scale;
    }
    out[DT_TAPE_INPUTS] = bias[0] * scale;
    for (int unit = 1; unit < DT_TAPE_UNITS; unit++) {
        tape->units_differ =
            tape->units_differ || bias[unit] != bias[0] ||
            memcmp(weight + DT_TAPE_INPUTS * unit, weight, DT_TAPE_INPUTS * sizeof *weight) != 0;
    }
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

/* Takes a step whose loss is the sum of all outputs. */
static enum dt_status step(struct dt_lab_network *n, double lr, int n_samples, float *loss)
{
    static const uint32_t rows[DT_TAPE_SAMPLES] = {0, 1, 2, 3};
    const struct dt_batch batch = {.n = n_samples, .rows = rows, .ids = rows};
    /* divides the gradients by 2, the number of ranks */
    const struct dt_update update = dt_strategy_next_update(n->strategy, lr, DT_TAPE_RANKS, 1);
    struct dt_strategy_step under_way = dt_strategy_start(n->strategy, &update);
    double sum = 0;
    DT_TRY(dt_lab_pass_sum(n, &batch, &under_way));
    for (int i = 0; i < n_samples * DT_TAPE_UNITS; i++) {
        sum += (double)dt_network_logits(n->network)[i];
    }
    *loss = (float)sum;
    return dt_strategy_finish(&under_way);
}

/* Computes the rank's own gradient: nothing is sent, and the rate is 0. */
static enum dt_status run_alone(struct dt_lab_network *n, int role, struct dt_tape *tape)
{
    set_weights(n, role == 0 ? 1 : 0);
    read_stage(n, tape, DT_TAPE_FIRST);
    DT_TRY(step(n, 0, DT_TAPE_SAMPLES, &tape->loss));
    read_stage(n, tape, DT_TAPE_GRADIENT);
    return DT_OK;
}

/* Steps with the mean of the example's two ranks: the gradients of other ranks are zero. */
static enum dt_status run_shared(struct dt_lab_network *n, int rank, struct dt_tape *tape)
{
    float loss;
    set_weights(n, rank % DT_TAPE_RANKS == 0 ? 1 : 0);
    DT_TRY(step(n, 1, rank < DT_TAPE_RANKS ? DT_TAPE_SAMPLES : 0, &loss));
    read_stage(n, tape, DT_TAPE_MEAN);
    read_stage(n, tape, DT_TAPE_STEPPED);
    DT_TRY(dt_strategy_broadcast(n->strategy));
    read_stage(n, tape, DT_TAPE_SENT);
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
    const enum dt_status s = average ? run_shared(&network, world->rank, tape)
                                     : run_alone(&network, world->rank % DT_TAPE_RANKS, tape);
    dt_lab_network_close(&network);
    return dt_world_agree(world, s);
}

enum dt_status dt_tape_run(struct dt_world *world, struct dt_tape *tape)
{
    struct mt19937 mt;
    *tape = (struct dt_tape){.loss = 0};
    seed(&mt, (uint32_t)(world->rank % DT_TAPE_RANKS));
    for (int i = 0; i < DT_TAPE_SAMPLES * DT_TAPE_INPUTS; i++) {
        tape->x[i] = (float)draw(&mt);
    }
    DT_TRY(run_one(world, false, tape));
    return run_one(world, true, tape);
}

/* ---- expected results; equal printed digits mean equal floats */

void dt_tape_check(const struct dt_tape *t, int rank, int n_ranks, struct dt_golden *golden)
{
    const int role = rank % DT_TAPE_RANKS,
              end = n_ranks >= DT_TAPE_RANKS ? DT_TAPE_STAGES : DT_TAPE_MEAN;
    dt_golden_number(golden, (double)t->loss, (double)strtof(printed[role].loss, NULL), 0,
                     "loss of rank %d", rank);
    dt_golden_figure(golden, !t->units_differ, "all units have the same numbers");
    for (int stage = DT_TAPE_GRADIENT; stage < end; stage++) {
        for (int part = 0; part < DT_TAPE_PARTS; part++) {
            dt_golden_number(golden, (double)t->numbers[stage][part],
                             (double)strtof(printed[role].numbers[stage][part], NULL), 0,
                             "%s, %s, rank %d", stage_names[stage], part_names[part], rank);
        }
    }
}

/* ---- the document */

static void add_stages(struct dt_doc *doc, const struct dt_tape t[DT_TAPE_RANKS])
{
    static const char *const names[DT_TAPE_STAGES] = {"weights", "gradient", "mean", "stepped",
                                                      "broadcast"};
    struct dt_part *lanes = dt_doc_lanes(doc, "Where the ranks are equal", "");
    struct dt_part *table =
        dt_doc_table(doc, "Numbers of each unit", "number|rank::0|input 1::f|input 2::f|bias::f");
    dt_doc_kind(lanes, 1, "different on the ranks");
    dt_doc_kind(lanes, 2, "equal on both");
    dt_doc_lane(lanes, "%s", "");
    for (int stage = 0; stage < DT_TAPE_STAGES; stage++) {
        const bool equal =
            memcmp(t[0].numbers[stage], t[1].numbers[stage], sizeof t[0].numbers[stage]) == 0;
        dt_doc_box(lanes, 0, stage, stage + 1, 7, "%s", names[stage]);
        for (int rank = 0; rank < DT_TAPE_RANKS; rank++) {
            const float *n = t[rank].numbers[stage];
            if (stage == 0) {
                dt_doc_lane(lanes, "rank %d", rank);
            }
            dt_doc_box(lanes, 1 + rank, stage, stage + 1, equal ? 2 : 1, "%.2g %.2g %.2g",
                       (double)n[0], (double)n[1], (double)n[2]);
            dt_doc_row(table, dt_t(stage_names[stage]), dt_n(rank), dt_n((double)n[0]),
                       dt_n((double)n[1]), dt_n((double)n[2]));
        }
    }
    dt_doc_caption(lanes, "From left to right in time: the numbers of input 1, input 2 and bias.");
    dt_doc_main(table);
}

static void add_samples(struct dt_doc *doc, const struct dt_tape t[DT_TAPE_RANKS])
{
    struct dt_part *table = dt_doc_table(doc, "Samples", "rank::0|sample::0|input 1::f|input 2::f");
    struct dt_part *losses = dt_doc_figures(doc, "Loss");
    for (int rank = 0; rank < DT_TAPE_RANKS; rank++) {
        for (int i = 0; i < DT_TAPE_SAMPLES; i++) {
            const float *x = t[rank].x + DT_TAPE_INPUTS * i;
            dt_doc_row(table, dt_n(rank), dt_n(i + 1), dt_n((double)x[0]), dt_n((double)x[1]));
        }
        dt_doc_figure(losses, rank == 0 ? "rank 0::f" : "rank 1::f", dt_n((double)t[rank].loss));
    }
}

static struct dt_doc *tell(const struct dt_tape t[DT_TAPE_RANKS])
{
    struct dt_doc *doc = dt_doc_open("lab gradtape", "Horovod's gradient tape, by numbers");
    dt_doc_text(doc, "Two ranks, each with four samples of two inputs (MT19937 seeded by the rank) "
                     "and a dense layer of three units, which have the same numbers. The loss is "
                     "the sum of all outputs, the learning rate 1.");
    add_stages(doc, t);
    add_samples(doc, t);
    dt_doc_text(doc, "Each rank computes the gradient of its own samples. The allreduce gives both "
                     "the mean, so that both take the same step and stay 1 apart, as they began. "
                     "Only the broadcast makes their weights equal; from then on equal steps keep "
                     "them equal.");
    dt_doc_text(doc,
                "The example's text has a wrong sign: it says new = old + gradient. Its numbers, "
                "and dtrain, have new = old - rate × gradient: 1 - %.7f = %.7f.",
                (double)t[0].numbers[DT_TAPE_MEAN][0], (double)t[0].numbers[DT_TAPE_STEPPED][0]);
    return doc;
}

static enum dt_status lab_gradtape(struct dt_world *world, const struct dt_args *args)
{
    struct dt_tape mine, both[DT_TAPE_RANKS];
    struct dt_golden golden = {.n = 0};
    DT_TRY(dt_lab_need_ranks(world, "gradtape", DT_TAPE_RANKS));
    DT_TRY(dt_tape_run(world, &mine));
    DT_TRY(dt_comm_allgather(world->comm, &mine, both, sizeof mine, "the numbers of both ranks"));
    for (int rank = 0; rank < DT_TAPE_RANKS; rank++) {
        dt_tape_check(&both[rank], rank, DT_TAPE_RANKS, &golden);
    }
    dt_golden_number(&golden,
                     (double)(both[0].numbers[DT_TAPE_STEPPED][DT_TAPE_INPUTS] -
                              both[1].numbers[DT_TAPE_STEPPED][DT_TAPE_INPUTS]),
                     1, 0, "bias of rank 0 less that of rank 1, before the broadcast");
    return dt_world_agree(world, world->rank == 0 ? dt_golden_show(&golden, args, tell(both))
                                                  : dt_golden_status(&golden, DT_OK));
}

const struct dt_command dt_command_lab_gradtape = {
    .word = "lab gradtape",
    .meaning = "what does a distributed step do, number by number?",
    .minutes = 5,
    .usage = "mpirun -np 2 dtrain lab gradtape" DT_RESULT_USAGE,
    .examples = "  mpirun -np 2 dtrain lab gradtape\n",
    .more = "Horovod's gradient tape on two ranks, checked against the numbers that it prints.",
    .options = {DT_RESULT_OPTIONS},
    .together = lab_gradtape,
};
