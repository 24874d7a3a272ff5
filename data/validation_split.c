#include "data/validation_split.h"

#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/memory.h"
#include "data/formats/labelled.h"

#define STREAM 0xFFFFFFu              /* of the permutation: no rank has that number */
#define PART_BYTES ((size_t)32 << 20) /* of the whole, that are read at once */

enum dt_status dt_validation_count(double validation, size_t n_total, size_t *out)
{
    const double n = validation < 1 ? validation * (double)n_total + 0.5 : validation;
    if (!(n >= 1 && n < (double)n_total)) {
        return dt_error(DT_CONFIG,
                        "data.validation: %g of %zu training samples leaves none to %s (a share "
                        "such as 0.1, or a number below %zu)",
                        validation, n_total, n >= 1 ? "train with" : "validate with", n_total);
    }
    *out = (size_t)n;
    DT_ASSERT(*out >= 1 && *out < n_total);
    return DT_OK;
}

struct dt_data_spec dt_validation_none(const struct dt_data_spec *spec)
{
    struct dt_data_spec out = *spec;
    out.row = spec->row == &dt_validation_data ? spec->whole : spec->row;
    DT_ASSERT(out.row != NULL && out.row != &dt_validation_data);
    out.validation = 0;
    return out;
}

/* The samples of the whole, and which of them are held out: a bit each. */
struct split {
    struct dt_data_spec whole; /* as its format is to see it */
    size_t n_total, n_held;
    uint8_t *held;
};

/* Those that a permutation takes to the end. */
static enum dt_status open_split(const struct dt_data_spec *spec, struct split *out)
{
    *out = (struct split){.whole = dt_validation_none(spec)};
    DT_TRY(out->whole.row->count(&out->whole, DT_SPLIT_TRAIN, &out->n_total));
    DT_TRY(dt_validation_count(spec->validation, out->n_total, &out->n_held));
    out->held = calloc(out->n_total / 8 + 1, 1);
    if (out->held == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory to hold out %zu validation samples", out->n_held);
    }
    out->whole.held = out->held;
    const struct dt_permutation order =
        dt_permutation_make(spec->split_seed, STREAM, 0, (uint32_t)out->n_total);
    for (size_t i = out->n_total - out->n_held; i < out->n_total; i++) {
        const uint32_t id = dt_permutation_at(&order, (uint32_t)i);
        DT_ASSERT(id < out->n_total && (out->held[id / 8] >> id % 8 & 1) == 0);
        out->held[id / 8] |= (uint8_t)(1u << id % 8);
    }
    return DT_OK;
}

/* Every `n_parts`-th sample of the whole, from `first` on. */
struct part {
    size_t first, n_parts;
    struct dt_dataset data;
};

static size_t item_bytes(const struct dt_data_spec *spec, const struct dt_samples *samples)
{
    return dt_shape_elems(spec->shape) * (samples->values != NULL ? sizeof(float) : 1);
}

static size_t answer_bytes(const struct dt_samples *samples)
{
    return samples->targets != NULL ? (size_t)samples->n_targets * sizeof(float) : sizeof(uint16_t);
}

/* Room for the rows, of the kind that the part has. */
static enum dt_status open_rows(const struct dt_data_spec *spec, const struct dt_dataset *part,
                                size_t n, struct dt_dataset *out)
{
    out->samples = part->samples;
    out->crc = part->crc;
    out->items = dt_memory_alloc(n * item_bytes(spec, &part->samples) + 1);
    out->answers = malloc(n * answer_bytes(&part->samples) + 1);
    if (out->items == NULL || out->answers == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for %zu samples (use more ranks)", n);
    }
    out->samples.values = part->samples.values != NULL ? out->items : NULL;
    out->samples.targets = part->samples.targets != NULL ? out->answers : NULL;
    return DT_OK;
}

/* Those of the rows `owned` of the training or validation samples that the part has. */
static void copy_rows(const struct split *split, bool held, struct dt_owned owned,
                      const struct part *part, struct dt_dataset *out)
{
    DT_ASSERT(part->first < part->n_parts);
    const size_t n_item = item_bytes(&split->whole, &out->samples),
                 n_answer = answer_bytes(&out->samples);
    size_t number = 0, row = 0;
    for (size_t id = 0; id < split->n_total && row < owned.n; id++) {
        if ((split->held[id / 8] >> id % 8 & 1) != held ||
            number++ != owned.first + row * owned.stride) {
            continue;
        }
        if (id % part->n_parts == part->first) {
            const size_t from = id / part->n_parts;
            DT_ASSERT(from < part->data.samples.n || part->data.samples.n == 0);
            memcpy((char *)out->items + row * n_item, (char *)part->data.items + from * n_item,
                   n_item);
            memcpy((char *)out->answers + row * n_answer,
                   (char *)part->data.answers + from * n_answer, n_answer);
        }
        row++;
    }
}

