/* What fails in dist/: each allocation in turn, each operation of a wire, threads, messages that
 * are too long, and a program that links less than the configuration asks for. */
#include <limits.h>
#include <pthread.h>

#include "dist/allreduce/allreduce.h"
#include "dist/allreduce/simulate.h"
#include "dist/compression/fixed_point.h"
#include "dist/liveness/start_watch.h"
#include "dist/liveness/table.h"
#include "dist/liveness/watchdog.h"
#include "dist/ranks/wire_delay.h"
#include "dist/strategy/strategy.h"
#include "dist/strategy/summary/traffic_plan.h"
#include "tests/lib/check.h"
#include "tests/lib/failing.h"
#include "tests/lib/layers.h"
#include "tests/lib/wrap.h"

static int n_threads_left = INT_MAX; /* that the system still gives */

WRAP(int, pthread_create, pthread_t *out, const pthread_attr_t *attributes,
     void *(*function)(void *), void *context)
{
    return n_threads_left-- > 0 ? __real_pthread_create(out, attributes, function, context)
                                : EAGAIN;
}

FAILING(void *, aligned_alloc, (size_t alignment, size_t n), (alignment, n))

WRAP(int, posix_memalign, void **memory, size_t alignment, size_t n)
{
    return fails() ? ENOMEM : __real_posix_memalign(memory, alignment, n);
}

/* ---- each allocation in turn */

static double clock_s(void)
{
    static double now_s;
    return now_s += 1;
}

/* A message from rank 0 to rank 1, over wires that delay. */
static enum dt_status send_one(void)
{
    const struct dt_wire_delay delay = {.bandwidth = 1e9, .clock_s = clock_s};
    struct dt_wire *wires[2];
    struct dt_wire_request send = {0}, receive = {0};
    char from = 1, to = 0;
    bool sent, came = false;
    DT_TRY(dt_wire_open_local(2, wires));
    enum dt_status s = dt_wire_open_delay(wires[0], &delay, &wires[0]);
    s = s == DT_OK ? dt_wire_send(wires[0], 1, 0, &from, 1, &send) : s;
    s = s == DT_OK ? dt_wire_test(wires[0], &send, &sent) : s;
    s = s == DT_OK ? dt_wire_receive(wires[1], 0, 0, &to, 1, &receive) : s;
    s = s == DT_OK ? dt_wire_test(wires[1], &receive, &came) : s;
    s = s == DT_OK ? dt_wire_test(wires[1], &receive, &came) : s;
    s = s == DT_OK ? dt_wire_test(wires[0], &send, &sent) : s;
    CHECK(s != DT_OK || (sent && came && to == 1));
    for (int r = 0; r < 2; r++) {
        dt_wire_close(wires[r]);
    }
    return s;
}

static enum dt_status receive_one(void)
{
    const struct dt_wire_delay delay = {.bandwidth = 1e9, .clock_s = clock_s};
    struct dt_wire *wires[2];
    struct dt_wire_request receive = {0};
    char to;
    DT_TRY(dt_wire_open_local(2, wires));
    enum dt_status s = dt_wire_open_delay(wires[1], &delay, &wires[1]);
    s = s == DT_OK ? dt_wire_receive(wires[1], 0, 0, &to, 1, &receive) : s;
    for (int r = 0; r < 2; r++) {
        dt_wire_close(wires[r]);
    }
    return s;
}

static enum dt_status simulate_ring(void)
{
    const struct dt_costs costs = {.ranks_per_host = 1, .between = {1e-6, 1e-9}};
    struct dt_simulation simulation;
    return dt_simulate(dt_algorithm_find("ring"), 4, 100, &costs, &simulation, NULL);
}

static struct dt_comm *self;

static enum dt_status watch(void)
{
    struct dt_watchdog *dog;
    const struct dt_watchdog_options options = {.host = "here"};
    DT_TRY(dt_watchdog_open(self, &options, &dog));
    dt_watchdog_close(dog);
    return DT_OK;
}

static const struct dt_model_spec layers = {
    .input = {1, 2, 2}, .n_layers = 2, .layers = {LAYER(FLATTEN), DENSE(3, NONE)}};
static struct dt_model model;
static struct dt_backend *backend;
static struct dt_strategy_spec spec;

