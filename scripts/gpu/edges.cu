// What the skeleton of a step costs on this GPU, without the step's work: kernels that wait for
// each other, graphs behind each other, a barrier of a cluster. A line is a name, a number and its
// unit, between tabs.
#include <algorithm>
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#define OK(call) ok(call, #call)
static const int LONG = 20, BLOCK = 256; // kernels of a chain; threads of a block
static cudaStream_t stream;
static cudaEvent_t begun, done;

static void ok(cudaError_t error, const char *call)
{
    if (error != cudaSuccess) {
        const bool none = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver;
        printf("%s: %s: %s\n", none ? "skipped" : "FAILED", call, cudaGetErrorString(error));
        exit(none ? 77 : 1);
    }
}

// Programmatic launch, `early`: the next kernel may begin before this one ends.
__global__ void skeleton(bool early, unsigned n_barriers)
{
    if (early) {
        asm volatile("griddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;" ::: "memory");
    }
    for (unsigned i = 0; i < n_barriers; i++) {
        cooperative_groups::this_cluster().sync();
    }
}

// Microseconds of a call, the median of seven rounds of n behind one that warms up.
static double us_of(int n, const std::function<void()> &enqueue)
{
    float ms[8];
    for (float &round : ms) {
        OK(cudaEventRecord(begun, stream));
        for (int i = 0; i < n; i++) {
            enqueue();
        }
        OK(cudaGetLastError());
        OK(cudaEventRecord(done, stream));
        OK(cudaEventSynchronize(done));
        OK(cudaEventElapsedTime(&round, begun, done));
    }
    std::sort(ms + 1, ms + 8);
    return 1e3 * ms[4] / n;
}

// The same of a graph that has n calls.
static double graph_us(int n, const std::function<void()> &enqueue)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < n; i++) {
        enqueue();
    }
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    return us_of(200, [&] { OK(cudaGraphLaunch(exec, stream)); });
}

static void launch(int blocks, cudaLaunchAttribute with, bool early, unsigned n_barriers)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = BLOCK;
    config.stream = stream;
    config.attrs = &with;
    config.numAttrs = 1;
    OK(cudaLaunchKernelEx(&config, skeleton, early, n_barriers));
}

int main()
{
    const auto show = [](const std::string &name, double us) {
        printf("%s\t%.3f\tus\n", name.c_str(), us);
        fflush(stdout);
    };
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaEventCreate(&begun));
    OK(cudaEventCreate(&done));
    cudaLaunchAttribute early = {}, cluster = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {8, 1, 1};

    for (int blocks : {1, 132, 1056}) {
        const std::string name = " of " + std::to_string(blocks) + " blocks";
        const auto plain = [&] { skeleton<<<blocks, BLOCK, 0, stream>>>(false, 0); };
        const auto overlapping = [&] { launch(blocks, early, true, 0); };
        const double one = graph_us(1, plain);
        show("a graph of one empty kernel" + name, one);
        show("a further kernel" + name, (graph_us(LONG, plain) - one) / (LONG - 1));
        show("a further kernel" + name + ", programmatic launch",
             (graph_us(LONG, overlapping) - one) / (LONG - 1));
    }
    show("a barrier over a cluster of 8 blocks",
         us_of(5, [&] { launch(128, cluster, false, 1000); }) / 1000);
    return 0;
}
