/* Samples that are held out: both parts together are the whole, each sample once and unchanged; the
 * same on any number of ranks; another seed holds out others; and no rank asks a format for much
 * more than its share. */
#include "data/validation_split.h"
#include "tests/lib/check.h"

#include <stdlib.h>

#define N 1000

/* ---- a format whose samples say which they are, and that notes what it is asked for */

static size_t n_samples, n_most; /* of the whole; rows asked for at once */

static enum dt_status fits(const struct dt_data_spec *spec)
{
    CHECK(spec->validation == 0); /* a format hears of the whole alone */
    return DT_OK;
}

static enum dt_status count(const struct dt_data_spec *spec, enum dt_split split, size_t *n_total)
{
    CHECK(spec->validation == 0 && split != DT_SPLIT_VALIDATION);
    *n_total = split == DT_SPLIT_TEST ? 7 : n_samples;
    return DT_OK;
}

static enum dt_status load(const struct dt_data_spec *spec, enum dt_split split,
                           struct dt_owned owned, struct dt_dataset *out)
{
    const size_t n_item = dt_shape_elems(spec->shape);
    CHECK(spec->validation == 0 && split != DT_SPLIT_VALIDATION);
    n_most = owned.n > n_most ? owned.n : n_most;
    out->items = calloc(owned.n * n_item + 1, 1);
    out->answers = calloc(owned.n + 1, sizeof(uint16_t));
    CHECK(out->items != NULL && out->answers != NULL);
    for (size_t i = 0; i < owned.n; i++) {
        const uint32_t id = owned.first + (uint32_t)i * owned.stride;
        CHECK(id < (split == DT_SPLIT_TEST ? 7 : n_samples));
        ((uint8_t *)out->items)[i * n_item] = (uint8_t)(id % 251);
        ((uint8_t *)out->items)[(i + 1) * n_item - 1] = (uint8_t)(id / 251);
        ((uint16_t *)out->answers)[i] = (uint16_t)id;
    }
    out->samples.n_total = split == DT_SPLIT_TEST ? 7 : n_samples;
    out->crc = 4711;
    return DT_OK;
}

static const struct dt_data_reader format = {.check = fits, .count = count, .load = load};

static struct dt_data_spec spec_of(double validation, uint64_t seed)
{
    return (struct dt_data_spec){.row = &dt_validation_data,
                                 .whole = &format,
                                 .validation = validation,
                                 .split_seed = seed,
                                 .shape = {1, 2, 2},
                                 .n_classes = 65535};
}

/* ---- both parts */

/* Adds the samples of a rank: seen[id] counts them, of[k] is the id of sample k of the part. */
static void note_rank(const struct dt_data_spec *spec, enum dt_split split, int rank, int size,
                      int *seen, int *of)
{
    size_t n_total;
    struct dt_dataset set;
    CHECK_OK(dt_dataset_count(spec, split, &n_total));
    const struct dt_shard shard = {
        .n_total = n_total, .global_batch = n_total, .rank = rank, .size = size};
    CHECK_OK(dt_dataset_open(spec, split, dt_shard_owned(&shard), &set));
    const struct dt_samples *s = &set.samples;
    const size_t n_item = dt_shape_elems(s->shape);
    CHECK_INT(s->n_total, n_total);
    CHECK_INT(s->n, dt_shard_owned(&shard).n);
    CHECK_INT(set.crc, 4711);
    for (size_t row = 0; row < s->n; row++) {
        const size_t k = s->first_id + row * s->id_stride, id = s->labels[row];
        CHECK(k < n_total && id < n_samples);
        CHECK_INT(s->pixels[row * n_item], id % 251);
        CHECK_INT(s->pixels[(row + 1) * n_item - 1], id / 251);
        CHECK(of[k] == -1 || of[k] == (int)id);
        of[k] = (int)id;
        seen[id]++;
    }
    dt_dataset_close(&set);
}

static void check_parts(double validation, size_t n_held, uint64_t seed, bool *held)
{
    const struct dt_data_spec spec = spec_of(validation, seed);
    int train[N], valid[N];
    size_t n;
    memset(train, -1, sizeof train);
    memset(valid, -1, sizeof valid);
    CHECK_OK(dt_dataset_count(&spec, DT_SPLIT_VALIDATION, &n));
    CHECK_INT(n, n_held);
    CHECK_OK(dt_dataset_count(&spec, DT_SPLIT_TRAIN, &n));
    CHECK_INT(n, n_samples - n_held);
    CHECK_OK(dt_dataset_count(&spec, DT_SPLIT_TEST, &n));
    CHECK_INT(n, 7);
    for (int size = 1; size <= 7; size += 2) { /* sample k is the same at any number of ranks */
        int seen[N] = {0};
        for (int rank = 0; rank < size; rank++) {
            note_rank(&spec, DT_SPLIT_TRAIN, rank, size, seen, train);
            note_rank(&spec, DT_SPLIT_VALIDATION, rank, size, seen, valid);
        }
        for (size_t id = 0; id < n_samples; id++) {
            CHECK_INT(seen[id], 1);
        }
    }
    for (size_t k = 1; k < n_samples; k++) { /* in the order of the whole */
        CHECK(train[k] == -1 || train[k] > train[k - 1]);
        CHECK(valid[k] == -1 || valid[k] > valid[k - 1]);
    }
    memset(held, 0, N * sizeof *held);
    for (size_t k = 0; k < n_held; k++) {
        held[valid[k]] = true;
    }
}

static void test_parts(void)
{
    bool held[N];
    n_samples = N;
    check_parts(0.1, 100, 1, held);
    check_parts(0.3337, 334, 1, held);
    check_parts(0.999, 999, 1, held);
    check_parts(1, 1, 1, held);
    check_parts(999, 999, 1, held);
    n_samples = 2;
    check_parts(0.5, 1, 1, held);
    n_samples = 13;
    check_parts(0.1, 1, 3, held);
}

