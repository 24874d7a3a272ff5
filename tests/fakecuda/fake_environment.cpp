/* Fake CUDA as a module of the whole program, with options from the environment: each FAKE_<OPTION>
 * is an integer; FAKE_LOAD_MS is the time that it takes to load. With FAKE_RANK the faults apply to
 * that rank alone. */
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/fakecuda/fake.h"
#include "tests/fakecuda/fake_nccl.h"

static long number(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? atol(text) : 0;
}

static bool is_hit()
{
    const char *hit = getenv("FAKE_RANK"), *rank = getenv("PMI_RANK");
    return hit == NULL || strcmp(hit, rank != NULL ? rank : "0") == 0;
}

__attribute__((constructor)) static void read_environment()
{
    fake_options.n_devices = (int)number("FAKE_DEVICES");
    fake_options.capability = (int)number("FAKE_CAPABILITY");
    for (int i = 1; i < FAKE_N_ENGINES; i++) {
        fake_options.engine_ms[i] = number(("FAKE_ENGINE_MS_" + std::to_string(i)).c_str());
    }
    if (is_hit()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(number("FAKE_LOAD_MS")));
        fake_options.unrecordable_engines = number("FAKE_UNRECORDABLE_ENGINES");
        fake_options.lost_writes = number("FAKE_LOST_WRITES");
        fake_options.device_bytes = (size_t)number("FAKE_DEVICE_BYTES");
        fake_options.fail_malloc_at = number("FAKE_FAIL_MALLOC_AT");
        fake_options.fail_launch_at = number("FAKE_FAIL_LAUNCH_AT");
        fake_options.fail_code = (int)number("FAKE_FAIL_CODE");
        fake_options.hang_launch_at = number("FAKE_HANG_LAUNCH_AT");
        fake_nccl_options.init_fails = number("FAKE_NCCL_INIT_FAILS") != 0;
        fake_nccl_options.init_hangs = number("FAKE_NCCL_INIT_HANGS") != 0;
        fake_nccl_options.error_at = (int)number("FAKE_NCCL_ERROR_AT");
        fake_nccl_options.launch_hangs_at = (int)number("FAKE_NCCL_LAUNCH_HANGS_AT");
        fake_nccl_options.hang_at = (int)number("FAKE_NCCL_HANG_AT");
    }
}
