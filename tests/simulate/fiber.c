/* A fiber per rank. The one that is the least far in time runs until it waits for something, so
 * that nothing it does comes from another's future. */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulate/sim.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define __asan_unpoison_memory_region(memory, size) ((void)(memory))
#define __sanitizer_start_switch_fiber(save, bottom, size) \
    ((void)(save), (void)(bottom), (void)(size))
#define __sanitizer_finish_switch_fiber(save, bottom, size) \
    ((void)(save), (void)(bottom), (void)(size))
#endif

#define STACK_SIZE ((size_t)1 << 21)
#define FIRST_PAUSE_NS 2000
#define LAST_PAUSE_NS (20 * SIM_MS)
#define KILL_DELAY_NS (300 * SIM_MS) /* the launcher takes so long at most */
#define MOST_SWITCHES 2000000
#define MOST_NS (3600 * SIM_S)

struct sim sim;

static jmp_buf scheduler;
static const void *scheduler_stack;
static size_t scheduler_stack_size;
static void *scheduler_fake_stack;
static char *stacks[SIM_MAX_RANKS];

/* ---- the state that a process has once, and each rank has here */

static void put_error_away(struct sim_rank *rank)
{
    const char *text = dt_error_text();
    memcpy(rank->error, text, text[0] != '\0' ? DT_ERROR_TEXT_SIZE : 1);
    rank->error_agreed = dt_error_is_agreed();
}

static void take_error_out(const struct sim_rank *rank)
{
    dt_error_clear();
    if (rank->error_agreed) {
        dt_error_agreed(DT_OK);
    }
    memcpy((char *)(uintptr_t)dt_error_text(), rank->error,
           rank->error[0] != '\0' ? DT_ERROR_TEXT_SIZE : 1);
}

/* ---- switching */

/* The C library's own longjmp: swapcontext asks the kernel for the signal mask at each switch, and
 * the address sanitizer's longjmp clears the whole stack's shadow, which
 * __sanitizer_start_switch_fiber makes needless. */
static void (*jump)(jmp_buf to, int value);

static void find_jump(void)
{
    void *library = dlopen("libc.so.6", RTLD_LAZY);
    void *symbol = library != NULL ? dlsym(library, "_longjmp") : NULL;
    if (symbol == NULL) {
        abort();
    }
    memcpy(&jump, &symbol, sizeof jump);
}

static void to_scheduler(bool for_ever)
{
    struct sim_rank *rank = sim.now;
    put_error_away(rank);
    __sanitizer_start_switch_fiber(for_ever ? NULL : &rank->fake_stack, scheduler_stack,
                                   scheduler_stack_size);
    if (_setjmp(rank->context) == 0) {
        jump(scheduler, 1);
    }
    __sanitizer_finish_switch_fiber(rank->fake_stack, &scheduler_stack, &scheduler_stack_size);
}

static void to_rank(struct sim_rank *rank)
{
    sim.now = rank;
    sim.n_switches++;
    take_error_out(rank);
    __sanitizer_start_switch_fiber(&scheduler_fake_stack, rank->stack, STACK_SIZE);
    if (_setjmp(scheduler) == 0 && rank->runs) {
        jump(rank->context, 1);
    } else if (!sim.now->runs) {
        sim.now->runs = true;
        setcontext(&sim.now->first);
    }
    __sanitizer_finish_switch_fiber(scheduler_fake_stack, NULL, NULL);
    sim.now = NULL;
}

static void begin_rank(void)
{
    __sanitizer_finish_switch_fiber(NULL, &scheduler_stack, &scheduler_stack_size);
    sim_rank_main();
}

void sim_end(enum sim_state state, int code)
{
    struct sim_rank *rank = sim.now;
    rank->state = state;
    rank->code = code;
    rank->end_ns = rank->time_ns;
    sim_trace("%s with code %d", state == SIM_ENDED ? "ends" : "is killed", code);
    to_scheduler(true);
    __builtin_unreachable();
}

void sim_yield(void)
{
    struct sim_rank *rank = sim.now;
    rank->time_ns += rank->pause_ns + sim_below(&sim.random, rank->pause_ns / 4);
    rank->pause_ns = rank->pause_ns * 2 < LAST_PAUSE_NS ? rank->pause_ns * 2 : LAST_PAUSE_NS;
    to_scheduler(false);
}

void sim_progress(void)
{
    sim.now->pause_ns = FIRST_PAUSE_NS;
}

void sim_sleep(uint64_t ns)
{
    sim.now->time_ns = ns == SIM_NEVER ? ns : sim.now->time_ns + ns;
    to_scheduler(false);
    sim_point("after a sleep");
}

