/* Recording and running graphs on fake CUDA. */
#include "tests/fakecuda/fake_runtime.h"

using namespace fake;

struct CUgraph_st {
    std::vector<node> nodes;
};

struct CUgraphExec_st {
    std::shared_ptr<std::vector<piece>> pieces;
};

static long n_captures;
static fake_living<CUgraph_st> graphs = {"graph", {}};
static fake_living<CUgraphExec_st> executables = {"executable graph", {}};

long fake_holders_in_graphs(const std::shared_ptr<void> &held)
{
    const auto holds = [&held](const piece &piece) { return piece.held == held; };
    long n = 0;
    for (const cudaGraph_t graph : graphs.all) {
        n += std::any_of(graph->nodes.begin(), graph->nodes.end(),
                         [&holds](const node &node) { return holds(node.work); });
    }
    for (const cudaGraphExec_t exec : executables.all) {
        n += std::any_of(exec->pieces->begin(), exec->pieces->end(), holds);
    }
    return n;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    ENTER();
    need_stream(stream, __func__);
    if (stream->capturing) {
        return spoil_capture(cudaErrorIllegalState);
    }
    if (recording || mode != cudaStreamCaptureModeThreadLocal) {
        fake_die("fake CUDA supports one recording at a time, and of the mode ThreadLocal alone");
    }
    recording = capture{stream, ++n_captures, false, std::this_thread::get_id(), {}};
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
    std::vector<bool> joined(recording->nodes.size());
    std::vector<size_t> next = recording->origin->tail;
    while (!next.empty()) {
        const size_t i = next.back();
        next.pop_back();
        if (!joined[i]) {
            joined[i] = true;
            next.insert(next.end(), recording->nodes[i].after.begin(),
                        recording->nodes[i].after.end());
        }
    }
    return std::find(joined.begin(), joined.end(), false) == joined.end();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = nullptr;
    ENTER();
    need_stream(stream, __func__);
    if (!stream->capturing) {
        return fail(cudaErrorIllegalState);
    }
    if (stream != recording->origin) {
        return spoil_capture(cudaErrorStreamCaptureUnmatched);
    }
    need_graph(__func__);
    const cudaError_t code = recording->invalid ? cudaErrorStreamCaptureInvalidated
                             : all_joined()     ? cudaSuccess
                                                : cudaErrorStreamCaptureUnjoined;
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
    if (file == nullptr) {
        return fail(cudaErrorOperatingSystem);
    }
    fprintf(file,
            "digraph dot {\nsubgraph cluster_1 {\nlabel=\"graph_1\" graph[style=\"dashed\"];\n");
    for (size_t i = 0; i < graph->nodes.size(); i++) {
        fprintf(file,
                "\"graph_1_node_%zu\"[style=\"solid\" shape=\"rectangle\" label=\"%zu\n%s, %ld "
                "bytes\n\"];\n",
                i, i, graph->nodes[i].work.name.c_str(), graph->nodes[i].work.n_bytes);
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
    if ((flags & cudaGraphInstantiateFlagUseNodePriority) == 0 &&
        std::any_of(graph->nodes.begin(), graph->nodes.end(), unlike)) {
        fake_die("%s: without cudaGraphInstantiateFlagUseNodePriority the priorities of the "
                 "graph's nodes are lost",
                 __func__);
    }
    const auto pieces = std::make_shared<std::vector<piece>>();
    std::vector<bool> placed(graph->nodes.size());
    while (pieces->size() < graph->nodes.size()) {
        for (size_t i = graph->nodes.size(); i-- > 0;) {
            const node &node = graph->nodes[i];
            if (!placed[i] && std::all_of(node.after.begin(), node.after.end(),
                                          [&placed](size_t j) { return placed[j]; })) {
                placed[i] = true;
                pieces->push_back(node.work);
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
    if (stream->capturing) {
        fake_die("a graph is launched while another is recorded");
    }
    if (stream->n_launches == most_launches) {
        const cudaError_t blocked =
            block(stream, [stream] { return stream->n_launches < most_launches; });
        if (blocked != cudaSuccess) {
            return blocked;
        }
    }
    stream->n_launches++;
    const auto pieces = std::make_shared<std::vector<piece>>(
        *exec->pieces); /* copies: a waiting item stores its progress */
    for (piece &each : *pieces) {
        each.run = each.launched ? each.launched() : each.run;
    }
    const auto next = std::make_shared<size_t>(0);
    return fake_enqueue_until(stream, __func__, [stream, pieces, next] {
        while (*next < pieces->size() && perform((*pieces)[*next])) {
            ++*next;
        }
        const bool done = *next == pieces->size();
        stream->n_launches -= done;
        return done;
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    const cudaError_t entered = enter(__func__);
    graphs.remove(graph);
    return fail(entered);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    const cudaError_t entered = enter(__func__);
    executables.remove(exec);
    return fail(entered);
}
