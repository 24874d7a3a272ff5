/* Every allreduce algorithm of the list, all ranks of 1 to 17 in one process over the local wire:
 * sums of whole numbers are exact, floats are the same bits on every rank, messages and elements
 * are as the formulas say and as counting the moves says, and nothing outside of the range is
 * touched. Ranks are moved on in turns and by chance, so that some lag far behind. */
#include "dist/allreduce/algorithms/segments.h"
#include "dist/allreduce/formula.h"
#include "dist/compression/error_feedback.h"
#include "tests/unit/dist/executors.h"

#define N_AROUND 3 /* elements before and after the range that is summed */
#define SLOT 2

static struct dt_move moves[2 * MAX_RANKS];
static const struct dt_codec *codec; /* of what opens from now on; NULL: none */

static void open_ranks(const struct dt_algorithm *algorithm, int size, size_t n_elems)
{
    CHECK_OK(dt_wire_open_local(size, wires));
    for (int r = 0; r < size; r++) {
        data[r] = buffer_open(n_elems + 2 * N_AROUND);
        CHECK_OK(dt_executor_open(algorithm, wires[r], data[r].data, data[r].n, SLOT + 1,
                                  payload_of(codec, r), &executors[r]));
    }
}

/* In turns, or the rank that chance picks. */
static void run_all(int size, size_t n_elems, bool in_turns)
{
    bool done[MAX_RANKS] = {false};
    int n_done = 0;
    for (int r = 0; r < size; r++) {
        CHECK_OK(dt_executor_start(&executors[r], SLOT, 0, N_AROUND, N_AROUND + n_elems));
    }
    for (int i = 0; n_done < size; i++) {
        const int r = in_turns ? i % size : (int)draw((uint32_t)size);
        CHECK(i < 10000 * size); /* nobody waits for ever */
        if (!done[r]) {
            CHECK_OK(dt_executor_progress(&executors[r], SLOT, &done[r]));
            n_done += done[r];
        }
    }
}

static float whole(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13) % 1000);
}

static void check_sums(const struct dt_algorithm *algorithm, int size, size_t n_elems)
{
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < data[r].n; i++) {
            const bool inside = i >= N_AROUND && i < N_AROUND + n_elems;
            float expected = whole(r, i);
            for (int other = 0; inside && other < size; other++) {
                expected += other != r ? whole(other, i) : 0;
            }
            CHECK_MESSAGE(data[r].data[i] == expected,
                          "%s, %d ranks, %zu elements: rank %d has %g at %zu, not %g",
                          algorithm->name, size, n_elems, r, (double)data[r].data[i], i,
                          (double)expected);
        }
    }
}

/* Messages counted on the wires, those of the formula, and those of the moves. */
static void check_traffic(const struct dt_algorithm *algorithm, int size, size_t n_elems)
{
    const struct dt_traffic expected = algorithm->formula(size, n_elems);
    struct dt_traffic counted = {0}, sent = {0};
    for (int r = 0; r < size; r++) {
        const struct dt_traffic of_rank =
            dt_algorithm_traffic(algorithm, r, size, n_elems, NULL, moves);
        const struct dt_traffic total = dt_wire_sent(wires[r]).all;
        CHECK(memcmp(&total, &of_rank, sizeof total) == 0);
        dt_traffic_add(&counted, of_rank);
        dt_traffic_add(&sent, total);
    }
    CHECK_MESSAGE(memcmp(&sent, &expected, sizeof sent) == 0 &&
                      memcmp(&counted, &expected, sizeof sent) == 0,
                  "%s, %d ranks, %zu elements: %llu messages of %llu bytes, by the formula "
                  "%llu of %llu",
                  algorithm->name, size, n_elems, (unsigned long long)sent.messages,
                  (unsigned long long)sent.bytes, (unsigned long long)expected.messages,
                  (unsigned long long)expected.bytes);
}

static void check_whole_numbers(const struct dt_algorithm *algorithm, int size, size_t n_elems)
{
    open_ranks(algorithm, size, n_elems);
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < data[r].n; i++) {
            data[r].data[i] = whole(r, i);
        }
    }
    run_all(size, n_elems, true);
    check_sums(algorithm, size, n_elems);
    check_traffic(algorithm, size, n_elems);
    close_ranks(size);
}