/* Random: each tenth of the whole has about a tenth of them, other seeds other ones, and about a
 * tenth of those that one seed holds out another one does, too. */
static void test_seeds(void)
{
    bool first[N], held[N];
    n_samples = N;
    check_parts(0.2, 200, 1, first);
    for (uint64_t seed = 2; seed < 6; seed++) {
        int n_both = 0, tenths[10] = {0};
        check_parts(0.2, 200, seed, held);
        for (int id = 0; id < N; id++) {
            n_both += held[id] && first[id];
            tenths[id / 100] += held[id];
        }
        CHECK(n_both > 15 && n_both < 75); /* 40 expected, 5 is a standard deviation */
        for (int i = 0; i < 10; i++) {
            CHECK(tenths[i] > 4 && tenths[i] < 40); /* 20; 4 */
        }
    }
}

/* ---- memory */

/* Samples of 1 MiB: at most 32 of them are asked for at once, or half as many as the rank keeps. */
static void test_memory(void)
{
    struct dt_data_spec spec = spec_of(0.25, 5);
    int seen[N] = {0}, train[N], valid[N];
    memset(train, -1, sizeof train);
    memset(valid, -1, sizeof valid);
    spec.shape = (struct dt_shape){1, 1024, 1024};
    n_samples = 120;
    n_most = 0;
    for (int rank = 0; rank < 3; rank++) {
        note_rank(&spec, DT_SPLIT_TRAIN, rank, 3, seen, train);
    }
    CHECK_INT(n_most, 30);
    note_rank(&spec, DT_SPLIT_VALIDATION, 0, 1, seen, valid);
    CHECK_INT(n_most, 30);
    for (size_t id = 0; id < n_samples; id++) {
        CHECK_INT(seen[id], 1);
    }
    note_rank(&spec, DT_SPLIT_TRAIN, 0, 1, seen, train);
    CHECK_INT(n_most, 40);
}

/* ---- formats that are no pixels and labels */

static void test_line(void)
{
    struct dt_data_spec spec = {.row = &dt_validation_data,
                                .whole = &dt_linear_data,
                                .format = DT_DATA_LINEAR,
                                .validation = 40,
                                .n_train = 100,
                                .n_test = 5,
                                .slope = 2,
                                .intercept = 1,
                                .shape = {1, 1, 1},
                                .n_targets = 1};
    const struct dt_data_spec whole = dt_validation_none(&spec);
    struct dt_dataset all, train, valid;
    CHECK_OK(dt_dataset_open(&whole, DT_SPLIT_TRAIN, (struct dt_owned){100, 0, 1}, &all));
    CHECK_OK(dt_dataset_open(&spec, DT_SPLIT_TRAIN, (struct dt_owned){60, 0, 1}, &train));
    CHECK_OK(dt_dataset_open(&spec, DT_SPLIT_VALIDATION, (struct dt_owned){40, 0, 1}, &valid));
    CHECK_INT(train.samples.n_targets, 1);
    CHECK(train.samples.pixels == NULL && train.samples.labels == NULL);
    for (size_t id = 0, i = 0, k = 0; id < 100; id++) {
        const bool trains = i < 60 && train.samples.values[i] == all.samples.values[id];
        const struct dt_samples *s = trains ? &train.samples : &valid.samples;
        const size_t row = trains ? i++ : k++;
        CHECK(row < s->n && s->values[row] == all.samples.values[id] &&
              s->targets[row] == all.samples.targets[id]);
    }
    dt_dataset_close(&all);
    dt_dataset_close(&train);
    dt_dataset_close(&valid);
}

/* ---- what cannot be */

static void expect(double validation, enum dt_status status, const char *text)
{
    const struct dt_data_spec spec = spec_of(validation, 1);
    struct dt_dataset set;
    size_t n;
    CHECK_FAILS(dt_dataset_count(&spec, DT_SPLIT_TRAIN, &n), status, text);
    CHECK_INT(dt_dataset_open(&spec, DT_SPLIT_VALIDATION, (struct dt_owned){1, 0, 1}, &set),
              status);
    CHECK(set.items == NULL && set.answers == NULL);
    dt_error_clear();
}

static void test_refusals(void)
{
    struct dt_data_spec spec = spec_of(0.1, 1);
    struct dt_dataset set;
    n_samples = N;
    expect(0.0001, DT_CONFIG, "of 1000 training samples leaves none to validate with");
    expect(0.99999, DT_CONFIG, "leaves none to train with");
    expect(1000, DT_CONFIG, "leaves none to train with");
    expect(1e30, DT_CONFIG, "leaves none to train with");
    expect((double)INFINITY, DT_CONFIG, "leaves none to train with");
    expect((double)NAN, DT_CONFIG, "leaves none to validate with");
    expect(-1, DT_CONFIG, "leaves none to validate with");
    CHECK_FAILS(dt_dataset_open(&spec, DT_SPLIT_TRAIN, (struct dt_owned){901, 0, 1}, &set),
                DT_BAD_DATA, "changed during the run");
    n_most = 0; /* the files alone */
    CHECK_OK(
        dt_dataset_open(&spec, DT_SPLIT_VALIDATION, (struct dt_owned){0, UINT32_MAX, 1}, &set));
    CHECK_INT(n_most, 0);
    CHECK_INT(set.samples.n_total, 100);
    dt_dataset_close(&set);
}

int main(void)
{
    test_parts();
    test_seeds();
    test_memory();
    test_line();
    test_refusals();
    return 0;
}
