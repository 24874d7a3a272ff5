/* The real cuDNN, without a GPU: for every convolution of the supplied configurations and of a grid
 * of shapes, in each precision, at batches up to 4096, on descriptions of an A100, an H100 and a
 * B200, there is an admissible engine, and all that would be timed can be finalized within their
 * workspace. test_engine_trial, test_cuda_blocks and machines with a GPU check the results. */
#include <glob.h>
#include <stdlib.h>

#include "cli/config/config.h"
#include "cuda/cuda_check.h"
#include "cuda/cudnn/conv_plan.h"
#include "tests/lib/check.h"
#include "tests/lib/layers.h"

#if CUDNN_VERSION < 90800
#define CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR ((cudnnBackendDescriptorType_t)38)
#endif

#define MAX_WORKSPACE ((size_t)2 << 30) /* as on a GPU with 32 GiB or more */

static const int batches[] = {1, 37, 128, 1024, 4096};

/* A device as cuDNN describes one: what differs between these, and then what does not. */
static const char description[] =
    "{\"deviceName\": \"NVIDIA %s\", \"deviceVer\": %d, \"pciDeviceId\": %d,"
    " \"multiProcessorCount\": %d, \"smClockRateKHz\": %d, \"memClockRateKHz\": %d,"
    " \"totalGlobalMem\": %ld, \"l2CacheSize\": %d, \"maxSharedMemoryPerBlockOptin\": %d,"
    " \"cudaDeviceId\": 0, \"driverVer\": 13000, \"isTccDriver\": 0, \"supportCoopLaunch\": 1,"
    " \"warpSize\": 32, \"maxGridSize\": [2147483647, 65535, 65535],"
    " \"maxBlockSize\": [1024, 1024, 64], \"maxThreadsPerBlock\": 1024,"
    " \"maxThreadsPerSM\": 2048, \"maxCtasPerSM\": 32, \"regsPerBlock\": 65536,"
    " \"maxRegistersPerSM\": 65536, \"maxSharedMemoryPerBlock\": 49152,"
    " \"reservedSharedMemoryPerBlock\": 1024}";

static const struct device {
    const char *name;
    int version, pci_id, n_sm, sm_khz, memory_khz;
    long n_bytes;
    int l2_bytes, shared_bytes;
} devices[] = {{"A100-SXM4-80GB", 800, 8370, 108, 1410000, 1593000, 85000000000, 41943040, 166912},
               {"H100 80GB HBM3", 900, 9008, 132, 1980000, 2619000, 85000000000, 52428800, 232448},
               {"B200", 1000, 10497, 148, 1965000, 3996000, 191000000000, 132644864, 232448}};

static int n_plans, n_failed;
static int n_engines[DT_MAX_ENGINES + 1]; /* plans by number of engines to choose from */

/* Replaces cuda/cuda_check.c's, without the other libraries. */
enum dt_status dt_cudnn_failed(cudnnStatus_t code, const char *call, const char *file, int line)
{
    char text[300] = "";
    cudnnGetLastErrorString(text, sizeof text);
    return dt_error(DT_INTERNAL, "%s:%d: %s: %s (%s)", file, line, call, cudnnGetErrorString(code),
                    text);
}

static void check_plans(const char *device, const struct dt_block *block, enum dt_conv_kind kind,
                        enum dt_precision precision)
{
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        const struct dt_conv_spec spec = {.kind = kind,
                                          .block = block,
                                          .batch = batches[i],
                                          .precision = precision,
                                          .device_json = device,
                                          .workspace_limit = MAX_WORKSPACE,
                                          .n_engines = DT_MAX_ENGINES};
        struct dt_conv_plan *plan;
        n_plans++;
        dt_error_clear();
        if (dt_conv_plan_open(&spec, &plan) != DT_OK) {
            fprintf(stderr, "%s\n", dt_error_text());
            n_failed++;
            continue;
        }
        for (int engine = 0; engine < plan->n_engines; engine++) {
            n_failed += plan->engines[engine].workspace_bytes > MAX_WORKSPACE;
        }
        n_engines[plan->n_engines]++;
        dt_conv_plan_close(plan);
    }
}

