/* Gradients needed first overtake those ready first: sums in higher slots of executors over wires
 * with a credit. All ranks are in one process: the order of the messages as they are sent, the
 * bytes on their way, the same bits as without a credit whoever lags behind, and on a clock of its
 * own what a step gains by it. */
#include "dist/ranks/wire_credit.h"
#include "dist/ranks/wire_delay.h"
#include "tests/unit/dist/executors.h"

#define MOST_RANKS 5
#define N_SLOTS 4
#define SLOT_ELEMS 1003
#define N_ELEMS ((size_t)N_SLOTS * SLOT_ELEMS)

static void open_ranks(const struct dt_algorithm *algorithm, int size, size_t credit,
                       const struct dt_compression_spec *compression)
{
    static struct dt_codec codec; /* borrowed by the executors */
    codec = compression != NULL ? codec_of(compression, NULL) : dt_codec_none();
    for (int r = 0; r < size; r++) {
        data[r] = buffer_open(N_ELEMS);
        if (credit > 0) {
            CHECK_OK(dt_wire_open_credit(wires[r], credit, N_SLOTS, &wires[r]));
        }
        CHECK_OK(dt_executor_open(algorithm, wires[r], data[r].data, N_ELEMS, N_SLOTS,
                                  encoding_of(&codec), &executors[r]));
    }
    fill_fractions(size);
}

static void start(int rank, int slot)
{
    const uint64_t draw = dt_executor_draw(&executors[rank]);
    CHECK_OK(dt_executor_start(&executors[rank], slot, draw, (size_t)slot * SLOT_ELEMS,
                               (size_t)(slot + 1) * SLOT_ELEMS));
}

/* Moves all of the rank's sums on, and says whether the slot's is there. */
static bool progress(int rank, int slot)
{
    bool done;
    CHECK_OK(dt_executor_progress(&executors[rank], slot, &done));
    return done;
}

/* ---- the order of messages: of rank 0 of two, by a ring, whose two rounds send a message each */

static char order[4 * N_SLOTS]; /* the slots whose messages it has sent */
static const struct dt_wire_ops *below;

static enum dt_status send_noted(struct dt_wire *wire, int peer, int tag, const void *bytes,
                                 size_t n_bytes, struct dt_wire_request *request)
{
    order[strlen(order)] = (char)('0' + tag);
    return below->send(wire, peer, tag, bytes, n_bytes, request);
}

static void check_order(size_t credit, const char *expected)
{
    bool all = false;
    memset(order, 0, sizeof order);
    CHECK_OK(dt_wire_open_local(2, wires));
    below = wires[0]->ops;
    struct dt_wire_ops noting = *below;
    noting.send = send_noted;
    wires[0]->ops = &noting;
    open_ranks(dt_algorithm_find("ring"), 2, credit, NULL);
    for (int slot = 0; slot < N_SLOTS; slot++) {
        start(0, slot);
        start(1, slot);
    }
    for (int i = 0; !all; i++) {
        CHECK(i < 1000);
        all = true;
        for (int slot = 0; slot < N_SLOTS; slot++) {
            progress(1, slot);
            all = progress(0, slot) && all;
            CHECK(credit == 0 || dt_wire_in_flight(wires[0]) <
                                     credit + SLOT_ELEMS / 2 * sizeof(float) + sizeof(float));
        }
    }
    CHECK(credit == 0 || dt_wire_in_flight(wires[0]) == 0);
    CHECK_TEXT(order, expected);
    close_ranks(2);
}

/* ---- by chance */

/* Whatever a rank does first, in the end it asks for all sums, the highest first. Returns rank 0's.
 */
static struct buffer sums_by_chance(const struct dt_algorithm *algorithm, int size, size_t credit,
                                    const struct dt_compression_spec *compression)
{
    int n_started[MOST_RANKS] = {0}, n_left[MOST_RANKS], n_done = 0;
    CHECK_OK(dt_wire_open_local(size, wires));
    open_ranks(algorithm, size, credit, compression);
    for (int r = 0; r < size; r++) {
        n_left[r] = N_SLOTS;
    }
    for (int i = 0; n_done < size; i++) {
        const int r = (int)draw((uint32_t)size);
        CHECK(i < 20000 * size); /* nobody waits for ever */
        if (n_started[r] < N_SLOTS && draw(3) == 0) {
            start(r, n_started[r]++);
        } else if (n_started[r] < N_SLOTS) {
            progress(r, 0);
        } else if (n_left[r] > 0) {
            if (credit > 0) {
                dt_wire_hurry(wires[r], n_left[r] - 1);
            }
            n_left[r] -= progress(r, n_left[r] - 1);
            n_done += n_left[r] == 0;
        }
    }
    struct buffer sums = copy_of(&data[0]);
    for (int r = 1; r < size; r++) {
        CHECK(memcmp(data[r].data, sums.data, sums.n * sizeof(float)) == 0);
    }
    close_ranks(size);
    return sums;
}

