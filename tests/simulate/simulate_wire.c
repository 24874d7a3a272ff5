/* The links between ranks: memory inside a host, a network between hosts. Messages between two
 * ranks never overtake each other, so one that is lost holds up all that come after it. */
#include <string.h>

#include "tests/simulate/sim.h"

static uint64_t last_ns[SIM_MAX_RANKS][SIM_MAX_RANKS]; /* when the last one arrived */
static uint64_t cut_until_ns[SIM_MAX_HOSTS][SIM_MAX_HOSTS];

void sim_wire_begin(void)
{
    memset(last_ns, 0, sizeof last_ns);
    memset(cut_until_ns, 0, sizeof cut_until_ns);
}

void sim_wire_cut(int host_from, int host_to, uint64_t until_ns)
{
    cut_until_ns[host_from][host_to] = until_ns;
}

void sim_wire_lose(int from, int to)
{
    last_ns[from][to] = SIM_NEVER;
}

/* Some messages are a thousand times as slow as most. */
static uint64_t delay_ns(bool same_host)
{
    const uint64_t usual = same_host ? 2000 : 50000;
    const uint64_t scale = sim_chance(&sim.random, 1) ? 1000 : 1;
    return scale * (usual / 2 + sim_below(&sim.random, usual));
}

uint64_t sim_wire_arrival(int from, int to)
{
    const struct sim_rank *sender = &sim.ranks[from];
    const int host = sender->host, other = sim.ranks[to].host;
    uint64_t ns = sender->time_ns;
    if (from == to || last_ns[from][to] == SIM_NEVER) {
        return from == to ? ns : SIM_NEVER;
    }
    if (host != other && cut_until_ns[host][other] > ns) {
        ns = cut_until_ns[host][other];
    }
    ns = ns == SIM_NEVER ? ns : ns + delay_ns(host == other);
    last_ns[from][to] = ns > last_ns[from][to] ? ns : last_ns[from][to];
    return last_ns[from][to];
}
