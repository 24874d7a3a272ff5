#include "ops/doctor/doctor.h"

#include <fcntl.h>
#include <glob.h>
#include <ifaddrs.h>
#include <libgen.h>
#include <math.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#ifdef DTRAIN_HWLOC
#include <hwloc.h>
#endif

#include "base/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "dist/launch/job.h"
#include "dist/launch/launch.h"
#include "model/block.h"
#include "train/device.h"
#include "train/trainer.h"

bool dt_probe_is_first(const struct dt_rank_probe *ranks, int r)
{
    int first = 0;
    while (!dt_probe_same_host(&ranks[first], &ranks[r])) {
        first++;
    }
    return first == r;
}

int dt_probe_count_hosts(const struct dt_rank_probe *ranks, int n)
{
    int n_hosts = 0;
    for (int r = 0; r < n; r++) {
        n_hosts += dt_probe_is_first(ranks, r);
    }
    return n_hosts;
}

int dt_probe_on_host(const struct dt_rank_probe *ranks, int n, int r)
{
    int n_ranks = 0;
    for (int i = 0; i < n; i++) {
        n_ranks += dt_probe_same_host(&ranks[i], &ranks[r]);
    }
    return n_ranks;
}

/* Reads the beginning of a small file of /sys or /proc; false: there is none. */
static bool read_text(const char *path, char *text, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* ---- environment */

/* One checksum over all of them, independent of their order. */
static uint32_t environment_crc(void)
{
    static const char *const prefixes[] = {"MPIR_", "UCX_", "FI_", "NCCL_"};
    uint32_t sum = 0;
    for (char **variable = environ; *variable != NULL; variable++) {
        for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
            if (strncmp(*variable, prefixes[i], strlen(prefixes[i])) == 0) {
                sum += (uint32_t)crc32(0, (const Bytef *)*variable, (uInt)strlen(*variable));
            }
        }
    }
    return sum;
}

static void find_identity(const struct dt_world *world, struct dt_rank_probe *f)
{
    f->rank = world->rank;
    f->local_rank = world->local_rank;
    memcpy(f->host, world->host, sizeof f->host);
    snprintf(f->version, sizeof f->version, "%s", dt_version);
    snprintf(f->mpi, sizeof f->mpi, "%s", dt_mpi_version());
    snprintf(f->launcher, sizeof f->launcher, "%s",
             getenv("HYDI_CONTROL_FD") != NULL                                   ? "mpirun"
             : getenv("SLURM_STEP_ID") != NULL && getenv("SLURM_PROCID") != NULL ? "srun"
                                                                                 : "");
    f->environment = environment_crc();
    f->has_ucx_conf = dt_ucx_has_conf();
}

/* ---- cores, memory and limits */

/* The number in a file; infinite if there is none, or "max". */
static double number_in(const char *path)
{
    char text[64];
    double value;
    return read_text(path, text, sizeof text) && sscanf(text, "%lf", &value) == 1
               ? value
               : (double)INFINITY;
}

/* The kernel's estimate of memory available without swapping. */
static double available_bytes(void)
{
    char text[4096];
    double kb;
    const char *line =
        read_text("/proc/meminfo", text, sizeof text) ? strstr(text, "MemAvailable:") : NULL;
    return line != NULL && sscanf(line, "MemAvailable: %lf", &kb) == 1 ? 1024 * kb
                                                                       : (double)INFINITY;
}

/* Memory left within the control group's limit; versions 2 and 1. */
static double allowed_bytes(void)
{
    const double left2 =
        number_in("/sys/fs/cgroup/memory.max") - number_in("/sys/fs/cgroup/memory.current");
    const double left1 = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes") -
                         number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes");
    const double least =
        fmin(isnan(left2) ? (double)INFINITY : left2, isnan(left1) ? (double)INFINITY : left1);
    return least > 0 ? least : 0;
}

static double limit_of(__rlimit_resource_t resource)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY
               ? (double)INFINITY
               : (double)limit.rlim_cur;
}

/* "always [madvise] never" */
static void find_huge_pages(char out[16])
{
    char text[64];
    const bool found = read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    const char *begin = found ? strchr(text, '[') : NULL;
    snprintf(out, 16, "%.*s", begin != NULL ? (int)strcspn(begin + 1, "]") : 0,
             begin != NULL ? begin + 1 : "");
}