static void check_bits(const struct dt_algorithm *algorithm, int size,
                       const struct dt_compression_spec *compression)
{
    static const size_t credits[] = {1, SLOT_ELEMS * sizeof(float), (size_t)1 << 30};
    struct buffer expected = sums_by_chance(algorithm, size, 0, compression);
    for (int i = 0; i < 9; i++) {
        struct buffer sums = sums_by_chance(algorithm, size, credits[i % 3], compression);
        CHECK(memcmp(sums.data, expected.data, expected.n * sizeof(float)) == 0);
        buffer_close(&sums, "sums");
    }
    buffer_close(&expected, "expected");
}

static void check_algorithm(const struct dt_algorithm *algorithm)
{
    static const struct dt_compression_spec compressions[] = {
        {.type = DT_COMPRESSION_NONE},
        {.type = DT_COMPRESSION_FP16, .error_feedback = true},
        {.type = DT_COMPRESSION_INT8, .rounding = DT_ROUNDING_STOCHASTIC, .error_feedback = true}};
    for (int size = 1; size <= MOST_RANKS; size++) {
        for (int i = 0; i < 3; i++) {
            const bool can = compressions[i].type != DT_COMPRESSION_INT8 || algorithm->gathers;
            if (can) {
                check_bits(algorithm, size, &compressions[i]);
            }
        }
    }
}

/* ---- what a step takes, by a clock: backward a block after another, each one's gradients then on
 * their way; forward the other way round, when all weights are there, or block by block, when the
 * block's are */

#define BACKWARD_S 2.0 /* of a block */
#define FORWARD_S 3.0
#define TICK_S (1.0 / 64)

static double now_s;

static double fake_clock(void)
{
    return now_s;
}

struct clocked {
    int n_backward, n_forward; /* blocks done */
    double busy_until_s;
};

static void live(int rank, size_t credit, struct clocked *c)
{
    bool ready = true;
    for (int slot = 0; slot < N_SLOTS; slot++) {
        const bool there = progress(rank, slot);
        const bool needed = credit == 0 || slot == N_SLOTS - 1 - c->n_forward;
        ready = ready && (there || !needed);
    }
    if (now_s < c->busy_until_s || c->n_forward == N_SLOTS) {
        return;
    }
    if (c->n_backward < N_SLOTS) {
        start(rank, c->n_backward++);
        c->busy_until_s += c->n_backward < N_SLOTS ? BACKWARD_S : 0;
    } else if (ready) {
        c->n_forward++;
        c->busy_until_s = now_s + FORWARD_S;
    } else if (credit > 0) {
        dt_wire_hurry(wires[rank], N_SLOTS - 1 - c->n_forward);
    }
}

static double step_s(double latency_s, double bandwidth, size_t credit)
{
    enum { N_RANKS = 4 };
    struct clocked clocks[N_RANKS];
    const struct dt_wire_delay delay = {
        .latency_s = latency_s, .bandwidth = bandwidth, .clock_s = fake_clock};
    double end_s = 0;
    CHECK_OK(dt_wire_open_local(N_RANKS, wires));
    for (int r = 0; r < N_RANKS; r++) {
        CHECK_OK(dt_wire_open_delay(wires[r], &delay, &wires[r]));
        clocks[r] = (struct clocked){.busy_until_s = BACKWARD_S};
    }
    open_ranks(dt_algorithm_find("ring"), N_RANKS, credit, NULL);
    for (now_s = 0; now_s < 1000 && end_s == 0; now_s += TICK_S) {
        int n_done = 0;
        for (int r = 0; r < N_RANKS; r++) {
            live(r, credit, &clocks[r]);
            n_done += clocks[r].n_forward == N_SLOTS && now_s >= clocks[r].busy_until_s;
        }
        end_s = n_done == N_RANKS ? now_s : 0;
    }
    close_ranks(N_RANKS);
    return end_s;
}

/* Four ranks in a ring, so a message is a quarter of a block. Nothing is to be gained where the
 * wire is quick; where it is slow, by as much as a link carries within the latency. Less leaves the
 * link idle, and with more on its way nobody can overtake. */
static void check_gain(void)
{
    enum { MESSAGE = SLOT_ELEMS / 4 * sizeof(float) };
    const double quick = 400 * MESSAGE, slow = 2 * MESSAGE,
                 least_s = N_SLOTS * (BACKWARD_S + FORWARD_S);
    const double alike_s = step_s(0, quick, 0), before_s = step_s(0.5, slow, 0);
    CHECK(alike_s >= least_s && alike_s <= 1.01 * least_s);
    CHECK_NEAR(step_s(0, quick, 1), alike_s, TICK_S);
    CHECK(step_s(0.5, slow, MESSAGE + 100) <= 0.95 * before_s);
    CHECK(step_s(0.5, slow, 1) >= 1.02 * before_s);
    CHECK_NEAR(step_s(0.5, slow, (size_t)1 << 30), before_s, TICK_S);
}

int main(void)
{
    check_order(0, "01233210");
    check_order(1, "03322110");
    check_order((size_t)1 << 30, "01233210");
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        check_algorithm(&dt_algorithms[i]);
    }
    check_gain();
    return 0;
}