static enum dt_status open_strategy(void)
{
    struct dt_strategy *strategy;
    DT_TRY(dt_strategy_open(&spec, &strategy));
    dt_strategy_close(strategy);
    return DT_OK;
}

static void each_allocation(const char *what, enum dt_status (*use)(void), long least)
{
    enum dt_status s = DT_NO_MEMORY;
    for (long n = 1; s != DT_OK; n++) {
        dt_error_clear();
        n_calls = 0;
        failing_call = n;
        s = use();
        const bool failed = n_calls >= n;
        failing_call = 0;
        CHECK_MESSAGE(failed ? s == DT_NO_MEMORY : s == DT_OK && n > least,
                      "%s: allocation %ld: status %d, \"%s\"", what, n, (int)s, dt_error_text());
        if (!failed) {
            break;
        }
    }
}

static void each_thread(const char *what, enum dt_status (*use)(void), int n_threads)
{
    for (int n = 0; n <= n_threads; n++) {
        n_threads_left = n;
        const enum dt_status s = use();
        n_threads_left = INT_MAX;
        CHECK_MESSAGE(s == (n < n_threads ? DT_NO_MEMORY : DT_OK), "%s: %d threads: status %d",
                      what, n, (int)s);
    }
}

static enum dt_status watch_start(void)
{
    DT_TRY(dt_start_watch_open("here"));
    dt_start_watch_close();
    return DT_OK;
}

/* ---- a wire whose n-th operation fails */

static int n_operations;

static enum dt_status operation(void)
{
    return --n_operations == 0 ? dt_error(DT_STALLED, "the wire is broken") : DT_OK;
}

static enum dt_status broken_send(struct dt_wire *wire, int peer, int tag, const void *bytes,
                                  size_t n, struct dt_wire_request *request)
{
    (void)wire, (void)peer, (void)tag, (void)bytes, (void)n, (void)request;
    return operation();
}

static enum dt_status broken_receive(struct dt_wire *wire, int peer, int tag, void *bytes, size_t n,
                                     struct dt_wire_request *request)
{
    (void)wire, (void)peer, (void)tag, (void)bytes, (void)n, (void)request;
    return operation();
}

static enum dt_status broken_test(struct dt_wire *wire, struct dt_wire_request *request, bool *done)
{
    (void)wire, (void)request;
    *done = true;
    return operation();
}

static void broken_close(struct dt_wire *wire)
{
    (void)wire;
}

static void check_broken(void)
{
    static const struct dt_wire_ops ops = {
        .send = broken_send, .receive = broken_receive, .test = broken_test, .close = broken_close};
    const struct dt_wire_delay delay = {.bandwidth = 1e9, .clock_s = clock_s};
    struct dt_traffic sent[2] = {0};
    struct dt_wire broken = {.ops = &ops, .size = 2, .sent = sent}, *wire;
    for (int n = 1; n <= 5; n++) {
        struct dt_wire_request send = {0}, receive = {0};
        char byte = 0;
        bool done;
        CHECK_OK(dt_wire_open_delay(&broken, &delay, &wire));
        n_operations = n; /* receive; send, test of the receive; test of the send */
        enum dt_status s = dt_wire_receive(wire, 1, 0, &byte, 1, &receive);
        s = s == DT_OK ? dt_wire_send(wire, 1, 0, &byte, 1, &send) : s;
        s = s == DT_OK ? dt_wire_test(wire, &receive, &done) : s;
        s = s == DT_OK ? dt_wire_test(wire, &send, &done) : s;
        CHECK_INT(s, n <= 4 ? DT_STALLED : DT_OK);
        dt_wire_close(wire);
    }
}

static void check_lengths(void)
{
    struct dt_wire *wires[2];
    struct dt_wire_request requests[2] = {0};
    char bytes[2] = {0};
    const size_t most = INT_MAX;
    CHECK_OK(dt_wire_open_local(2, wires));
    CHECK_FAILS(dt_wire_send(wires[0], 1, 0, bytes, most + 1, &requests[0]), DT_CONFIG, "too many");
    CHECK_FAILS(dt_wire_receive(wires[0], 1, 0, bytes, most + 1, &requests[0]), DT_CONFIG,
                "use smaller buckets");
    CHECK_FAILS(dt_comm_allgather(self, bytes, bytes, most + 1, "a test"), DT_CONFIG, "a test");
    CHECK_OK(dt_wire_send(wires[0], 1, 0, bytes, 2, &requests[0]));
    CHECK_FAILS(dt_wire_receive(wires[1], 0, 0, bytes, 1, &requests[1]), DT_INTERNAL, "2");
    free(requests[0].handle); /* its receive never matches */
    free(requests[1].handle);
    for (int r = 0; r < 2; r++) {
        dt_wire_close(wires[r]);
    }
}