void sim_take_others(int code)
{
    const uint64_t now_ns = sim.now->time_ns;
    sim.job_code = sim.job_code < 0 ? code : sim.job_code;
    sim_trace("has the launcher end the job with code %d", code);
    for (int r = 0; r < sim.plan->n_ranks; r++) {
        struct sim_rank *rank = &sim.ranks[r];
        const uint64_t kill_ns = now_ns + sim_below(&sim.random, KILL_DELAY_NS);
        if (rank->state == SIM_ALIVE && kill_ns < rank->kill_ns) {
            rank->kill_ns = kill_ns;
        }
    }
}

/* ---- faults */

static void cut(const struct sim_fault *fault)
{
    const int host = sim.now->host, other = sim.ranks[fault->peer].host;
    const uint64_t until_ns =
        fault->seconds > 0 ? sim.now->time_ns + (uint64_t)(fault->seconds * 1e9) : SIM_NEVER;
    sim_wire_cut(host, other, until_ns);
    if (fault->both_ways) {
        sim_wire_cut(other, host, until_ns);
    }
}

static void cut_power(void)
{
    sim_disk_power_cut();
    for (int r = 0; r < sim.plan->n_ranks; r++) {
        sim.ranks[r].state = SIM_DEAD;
    }
    sim_end(SIM_DEAD, 0);
}

static void strike_fault(const struct sim_fault *fault)
{
    switch (fault->kind) {
    case SIM_DIES:
        if (sim.plan->launcher_kills) {
            sim_take_others(9);
        }
        sim_end(SIM_DEAD, 0);
    case SIM_STOPS:
        sim_sleep(SIM_NEVER);
        break;
    case SIM_PAUSES:
        sim_sleep((uint64_t)(fault->seconds * 1e9));
        break;
    case SIM_SLOW:
        break;
    case SIM_LOSES:
        sim_wire_lose(fault->rank, fault->peer);
        break;
    case SIM_CUTS:
        cut(fault);
        break;
    case SIM_CLOCK_JUMPS:
        sim.jump_ns[sim.now->host] += (uint64_t)(fault->seconds * 1e9);
        break;
    case SIM_SIGNAL:
        sim.now->signal = SIGTERM;
        break;
    case SIM_SIGNAL_ALL:
        for (int r = 0; r < sim.plan->n_ranks; r++) {
            sim.ranks[r].signal = SIGUSR1;
        }
        break;
    case SIM_NO_MEMORY:
        sim.now->fails_in[SIM_CALL_MEMORY] = 1 + (int)sim_below(&sim.random, 8);
        break;
    case SIM_MPI_FAILS:
        sim.now->fails_in[SIM_CALL_MPI] = 1 + (int)sim_below(&sim.random, 8);
        break;
    case SIM_DEVICE_FAILS:
        sim.now->fails_in[SIM_CALL_DEVICE] = 1 + (int)sim_below(&sim.random, 8);
        break;
    case SIM_DISK_FULL:
    case SIM_DISK_FAILS:
        sim_disk_fail(fault);
        break;
    case SIM_POWER_CUT:
        cut_power();
        break;
    case SIM_FLIP_GRADIENT:
        sim.now->flip = SIM_FLIP_OWN;
        break;
    case SIM_FLIP_MESSAGE:
        sim.now->flip = SIM_FLIP_RECEIVED;
        break;
    case SIM_HOOK_FAILS: /* only by --places */
    case SIM_NAN:
    case SIM_FLIP: /* train/hooks/inject.c */
        break;
    case SIM_N_FAULT_KINDS:
        break;
    }
}

static bool has_come(const struct sim_fault *fault)
{
    const struct sim_plan *plan = sim.plan;
    const struct sim_rank *rank = sim.now;
    const uint64_t first = plan->open_points[rank->number], all = plan->n_points[rank->number];
    const uint64_t point = first + 1 + (uint64_t)(fault->at * (double)(all - first));
    return !fault->off && fault->call == 0 && fault->rank == rank->number &&
           rank->open_points > 0 && rank->n_points >= point;
}

void sim_point(const char *what)
{
    struct sim_rank *rank = sim.now;
    if (rank == NULL) {
        return;
    }
    rank->n_points++;
    if (rank->kill_ns <= rank->time_ns) {
        rank->time_ns = rank->kill_ns;
        sim_end(SIM_TAKEN, sim.job_code);
    }
    for (int i = 0; i < sim.plan->n_faults && sim.faulty; i++) {
        const struct sim_fault *fault = &sim.plan->faults[i];
        if (!sim.struck[i] && has_come(fault)) {
            char text[128];
            sim.struck[i] = true;
            sim.struck_ns[i] = rank->time_ns;
            sim_trace("%s, at %s (point %llu)", sim_fault_text(fault, text, sizeof text), what,
                      (unsigned long long)rank->n_points);
            strike_fault(fault);
        } else if (sim.struck[i] && fault->kind == SIM_SLOW && fault->rank == rank->number) {
            rank->time_ns += (uint64_t)(fault->seconds * 1e9);
            to_scheduler(false); /* memory that it shares must not come from the future */
        }
    }
}

