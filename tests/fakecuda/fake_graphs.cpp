/* Recording and running graphs on fake CUDA. */
#include "tests/fakecuda/fake_runtime.h"

using namespace fake;

struct CUgraph_st {
    std::vector<node> nodes;
};

struct CUgraphExec_st {
    std::vector<piece> pieces;
};

static long n_captures;
static living<CUgraph_st> graphs = {"graph", {}};
static living<CUgraphExec_st> executables = {"executable graph", {}};

bool fake::any_graph()
{
    return !graphs.all.empty() || !executables.all.empty();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    ENTER();
    need_stream(stream, __func__);
    FAKE_CHECK(!recording && mode == cudaStreamCaptureModeThreadLocal,
               "fake CUDA supports one recording at a time, and of the mode ThreadLocal alone");
    recording = capture{stream, ++n_captures, false, false, {}};
    stream->capturing = true;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    ENTER();
    need_stream(stream, __func__);
    *status = !stream->capturing   ? cudaStreamCaptureStatusNone
              : recording->invalid ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* True if the origin has waited for everything that other streams recorded. */
static bool all_joined()
{
    const auto &nodes = recording->nodes;
    std::set<size_t> joined(recording->origin->tail.begin(), recording->origin->tail.end());
    for (size_t i = nodes.size(); i-- > 0;) { /* a node comes after those that it waits for */
        if (joined.count(i) == 0) {
            return false;
        }
        joined.insert(nodes[i].after.begin(), nodes[i].after.end());
    }
    return true;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = nullptr;
    ENTER();
    need_stream(stream, __func__);
    FAKE_CHECK(recording && stream == recording->origin,
               "%s: the recording did not begin on this stream", __func__);
    const cudaError_t used = use_graph(__func__);
    const cudaError_t code =
        used != cudaSuccess || all_joined() ? used : cudaErrorStreamCaptureUnjoined;
    if (code == cudaSuccess) {
        *graph = graphs.add(new CUgraph_st{recording->nodes});
    }
    for (const auto &each : streams) {
        each->capturing = false;
        each->tail.clear();
    }
    recording.reset();
    return fail(code);
}

/* In the runtime's form: a line for each node and for each dependency. */
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned)
{
    ENTER();
    FILE *file = fopen(path, "w");
    FAKE_CHECK(file != nullptr, "%s: %s cannot be written", __func__, path);
    fprintf(file,
            "digraph dot {\nsubgraph cluster_1 {\nlabel=\"graph_1\" graph[style=\"dashed\"];\n");
    for (size_t i = 0; i < graph->nodes.size(); i++) {
        fprintf(file,
                "\"graph_1_node_%zu\"[style=\"solid\" shape=\"rectangle\" label=\"%zu\n%s, %ld "
                "bytes\n\"];\n",
                i, i, graph->nodes[i].work.name, graph->nodes[i].work.n_bytes);
        for (const size_t before : graph->nodes[i].after) {
            fprintf(file, "\"graph_1_node_%zu\" -> \"graph_1_node_%zu\";\n", before, i);
        }
    }
    fputs("}\n}\n", file);
    fclose(file);
    return cudaSuccess;
}

/* Runs nodes in an order that the dependencies allow, but as far from the recorded one as
 * possible. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    ENTER();
    const auto unlike = [graph](const node &node) {
        return node.priority != graph->nodes[0].priority;
    };
    FAKE_CHECK((flags & cudaGraphInstantiateFlagUseNodePriority) != 0 ||
                   std::none_of(graph->nodes.begin(), graph->nodes.end(), unlike),
               "%s: without cudaGraphInstantiateFlagUseNodePriority the priorities of the graph's "
               "nodes are lost",
               __func__);
    std::vector<piece> pieces;
    std::vector<bool> placed(graph->nodes.size());
    while (pieces.size() < graph->nodes.size()) {
        for (size_t i = graph->nodes.size(); i-- > 0;) {
            const node &node = graph->nodes[i];
            if (!placed[i] && std::all_of(node.after.begin(), node.after.end(),
                                          [&placed](size_t j) { return placed[j]; })) {
                placed[i] = true;
                pieces.push_back(node.work);
                break;
            }
        }
    }
    *exec = executables.add(new CUgraphExec_st{pieces});
    return cudaSuccess;
}

/* Launches that may wait on a stream before the next one blocks. The driver's number is larger, and
 * undocumented. */
constexpr int most_launches = 8;

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    ENTER();
    need_stream(stream, __func__);
    FAKE_CHECK(!stream->capturing, "a graph is launched while another is recorded");
    FAKE_CHECK(stream->n_launches < most_launches, "%s blocks behind %d others", __func__,
               most_launches);
    stream->n_launches++;
    /* a copy: a waiting item stores its progress */
    return enqueue_until(
        stream, __func__,
        [stream, pieces = executables.need(exec, __func__)->pieces, next = size_t(0)]() mutable {
            while (next < pieces.size() && perform(pieces[next])) {
                next++;
            }
            const bool done = next == pieces.size();
            stream->n_launches -= done;
            return done;
        });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    const cudaError_t entered = enter(__func__);
    graphs.remove(graph, __func__);
    return fail(entered);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    const cudaError_t entered = enter(__func__);
    executables.remove(exec, __func__);
    return fail(entered);
}
