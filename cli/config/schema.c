#include "cli/config/schema.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FIELD_ROW(type, path, kind, field, values, default_text, when, meaning) \
    {path,                                                                      \
     DT_KEY_##kind,                                                             \
     offsetof(type, field),                                                     \
     sizeof(((type *)NULL)->field),                                             \
     values,                                                                    \
     default_text,                                                              \
     when,                                                                      \
     meaning},
#define CONFIG_ROW(...) FIELD_ROW(struct dt_config, __VA_ARGS__)
#define LAYER_ROW(...) FIELD_ROW(struct dt_layer_spec, __VA_ARGS__)

static const struct dt_key config_keys[] = {DT_CONFIG_KEYS(CONFIG_ROW)};
#define LAYER_KEYS(constant, name, symbol)                                      \
    static const struct dt_key constant##_keys[] = {DT_KEYS_##symbol(LAYER_ROW) \
                                                        DT_PLACE_KEYS(LAYER_ROW)};
DT_LAYER_LIST(LAYER_KEYS)

#define KEY_LIST(array)                                  \
    {                                                    \
        array, (int)(sizeof(array) / sizeof((array)[0])) \
    }
#define LAYER_LIST_ROW(constant, ...) [constant] = KEY_LIST(constant##_keys),

struct dt_key_list dt_config_keys(void)
{
    return (struct dt_key_list)KEY_LIST(config_keys);
}

struct dt_key_list dt_layer_keys(enum dt_layer_type type)
{
    static const struct dt_key_list lists[] = {DT_LAYER_LIST(LAYER_LIST_ROW)};
    return lists[type];
}

const char *dt_key_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot == NULL ? path : dot + 1;
}

/* Words of other trainers. */
static const struct {
    const char *word, *key;
} other_words[] = {{"seed", "train.seed"},
                   {"batch_size", "train.batch.per_rank"},
                   {"batch", "train.batch.per_rank"},
                   {"learning_rate", "train.optimizer.lr"},
                   {"optimizer", "train.optimizer.type"},
                   {"scheduler", "train.schedule.type"},
                   {"schedule", "train.schedule.type"},
                   {"early_stopping", "train.early_stopping.metric"},
                   {"comm", "distributed.allreduce"},
                   {"wd", "train.optimizer.weight_decay"},
                   {"steps", "train.max_steps"},
                   {"loss", "model.loss"},
                   {"grad_clip", "train.optimizer.clip_norm"},
                   {"gradient_accumulation_steps", "train.accumulate"}};

const char *dt_config_key_of(const char *word)
{
    char name[DT_NAME_SIZE];
    const struct dt_key_list list = dt_config_keys();
    snprintf(name, sizeof name, "%s", word);
    for (char *c = strchr(name, '-'); c != NULL; c = strchr(c, '-')) {
        *c = '_';
    }
    for (size_t i = 0; i < sizeof other_words / sizeof other_words[0]; i++) {
        if (strcasecmp(other_words[i].word, name) == 0) {
            return other_words[i].key;
        }
    }
    for (int i = 0; i < list.n; i++) {
        const char *path = list.keys[i].path;
        if (strcmp(dt_key_name(path), name) == 0 || strcmp(path, name) == 0) {
            return path;
        }
    }
    return NULL;
}

bool dt_key_is_about(const struct dt_key *key, const char *about)
{
    const size_t n = strlen(about);
    const char *meant = dt_config_key_of(about);
    return (strncmp(key->path, about, n) == 0 && strchr(".", key->path[n]) != NULL) ||
           strcmp(dt_key_name(key->path), about) == 0 ||
           (meant != NULL && strcmp(key->path, meant) == 0);
}

bool dt_config_names(const char *about)
{
    static const char layers[] = DT_LAYER_LIST(DT_BAR_NAME);
    const struct dt_key_list list = dt_config_keys();
    bool found = strcmp(about, "config") == 0 || dt_names_find(layers, about) >= 0;
    for (int i = 0; i < list.n; i++) {
        found = found || dt_key_is_about(&list.keys[i], about);
    }
    return found;
}