static enum dt_status take_part(const struct split *split, bool held, struct dt_owned owned,
                                struct part *part, struct dt_dataset *out)
{
    const struct dt_owned rows = {.n = (split->n_total - part->first + part->n_parts - 1) /
                                       part->n_parts,
                                  .first = (uint32_t)part->first,
                                  .stride = (uint32_t)part->n_parts};
    DT_TRY(split->whole.row->load(&split->whole, DT_SPLIT_TRAIN, rows, &part->data));
    DT_TRY(out->items == NULL ? open_rows(&split->whole, &part->data, owned.n, out) : DT_OK);
    DT_ASSERT(part->data.samples.n_total == split->n_total);
    out->n_flawed += part->data.n_flawed;
    out->n_passed = part->data.n_passed;
    memcpy(out->left_out, part->data.left_out, sizeof out->left_out);
    free(out->class_names);
    out->class_names = part->data.class_names;
    part->data.class_names = NULL;
    free(out->found);
    out->found = part->data.found;
    part->data.found = NULL;
    copy_rows(split, held, owned, part, out);
    return DT_OK;
}

/* A large share is read in fewer parts: they are as large as half of it. */
static size_t count_parts(const struct split *split, size_t n)
{
    const size_t n_item = dt_shape_elems(split->whole.shape),
                 n_rows = dt_max_size(dt_max_size(PART_BYTES / n_item, n / 2), 1);
    DT_ASSERT(n_rows >= 1);
    return (split->n_total + n_rows - 1) / n_rows;
}

static enum dt_status load_rows(const struct split *split, bool held, struct dt_owned owned,
                                struct dt_dataset *out)
{
    const size_t n_parts = count_parts(split, owned.n);
    enum dt_status s = DT_OK;
    for (size_t first = 0; first < n_parts && s == DT_OK; first++) {
        struct part part = {.first = first, .n_parts = n_parts};
        s = take_part(split, held, owned, &part, out);
        dt_dataset_close(&part.data);
    }
    return s;
}

/* Without rows it checks the files alone, as formats do. */
static enum dt_status load_split(const struct split *split, bool held, struct dt_owned owned,
                                 struct dt_dataset *out)
{
    DT_ASSERT(split->n_held >= 1 && split->n_held < split->n_total);
    const size_t n = held ? split->n_held : split->n_total - split->n_held;
    const struct dt_owned none = {.first = (uint32_t)split->n_total, .stride = 1};
    if (owned.n > 0 && owned.first + (owned.n - 1) * owned.stride >= n) {
        return dt_error(DT_BAD_DATA, "the training samples changed during the run");
    }
    DT_TRY(owned.n > 0 ? load_rows(split, held, owned, out)
                       : split->whole.row->load(&split->whole, DT_SPLIT_TRAIN, none, out));
    out->samples.n_total = n;
    struct dt_data_spec settled = split->whole;
    settled.held = NULL;
    return dt_labelled_settle(&settled, DT_SPLIT_TRAIN, owned.n, out);
}

/* ---- the row */

static enum dt_status check(const struct dt_data_spec *spec)
{
    const struct dt_data_spec whole = dt_validation_none(spec);
    return whole.row->check(&whole);
}

static enum dt_status count(const struct dt_data_spec *spec, enum dt_split split, size_t *n_total)
{
    const struct dt_data_spec whole = dt_validation_none(spec);
    size_t n_held;
    if (split == DT_SPLIT_TEST) {
        return whole.row->count(&whole, split, n_total);
    }
    DT_TRY(whole.row->count(&whole, DT_SPLIT_TRAIN, n_total));
    DT_TRY(dt_validation_count(spec->validation, *n_total, &n_held));
    *n_total = split == DT_SPLIT_VALIDATION ? n_held : *n_total - n_held;
    return DT_OK;
}

static enum dt_status load(const struct dt_data_spec *spec, enum dt_split which,
                           struct dt_owned owned, struct dt_dataset *out)
{
    const struct dt_data_spec whole = dt_validation_none(spec);
    struct split split;
    if (which == DT_SPLIT_TEST) {
        return whole.row->load(&whole, which, owned, out);
    }
    enum dt_status s = open_split(spec, &split);
    split.whole.counts_held = which == DT_SPLIT_VALIDATION;
    s = s == DT_OK ? load_split(&split, which == DT_SPLIT_VALIDATION, owned, out) : s;
    free(split.held);
    return s;
}

const struct dt_data_reader dt_validation_data = {.check = check, .count = count, .load = load};
