/* Any bytes as a checkpoint, once as they are and once with the CRCs of the tensors and of the
 * header mended, so that what lies behind them is reached, and as the weights of another program:
 * an error with a text, or finite weights for a small model; never a crash, a leak or a read out of
 * bounds. */
#include "checkpoint/checkpoint.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lib/layers.h"

#include <math.h>

/* Conv 3x3 and dense 2 over 4x4 pixels: the model of the seeds. */
static const struct dt_model *small_model(void)
{
    static struct dt_model model;
    const struct dt_model_spec spec = {
        .input = {1, 4, 4},
        .n_layers = 3,
        .layers = {CONV(1, 3, 1, VALID, NONE), LAYER(FLATTEN), DENSE(2, NONE)}};
    if (model.n_blocks == 0) {
        require(dt_model_lower(&spec, &model) == DT_OK);
    }
    return &model;
}

/* Writes the right digits wherever the header has a place for a tensor's CRC. */
static void mend_tensor_crcs(const uint8_t *bytes, size_t n_bytes, char *header, size_t n_header)
{
    static struct dt_safetensors file;
    if (dt_safetensors_parse("fuzz", header, n_header, bytes + n_bytes, &file) != DT_OK) {
        return;
    }
    for (int i = 0; i < file.n_tensors; i++) {
        char key[DT_CRC_KEY_SIZE], field[DT_CRC_KEY_SIZE + 8], digits[DT_CRC_DIGITS + 1];
        dt_crc_key(&file.tensors[i], key);
        dt_crc_print(dt_crc(file.tensors[i].bytes, file.tensors[i].n_bytes), digits);
        const size_t n_field = (size_t)snprintf(field, sizeof field, "\"%s\":\"", key);
        char *place = memmem(header, n_header, field, n_field);
        if (place != NULL && (size_t)(header + n_header - place) >= n_field + DT_CRC_DIGITS) {
            memcpy(place + n_field, digits, DT_CRC_DIGITS);
        }
    }
    dt_safetensors_close(&file);
}

static void mend_crcs(uint8_t *bytes, size_t n_bytes)
{
    const char *found;
    size_t n_header;
    if (dt_safetensors_find_header("fuzz", bytes, n_bytes, &found, &n_header) != DT_OK) {
        return;
    }
    char *header = (char *)bytes + (found - (const char *)bytes);
    mend_tensor_crcs(bytes, n_bytes, header, n_header);
    const char *place = dt_header_crc_find(header, n_header);
    if (place != NULL) {
        char digits[DT_CRC_DIGITS + 1];
        dt_crc_print(
            dt_header_crc((const char *)bytes, (size_t)(header + n_header - (char *)bytes), place),
            digits);
        memcpy(header + (place - header), digits, DT_CRC_DIGITS);
    }
}

static void require_error(enum dt_status status, enum dt_status expected)
{
    require(status == expected || status == DT_NO_MEMORY);
    require(strncmp(dt_error_text(), "fuzz: ", 6) == 0);
}

/* n_states: of an optimizer, each into an arena of its own. */
static void get(const struct dt_checkpoint_file *file, int n_states)
{
    const struct dt_model *model = small_model();
    float *arenas[3];
    for (int a = 0; a < 3; a++) {
        arenas[a] = calloc(model->arena_elems,
                           sizeof(float)); /* exact, so that a write past the end is found */
        require(arenas[a] != NULL);
    }
    dt_error_clear();
    const enum dt_status status = dt_checkpoint_get(file, model, arenas[0], n_states, &arenas[1]);
    if (status != DT_OK) {
        require_error(status, DT_CONFIG);
    }
    for (int a = 0; a < 3; a++) {
        for (size_t i = 0; i < model->arena_elems; i++) {
            require(isfinite(arenas[a][i]));
        }
        free(arenas[a]);
    }
}

typedef enum dt_status (*parse_fn)(const char *name, const uint8_t *bytes, size_t n_bytes,
                                   struct dt_checkpoint_file *out);

static void parse(parse_fn function, const uint8_t *bytes, size_t n_bytes)
{
    struct dt_checkpoint_file file;
    dt_error_clear();
    const enum dt_status status = function("fuzz", bytes, n_bytes, &file);
    if (status != DT_OK) {
        require_error(status, DT_BAD_DATA);
        require(file.content == NULL && file.config == NULL);
        return;
    }
    get(&file, 0);
    if (function == dt_checkpoint_parse) {
        require(isfinite(file.state.loss_sum) && isfinite(file.state.n_correct) &&
                isfinite(file.state.n_samples));
        require(strlen(file.config) < n_bytes);
        require(file.class_names == NULL || strlen(file.class_names) <= DT_CLASS_NAMES_MOST);
        get(&file, 2);
    }
    dt_checkpoint_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *mended = copy_of(bytes, n_bytes);
    mend_crcs(mended, n_bytes);
    parse(dt_checkpoint_parse, bytes, n_bytes);
    parse(dt_checkpoint_parse, mended, n_bytes);
    parse(dt_weights_parse, bytes, n_bytes);
    parse(dt_weights_parse, mended, n_bytes);
    free(mended);
    return 0;
}