void dt_probe_cpu(char *text, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    text[0] = '\0';
    while (file != NULL && text[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", strlen("model name")) == 0 && colon != NULL) {
            snprintf(text, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* Parses "0.29 0.72 0.43 1/95 22887": load averages, and runnable threads of all, including the
 * reading one. */
static void find_load(struct dt_rank_probe *f)
{
    char text[64];
    if (sched_getaffinity(0, sizeof f->cpus, &f->cpus) == 0) {
        f->n_cpus = CPU_COUNT(&f->cpus);
    }
    f->n_host_cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (!read_text("/proc/loadavg", text, sizeof text) ||
        sscanf(text, "%lf %*f %*f %d/", &f->load, &f->n_runnable) != 2) {
        f->n_runnable = 0;
    }
}

/* Cores and NUMA nodes of the process's CPUs, by hwloc (Broquedis et al. 2010, "hwloc: A generic
 * framework for managing hardware affinities"); zeros without it. */
#ifdef DTRAIN_HWLOC
static void count_cores(int *n_cores, int *n_numa_nodes)
{
    hwloc_topology_t topology;
    *n_cores = *n_numa_nodes = 0;
    if (hwloc_topology_init(&topology) != 0) {
        return;
    }
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    if (cpus != NULL && hwloc_topology_load(topology) == 0 &&
        hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_PROCESS) == 0) {
        const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, cpus, HWLOC_OBJ_CORE);
        hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
        if (nodes != NULL && hwloc_cpuset_to_nodeset(topology, cpus, nodes) == 0) {
            *n_numa_nodes = hwloc_bitmap_weight(nodes);
        }
        *n_cores = cores > 0 ? cores : 0;
        hwloc_bitmap_free(nodes);
    }
    hwloc_bitmap_free(cpus);
    hwloc_topology_destroy(topology);
}
#else
static void count_cores(int *n_cores, int *n_numa_nodes)
{
    *n_cores = *n_numa_nodes = 0;
}
#endif

static void find_machine(struct dt_rank_probe *f)
{
    struct statvfs shm;
    struct utsname system;
    dt_probe_cpu(f->cpu, sizeof f->cpu);
    if (uname(&system) == 0) {
        snprintf(f->kernel, sizeof f->kernel, "%.15s %.47s", system.sysname, system.release);
    }
    count_cores(&f->n_cores, &f->n_numa_nodes);
    f->memory_free = fmin(available_bytes(), allowed_bytes());
    f->shared_free =
        statvfs("/dev/shm", &shm) == 0 ? (double)shm.f_bavail * (double)shm.f_frsize : 0;
    f->max_files = limit_of(RLIMIT_NOFILE);
    f->max_locked = limit_of(RLIMIT_MEMLOCK);
    find_huge_pages(f->huge_pages);
}

static void find_gpu(struct dt_rank_probe *f)
{
    const struct dt_device_module *module;
    struct dt_device_info info;
    int n_devices;
    f->has_gpu = dt_device_load(&module) == DT_OK &&
                 module->probe(f->local_rank, &info, &n_devices) == DT_OK;
    if (f->has_gpu) {
        memcpy(f->gpu, info.name, sizeof f->gpu);
        memcpy(f->gpu_uuid, info.uuid, sizeof f->gpu_uuid);
    } else {
        snprintf(f->why_no_gpu, sizeof f->why_no_gpu, "%s", dt_error_text());
        dt_error_clear();
    }
    dt_gpu_health_find(f->gpu_uuid, &f->gpu_health);
}

/* The fastest interface that is up; wireless ones and the like report no speed. */
static void find_network(struct dt_rank_probe *f)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        char path[64 + IF_NAMESIZE];
        const bool usable = (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_RUNNING) != 0 &&
                            (i->ifa_flags & IFF_LOOPBACK) == 0;
        snprintf(path, sizeof path, "/sys/class/net/%.*s/speed", IF_NAMESIZE, i->ifa_name);
        const double mbps = number_in(path);
        const double speed = isinf(mbps) || mbps < 0 ? 0 : mbps;
        if (usable && (f->network[0] == '\0' || speed > f->network_mbps)) {
            snprintf(f->network, sizeof f->network, "%s", i->ifa_name);
            f->network_mbps = speed;
        }
    }
    freeifaddrs(all);
}

