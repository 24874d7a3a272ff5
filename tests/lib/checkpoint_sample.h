/* A small model with Adam's two states, and a folder of its own for each test: shared by the tests
 * of checkpoints. */
#ifndef DT_TESTS_CHECKPOINT_SAMPLE_H
#define DT_TESTS_CHECKPOINT_SAMPLE_H

#include <dirent.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "model/checkpoint.h"
#include "tests/lib/layers.h"
#include "tests/lib/temporary.h"

struct sample {
    struct dt_model model;
    float *arenas[3]; /* weights, optimizer states; gaps hold 7 */
    struct dt_checkpoint checkpoint;
};

#define SAMPLE_GAP 7.0f
static const char sample_config[] = "{\n  \"note\": \"quotes \\\" and \\\\ and \\u00e9 \xc3\xa9, "
                                    "\\\"header_crc\\\":\\\"12345678\\\"\"\n}\n";

static float sample_value(int arena, size_t i)
{
    return dt_rng_uniform(
               dt_rng_words(1, DT_RNG_SYNTHETIC, (uint32_t)arena, 0, (uint32_t)i, 0).v[0]) -
           0.5f;
}

/* conv 3x3 with `filters`, dense `units`, dense 4: with 4 and 8, 1236 parameters. */
static inline void sample_open(int filters, int units, struct sample *sample)
{
    const struct dt_model_spec spec = {.input = {1, 8, 8},
                                       .n_layers = 4,
                                       .layers = {CONV(filters, 3, 1, VALID, RELU), LAYER(FLATTEN),
                                                  DENSE(units, TANH), DENSE(4, NONE)},
                                       .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};
    CHECK_OK(dt_model_lower(&spec, &sample->model));
    for (int a = 0; a < 3; a++) {
        sample->arenas[a] = malloc(sample->model.arena_elems * sizeof(float));
        CHECK(sample->arenas[a] != NULL);
        for (size_t i = 0; i < sample->model.arena_elems; i++) {
            sample->arenas[a][i] = SAMPLE_GAP;
        }
        for (int p = 0; p < sample->model.n_params; p++) {
            for (size_t i = 0; i < sample->model.params[p].n_elems; i++) {
                const size_t at = sample->model.params[p].offset + i;
                sample->arenas[a][at] = sample_value(a, at);
            }
        }
    }
    sample->checkpoint =
        (struct dt_checkpoint){.config = sample_config,
                               .arena = sample->arenas[0],
                               .n_optimizer_states = 2,
                               .optimizer = {sample->arenas[1], sample->arenas[2]}};
}

static inline void sample_close(struct sample *sample)
{
    for (int a = 0; a < 3; a++) {
        free(sample->arenas[a]);
    }
}

static inline void sample_dir_make(char dir[256])
{
    const char *root = getenv("TMPDIR");
    CHECK(snprintf(dir, 256, "%s/dtrain-test-XXXXXX", root != NULL ? root : "/tmp") < 256);
    CHECK(mkdtemp(dir) != NULL);
}

/* The folder and the files in it; there are no folders inside. */
static inline void sample_dir_remove(const char *dir)
{
    DIR *files = opendir(dir);
    CHECK(files != NULL);
    for (const struct dirent *entry; (entry = readdir(files)) != NULL;) {
        unlinkat(dirfd(files), entry->d_name, 0);
    }
    closedir(files);
    CHECK(rmdir(dir) == 0);
}

static inline void sample_save(struct sample *sample, const char *dir, uint64_t step, int keep,
                               char path[DT_CHECKPOINT_PATH_SIZE])
{
    sample->checkpoint.state.step = step;
    const enum dt_status status =
        dt_checkpoint_save(dir, keep, &sample->model, &sample->checkpoint, path);
    CHECK_MESSAGE(status == DT_OK, "save: %s", dt_error_text());
}

/* A saved sample as bytes, from malloc. */
static inline void sample_bytes(struct sample *sample, uint8_t **bytes, size_t *n_bytes)
{
    char dir[256], path[DT_CHECKPOINT_PATH_SIZE];
    sample_dir_make(dir);
    sample_save(sample, dir, 1, 1, path);
    CHECK_OK(dt_file_read(path, (size_t)1 << 30, bytes, n_bytes));
    sample_dir_remove(dir);
}

static inline bool sample_exists(const char *dir, const char *name)
{
    char path[DT_CHECKPOINT_PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static inline int sample_count_files(const char *dir)
{
    int n = 0;
    DIR *files = opendir(dir);
    CHECK(files != NULL);
    for (const struct dirent *entry; (entry = readdir(files)) != NULL;) {
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(files);
    return n;
}

#endif
