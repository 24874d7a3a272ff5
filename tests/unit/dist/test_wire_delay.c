/* A wire that delays, on a clock that moves only when told: when messages arrive, whose turn it is
 * on a link, and an allreduce that takes as long as the simulator says. */
#include "dist/allreduce/executor.h"
#include "dist/allreduce/simulate.h"
#include "dist/ranks/wire_delay.h"
#include "tests/lib/check.h"

#define N_RANKS 4
#define N_ELEMS 1200

static double now_s;
static struct dt_wire *wires[N_RANKS];

static double fake_clock(void)
{
    return now_s;
}

static void open_wires(double latency_s, double bandwidth)
{
    const struct dt_wire_delay delay = {
        .latency_s = latency_s, .bandwidth = bandwidth, .clock_s = fake_clock};
    now_s = 0;
    CHECK_OK(dt_wire_open_local(N_RANKS, wires));
    for (int r = 0; r < N_RANKS; r++) {
        CHECK_OK(dt_wire_open_delay(wires[r], &delay, &wires[r]));
    }
}

static void close_wires(void)
{
    for (int r = 0; r < N_RANKS; r++) {
        dt_wire_close(wires[r]);
    }
}

/* One message of 100 bytes. */
struct message {
    int from, to;
    char sent[100], received[100];
    struct dt_wire_request send, receive;
};

static void begin(struct message *m, int from, int to, char mark)
{
    *m = (struct message){.from = from, .to = to};
    memset(m->sent, mark, sizeof m->sent);
    CHECK_OK(dt_wire_send(wires[from], to, 0, m->sent, sizeof m->sent, &m->send));
    CHECK_OK(dt_wire_receive(wires[to], from, 0, m->received, sizeof m->received, &m->receive));
}

static bool has_arrived(struct message *m)
{
    bool sent, received;
    CHECK_OK(dt_wire_test(wires[m->from], &m->send, &sent));
    CHECK_OK(dt_wire_test(wires[m->to], &m->receive, &received));
    CHECK(sent || !received);
    CHECK(!received || memcmp(m->sent, m->received, sizeof m->sent) == 0);
    return received;
}

static void check_arrival(struct message *m, double at_s)
{
    now_s = at_s - 0.01;
    CHECK(!has_arrived(m));
    now_s = at_s;
    CHECK(has_arrived(m));
}

/* 100 bytes at 10 a second, and 3 seconds: 13. Those that share a link follow 10 seconds later,
 * whatever the latency. */
static void check_links(void)
{
    struct message a, b;
    static const int ends[][4] = {
        {0, 1, 0, 2}, {1, 0, 2, 0}, {0, 1, 0, 1}}; /* from one rank, to one rank, along one way */
    for (int i = 0; i < 3; i++) {
        open_wires(3, 10);
        begin(&a, ends[i][0], ends[i][1], 'a');
        begin(&b, ends[i][2], ends[i][3], 'b');
        now_s = 12.99;
        CHECK(!has_arrived(&b) && !has_arrived(&a));
        now_s = 13;
        CHECK(has_arrived(&a) && !has_arrived(&b));
        check_arrival(&b, 23);
        CHECK(dt_wire_sent(wires[ends[i][0]]).all.bytes == (ends[i][0] == ends[i][2] ? 200 : 100));
        close_wires();
    }
    open_wires(3, 10);
    begin(&a, 0, 1, 'a');
    begin(&b, 1, 0, 'b'); /* both ways at once */
    now_s = 13;
    CHECK(has_arrived(&a) && has_arrived(&b));
    begin(&a, 2, 3, 'c'); /* a link that was idle is free */
    check_arrival(&a, 26);
    close_wires();
}

/* A receiver that asks for the second message first gets it second all the same; and a message
 * given up is freed.
 */
static void check_order(void)
{
    struct message a, b;
    open_wires(3, 10);
    begin(&a, 0, 1, 'a');
    begin(&b, 0, 1, 'b');
    now_s = 100;
    CHECK(!has_arrived(&b) || a.received[0] == 'a');
    while (!has_arrived(&a) || !has_arrived(&b)) {
        now_s += 1;
    }
    CHECK(a.received[0] == 'a' && b.received[0] == 'b');
    begin(&a, 2, 3, 'c');
    close_wires();
}

/* In ticks of a thousandth of what it should take. */
static double allreduce_s(const struct dt_algorithm *algorithm, double tick_s)
{
    static float data[N_RANKS][N_ELEMS];
    struct dt_executor executors[N_RANKS];
    bool done[N_RANKS] = {false};
    for (int r = 0; r < N_RANKS; r++) {
        for (int i = 0; i < N_ELEMS; i++) {
            data[r][i] = (float)(r + i);
        }
        CHECK_OK(dt_executor_open(algorithm, wires[r], data[r], N_ELEMS, 1, NULL, &executors[r]));
        CHECK_OK(dt_executor_start(&executors[r], 0, 0, 0, N_ELEMS));
    }
    for (int n_done = 0; n_done < N_RANKS; now_s += tick_s) {
        n_done = 0;
        for (int r = 0; r < N_RANKS; r++) {
            CHECK_OK(dt_executor_progress(&executors[r], 0, &done[r]));
            n_done += done[r];
        }
    }
    for (int r = 0; r < N_RANKS; r++) {
        for (int i = 0; i < N_ELEMS; i++) {
            CHECK(data[r][i] == (float)(6 + 4 * i));
        }
        dt_executor_close(&executors[r]);
    }
    return now_s;
}

/* Where no two messages of a rank are under way at once the simulator's clock has the same to say.
 */
static void check_simulated(void)
{
    static const char *const names[] = {"ring", "tree", "recursive_doubling", "halving_doubling"};
    const struct dt_costs costs = {.ranks_per_host = 1, .between = {2e-3, 1e-6}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct dt_simulation s;
        CHECK_OK(dt_simulate(dt_algorithm_find(names[i]), N_RANKS, N_ELEMS, &costs, &s, NULL));
        open_wires(2e-3, 1e6);
        const double took_s = allreduce_s(dt_algorithm_find(names[i]), s.seconds / 1000);
        CHECK_MESSAGE(took_s >= 0.999 * s.seconds && took_s <= 1.03 * s.seconds,
                      "%s: %g s, simulated %g", names[i], took_s, s.seconds);
        close_wires();
    }
}

int main(void)
{
    check_links();
    check_order();
    check_simulated();
    return 0;
}
