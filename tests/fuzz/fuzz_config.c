/* The configuration's reader under libFuzzer: any bytes give DT_OK or DT_CONFIG, and what is
 * accepted survives being printed. A last line that begins with "--set " is a change, and a line
 * "--extends" parts the text of a file from that of the next, which it extends. */

#include "cli/config/read.h"
#include "dist/strategy/strategy.h"
#include "model/layers/layers.h"
#include "tests/fuzz/fuzz.h"

/* The rows that the reader asks: nothing that opens. */
static const struct dt_algorithm algorithms[] = {DT_ALGORITHM_LIST(DT_ALGORITHM_ROW)};
static const struct dt_strategy_entry *const strategies[] = {NULL};
const struct dt_dist_entries dt_all_entries = {
    .strategies = strategies,
    .allreduce = {.algorithms = algorithms, .n_algorithms = DT_N_ALGORITHMS}};

const struct dt_layer_entries dt_all_layers = {
    .enter = dt_layers_enter, .lower = dt_layer_lower, .finish = dt_layers_finish};

/* Where the last line begins, if it is a change. */
static size_t find_set(const char *text, size_t n)
{
    static const char mark[] = "\n--set ";
    for (size_t i = n; i-- > 0;) {
        if (text[i] == '\n') {
            return n - i > sizeof mark - 1 && memcmp(text + i, mark, sizeof mark - 1) == 0 ? i : n;
        }
    }
    return n;
}

static void check_round_trip(const struct dt_config *config)
{
    struct dt_config again;
    char *text = dt_config_to_json(config);
    if (text == NULL ||
        dt_config_parse("fuzz.json", text, strlen(text), NULL, 0, &again) != DT_OK ||
        memcmp(config, &again, sizeof again) != 0) {
        abort();
    }
    free(text);
}

/* The files in the text, up to the line "--extends" or the end; each in memory of its own. */
static enum dt_status read_files(const char *text, size_t n, const char *set,
                                 struct dt_config *config)
{
    static const char mark[] = "\n--extends\n";
    struct dt_config_files files = {0};
    enum dt_status s = DT_OK;
    char base[DT_PATH_SIZE];
    do {
        const char *end = memmem(text, n, mark, sizeof mark - 1);
        const size_t n_file = end != NULL ? (size_t)(end - text) : n;
        const size_t n_done = n_file + (end != NULL ? sizeof mark - 1 : 0);
        char *file = (char *)copy_of(text, n_file);
        s = dt_config_files_add(&files, "a/fuzz.json", file, n_file, false, base);
        free(file);
        text += n_done;
        n -= n_done;
    } while (s == DT_OK && base[0] != '\0' && n > 0 && files.n < DT_CONFIG_MOST_FILES);
    s = s == DT_OK ? dt_config_files_read(&files, &set, set != NULL, config) : s;
    dt_config_files_close(&files);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dt_config config;
    char *copy = malloc(n_bytes + 1);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, data, n_bytes);
    copy[n_bytes] = '\0';
    const size_t n_text = find_set(copy, n_bytes);
    const char *set = n_text < n_bytes ? copy + n_text + strlen("\n--set ") : NULL;
    dt_error_clear();
    const enum dt_status status = read_files(copy, n_text, set, &config);
    if (status == DT_OK) {
        check_round_trip(&config);
    } else if ((status != DT_CONFIG && !(status == DT_USAGE && set != NULL)) ||
               dt_error_text()[0] == '\0') {
        abort();
    }
    free(copy);
    return 0;
}
