#include "train/device.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dist/allreduce/formula.h"

/* ---- the module ---- */

#define DRIVER "libcuda.so.1"
#define MODULE "libdtrain_cuda.so"

/* In the program's folder, or where both are installed. */
static bool find_module(char path[PATH_MAX])
{
    static const char *const places[] = {MODULE, "../lib/dtrain/" MODULE};
    char program[PATH_MAX] = "";
    bool found = false;
    const bool known = readlink("/proc/self/exe", program, sizeof program - 1) > 0;
    for (size_t i = 0; known && !found && i < sizeof places / sizeof places[0]; i++) {
        const int n = snprintf(path, PATH_MAX, "%.*s/%s", (int)(strrchr(program, '/') - program),
                               program, places[i]);
        found = n < PATH_MAX && access(path, F_OK) == 0;
    }
    return found;
}

/* Python's packages: nvidia/<name>/lib of VIRTUAL_ENV, CONDA_PREFIX, PATH and ~/.local. */
const char *const dt_device_libraries =
    "LD_LIBRARY_PATH, the module's folders, the system, Python's packages";

static const char *value_of(const char *variable)
{
    const char *value = secure_getenv(variable);
    return value != NULL ? value : "/none";
}

static void *open_library(const char *path, char *why, size_t n_why);

/* A library that the loader does not find, from PyTorch's wheels, say. What needs it then finds it
 * loaded; what it needs is beside it. */
static bool load_from_packages(const char *name)
{
    char places[16384], pattern[PATH_MAX], why[256], *rest = places;
    glob_t found = {0};
    snprintf(places, sizeof places, "%s/bin:%s/bin:%s:%s/.local/bin", value_of("VIRTUAL_ENV"),
             value_of("CONDA_PREFIX"), value_of("PATH"), value_of("HOME"));
    for (const char *place; (place = strsep(&rest, ":")) != NULL;) {
        snprintf(pattern, sizeof pattern, "%s/../lib/python3*/*-packages/nvidia/*/lib/%s", place,
                 name);
        glob(pattern, found.gl_pathc > 0 ? GLOB_APPEND : 0, NULL, &found);
    }
    size_t i = 0;
    while (i < found.gl_pathc && open_library(found.gl_pathv[i], why, sizeof why) == NULL) {
        i++;
    }
    const bool loaded = i < found.gl_pathc;
    globfree(&found);
    return loaded;
}

/* dlopen, with libraries of Python's packages where it lacks some: it names them one by one. */
static void *open_library(const char *path, char *why, size_t n_why)
{
    char missing[256], before[256] = "";
    void *library;
    while ((library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) == NULL) {
        snprintf(why, n_why, "%s", dlerror());
        if (sscanf(why, "%255[^:/]: cannot open shared", missing) != 1 ||
            strcmp(missing, before) == 0 || !load_from_packages(missing)) {
            break;
        }
        memcpy(before, missing, sizeof before);
    }
    return library;
}

static enum dt_status load(const char *path, const struct dt_device_module **out)
{
    char why[512];
    void *library = open_library(path, why, sizeof why);
    if (library == NULL) {
        return dt_error(DT_UNAVAILABLE, "the CUDA module does not load: %s", why);
    }
    const struct dt_device_module *module = dlsym(library, DT_DEVICE_MODULE_SYMBOL);
    if (module == NULL) {
        dlclose(library);
        return dt_error(DT_UNAVAILABLE, "%s is not dtrain's CUDA module", path);
    }
    if (module->version != DT_DEVICE_MODULE_VERSION) {
        const int version = module->version;
        dlclose(library);
        return dt_error(
            DT_UNAVAILABLE,
            "%s has version %d of the interface, this program %d (install both from one build)",
            path, version, DT_DEVICE_MODULE_VERSION);
    }
    *out = module;
    return DT_OK;
}

enum dt_status dt_device_load(const struct dt_device_module **out)
{
    const char *named = getenv("DTRAIN_CUDA_MODULE");
    char path[PATH_MAX];
    if (named != NULL && named[0] != '\0') {
        if (secure_getenv("DTRAIN_CUDA_MODULE") == NULL) {
            return dt_error(DT_UNAVAILABLE, "DTRAIN_CUDA_MODULE names code for a program that has "
                                            "more rights than its caller (unset it)");
        }
        return load(named, out);
    }
    if (dlopen(DRIVER, RTLD_LAZY | RTLD_LOCAL) ==
        NULL) { /* if it is there, the module will need it: it stays */
        return dt_error(DT_UNAVAILABLE, "there is no NVIDIA driver on this host");
    }
    if (!find_module(path)) {
        return dt_error(DT_UNAVAILABLE, "this build of dtrain has no CUDA module, " MODULE);
    }
    return load(path, out);
}

/* ---- the choice ---- */

/* A rank's findings on its host, sent to the others. */
struct finding {
    bool has_gpu;
    bool may_share; /* tests: NCCL is asked all the same, which with NCCL_HOSTID takes ranks of one
                       GPU */
    char host[DT_HOST_SIZE];
    char uuid[48];    /* of the GPU */
    char reason[240]; /* for having none */
};

static enum dt_status find_gpu(const struct dt_world *world, const struct dt_config *config,
                               struct dt_device_choice *out)
{
    int n_gpus = 0;
    if (config->device == DT_DEVICE_CPU || config->device == DT_DEVICE_REF) {
        return dt_error(DT_UNAVAILABLE, "the device is \"%s\"", out->backend->name);
    }
    if (world->comm != NULL) {
        dt_comm_phase(world->comm, DT_PHASE_OPENING);
    }
    DT_TRY(dt_device_load(&out->module));
    return out->module->probe(world->local_rank, &out->info, &n_gpus);
}

