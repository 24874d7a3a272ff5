/* The cuda backend without a GPU, without memory, and when a GPU fails; the memory that it counts.
 */
#include "tests/cuda/session.h"

#include "cuda/cuda_backend.h"
#include "cuda/cuda_check.h"

/* The backend's count equals the fake's; growing scratch memory makes the peak larger than the
 * remaining use. */
static void check_counted_memory(struct dt_backend *gpu)
{
    struct dt_device_memory memory, after;
    dt_cuda_memory(gpu, &memory);
    CHECK(memory.peak_bytes >= (size_t)fake_counts().n_live_bytes);
    CHECK(memory.peak_bytes < (size_t)fake_counts().n_live_bytes + (size_t)100000);
    CHECK_INT(memory.total_bytes - memory.free_bytes, fake_counts().n_live_bytes);
    const size_t sizes[] = {50000000, 50000000, 1}; /* each takes the place of the one before */
    for (int i = 0; i < 3; i++) {
        void *one;
        CHECK_OK(gpu->ops->alloc(gpu, sizes[i], &one));
        gpu->ops->free(gpu, one);
    }
    dt_cuda_memory(gpu, &after);
    CHECK_INT(after.peak_bytes, fake_counts().n_live_bytes + 50000000 + 256);
    CHECK_INT(after.free_bytes, memory.free_bytes);
}

/* Each allocation fails once: the error is one line that names the memory, no later launch reports
 * it again, and nothing leaks. */
static void check_no_memory(void)
{
    const struct dt_model model = small_cnn(false);
    const struct dt_samples samples = small_images();
    const struct dt_optimizer_spec spec = {.type = DT_OPTIMIZER_ADAM};
    enum dt_status s = DT_NO_MEMORY;
    long n = 0;
    int n_of_samples = 0;
    while (s != DT_OK) {
        struct session session;
        dt_error_clear();
        fake_options.fail_malloc_at = fake_counts().n_mallocs + 1 + n++;
        s = small_session_open(&dt_cuda_backend, DT_PRECISION_BF16, &model, &samples, &spec,
                               &session);
        fake_options.fail_malloc_at = 0;
        if (s != DT_OK) {
            CHECK_INT(s, DT_NO_MEMORY);
            CHECK_HAS(dt_error_text(), "out of memory on Fake GPU: ");
            CHECK_HAS(dt_error_text(), " are free");
            CHECK_INT(cudaGetLastError(), cudaSuccess);
            n_of_samples += strstr(dt_error_text(), ": the data set needs ") != NULL;
        } else {
            check_counted_memory(session.backend);
        }
        session_close(&session);
        CHECK_INT(fake_counts().n_live_bytes, 0);
    }
    CHECK(n > 20 && n_of_samples == 1);
}

/* Whoever waits for this rank sees that it opens: each library, engine and block. */
static void count_sign(void *n)
{
    ++*(int *)n;
}

static void check_signs(void)
{
    struct dt_model model = small_cnn(false);
    int n_signs = 0, n_before;
    struct dt_backend *gpu;
    struct dt_block_state *state;
    const struct dt_backend_options options = {.n_threads = 1, .alive = {count_sign, &n_signs}};
    CHECK_OK(dt_cuda_backend.open(&options, &gpu));
    CHECK_INT(n_signs, 4); /* cuBLAS and cuDNN, for two streams */
    n_before = n_signs;
    CHECK_OK(gpu->ops->block_open(gpu, &model, 1, CAPACITY, &state));
    CHECK(n_signs > n_before + 4 * 2); /* in f32 fake cuDNN has two engines for each plan */
    gpu->ops->block_close(state);
    gpu->ops->close(gpu);
}

/* A failure on the device becomes a status with a text at the latest when the program waits. */
static void check_failing_launch(void)
{
    struct dt_backend *gpu = open_gpu(&modes[0]);
    struct dt_metrics metrics;
    CHECK_OK(gpu->ops->sync(gpu));
    fake_options.fail_launch_at = fake_counts().n_enqueued + 1;
    CHECK_FAILS(gpu->ops->metrics_take(gpu, &metrics), DT_INTERNAL, "CUDA: ");
    CHECK_HAS(dt_error_text(), "cuda_backend.c:");
    gpu->ops->close(gpu);
}