/* ---- the scheduler */

/* When something happens to the rank. */
static uint64_t next_ns(const struct sim_rank *rank)
{
    uint64_t ns = rank->time_ns;
    ns = rank->alarm_ns < ns ? rank->alarm_ns : ns;
    return rank->kill_ns < ns ? rank->kill_ns : ns;
}

static struct sim_rank *next_rank(void)
{
    struct sim_rank *next = NULL;
    for (int r = 0; r < sim.plan->n_ranks; r++) {
        struct sim_rank *rank = &sim.ranks[r];
        const bool can = rank->state == SIM_ALIVE && next_ns(rank) != SIM_NEVER;
        next = can && (next == NULL || next_ns(rank) < next_ns(next)) ? rank : next;
    }
    return next;
}

/* The kernel's work on a process that does not run. */
static void strike(struct sim_rank *rank)
{
    sim.now = rank;
    const uint64_t ns = next_ns(rank);
    rank->time_ns = ns;
    if (ns == rank->kill_ns) {
        rank->state = SIM_TAKEN;
        rank->code = sim.job_code;
        sim_trace("is killed by the launcher");
    } else {
        rank->state = SIM_ENDED;
        rank->code = rank->alarm_code;
        sim_trace("is ended by its alarm with code %d", rank->code);
        if (rank->alarm_line[0] != '\0') {
            sim_say(rank->alarm_line);
        }
        sim_take_others(rank->code);
    }
    rank->end_ns = ns;
    sim.now = NULL;
}

static void open_rank(struct sim_rank *rank, int number)
{
    const struct sim_plan *plan = sim.plan;
    stacks[number] = stacks[number] != NULL ? stacks[number] : sim_alloc(STACK_SIZE);
    __asan_unpoison_memory_region(stacks[number], STACK_SIZE); /* of one that was killed */
    *rank = (struct sim_rank){.number = number,
                              .host = plan->hosts[number],
                              .stack = stacks[number],
                              .time_ns = SIM_S + sim_below(&sim.random, SIM_MS),
                              .pause_ns = FIRST_PAUSE_NS,
                              .kill_ns = SIM_NEVER,
                              .alarm_ns = SIM_NEVER};
    getcontext(&rank->first);
    rank->first.uc_stack.ss_sp = rank->stack;
    rank->first.uc_stack.ss_size = STACK_SIZE;
    rank->first.uc_link = NULL;
    makecontext(&rank->first, begin_rank, 0);
}

static void begin(const struct sim_plan *plan, bool faulty, bool resume)
{
    if (jump == NULL) {
        find_jump();
    }
    sim.plan = plan;
    sim.faulty = faulty;
    sim.resume = resume;
    sim.random = (struct sim_random){plan->seed * 2 + resume};
    sim.now = NULL;
    sim.n_switches = 0;
    memset(sim.struck_ns, 0, sizeof sim.struck_ns);
    sim.job_code = -1;
    sim.n_lines = 0;
    sim.resumed_step = 0;
    for (int h = 0; h < SIM_MAX_HOSTS; h++) {
        sim.jump_ns[h] = sim_below(&sim.random, 1000 * SIM_S);
    }
    memset(sim.struck, 0, sizeof sim.struck);
    sim.wrong[0] = sim.digest[0] = '\0';
    sim.saved_step = sim.n_save_failures = 0;
    sim_memory_begin();
    sim_mpi_begin();
    sim_wire_begin();
    sim_disk_begin();
    sim_flip_begin();
    for (int r = 0; r < plan->n_ranks; r++) {
        open_rank(&sim.ranks[r], r);
    }
}

void sim_run(const struct sim_plan *plan, bool faulty, bool resume)
{
    begin(plan, faulty, resume);
    for (struct sim_rank *rank; (rank = next_rank()) != NULL && sim.wrong[0] == '\0';) {
        if (next_ns(rank) > MOST_NS || sim.n_switches > MOST_SWITCHES) {
            sim.now = rank;
            sim_wrong("rank %d runs for ever", rank->number);
            sim.now = NULL;
        } else if (next_ns(rank) < rank->time_ns) {
            strike(rank);
        } else {
            to_rank(rank);
        }
    }
    dt_error_clear();
    sim_mpi_end();
}