/* ---- ranks that are too few, or too many */

static void check_number_of_ranks(void)
{
    struct dt_comm many = {.size = DT_FIXED_MOST_RANKS + 1};
    const char *key;
    struct dt_strategy_spec asks = spec;
    struct dt_planned_traffic plan;
    asks.dist.average = true;
    asks.dist.strategy = DT_STRATEGY_PARAMETER_SERVER;
    asks.dist.servers = 1;
    CHECK_FAILS(dt_traffic_plan(&asks.dist, &model, self, &plan), DT_CONFIG,
                "1 server of 1 rank leave no worker");
    asks = spec;
    asks.dist.average = asks.dist.deterministic = true;
    asks.comm = &many;
    CHECK_FAILS(dt_strategy_check(&asks, &key), DT_CONFIG, "gradients of at most 2048 ranks");
}

/* ---- a program that links less */

static void check_links(void)
{
    static const struct dt_allreduce_entry *const no_allreduce[] = {NULL};
    static const struct dt_strategy_entry *const no_strategy[] = {NULL};
    struct dt_strategy_spec asks = spec;
    struct dt_dist_entries less = dt_all_entries;
    struct dt_allreduce_spec sums = {.comm = self, .n_slots = 1};
    struct dt_planned_traffic plan;
    struct dt_allreduce *allreduce;
    struct dt_strategy *strategy;
    const char *key;
    sums.rows.implementations = no_allreduce;
    CHECK_FAILS(dt_allreduce_open(&sums, &allreduce), DT_INTERNAL, "links no allreduce for");
    asks.dist.rows = &less;
    less.strategies = no_strategy;
    CHECK_FAILS(dt_strategy_open(&asks, &strategy), DT_INTERNAL, "links no strategy");
    less = dt_all_entries;
    asks.dist.average = true;
    asks.dist.compression.type = DT_COMPRESSION_TOPK;
    less.codecs = NULL;
    CHECK_FAILS(dt_strategy_open(&asks, &strategy), DT_INTERNAL, "links no codec \"topk\"");
    CHECK_FAILS(dt_traffic_plan(&asks.dist, &model, self, &plan), DT_INTERNAL, "links no codec");
    const struct dt_codec *codec = NULL;
    bool all;
    CHECK_FAILS(less.compression->open(&asks, &codec, &all), DT_INTERNAL, "links no codec");
    asks.backend = NULL;
    CHECK_FAILS(dt_strategy_check(&asks, &key), DT_INTERNAL, "links no codec \"topk\"");
    asks = spec;
    asks.dist.rows = &less;
    asks.dist.compression.type = DT_COMPRESSION_TOPK;
    less.compression = NULL;
    CHECK_FAILS(dt_strategy_open(&asks, &strategy), DT_INTERNAL, "links no codec");
}

int main(void)
{
    CHECK_OK(dt_comm_open_self(&self));
    CHECK_OK(dt_liveness_open(self));
    CHECK_OK(dt_model_lower(&layers, &model));
    CHECK_OK(dt_ref_backend.open(&(struct dt_backend_options){.n_threads = 1}, &backend));
    spec = (struct dt_strategy_spec){.dist = {.rows = &dt_all_entries, .bucket_bytes = 64},
                                     .optimizer = {.lr = 0.1, .momentum = 0.9},
                                     .model = &model,
                                     .comm = self,
                                     .backend = backend,
                                     .capacity = 2,
                                     .accumulate = 1};
    each_allocation("a message sent", send_one, 5);
    each_allocation("a message received", receive_one, 5);
    each_allocation("the simulator", simulate_ring, 2);
    each_allocation("the watchdog", watch, 1);
    each_allocation("a strategy", open_strategy, 2);
    each_thread("the watchdog", watch, 2);
    each_thread("the start", watch_start, 1);
    check_broken();
    check_lengths();
    check_number_of_ranks();
    check_links();
    dt_ref_backend.close(backend);
    dt_comm_close(self);
    return 0;
}
