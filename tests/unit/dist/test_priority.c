/* The executor moves the sum in the highest slot on first, whichever is asked for, because the next
 * forward pass wants its weights first. All ranks are in one process: the order of the messages as
 * they are sent, and the same bits whoever lags behind. */
#include "tests/unit/dist/executors.h"

#define MOST_RANKS 5
#define N_SLOTS 4
#define SLOT_ELEMS 1003
#define N_ELEMS ((size_t)N_SLOTS * SLOT_ELEMS)

static void open_ranks(const struct dt_algorithm *algorithm, int size,
                       const struct dt_compression_spec *compression)
{
    static struct dt_codec codec; /* borrowed by the executors */
    codec = compression != NULL ? codec_of(compression, NULL) : dt_codec_none();
    for (int r = 0; r < size; r++) {
        data[r] = buffer_open(N_ELEMS);
        CHECK_OK(dt_executor_open(algorithm, wires[r], data[r].data, N_ELEMS, N_SLOTS,
                                  payload_of(&codec, r), &executors[r]));
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

static void check_order(const char *expected)
{
    bool all = false;
    memset(order, 0, sizeof order);
    CHECK_OK(dt_wire_open_local(2, wires));
    below = wires[0]->ops;
    struct dt_wire_ops noting = *below;
    noting.send = send_noted;
    wires[0]->ops = &noting;
    open_ranks(dt_algorithm_find("ring"), 2, NULL);
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
        }
    }
    CHECK_TEXT(order, expected);
    close_ranks(2);
}

/* ---- by chance */

/* Whatever a rank does first, in the end it asks for all sums, the highest first. Returns rank 0's.
 */
static struct buffer sums_by_chance(const struct dt_algorithm *algorithm, int size,
                                    const struct dt_compression_spec *compression)
{
    int n_started[MOST_RANKS] = {0}, n_left[MOST_RANKS], n_done = 0;
    CHECK_OK(dt_wire_open_local(size, wires));
    open_ranks(algorithm, size, compression);
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
    struct buffer expected = sums_by_chance(algorithm, size, compression);
    for (int i = 0; i < 5; i++) {
        struct buffer sums = sums_by_chance(algorithm, size, compression);
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

int main(void)
{
    check_order("01233210");
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        check_algorithm(&dt_algorithms[i]);
    }
    return 0;
}