/* "4: ACTIVE" in /sys/class/infiniband/mlx5_0/ports/1/state */
static void find_infiniband(struct dt_rank_probe *f)
{
    glob_t ports;
    char state[32];
    if (glob("/sys/class/infiniband/*/ports/*/state", GLOB_NOSORT, NULL, &ports) != 0) {
        return;
    }
    for (size_t i = 0; i < ports.gl_pathc; i++) {
        f->n_ib_ports++;
        f->n_ib_active += read_text(ports.gl_pathv[i], state, sizeof state) && state[0] == '4';
    }
    globfree(&ports);
}

/* ---- folders */

static void find_data(const struct dt_config *config, struct dt_rank_probe *f)
{
    struct dt_config c = *config;
    struct dt_model model;
    size_t n = 0;
    enum dt_status s = dt_model_lower(&c.model, &model);
    if (s == DT_OK) {
        dt_data_spec_fit(&c.data, &model);
        s = dt_dataset_count(&c.data, DT_SPLIT_TRAIN, &n);
    }
    f->asked_for_data = true;
    f->sees_data = s == DT_OK;
    f->n_samples = (double)n;
    if (!f->sees_data) {
        snprintf(f->why_no_data, sizeof f->why_no_data, "%s", dt_error_text());
        dt_error_clear();
    }
}

#define MARK_SIZE (DT_PATH_SIZE + 32)

/* Creates a file in the folder of runs, or in its nearest existing parent; path "": it cannot. */
static void leave_mark(const char *wanted, struct dt_rank_probe *f, char path[MARK_SIZE])
{
    char text[DT_PATH_SIZE], *folder = text;
    snprintf(text, sizeof text, "%s", wanted);
    while (access(folder, F_OK) != 0 && strcmp(folder, ".") != 0 && strcmp(folder, "/") != 0) {
        folder = dirname(folder);
    }
    snprintf(path, MARK_SIZE, "%s/" DT_FILE_TEMPORARY "doctor-XXXXXX", folder);
    const int fd = mkstemp(path);
    if (fd >= 0) {
        close(fd);
        return;
    }
    snprintf(f->why_no_run, sizeof f->why_no_run, "%.100s: no file can be created there", folder);
    path[0] = '\0';
}

/* Rank 0 writes a file, and each rank checks that it sees it. */
static enum dt_status find_run(struct dt_world *world, const char *folder, struct dt_rank_probe *f)
{
    char path[MARK_SIZE] = "";
    if (world->rank == 0) {
        leave_mark(folder != NULL ? folder : "runs", f, path);
    }
    enum dt_status s = dt_comm_broadcast(world->comm, path, sizeof path, 0,
                                         "name of a file in the folder of runs");
    f->sees_run = path[0] != '\0' && access(path, F_OK) == 0;
    s = s == DT_OK ? dt_comm_barrier(world->comm, "look into the folder of runs") : s;
    if (world->rank == 0 && path[0] != '\0') {
        unlink(path);
    }
    return s;
}

static enum dt_status find_clock(struct dt_world *world, struct dt_rank_probe *f)
{
    struct timespec day;
    DT_TRY(dt_clocks_compare(world->comm, &f->clock));
    clock_gettime(CLOCK_REALTIME, &day);
    f->time_of_day_s =
        (double)day.tv_sec + 1e-9 * (double)day.tv_nsec - (dt_clock_s() + f->clock.offset_s);
    return DT_OK;
}

enum dt_status dt_probe_gather(struct dt_world *world, const struct dt_doctor_spec *spec,
                               struct dt_rank_probe **out)
{
    struct dt_rank_probe mine;
    memset(&mine, 0, sizeof mine); /* padding too: it is sent */
    DT_TRY(
        dt_world_alloc(world, (size_t)world->size, sizeof mine, "the ranks' facts", (void **)out));
    find_identity(world, &mine);
    find_load(&mine);
    if (spec != NULL) {
        find_machine(&mine);
        find_gpu(&mine);
        find_network(&mine);
        find_infiniband(&mine);
        if (spec->config != NULL) {
            find_data(spec->config, &mine);
        }
        DT_TRY(find_run(world, spec->run, &mine));
        DT_TRY(find_clock(world, &mine));
    }
    return dt_comm_allgather(world->comm, &mine, *out, sizeof mine, "exchange of what ranks see");
}
