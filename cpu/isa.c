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
static const struct isa {
    const char *name;
    const struct dt_cpu_kernels *kernels; /* NULL: not in this build */
    bool (*supported)(void);
} isas[DT_CPU_MAX_ISAS] = {
    {"x86-64-v4", KERNELS_V4, has_v4},
    {"x86-64-v3", KERNELS_V3, has_v3},
    {"baseline", &dt_cpu_kernels_baseline, has_baseline},
};

static bool is_usable(const struct isa *isa)
{
    return isa->kernels != NULL && isa->supported();
}

int dt_cpu_isa_list(const char *names[DT_CPU_MAX_ISAS])
{
    int n = 0;
    for (int i = 0; i < DT_CPU_MAX_ISAS; i++) {
        if (is_usable(&isas[i])) {
            names[n++] = isas[i].name;
        }
    }
    DT_ASSERT(n >= 1);
    return n;
}

static const struct isa *find(const char *name)
{
    for (int i = 0; i < DT_CPU_MAX_ISAS; i++) {
        if (strcmp(name, isas[i].name) == 0) {
            return &isas[i];
        }
    }
    return NULL;
}

static const struct isa *best(void)
{
    const char *names[DT_CPU_MAX_ISAS];
    dt_cpu_isa_list(names);
    return find(names[0]);
}

/* The value of DTRAIN_ISA; NULL: none is wanted. */
static const char *wanted_name(void)
{
    const char *name = getenv("DTRAIN_ISA");
    return name != NULL && name[0] != '\0' ? name : NULL;
}

enum dt_status dt_cpu_isa_choose(const struct dt_cpu_kernels **out)
{
    const char *name = wanted_name();
    const struct isa *isa = name != NULL ? find(name) : best();
    if (isa == NULL) {
        return dt_error(DT_CONFIG,
                        "DTRAIN_ISA=%s: no such instruction set (use x86-64-v4, x86-64-v3 or "
                        "baseline, or unset it)",
                        name);
    }
    if (!isa->supported()) {
        return dt_error(DT_UNAVAILABLE,
                        "DTRAIN_ISA=%s: this processor does not have it (the best it has is %s)",
                        name, best()->name);
    }
    if (isa->kernels == NULL) {
        return dt_error(DT_UNAVAILABLE,
                        "DTRAIN_ISA=%s: this build does not have it (build with -DDTRAIN_ISAS=all)",
                        name);
    }
    *out = isa->kernels;
    return DT_OK;
}

const char *dt_cpu_isa(void)
{
    const char *name = wanted_name();
    const struct isa *isa = name != NULL ? find(name) : NULL;
    return isa != NULL && is_usable(isa) ? isa->name : best()->name;
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