static struct finding look(const struct dt_world *world, const struct dt_config *config,
                           struct dt_device_choice *out)
{
    struct finding mine;
    memset(&mine, 0, sizeof mine); /* padding too */
    memcpy(mine.host, world->host, sizeof mine.host);
    mine.has_gpu = find_gpu(world, config, out) == DT_OK;
    mine.may_share = getenv("DTRAIN_SHARE_GPU") != NULL;
    if (mine.has_gpu) {
        memcpy(mine.uuid, out->info.uuid, sizeof mine.uuid);
    } else {
        snprintf(mine.reason, sizeof mine.reason, "%s", dt_error_text());
        dt_error_clear();
    }
    return mine;
}

/* Returns how many ranks have a GPU; if one has none, `why` says which and for what reason, or only
 * the reason when all have the same. */
static int count_gpus(const struct finding *all, int size, char *why, size_t n_why)
{
    int n = 0, first = -1;
    bool alike = true;
    for (int r = 0; r < size; r++) {
        n += all[r].has_gpu;
        first = first < 0 && !all[r].has_gpu ? r : first;
        alike = alike && strcmp(all[r].reason, all[0].reason) == 0;
    }
    if (n < size && alike) {
        snprintf(why, n_why, "%s", all[first].reason);
    } else if (n < size) {
        snprintf(why, n_why, "rank %d on %s has no GPU: %s", first, all[first].host,
                 all[first].reason);
    }
    return n;
}

static bool all_have_their_own(const struct finding *all, int size, char *why, size_t n_why)
{
    DT_ASSERT(size >= 1);
    for (int b = 1; b < size; b++) {
        for (int a = 0; a < b; a++) {
            if (strcmp(all[a].uuid, all[b].uuid) == 0) {
                snprintf(why, n_why, "ranks %d and %d share %s", a, b, all[a].uuid);
                return false;
            }
        }
    }
    return true;
}

/* The first key that asks for a GPU, as a message shows it, and what to do without one. NULL: none
 * does. */
static const char *wish_for_gpu(const struct dt_config *config, const char **cure)
{
    if (config->device == DT_DEVICE_CUDA) {
        *cure = "without one use \"device\": \"cpu\"";
        return "device \"cuda\"";
    }
    if (config->precision ==
        DT_PRECISION_TF32) { /* bf16: some CPUs have it, and say so themselves */
        *cure = "without one use \"precision\": \"f32\"";
        return "precision \"tf32\"";
    }
    if (dt_allreduce_is_for_gpus(config->dist.allreduce)) {
        *cure = "without one use \"allreduce\": \"auto\"";
        return config->dist.allreduce == DT_ALLREDUCE_NCCL ? "allreduce \"nccl\""
                                                           : "allreduce \"staged\"";
    }
    return NULL;
}

/* An allreduce implementation that needs a GPU for each rank. */
static enum dt_status check_allreduce(enum dt_allreduce_type type, bool own, const char *why)
{
    if (type == DT_ALLREDUCE_NCCL && !own) {
        return dt_error(DT_UNAVAILABLE,
                        "allreduce \"nccl\" needs a GPU of its own for every rank (use as many "
                        "ranks as GPUs, or \"allreduce\": \"auto\"): %s",
                        why);
    }
    return DT_OK;
}

/* Every rank decides from the findings of all ranks, and so all decide alike. */
static enum dt_status decide(const struct dt_config *config, const struct finding *all, int size,
                             struct dt_device_choice *out)
{
    const char *cure;
    const enum dt_allreduce_type type = config->dist.allreduce;
    const int n_gpus = count_gpus(all, size, out->why, sizeof out->why);
    if (n_gpus < size) {
        const char *wish = wish_for_gpu(config, &cure);
        out->module = NULL;
        out->idle = n_gpus > 0;
        memset(&out->info, 0, sizeof out->info);
        return wish == NULL ? DT_OK
                            : dt_error(DT_UNAVAILABLE, "%s needs a GPU for every rank (%s): %s",
                                       wish, cure, out->why);
    }
    DT_ASSERT(out->module != NULL && out->module->version == DT_DEVICE_MODULE_VERSION);
    out->backend = out->module->backend;
    const bool own = all[0].may_share || all_have_their_own(all, size, out->why, sizeof out->why);
    if (size > 1 || type == DT_ALLREDUCE_NCCL) {
        DT_TRY(check_allreduce(type, own, out->why));
    }
    const bool may = type == DT_ALLREDUCE_AUTO && size > 1 &&
                     config->dist.compression.type == DT_COMPRESSION_NONE;
    const bool between_devices = own && (type == DT_ALLREDUCE_NCCL || may);
    out->allreduce_open = between_devices ? out->module->allreduce_open : NULL;
    return DT_OK;
}

enum dt_status dt_device_choose(struct dt_world *world, const struct dt_config *config,
                                struct dt_device_choice *out)
{
    *out = (struct dt_device_choice){.backend = config->device == DT_DEVICE_REF ? &dt_ref_backend
                                                                                : &dt_cpu_backend};
    struct finding *all;
    DT_TRY(dt_world_alloc(world, (size_t)world->size, sizeof *all, "what GPUs there are",
                          (void **)&all));
    all[0] = look(world, config, out);
    enum dt_status s = DT_OK;
    if (world->size > 1) {
        const struct finding mine = all[0];
        s = dt_comm_allgather(world->comm, &mine, all, sizeof mine,
                              "exchange of what GPUs there are");
    }
    if (s == DT_OK) {
        s = decide(config, all, world->size, out);
        s = s == DT_OK ? s : dt_error_agreed(s);
    }
    free(all);
    return s;
}