/* The same bits everywhere, near the exact sum, and in every run. */
static void check_floats(const struct dt_algorithm *algorithm, int size, size_t n_elems)
{
    open_ranks(algorithm, size, n_elems);
    fill_fractions(size);
    run_all(size, n_elems, true);
    struct buffer first = copy_of(&data[0]);
    for (size_t i = N_AROUND; i < N_AROUND + n_elems; i++) {
        double exact = 0;
        for (int r = 0; r < size; r++) {
            exact += 1.0 / (1 + r + (int)(i % 50));
        }
        CHECK(fabs((double)first.data[i] - exact) <= 1e-6 * exact);
    }
    for (int run = 0; run < 3; run++) {
        for (int r = 0; r < size; r++) {
            CHECK(memcmp(data[r].data + N_AROUND, first.data + N_AROUND, n_elems * sizeof(float)) ==
                  0);
        }
        fill_fractions(size);
        run_all(size, n_elems, run == 1);
    }
    buffer_close(&first, "copy");
    close_ranks(size);
}

static void fill_compressible(int size, size_t n_elems)
{
    fill_fractions(size);
    for (int r = 0; r < size; r++) {
        for (size_t i = N_AROUND; i < N_AROUND + n_elems; i++) {
            data[r].data[i] *= i % 3 == 0 ? -1.0f : 1.0f;
        }
        if (n_elems > 1) {
            data[r].data[N_AROUND + 1] = r == size / 2 ? NAN : 1;
        }
    }
}

static void check_alike(const struct dt_algorithm *algorithm, int size, size_t n_elems,
                        const struct buffer *first)
{
    for (int r = 0; r < size; r++) {
        CHECK_MESSAGE(
            memcmp(data[r].data + N_AROUND, first->data + N_AROUND, n_elems * sizeof(float)) == 0,
            "%s, %d ranks, %zu elements as %s: rank %d has other sums", algorithm->name, size,
            n_elems, dt_compression_names[codec->spec.type], r);
    }
}

/* The bytes of a sum: of encodings that can be added, in parts of any length; else of whole ranges.
 */
static void check_bytes(const struct dt_algorithm *algorithm, int size, size_t n_elems)
{
    const struct dt_traffic t = algorithm->formula(size, n_elems);
    uint64_t n_bytes = 0;
    for (int r = 0; r < size; r++) {
        n_bytes += dt_wire_sent(wires[r]).all.bytes;
    }
    CHECK_INT(n_bytes, codec->ops->summable ? dt_codec_bytes(codec, 0, t.bytes / sizeof(float))
                                            : t.messages * dt_codec_bytes(codec, 0, n_elems));
}

/* A rank keeps the loss of encoding its own numbers, whatever the algorithm. */
static void check_left(int rank, size_t n_elems)
{
    const float *left = executors[rank].feedback->left;
    size_t n_left = 0;
    for (size_t i = N_AROUND + 2; i < N_AROUND + n_elems; i++) {
        n_left += left != NULL && left[i] != 0;
    }
    CHECK(codec->spec.type == DT_COMPRESSION_ONEBIT || !codec->spec.error_feedback ||
          n_elems < 1000 || n_left > 0);
}

/* Compressed: the same bits everywhere, and without error feedback in every run; near the sum; what
 * is not a number arrives. */
static void check_compressed(const struct dt_algorithm *algorithm, int size, size_t n_elems)
{
    open_ranks(algorithm, size, n_elems);
    fill_compressible(size, n_elems);
    struct buffer before = copy_of(&data[0]);
    run_all(size, n_elems, true);
    check_bytes(algorithm, size, n_elems);
    check_left(size - 1, n_elems);
    struct buffer first = copy_of(&data[0]);
    for (int run = 0; run < 3; run++) {
        check_alike(algorithm, size, n_elems, &first);
        fill_compressible(size, n_elems);
        run_all(size, n_elems, run == 1);
        if (codec->spec.error_feedback) {
            memcpy(first.data, data[0].data, first.n * sizeof(float));
        }
    }
    CHECK(n_elems < 2 || isnan(first.data[N_AROUND + 1]));
    for (size_t i = 0; i < N_AROUND; i++) {
        CHECK(before.data[i] == first.data[i] &&
              before.data[first.n - 1 - i] == first.data[first.n - 1 - i]);
    }
    for (size_t i = N_AROUND; codec->spec.type < DT_COMPRESSION_INT8 && i < N_AROUND + n_elems;
         i++) {
        double exact = 0;
        for (int r = 0; r < size; r++) {
            exact += (i % 3 == 0 ? -1.0 : 1.0) / (1 + r + (int)(i % 50));
        }
        CHECK(i == N_AROUND + 1 ||
              fabs((double)first.data[i] - exact) <= 0.005 * size * fabs(exact));
    }
    BUFFERS_CLOSE(&before, &first);
    close_ranks(size);
}