bool dt_names_get(const char *names, int i, char out[DT_NAME_SIZE])
{
    for (; *names == '|'; i--) {
        names++;
        const size_t n = strcspn(names, "|");
        if (i == 0) {
            snprintf(out, DT_NAME_SIZE, "%.*s", (int)n, names);
            return true;
        }
        names += n;
    }
    return false;
}

int dt_names_find(const char *names, const char *name)
{
    char candidate[DT_NAME_SIZE];
    for (int i = 0; dt_names_get(names, i, candidate); i++) {
        if (strcmp(candidate, name) == 0) {
            return i;
        }
    }
    return -1;
}

struct dt_range dt_range_parse(const char *text)
{
    char *end;
    const double low = strtod(text + 1, &end);
    const double high = strtod(end + 1, &end);
    return (struct dt_range){low, high, text[0] == '(', *end == ')'};
}

bool dt_range_holds(const struct dt_range *range, double x)
{
    const bool above = range->low_open ? x > range->low : x >= range->low;
    return above && (range->high_open ? x < range->high : x <= range->high);
}

/* Begins with `lead`. */
static size_t expected_names(const char *lead, const char *names, char out[DT_EXPECTED_SIZE])
{
    char name[DT_NAME_SIZE];
    size_t used = (size_t)snprintf(out, DT_EXPECTED_SIZE, "%s", lead);
    for (int i = 0; dt_names_get(names, i, name) && used < DT_EXPECTED_SIZE; i++) {
        used +=
            (size_t)snprintf(out + used, DT_EXPECTED_SIZE - used, "%s%s", i == 0 ? "" : ", ", name);
    }
    return used;
}

static void expected_items(const struct dt_key *key, const struct dt_range *range,
                           char out[DT_EXPECTED_SIZE])
{
    if (key->kind == DT_KEY_NORMALIZE) {
        snprintf(out, DT_EXPECTED_SIZE,
                 "\"dataset\" or {\"mean\": [...], \"std\": [...]}, a number%s per channel",
                 range->high == 1 ? " 0..1" : "");
    } else if (key->kind == DT_KEY_AUGMENT) {
        snprintf(out, DT_EXPECTED_SIZE,
                 "a list of up to %d of {\"shift\": n}, {\"flip\": \"horizontal\"}, {\"crop\": "
                 "{\"padding\": n}}, {\"rotate\": n}, {\"cutout\": n}, with n %.0f..%.0f",
                 DT_MOST_AUGMENTS, range->low, range->high);
    } else {
        snprintf(out, DT_EXPECTED_SIZE, "\"balanced\" or a list of 2..%d numbers %g..%g",
                 DT_MOST_WEIGHTS, range->low, range->high);
    }
}

