#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

size_t dt_dataset_limit(const struct dt_data_spec *spec, enum dt_split split)
{
    DT_ASSERT(split != DT_SPLIT_VALIDATION);
    return split == DT_SPLIT_TRAIN ? spec->n_train : spec->n_test;
}

enum dt_status dt_dataset_check_labelled(const struct dt_data_spec *spec)
{
    if (spec->n_classes < 2) {
        return dt_error(DT_CONFIG,
                        "data.format: labelled images need a model with 2 or more classes (a unit "
                        "of the last layer for each, with the loss softmax_cross_entropy)");
    }
    for (int i = 0; i < spec->classes.n; i++) {
        if (strchr(dt_texts_at(&spec->classes, i), '/') != NULL) {
            return dt_error(DT_CONFIG, "data.classes[%d]: \"%s\" has a / in it (leave it out)", i,
                            dt_texts_at(&spec->classes, i));
        }
    }
    return spec->classes.n == 0 || spec->classes.n == spec->n_classes
               ? DT_OK
               : dt_error(DT_CONFIG, "data.classes: %d names for %d classes (name each class)",
                          spec->classes.n, spec->n_classes);
}

enum dt_status dt_dataset_count(const struct dt_data_spec *spec, enum dt_split split,
                                size_t *n_total)
{
    DT_ASSERT(spec->validation == 0 || spec->whole != NULL);
    DT_TRY(spec->row->check(spec));
    return spec->row->count(spec, split, n_total);
}

char *dt_class_names_join(const struct dt_texts *classes)
{
    const size_t n = (size_t)(dt_texts_at(classes, classes->n) - classes->bytes);
    char *names = malloc(n);
    for (size_t i = 0; names != NULL && i < n; i++) {
        names[i] = (char)(classes->bytes[i] == '\0' && i < n - 1 ? '/' : classes->bytes[i]);
    }
    return names;
}

/* Pixels and labels, but for the formats that say otherwise. */
static void describe(const struct dt_data_spec *spec, struct dt_owned owned,
                     struct dt_dataset *dataset)
{
    struct dt_samples *samples = &dataset->samples;
    samples->n = owned.n;
    samples->shape = spec->shape;
    samples->first_id = owned.first;
    samples->id_stride = owned.stride;
    if (samples->values == NULL) {
        samples->pixels = dataset->items;
        samples->scale = 1.0f / 255.0f;
        samples->transform = dataset->transform;
    }
    if (samples->targets == NULL) {
        samples->labels = dataset->answers;
        samples->n_classes = spec->n_classes;
    }
}

enum dt_status dt_dataset_open(const struct dt_data_spec *spec, enum dt_split split,
                               struct dt_owned owned, struct dt_dataset *out)
{
    DT_ASSERT(owned.n == 0 || owned.stride >= 1);
    *out = (struct dt_dataset){0};
    DT_TRY(spec->row->check(spec));
    enum dt_status status = spec->row->load(spec, split, owned, out);
    if (status == DT_OK && spec->classes.n > 0) {
        free(out->class_names);
        out->class_names = dt_class_names_join(&spec->classes);
        status = out->class_names != NULL
                     ? DT_OK
                     : dt_error(DT_NO_MEMORY, "no memory for the names of the classes");
    }
    if (status == DT_OK && spec->transform != NULL) {
        status = spec->transform(spec, split, &out->transform);
    }
    describe(spec, owned, out);
    if (status != DT_OK) {
        dt_dataset_close(out);
    }
    DT_ASSERT(status != DT_OK || owned.n == 0 ||
              owned.first + (owned.n - 1) * owned.stride < out->samples.n_total);
    return status;
}

void dt_dataset_close(struct dt_dataset *dataset)
{
    free(dataset->items);
    free(dataset->answers);
    free(dataset->class_names);
    free(dataset->found);
    free(dataset->transform);
    *dataset = (struct dt_dataset){0};
}

enum dt_status dt_label_check(const struct dt_data_spec *spec, const char *path, size_t i,
                              int64_t label)
{
    DT_ASSERT(spec->n_classes >= 2);
    const int n = spec->n_classes;
    const char *mend =
        " (if no label is 0, save labels - 1; else let the last layer have more units)";
    return label >= 0 && label < n
               ? DT_OK
               : dt_error(DT_BAD_DATA,
                          "%s: label %lld at index %zu, model has %d classes (0..%d)%s", path,
                          (long long)label, i, n, n - 1, label == n ? mend : "");
}
