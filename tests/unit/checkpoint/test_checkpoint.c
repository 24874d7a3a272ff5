/* Checkpoints: what goes in comes out, only into the model it came from, and the folder keeps the
 * right files. */
#include <sys/wait.h>

#include "tests/lib/checkpoint_sample.h"

static struct sample sample; /* shared; every test leaves it as it was */

/* ---- what goes in comes out ---- */

static void test_round_trip(void)
{
    const struct dt_checkpoint_state before = sample.checkpoint.state;
    const float odd[] = {-0.0f, 1e-45f, 3.4028235e38f, -1.17549435e-38f};
    float *weights = sample.arenas[0] + sample.model.params[0].offset, kept[4];
    memcpy(kept, weights, sizeof kept);
    memcpy(weights, odd, sizeof odd);
    sample.checkpoint.state = (struct dt_checkpoint_state){.epoch = 3,
                                                           .step_in_epoch = 7,
                                                           .optimizer_steps = 400,
                                                           .seed = UINT64_MAX,
                                                           .world_size = 4,
                                                           .global_batch = 512,
                                                           .n_train = 60000,
                                                           .data_crc = 0x89abcdef,
                                                           .loss_sum = 0.1,
                                                           .n_correct = 1.0 / 3.0,
                                                           .n_samples = 9007199254740993.0};
    const char *path = sample_save(&sample, 469, 2);
    CHECK_TEXT(path, path_of("step-000000000469.safetensors"));

    struct dt_checkpoint_file file;
    CHECK_OK(dt_checkpoint_open(path, &file));
    CHECK(memcmp(&file.state, &sample.checkpoint.state, sizeof file.state) == 0);
    CHECK_TEXT(file.config, sample_config);
    float *arenas[3];
    for (int a = 0; a < 3; a++) {
        arenas[a] = temporary(sample.model.arena_elems * sizeof(float));
        for (size_t i = 0; i < sample.model.arena_elems; i++) {
            arenas[a][i] = SAMPLE_GAP; /* stays in the gaps */
        }
    }
    CHECK_OK(dt_checkpoint_get(&file, &sample.model, arenas[0], 2, arenas + 1));
    for (int a = 0; a < 3; a++) {
        CHECK(memcmp(arenas[a], sample.arenas[a], sample.model.arena_elems * sizeof(float)) == 0);
        memset(arenas[a], 0, sample.model.arena_elems * sizeof(float));
    }
    float *second_only[2] = {NULL, arenas[2]};
    CHECK_OK(dt_checkpoint_get(&file, &sample.model, arenas[0], 0, NULL)); /* weights alone */
    CHECK_OK(dt_checkpoint_get(&file, &sample.model, arenas[0], 2, second_only));
    CHECK(memcmp(arenas[0] + sample.model.params[2].offset,
                 sample.arenas[0] + sample.model.params[2].offset, 64) == 0);
    CHECK(memcmp(arenas[2] + sample.model.params[2].offset,
                 sample.arenas[2] + sample.model.params[2].offset, 64) == 0);
    dt_checkpoint_close(&file);
    dt_checkpoint_close(&file); /* twice is fine */
    memcpy(weights, kept, sizeof kept);
    sample.checkpoint.state = before;
}