void dt_key_expected(const struct dt_key *key, char out[DT_EXPECTED_SIZE])
{
    const struct dt_range range = dt_range_parse(key->values[0] == '\0' ? "[0, 0]" : key->values);
    size_t used;
    switch (key->kind) {
    case DT_KEY_BOOL:
        snprintf(out, DT_EXPECTED_SIZE, "true or false");
        break;
    case DT_KEY_INT:
        snprintf(out, DT_EXPECTED_SIZE, "an integer %.0f..%.0f", range.low, range.high);
        break;
    case DT_KEY_REAL:
        snprintf(out, DT_EXPECTED_SIZE, "a number %s %.10g and %s %.10g",
                 range.low_open ? ">" : ">=", range.low, range.high_open ? "<" : "<=", range.high);
        break;
    case DT_KEY_TEXT:
        if (key->values[0] != '\0') {
            snprintf(out, DT_EXPECTED_SIZE, "%s", key->values);
        } else {
            snprintf(out, DT_EXPECTED_SIZE, "a text of 1..%zu bytes", key->n_bytes - 1);
        }
        break;
    case DT_KEY_ENUM:
        expected_names("one of ", key->values, out);
        break;
    case DT_KEY_SHAPE:
        snprintf(out, DT_EXPECTED_SIZE,
                 "[channels, height, width] or [features], each an integer %.0f..%.0f", range.low,
                 range.high);
        break;
    case DT_KEY_LAYERS:
        snprintf(out, DT_EXPECTED_SIZE, "a list of %.0f..%.0f layers", range.low, range.high);
        break;
    case DT_KEY_INPUTS:
    case DT_KEY_NAMES:
        snprintf(out, DT_EXPECTED_SIZE, "a list of %.0f..%.0f names", range.low, range.high);
        break;
    case DT_KEY_EPOCHS:
        snprintf(out, DT_EXPECTED_SIZE, "a list of %.0f..%.0f epochs in ascending order", range.low,
                 range.high);
        break;
    case DT_KEY_AUTO:
        used = expected_names("", dt_key_words(key), out);
        snprintf(out + used, DT_EXPECTED_SIZE - used, " or an integer %.0f..%.0f", range.low,
                 range.high);
        break;
    case DT_KEY_NORMALIZE:
    case DT_KEY_AUGMENT:
    case DT_KEY_WEIGHTS:
        expected_items(key, &range, out);
        break;
    }
}

void dt_key_values(const struct dt_key *key, char out[DT_EXPECTED_SIZE])
{
    char expected[DT_EXPECTED_SIZE];
    const char *start = expected;
    dt_key_expected(key, expected);
    for (const char *const *lead = (const char *const[]){"an ", "a number ", "one of ", "a ", NULL};
         *lead != NULL; lead++) {
        if (strncmp(start, *lead, strlen(*lead)) == 0) {
            start += strlen(*lead);
            break;
        }
    }
    snprintf(out, DT_EXPECTED_SIZE, "%s", start);
}

int dt_key_most(const struct dt_key *key)
{
    return key->kind == DT_KEY_AUGMENT             ? DT_MOST_AUGMENTS
           : key->kind == DT_KEY_WEIGHTS           ? DT_MOST_WEIGHTS
           : dt_range_parse(key->values).high == 1 ? DT_MOST_CHANNELS
                                                   : DT_MOST_SCALED;
}

void dt_number_text(double x, char out[DT_NUMBER_SIZE])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, DT_NUMBER_SIZE, "%.*g", digits, x);
        if (strtod(out, NULL) == x) {
            return;
        }
    }
}

/* Integer fields are int, an enum, or a 64-bit type; the schema keeps them all within 0 .. 2^53. */
int64_t dt_key_int(const struct dt_key *key, const void *base)
{
    const void *field = dt_key_field(key, base);
    return key->n_bytes == sizeof(int32_t) ? *(const int32_t *)field : *(const int64_t *)field;
}

void dt_key_store_int(const struct dt_key *key, void *base, int64_t value)
{
    void *field = (unsigned char *)base + key->offset;
    if (key->n_bytes == sizeof(int32_t)) {
        *(int32_t *)field = (int32_t)value;
    } else {
        *(int64_t *)field = value;
    }
}

bool dt_key_applies(const struct dt_key *key, const struct dt_config *config)
{
    const size_t n_path = strcspn(key->when, "!=");
    const bool other = key->when[n_path] == '!';
    for (size_t i = 0; n_path > 0 && i < sizeof config_keys / sizeof config_keys[0]; i++) {
        const struct dt_key *governor = &config_keys[i];
        if (strncmp(governor->path, key->when, n_path) == 0 && governor->path[n_path] == '\0') {
            char names[128], current[DT_NAME_SIZE];
            if (governor->kind == DT_KEY_BOOL) {
                return *(const bool *)dt_key_field(governor, config); /* "=true" */
            }
            snprintf(names, sizeof names, "|%s", key->when + n_path + 1 + other);
            return dt_names_get(governor->values, (int)dt_key_int(governor, config), current) &&
                   (dt_names_find(names, current) >= 0) != other;
        }
    }
    return true;
}
