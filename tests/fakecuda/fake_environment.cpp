/* Fake CUDA as a module of the whole program, with options from the environment, integers:
 * FAKE_DEVICES, FAKE_ENGINE_MS_<number>, and the faults, FAKE_<NAME>, which apply to the rank
 * FAKE_RANK alone if that is set. */
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "tests/fakecuda/fake.h"

static long number(std::string name)
{
    std::transform(name.begin(), name.end(), name.begin(), toupper);
    const char *text = getenv(("FAKE_" + name).c_str());
    return text != NULL ? atol(text) : 0;
}

__attribute__((constructor)) static void read_environment()
{
    const char *hit = getenv("FAKE_RANK"), *rank = getenv("PMI_RANK");
    fake_options.devices = number("devices");
    for (int i = 1; i < FAKE_N_ENGINES; i++) {
        fake_options.engine_ms[i] = number("engine_ms_" + std::to_string(i));
    }
    if (hit == NULL || strcmp(hit, rank != NULL ? rank : "0") == 0) {
#define READ(name) fake_options.name = number(#name);
        FAKE_FAULT_LIST(READ)
        std::this_thread::sleep_for(std::chrono::milliseconds(fake_options.load_ms));
    }
}