static void check_compressions(const struct dt_algorithm *algorithm, int size)
{
    static const size_t sizes[] = {0, 1, 2, 5, 1000};
    for (int type = DT_COMPRESSION_FP16; type < DT_N_COMPRESSION_TYPES; type++) {
        for (int k = 0; k < 10; k++) {
            const struct dt_compression_spec spec = {
                .type = type, .ratio = 0.1, .error_feedback = k % 2 == 1};
            const struct dt_codec tried = codec_of(&spec, NULL);
            codec = &tried;
            if (size > 1 && (algorithm->gathers || tried.ops->summable)) {
                check_compressed(algorithm, size, sizes[k / 2]);
            }
        }
    }
    codec = NULL;
}

/* A large vector goes down a tree in segments, each a round behind the one before. */
static void check_segments(void)
{
    const struct dt_algorithm *tree = dt_algorithm_find("tree");
    const size_t n = 1199882, sizes[] = {DT_SEGMENT_ELEMS, DT_SEGMENT_ELEMS + 1};
    CHECK(dt_algorithm_find("no such") == NULL);
    CHECK_INT(tree->n_rounds(1, n), 0);
    for (int i = 0; i < 2; i++) {
        CHECK(tree->formula(4, sizes[i]).messages == (i == 0 ? 6 : 12));
    }
    /* The root in round 3 of 8: adds segment 3, then segment 2 as the second level has it, and
     * sends what is whole. */
    CHECK_INT(tree->round(0, 4, n, 3, moves), 4);
    static const struct dt_move expected[] = {{DT_SEND, 1, 0, 0},
                                              {DT_SEND, 2, 1, 0},
                                              {DT_ADD, 2, 2, 0},
                                              {DT_ADD, 1, 3, 0}}; /* begin: the segment */
    for (int i = 0; i < 4; i++) {
        CHECK(moves[i].kind == expected[i].kind && moves[i].peer == expected[i].peer);
        CHECK(moves[i].begin == dt_piece_begin(n, (int)expected[i].begin, 5));
        CHECK(moves[i].end == dt_piece_begin(n, (int)expected[i].begin + 1, 5));
    }
}

/* The textbook's ring of four: step s, worker p sends piece (p - s) mod 4 to p + 1; then it owns
 * piece (p + 1) mod 4. */
static void check_textbook_ring(void)
{
    for (int p = 0; p < 4; p++) {
        for (int s = 0; s < 6; s++) {
            const int piece = s < 3 ? (p - s + 4) % 4 : (p + 1 - (s - 3) + 4) % 4;
            CHECK_INT(dt_ring_round(p, 4, 40, s, moves), 2);
            CHECK(moves[0].kind == DT_SEND && moves[0].peer == (p + 1) % 4 &&
                  moves[0].begin == (size_t)piece * 10);
            CHECK(moves[1].kind == (s < 3 ? DT_ADD : DT_REPLACE) && moves[1].peer == (p + 3) % 4);
        }
    }
}

int main(void)
{
    check_segments();
    check_textbook_ring();
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        for (int size = 1; size <= MAX_RANKS; size++) {
            const size_t n = (size_t)size, sizes[] = {0, 1, n - 1, n, n + 1, 1000};
            for (int k = 0; k < 6; k++) {
                check_whole_numbers(&dt_algorithms[i], size, sizes[k]);
            }
            check_floats(&dt_algorithms[i], size, 1000);
            check_compressions(&dt_algorithms[i], size);
        }
        check_whole_numbers(&dt_algorithms[i], 5, 1199882);
        check_whole_numbers(&dt_algorithms[i], 8, DT_SEGMENT_ELEMS + 1);
    }
    return 0;
}
