#include "cpu/isa.h"

#include <stdlib.h>
#include <string.h>

#if defined(DT_CPU_HAS_AMX)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023 /* asm/prctl.h of Linux 5.16 and later */
#define XFEATURE_XTILEDATA 18
#define AMX_BF16 \
    (1u << 22) /* of cpuid's leaf 7, edx; not every compiler's cpuid.h has names for them */
#define AMX_TILE (1u << 24)
#define AVX512_BF16 (1u << 5) /* leaf 7.1, eax */

extern const struct dt_bf16_kernels dt_cpu_bf16_amx;
#endif

extern const struct dt_cpu_kernels dt_cpu_kernels_baseline;
#if defined(DT_CPU_HAS_V3)
extern const struct dt_cpu_kernels dt_cpu_kernels_v3;
#define KERNELS_V3 &dt_cpu_kernels_v3
#else
#define KERNELS_V3 NULL
#endif
#if defined(DT_CPU_HAS_V4)
extern const struct dt_cpu_kernels dt_cpu_kernels_v4;
#define KERNELS_V4 &dt_cpu_kernels_v4
#else
#define KERNELS_V4 NULL
#endif

static bool has_v3(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
#else
    return false;
#endif
}

static bool has_v4(void)
{
#if defined(__x86_64__)
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

static bool has_baseline(void)
{
    return true;
}

/* Best first. */
static const struct {
    const char *name;
    const struct dt_cpu_kernels *kernels; /* NULL: not in this build */
    bool (*supported)(void);
} isas[DT_CPU_MAX_ISAS] = {
    {"x86-64-v4", KERNELS_V4, has_v4},
    {"x86-64-v3", KERNELS_V3, has_v3},
    {"baseline", &dt_cpu_kernels_baseline, has_baseline},
};

static bool is_usable(int i)
{
    return isas[i].kernels != NULL && isas[i].supported();
}

int dt_cpu_isa_list(const char *names[DT_CPU_MAX_ISAS])
{
    int n = 0;
    for (int i = 0; i < DT_CPU_MAX_ISAS; i++) {
        if (is_usable(i)) {
            names[n++] = isas[i].name;
        }
    }
    return n;
}

static const struct dt_cpu_kernels *best(void)
{
    for (int i = 0; i < DT_CPU_MAX_ISAS - 1; i++) {
        if (is_usable(i)) {
            return isas[i].kernels;
        }
    }
    return isas[DT_CPU_MAX_ISAS - 1].kernels;
}

enum dt_status dt_cpu_isa_choose(const struct dt_cpu_kernels **out)
{
    const char *wanted = getenv("DTRAIN_ISA");
    if (wanted == NULL || wanted[0] == '\0') {
        *out = best();
        return DT_OK;
    }
    for (int i = 0; i < DT_CPU_MAX_ISAS; i++) {
        if (strcmp(wanted, isas[i].name) != 0) {
            continue;
        }
        if (!isas[i].supported()) {
            return dt_error(
                DT_UNAVAILABLE,
                "DTRAIN_ISA=%s: this processor does not have it (the best it has is %s)", wanted,
                best()->isa);
        }
        if (isas[i].kernels == NULL) {
            return dt_error(DT_UNAVAILABLE,
                            "DTRAIN_ISA=%s: this build does not have it (build with "
                            "-DDTRAIN_ISAS=all)",
                            wanted);
        }
        *out = isas[i].kernels;
        return DT_OK;
    }
    return dt_error(DT_CONFIG,
                    "DTRAIN_ISA=%s: no such instruction set (use x86-64-v4, x86-64-v3 or baseline, "
                    "or unset it)",
                    wanted);
}

const char *dt_cpu_isa(void)
{
    const char *wanted = getenv("DTRAIN_ISA");
    for (int i = 0; wanted != NULL && i < DT_CPU_MAX_ISAS; i++) {
        if (strcmp(wanted, isas[i].name) == 0 && is_usable(i)) {
            return isas[i].name;
        }
    }
    return best()->isa;
}

#if defined(DT_CPU_HAS_AMX)
/* Tiles make a thread's state 8 KB larger, so Linux grants them only on request. */
static bool has_amx(void)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    const bool amx = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
                     (edx & AMX_TILE) != 0 && (edx & AMX_BF16) != 0;
    const bool rounds =
        __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & AVX512_BF16) != 0;
    return has_v4() && amx && rounds &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#endif

enum dt_status dt_cpu_isa_bf16(const struct dt_cpu_kernels *kernels,
                               const struct dt_bf16_kernels **out)
{
#if defined(DT_CPU_HAS_AMX)
    if (kernels == &dt_cpu_kernels_v4 && has_amx()) {
        *out = &dt_cpu_bf16_amx;
        return DT_OK;
    }
#endif
    *out = NULL;
    return dt_error(DT_UNAVAILABLE,
                    "precision \"bf16\" on a CPU needs AMX, and %s has none here (use "
                    "\"precision\": \"f32\", which is as fast)",
                    kernels->isa);
}