/* A broken GPU is reported as such, not as a bug: the fault, the GPU, and the cure. */
static void check_faults(void)
{
    static const struct {
        cudaError_t code;
        enum dt_status status;
        const char *cure;
    } faults[] = {
        {cudaErrorECCUncorrectable, DT_UNAVAILABLE, ": its memory is damaged: "},
        {cudaErrorNvlinkUncorrectable, DT_UNAVAILABLE, "nvidia-smi nvlink"},
        {cudaErrorContained, DT_UNAVAILABLE, "Xid"},
        {cudaErrorUnsupportedPtxVersion, DT_UNAVAILABLE,
         ": the driver is older than the toolkit: "},
        {cudaErrorSystemNotReady, DT_UNAVAILABLE, "systemctl status nvidia-fabricmanager"},
        {cudaErrorMpsServerNotReady, DT_UNAVAILABLE, "nvidia-cuda-mps-control"},
        {cudaErrorIllegalAddress, DT_INTERNAL, ": a bug; or "},
        {cudaErrorInvalidValue, DT_INTERNAL, "backend.c:7: call"}};
    struct dt_device_info gpu;
    int n_gpus;
    CHECK_OK(dt_cuda_probe(0, &gpu, &n_gpus));
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        CHECK_INT(dt_cuda_failed(faults[i].code, "call", "cuda/cuda_backend.c", 7),
                  faults[i].status);
        CHECK_HAS(dt_error_text(), cudaGetErrorString(faults[i].code));
        CHECK_HAS(dt_error_text(), faults[i].cure);
        CHECK((strstr(dt_error_text(), gpu.uuid) != NULL) ==
              (faults[i].code != cudaErrorInvalidValue));
        dt_error_clear();
    }
}

static void check_probe(void)
{
    struct dt_device_info gpu;
    int n_gpus;
    CHECK_OK(dt_cuda_probe(3, &gpu, &n_gpus)); /* all ranks share the only one */
    CHECK(n_gpus == 1 && gpu.index == 0 && gpu.total_bytes > 0);
    CHECK(gpu.free_bytes > 0 && gpu.free_bytes <= gpu.total_bytes);
    CHECK(strlen(gpu.uuid) == 40 && strncmp(gpu.uuid, "GPU-", 4) == 0 && gpu.uuid[12] == '-' &&
          gpu.uuid[27] == '-');
    struct dt_backend *backend = open_gpu(&modes[2]);
    char description[96];
    snprintf(description, sizeof description, "%s, bf16", gpu.name);
    CHECK_TEXT(backend->description, description);
    CHECK(!backend->host_memory);
    const struct dt_cuda *cuda = (const struct dt_cuda *)backend;
    int lowest, highest, chain, beside;
    CHECK_INT(cudaDeviceGetStreamPriorityRange(&lowest, &highest), cudaSuccess);
    CHECK_INT(cudaStreamGetPriority(cuda->main.stream, &chain), cudaSuccess);
    CHECK_INT(cudaStreamGetPriority(cuda->branches.lanes[DT_CUDA_UPDATES].stream, &beside),
              cudaSuccess);
    CHECK(chain == highest && beside > highest);
    backend->ops->close(backend);
    if (!fake_is_linked) {
        return;
    }
    fake_options.devices = 2;
    CHECK_OK(dt_cuda_probe(1, &gpu, &n_gpus));
    CHECK(n_gpus == 2 && gpu.index == 1);
    CHECK_FAILS(dt_cuda_probe(2, &gpu, &n_gpus), DT_UNAVAILABLE,
                "local rank 2 has no GPU of its own: this host shows 2");
    static const struct {
        int n_devices, driver_version;
        const char *why;
    } without[] = {{-1, 0, "there is no NVIDIA driver"},
                   {-2, 0, "there is no NVIDIA GPU that this process may use"},
                   {0, CUDART_VERSION - 1000, "the NVIDIA driver serves CUDA "}};
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        fake_options.devices = without[i].n_devices;
        fake_options.driver_version = without[i].driver_version;
        CHECK_FAILS(dt_cuda_probe(0, &gpu, &n_gpus), DT_UNAVAILABLE, without[i].why);
        CHECK_INT(n_gpus, 0);
    }
    dt_error_clear();
    fake_options.devices = fake_options.driver_version = 0;
}

int main(void)
{
    check_probe();
    check_faults();
    if (fake_is_linked) {
        check_no_memory();
        check_signs();
        check_failing_launch(); /* last: a failed GPU stays failed */
    }
    return 0;
}