/* The file as another tool sees it: names, shapes and places by the format alone. */
static void test_layout(void)
{
    size_t n_bytes;
    uint64_t length;
    const uint8_t *bytes = sample_bytes(&sample, &n_bytes);
    memcpy(&length, bytes, 8);
    CHECK_INT((8 + length) % 64, 0);
    CHECK(n_bytes - 8 - length == 3 * sample.model.n_parameters * sizeof(float));
    char *header = strndup((const char *)bytes + 8, length);
    CHECK(header != NULL);
    CHECK_HAS(header, "{\"__metadata__\":{\"format\":\"dtrain\",\"version\":\"1\",");
    CHECK_HAS(header,
              "\"conv1.weight\":{\"dtype\":\"F32\",\"shape\":[4,1,3,3],\"data_offsets\":[0,144]}");
    CHECK_HAS(header,
              "\"conv1.bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[144,160]}");
    CHECK_HAS(header,
              "\"fc1.weight\":{\"dtype\":\"F32\",\"shape\":[8,144],\"data_offsets\":[160,4768]}");
    CHECK_HAS(header, "\"optimizer.1.fc2.bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":["
                      "14816,14832]}");
    CHECK(memcmp(bytes + 8 + length, sample.arenas[0] + sample.model.params[0].offset, 144) == 0);
    free(header);
}

/* Residuals of compression: a row for each worker, behind everything else; without, the file has
 * no more than ever. */
static void test_residuals(void)
{
    enum { N_WORKERS = 3 };
    const size_t n = N_WORKERS * sample.model.arena_elems;
    struct dt_checkpoint_file file;
    float *rows = temporary(n * sizeof *rows), *back = temporary(n * sizeof *back);
    for (size_t i = 0; i < n; i++) {
        rows[i] = sample_value(7, i);
    }
    sample.checkpoint.state.world_size = N_WORKERS;
    sample.checkpoint.state.compression_draws = 42;
    sample.checkpoint.residuals = rows;
    CHECK_OK(dt_checkpoint_open(sample_save(&sample, 1, 1), &file));
    CHECK_OK(dt_checkpoint_check(&file, &sample.model, 2));
    CHECK_OK(dt_checkpoint_check(&file, &sample.model, 0));
    CHECK(dt_checkpoint_has_residuals(&file));
    CHECK_INT(file.state.compression_draws, 42);
    dt_checkpoint_get_residuals(&file, N_WORKERS, back);
    CHECK(memcmp(rows, back, n * sizeof *rows) == 0);
    dt_checkpoint_get_residuals(&file, N_WORKERS - 1,
                                back); /* the third worker's go to the first */
    for (size_t i = 0, of_two = n / N_WORKERS * (N_WORKERS - 1); i < of_two; i++) {
        CHECK(back[i] == rows[i] + (i + of_two < n ? rows[i + of_two] : 0));
    }
    file.state.world_size = 2;
    CHECK_FAILS(dt_checkpoint_check(&file, &sample.model, 2), DT_CONFIG,
                "tensor 'compression.residuals' has shape [3, 12");
    CHECK_HAS(dt_error_text(), "2 workers of this model have [2, 12");
    dt_error_clear();
    dt_checkpoint_close(&file);
    sample.checkpoint.residuals = NULL;
    sample.checkpoint.state.compression_draws = 0;
    CHECK_OK(dt_checkpoint_open(sample_save(&sample, 1, 1), &file));
    CHECK(!dt_checkpoint_has_residuals(&file));
    dt_checkpoint_close(&file);
}

/* ---- another model ---- */

static void check_get_refused(const struct dt_checkpoint_file *file, const struct sample *other,
                              int n_states, const char *message)
{
    CHECK_FAILS(
        dt_checkpoint_get(file, &other->model, other->arenas[0], n_states, other->arenas + 1),
        DT_CONFIG, "step-000000000001.safetensors: ");
    CHECK_HAS(dt_error_text(), message);
    dt_error_clear();
}

static void test_another_model(void)
{
    struct sample other;
    struct dt_checkpoint_file file;
    CHECK_OK(dt_checkpoint_open(sample_save(&sample, 1, 1), &file));
    check_get_refused(&file, &sample, 1,
                      "tensors unknown: 'optimizer.1.conv1.weight', 'optimizer.1.conv1.bias', ");
    sample_open(5, 8, &other);
    check_get_refused(&file, &other, 2,
                      "tensor 'conv1.weight' has shape [4, 1, 3, 3], the model has [5, 1, 3, 3]");
    sample_close(&other);
    sample_open(4, 9, &other);
    check_get_refused(&file, &other, 0,
                      "tensor 'fc1.weight' has shape [8, 144], the model has [9, 144]");
    sample_close(&other);
    dt_checkpoint_close(&file);

    sample.checkpoint.n_optimizer_states = 1;
    CHECK_OK(dt_checkpoint_open(sample_save(&sample, 1, 1), &file));
    sample.checkpoint.n_optimizer_states = 2;
    check_get_refused(&file, &sample, 2, "tensors missing: 'optimizer.1.conv1.weight', ");
    struct dt_model smaller = sample.model, larger = sample.model;
    smaller.n_params = 4;
    strcpy(larger.params[5].name, "fc3.bias");
    other = (struct sample){.model = smaller, .arenas = {sample.arenas[0]}};
    check_get_refused(&file, &other, 0,
                      "tensors unknown: 'fc2.weight', 'fc2.bias' (it is of another model");
    other.model = larger;
    check_get_refused(&file, &other, 0,
                      "tensors missing: 'fc3.bias'; unknown: 'fc2.bias' (it is of another model or "
                      "optimizer, or has other names for them)");
    dt_checkpoint_close(&file);
}

/* ---- the folder ---- */

static char damaged_text[4096];
static int n_damaged;

static void on_damaged(void *context, const char *text)
{
    (void)context;
    n_damaged++;
    strncat(damaged_text, text, sizeof damaged_text - strlen(damaged_text) - 1);
}

static enum dt_status newest(const char *dir, char path[DT_CHECKPOINT_PATH_SIZE],
                             struct dt_checkpoint_file *file)
{
    damaged_text[0] = '\0';
    n_damaged = 0;
    const struct dt_checkpoint_judge judge = {.on_damaged = on_damaged};
    return dt_checkpoint_newest(dir, &judge, path, file);
}

static void test_keep(void)
{
    char path[DT_CHECKPOINT_PATH_SIZE];
    const char *foreign[] = {"step-7.safetensors", "step-000000000002.safetensors.bak",
                             "notes.txt",          "xstep-000000000002.safetensors",
                             ".tmp-notes-4711",    "step-00000000000a.safetensors"};
    const int n_foreign = sizeof foreign / sizeof foreign[0];
    for (int i = 0; i < n_foreign; i++) {
        put(foreign[i], "mine");
    }
    const uint64_t steps[] = {9, 10, 100, 1000000000000,
                              99}; /* the last one: a run that went back */
    for (int i = 0; i < 4; i++) {
        sample_save(&sample, steps[i], 2);
    }
    CHECK_INT(count_entries(), n_foreign + 2);
    CHECK(exists("step-000000000100.safetensors") && exists("step-1000000000000.safetensors"));
    sample_save(&sample, 5, 1);
    CHECK_INT(count_entries(), n_foreign + 3);
    sample_save(&sample, steps[4], 1);
    CHECK_INT(count_entries(), n_foreign + 3);
    CHECK(exists("step-000000000099.safetensors") && exists("step-000000000100.safetensors"));
    for (int i = 0; i < n_foreign; i++) {
        CHECK(exists(foreign[i]));
    }
    struct dt_checkpoint_file file;
    CHECK_OK(newest(folder, path, &file));
    CHECK_INT(n_damaged, 0);
    CHECK_INT(file.state.step, 1000000000000); /* by number, not by name */
    dt_checkpoint_close(&file);
}

static void test_newest(void)
{
    char path[DT_CHECKPOINT_PATH_SIZE];
    struct dt_checkpoint_file file;
    CHECK_OK(newest(path_of("none"), path, &file));
    CHECK_TEXT(path, "");
    CHECK_OK(newest(folder, path, &file));
    CHECK_TEXT(path, "");
    dt_checkpoint_close(&file);
    for (uint64_t step = 100; step <= 400; step += 100) {
        sample_save(&sample, step, 4);
    }
    size_t n_bytes;
    char *bytes = bytes_of(path_of("step-000000000400.safetensors"), &n_bytes);
    bytes[n_bytes - 1] ^= 1;
    put_bytes("step-000000000400.safetensors", bytes, n_bytes);
    put("step-000000000300.safetensors", "");
    const char *directory = path_of("step-000000000500.safetensors");
    CHECK_INT(mkdir(directory, 0700), 0);
    CHECK_OK(newest(folder, path, &file));
    CHECK_INT(rmdir(directory), 0);
    CHECK_INT(file.state.step, 200);
    CHECK_HAS(path, "/step-000000000200.safetensors");
    CHECK_INT(n_damaged, 3);
    CHECK_HAS(damaged_text, "step-000000000500.safetensors: is a directory");
    CHECK_HAS(damaged_text,
              "step-000000000400.safetensors: damaged (tensor 'optimizer.1.fc2.bias' crc ");
    CHECK_HAS(damaged_text, "step-000000000300.safetensors: empty file");
    CHECK_TEXT(dt_error_text(), "");
    dt_checkpoint_close(&file);
    put("step-000000000100.safetensors", "<html>not found</html>");
    put("step-000000000200.safetensors", "<html>not found</html>");
    CHECK_INT(newest(folder, path, &file), DT_BAD_DATA);
    CHECK_TEXT(path, "");
    CHECK_INT(n_damaged, 4);
    CHECK_HAS(dt_error_text(), "all 4 checkpoints are damaged");
    dt_error_clear();
    CHECK_INT(mkdir(directory, 0700), 0);
    CHECK_INT(newest(folder, path, &file), DT_IO);
    CHECK_INT(rmdir(directory), 0);
    CHECK_HAS(dt_error_text(), "none of 5 checkpoints can be used, and not all can be read");
    dt_error_clear();
}

static void test_leftovers(void)
{
    char name[128], alive[128], best[128];
    const pid_t dead = fork();
    if (dead == 0) {
        _exit(0);
    }
    CHECK(dead > 0 && waitpid(dead, NULL, 0) == dead);
    snprintf(name, sizeof name, DT_FILE_TEMPORARY "step-000000000469.safetensors-%ld", (long)dead);
    snprintf(alive, sizeof alive, DT_FILE_TEMPORARY "step-000000000469.safetensors-%ld",
             (long)getppid());
    snprintf(best, sizeof best, DT_FILE_TEMPORARY DT_CHECKPOINT_BEST "-%ld", (long)dead);
    put(name, "half");
    put(alive, "half");
    put(best, "half");
    sample_save(&sample, 1, 1);
    CHECK(!exists(name) && !exists(best) && exists(alive));
    CHECK_INT(count_entries(), 2);
}

/* checkpoints/ that somebody swaps for a link while a run trains: nothing goes through the link. */
static void test_swapped_folder(void)
{
    char link_path[DT_CHECKPOINT_PATH_SIZE], path[DT_CHECKPOINT_PATH_SIZE];
    snprintf(link_path, sizeof link_path, "%s-link", folder);
    sample_save(&sample, 1, 9);
    sample_save(&sample, 2, 9);
    CHECK(symlink(folder, link_path) == 0);
    sample.checkpoint.state.step = 3;
    CHECK_FAILS(dt_checkpoint_save(link_path, 1, &sample.model, &sample.checkpoint, path), DT_IO,
                link_path);
    CHECK_FAILS(dt_checkpoint_save_best(link_path, &sample.model, &sample.checkpoint, path), DT_IO,
                link_path);
    CHECK_OK(dt_checkpoint_prune(link_path, 2, 1));
    CHECK(access(path_of("step-000000000001.safetensors"), F_OK) == 0);
    CHECK(access(path_of("step-000000000003.safetensors"), F_OK) != 0);
    CHECK(access(path_of("best.safetensors"), F_OK) != 0);
    CHECK(unlink(link_path) == 0);
}

static void test_bad_paths(void)
{
    char path[DT_CHECKPOINT_PATH_SIZE], long_name[DT_CHECKPOINT_PATH_SIZE];
    struct dt_checkpoint_file file;
    CHECK_FAILS(dt_checkpoint_open(path_of("none"), &file), DT_NO_INPUT,
                "No such file or directory");
    CHECK_FAILS(dt_checkpoint_open(folder, &file), DT_NO_INPUT, "");
    CHECK_FAILS(dt_checkpoint_save(path_of("none"), 1, &sample.model, &sample.checkpoint, path),
                DT_IO, "");
    dt_error_clear();
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    CHECK(dt_checkpoint_save(long_name, 1, &sample.model, &sample.checkpoint, path) != DT_OK);
    CHECK_HAS(dt_error_text(), "too long");
    CHECK_FAILS(dt_checkpoint_save_best(long_name, &sample.model, &sample.checkpoint, path),
                DT_CANT_CREATE, "too long");
}

static void test_long_config(void)
{
    char path[DT_CHECKPOINT_PATH_SIZE];
    struct dt_checkpoint checkpoint = sample.checkpoint;
    char *config = (char *)temporary(DT_SAFETENSORS_MAX_HEADER + 1);
    memset(config, 'x', DT_SAFETENSORS_MAX_HEADER);
    config[DT_SAFETENSORS_MAX_HEADER] = '\0';
    checkpoint.config = config;
    CHECK_FAILS(dt_checkpoint_save(folder, 1, &sample.model, &checkpoint, path), DT_CONFIG,
                "too long for a checkpoint's header");
}

int main(void)
{
    static void (*const tests[])(void) = {
        test_round_trip, test_layout,         test_residuals, test_another_model, test_keep,
        test_newest,     test_swapped_folder, test_leftovers, test_bad_paths,     test_long_config};
    sample_open(4, 8, &sample);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        folder_open();
        tests[i]();
        folder_remove();
    }
    sample_close(&sample);
    return 0;
}
