/* A small model with Adam's two states, saved in the test's folder: shared by the tests of
 * checkpoints. */
#ifndef DT_TESTS_CHECKPOINT_SAMPLE_H
#define DT_TESTS_CHECKPOINT_SAMPLE_H

#include "base/file.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "tests/lib/folder.h"
#include "tests/lib/layers.h"

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

/* Saves in `folder`; the path stays until the next one. */
static inline const char *sample_save(struct sample *sample, uint64_t step, int keep)
{
    static char path[DT_CHECKPOINT_PATH_SIZE];
    sample->checkpoint.state.step = step;
    CHECK_OK(dt_checkpoint_save(folder, keep, &sample->model, &sample->checkpoint, path));
    return path;
}

/* A saved sample as bytes, in temporary memory. */
static inline uint8_t *sample_bytes(struct sample *sample, size_t *n_bytes)
{
    const char *path = sample_save(sample, 1, 1);
    uint8_t *bytes = (uint8_t *)bytes_of(path, n_bytes);
    CHECK_INT(unlink(path), 0);
    return bytes;
}

static void sample_never_damaged(void *context, const char *text)
{
    (void)context;
    CHECK_FAIL("damaged: %s", text);
}

/* The step of the newest checkpoint, which goes into the sample, or 0; none may be damaged. */
static inline uint64_t sample_newest(struct sample *sample)
{
    static const struct dt_checkpoint_judge judge = {.on_damaged = sample_never_damaged};
    char path[DT_CHECKPOINT_PATH_SIZE];
    struct dt_checkpoint_file file;
    CHECK_OK(dt_checkpoint_newest(folder, &judge, path, &file));
    const uint64_t step = file.state.step;
    if (path[0] != '\0') {
        CHECK_OK(
            dt_checkpoint_get(&file, &sample->model, sample->arenas[0], 2, sample->arenas + 1));
    }
    dt_checkpoint_close(&file);
    return path[0] != '\0' ? step : 0;
}

#endif
