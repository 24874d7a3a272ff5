/* The keys data.normalize and data.augment: read, and written. */
#include <math.h>
#include <string.h>

#include "cli/config/read.h"
#include "data/transform.h"

static const char *const augment_names[] = {DT_AUGMENT_LIST(DT_ENUM_NAME)};
#define ONE(...) +1
enum { N_AUGMENT_KINDS = 0 DT_AUGMENT_LIST(ONE) };

static enum dt_status unexpected(const struct dt_config_object *o, const struct dt_key *key,
                                 const char *below, const char *expected, const cJSON *item)
{
    char path[DT_CONFIG_PATH_SIZE];
    snprintf(path, sizeof path, "%s%s", key->path, below);
    return item != NULL
               ? dt_config_unexpected(&o->source, path, expected, item, "")
               : dt_config_error(&o->source, path, "the key is missing (give it %s)", expected);
}

/* A number for each channel. */
static enum dt_status read_numbers(const struct dt_config_object *o, const struct dt_key *key,
                                   const cJSON *object, const char *name, double least, int *n,
                                   double *out)
{
    char below[48], expected[96];
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, name);
    const int n_there = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    snprintf(below, sizeof below, ".%s", name);
    if (n_there < 1 || n_there > DT_MOST_CHANNELS || (*n > 0 && n_there != *n)) {
        snprintf(expected, sizeof expected, "a list of %d%s numbers, one for each channel",
                 *n > 0 ? *n : 1, *n > 0 ? "" : "..16");
        return unexpected(o, key, below, expected, list);
    }
    snprintf(expected, sizeof expected, "a number %g..1, where 1 is the brightest pixel", least);
    for (int i = 0; i < n_there; i++) {
        const cJSON *item = cJSON_GetArrayItem(list, i);
        snprintf(below, sizeof below, ".%s[%d]", name, i);
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= least && item->valuedouble <= 1)) {
            return unexpected(o, key, below, expected, item);
        }
        out[i] = item->valuedouble;
    }
    *n = n_there;
    return DT_OK;
}

enum dt_status dt_config_read_normalize(const struct dt_config_object *o, const struct dt_key *key,
                                        const cJSON *item, struct dt_normalize *out)
{
    char expected[DT_EXPECTED_SIZE];
    *out = (struct dt_normalize){.of_dataset = cJSON_IsString(item) &&
                                               strcmp(item->valuestring, "dataset") == 0};
    if (out->of_dataset) {
        return DT_OK;
    }
    dt_key_expected(key, expected);
    if (!cJSON_IsObject(item)) {
        return unexpected(o, key, "", expected, item);
    }
    for (const cJSON *member = item->child; member != NULL; member = member->next) {
        if ((strcmp(member->string, "mean") != 0 && strcmp(member->string, "std") != 0) ||
            cJSON_GetObjectItemCaseSensitive(item, member->string) != member) {
            return dt_config_error(&o->source, key->path,
                                   "has the keys mean and std, each once, not %.24s (remove it)",
                                   member->string);
        }
    }
    DT_TRY(read_numbers(o, key, item, "mean", 0, &out->n, out->mean));
    return read_numbers(o, key, item, "std", 1e-6, &out->n, out->std);
}

static bool is_size(const struct dt_range *range, const cJSON *item)
{
    return cJSON_IsNumber(item) && dt_range_holds(range, item->valuedouble) &&
           floor(item->valuedouble) == item->valuedouble;
}

/* {"shift": 2}, {"flip": "horizontal"} or {"crop": {"padding": 4}} */
static enum dt_status read_augment(const struct dt_config_object *o, const struct dt_key *key,
                                   int i, const cJSON *item, struct dt_augment *out)
{
    char below[48], expected[DT_EXPECTED_SIZE];
    const cJSON *value = cJSON_IsObject(item) ? item->child : NULL;
    int kind = 0;
    while (value != NULL && kind < N_AUGMENT_KINDS &&
           strcmp(value->string, augment_names[kind]) != 0) {
        kind++;
    }
    snprintf(below, sizeof below, "[%d]", i);
    if (value == NULL || value->next != NULL || kind == N_AUGMENT_KINDS) {
        return unexpected(o, key, below,
                          "{\"shift\": 2}, {\"flip\": \"horizontal\"} or {\"crop\": {\"padding\": "
                          "4}}, one change each",
                          item);
    }
    snprintf(below, sizeof below, "[%d].%s", i, augment_names[kind]);
    out->kind[i] = kind;
    if (kind == DT_AUGMENT_FLIP) {
        return cJSON_IsString(value) && strcmp(value->valuestring, "horizontal") == 0
                   ? DT_OK
                   : unexpected(o, key, below, "\"horizontal\"", value);
    }
    const cJSON *size = value;
    const struct dt_range range = dt_range_parse(key->values);
    if (kind == DT_AUGMENT_CROP) {
        size = cJSON_IsObject(value) && value->child != NULL && value->child->next == NULL
                   ? cJSON_GetObjectItemCaseSensitive(value, "padding")
                   : NULL;
    }
    if (size == NULL || !is_size(&range, size)) {
        snprintf(expected, sizeof expected,
                 kind == DT_AUGMENT_CROP ? "{\"padding\": an integer %.0f..%.0f}"
                                         : "an integer %.0f..%.0f",
                 range.low, range.high);
        return unexpected(o, key, below, expected, value);
    }
    out->size[i] = (int)size->valuedouble;
    return DT_OK;
}

enum dt_status dt_config_read_augment(const struct dt_config_object *o, const struct dt_key *key,
                                      const cJSON *item, struct dt_augment *out)
{
    char expected[DT_EXPECTED_SIZE];
    const int n = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : -1;
    *out = (struct dt_augment){.n = 0};
    if (n < 0 || n > DT_MOST_AUGMENTS) {
        dt_key_expected(key, expected);
        return unexpected(o, key, "", expected, item);
    }
    for (int i = 0; i < n; i++) {
        DT_TRY(read_augment(o, key, i, cJSON_GetArrayItem(item, i), out));
    }
    out->n = n;
    return DT_OK;
}

/* ---- written */

static void print_numbers(FILE *out, int n, const double *numbers)
{
    char text[DT_NUMBER_SIZE];
    for (int i = 0; i < n; i++) {
        dt_number_text(numbers[i], text);
        fprintf(out, "%s%s", i > 0 ? ", " : "[", text);
    }
    fputc(']', out);
}

void dt_config_print_normalize(FILE *out, const struct dt_normalize *normalize)
{
    if (normalize->of_dataset) {
        fputs("\"dataset\"", out);
        return;
    }
    fputs("{ \"mean\": ", out);
    print_numbers(out, normalize->n, normalize->mean);
    fputs(", \"std\": ", out);
    print_numbers(out, normalize->n, normalize->std);
    fputs(" }", out);
}

void dt_config_print_augment(FILE *out, const struct dt_augment *augment)
{
    fputc('[', out);
    for (int i = 0; i < augment->n; i++) {
        const int kind = augment->kind[i];
        fprintf(out, "%s{ \"%s\": ", i > 0 ? ", " : "", augment_names[kind]);
        if (kind == DT_AUGMENT_FLIP) {
            fputs("\"horizontal\" }", out);
        } else {
            fprintf(out, kind == DT_AUGMENT_CROP ? "{ \"padding\": %d } }" : "%d }",
                    augment->size[i]);
        }
    }
    fputc(']', out);
}
