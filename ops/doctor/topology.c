/* dt_topology_count of facts.h, by hwloc (Broquedis et al. 2010, "hwloc: A generic framework for
 * managing hardware affinities"). */
#include "ops/doctor/doctor.h"

#ifdef DTRAIN_HWLOC
#include <hwloc.h>
#include <stdio.h>

const char *dt_topology_library(void)
{
    static char text[32];
    const unsigned version = hwloc_get_api_version();
    snprintf(text, sizeof text, "hwloc, API %u.%u", version >> 16, version >> 8 & 0xFF);
    return text;
}

void dt_topology_count(int *n_cores, int *n_numa_nodes)
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
const char *dt_topology_library(void)
{
    return "none";
}

void dt_topology_count(int *n_cores, int *n_numa_nodes)
{
    *n_cores = *n_numa_nodes = 0;
}
#endif