static void check_block(const char *device, const struct dt_block *block, bool is_first)
{
    for (int i = 0; i < DT_CONV_N_KINDS * 3; i++) {
        const enum dt_conv_kind kind = (enum dt_conv_kind)(i / 3);
        if (kind != DT_CONV_INPUT_GRADIENT || !is_first) { /* never computed */
            check_plans(device, block, kind, (enum dt_precision)(i % 3));
        }
    }
}

static void check_model(const char *device, const struct dt_model_spec *spec, bool skip_first)
{
    static struct dt_model model;
    dt_error_clear();
    CHECK_OK(dt_model_lower(spec, &model));
    for (int i = 0; i < model.n_blocks; i++) {
        if (model.blocks[i].linear == DT_LINEAR_CONV) {
            check_block(device, &model.blocks[i], skip_first && i == 0);
        }
    }
}

static void check_configs(const char *device)
{
    glob_t files;
    CHECK_INT(glob(DT_TEST_SOURCE_DIR "/configs/*.json", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        static struct dt_config config;
        if (strstr(files.gl_pathv[i], "schema") != NULL) {
            continue;
        }
        dt_error_clear();
        CHECK_OK(dt_config_load(files.gl_pathv[i], NULL, 0, &config));
        check_model(device, &config.model, true);
    }
    globfree(&files);
}

static void check_grid(const char *device)
{
    static const struct {
        struct dt_shape in;
        struct dt_layer_spec conv;
    } grid[] = {
        {{1, 28, 28}, CONV(6, 5, 1, SAME, NONE)},
        {{3, 32, 32}, CONV(32, 3, 1, SAME, NONE)},
        {{3, 32, 32}, CONV(16, 5, 2, SAME, NONE)}, /* one more zero below than above */
        {{3, 15, 17}, CONV(5, 3, 2, SAME, NONE)},
        {{16, 14, 14}, CONV(32, 2, 1, SAME, NONE)},
        {{16, 8, 8}, CONV(10, 8, 1, VALID, NONE)}, /* one output */
        {{1, 5, 5}, CONV(1, 5, 1, VALID, NONE)},
        {{7, 11, 9}, CONV(13, 3, 3, VALID, NONE)}, /* the filter does not reach the last rows */
        {{64, 6, 6}, CONV(33, 1, 2, SAME, NONE)},
    };
    for (size_t i = 0; i < sizeof grid / sizeof grid[0]; i++) {
        const struct dt_model_spec spec = {.input = grid[i].in,
                                           .layers = {grid[i].conv, LAYER(FLATTEN)},
                                           .n_layers = 2,
                                           .loss = DT_LOSS_MEAN_SQUARED_ERROR};
        check_model(device, &spec, false);
    }
}

static void skip_unless_usable(void)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    if (cudnnGetVersion() < 90800) {
        printf("skipped: cuDNN %zu makes no plans without a GPU, 9.8 does\n", cudnnGetVersion());
        exit(CHECK_SKIP_CODE);
    }
    const cudnnStatus_t status =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &descriptor);
    if (status != CUDNN_STATUS_SUCCESS) {
        printf("skipped: cuDNN cannot be loaded: %s\n", cudnnGetErrorString(status));
        exit(CHECK_SKIP_CODE);
    }
    cudnnBackendDestroyDescriptor(descriptor);
}

int main(void)
{
    skip_unless_usable();
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        const struct device *d = &devices[i];
        char json[1024];
        const int n =
            snprintf(json, sizeof json, description, d->name, d->version, d->pci_id, d->n_sm,
                     d->sm_khz, d->memory_khz, d->n_bytes, d->l2_bytes, d->shared_bytes);
        CHECK(n < (int)sizeof json);
        check_configs(json);
        check_grid(json);
    }
    printf("%d plans, %d failed; engines to choose from:", n_plans, n_failed);
    for (int i = 1; i <= DT_MAX_ENGINES; i++) {
        printf(" %d in %d", i, n_engines[i]);
    }
    printf("\n");
    CHECK(n_plans > 0 && n_failed == 0);
    return 0;
}
