/* The checks after each run. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/liveness/table.h"
#include "tests/simulate/sim.h"

#define GRACE_S 3.0
#define JUST_S 0.1
#define JUMPED_S 1.0
#define OTHERS_FIRST_S 1.5 /* dist/liveness/table.c */
#define LEAVING_S 10.0     /* dist/launch/job.c */

struct verdict {
    const struct sim_plan *plan;
    char *text;
    size_t n_text;
    bool right;
};

static void fail(struct verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct verdict *v, const char *format, ...)
{
    va_list args;
    if (v->right) {
        va_start(args, format);
        vsnprintf(v->text, v->n_text, format, args);
        va_end(args);
    }
    v->right = false;
}

static double seconds(uint64_t ns)
{
    return (double)ns * 1e-9;
}

/* A rank that came to its end by itself has given everything back. */
static void check_memory(struct verdict *v)
{
    for (int r = 0; r < v->plan->n_ranks; r++) {
        size_t n_bytes;
        const size_t n = sim_memory_left(r, &n_bytes);
        if (sim.ranks[r].state == SIM_ENDED && sim.ranks[r].finalizes && n > 0) {
            fail(v, "rank %d leaves %zu pieces of memory, %zu bytes", r, n, n_bytes);
        }
    }
}

static struct verdict begin(const struct sim_plan *plan, char *text, size_t n_text)
{
    struct verdict v = {.plan = plan, .text = text, .n_text = n_text, .right = true};
    if (sim.wrong[0] != '\0') {
        fail(&v, "%s", sim.wrong);
    }
    check_memory(&v);
    return v;
}

static void check_done(struct verdict *v)
{
    for (int r = 0; r < v->plan->n_ranks; r++) {
        if (sim.ranks[r].state != SIM_ENDED || sim.ranks[r].code != DT_OK) {
            fail(v, "rank %d did not end with code 0, but %d", r, sim.ranks[r].code);
        }
    }
    if (sim.n_lines != 0) {
        fail(v, "rank %d printed an error: %s", sim.lines[0].rank, sim.lines[0].text);
    }
}

bool sim_all_end(const struct sim_plan *plan, enum dt_status code)
{
    bool all = sim.n_lines == 1 && sim.wrong[0] == '\0';
    for (int r = 0; r < plan->n_ranks; r++) {
        all = all && sim.ranks[r].state == SIM_ENDED && sim.ranks[r].code == (int)code;
    }
    return all;
}

bool sim_check_clean(const struct sim_plan *plan, char *text, size_t n_text)
{
    struct verdict v = begin(plan, text, n_text);
    check_done(&v);
    return v.right;
}

/* ---- with faults */

/* The possible ends of a run. */
struct expected {
    bool codes[128];   /* the job's, that are right */
    bool taken;        /* by the launcher, or by the power cut: no line, and any code */
    bool late;         /* the limit of a wait may have to pass */
    unsigned culprits; /* ranks that may be named, a bit each */
    int named;         /* that must be, or -1 */
    double paused_s;   /* in all */
};

static bool has_neighbour(const struct sim_plan *plan, int rank)
{
    bool found = false;
    for (int r = 0; r < plan->n_ranks; r++) {
        found = found || (r != rank && plan->hosts[r] == plan->hosts[rank]);
    }
    return found;
}

static bool falls_silent(const struct sim_plan *plan, int rank)
{
    bool found = false;
    for (int i = 0; i < plan->n_faults; i++) {
        const struct sim_fault *fault = &plan->faults[i];
        found = found || (sim.struck[i] && fault->rank == rank &&
                          (fault->kind == SIM_DIES || fault->kind == SIM_STOPS));
    }
    return found;
}

/* Ranks that fall silent when all is done harm nothing. */
static bool all_others_are_done(const struct sim_plan *plan)
{
    bool all = true;
    for (int r = 0; r < plan->n_ranks; r++) {
        all = all && (falls_silent(plan, r) || (sim.ranks[r].leaves && sim.ranks[r].code == DT_OK));
    }
    return all;
}

static void expect_stall(struct expected *e, unsigned culprits)
{
    e->codes[DT_STALLED] = true;
    e->late = true;
    e->culprits |= culprits;
}

static void expect_silence(const struct sim_plan *plan, const struct sim_fault *fault,
                           struct expected *e)
{
    e->codes[DT_OK] = all_others_are_done(plan);
    expect_stall(e, 1u << fault->rank);
    e->named = has_neighbour(plan, fault->rank) && e->named == -2 ? fault->rank : -1;
}

/* A wait of so long, 0: for ever, may be too long; and several add up. */
static void expect_pause(const struct sim_plan *plan, const struct sim_fault *fault,
                         struct expected *e)
{
    e->paused_s += fault->seconds;
    if (plan->n_ranks > 1 && (fault->seconds == 0 || e->paused_s > plan->config.timeout_s - 1)) {
        expect_stall(e, 0);
    }
}

/* By chance a fault may come after all is done; else only a checkpoint may fail without an end. */
static bool may_go_on(const struct sim_fault *fault)
{
    return fault->call == 0 || sim.n_save_failures > 0;
}

static void expect_of(const struct sim_plan *plan, const struct sim_fault *fault,
                      struct expected *e)
{
    switch (fault->kind) {
    case SIM_DIES:
        e->taken = e->taken || plan->launcher_kills || plan->n_ranks == 1;
        expect_silence(plan, fault, e);
        break;
    case SIM_STOPS:
        e->taken = e->taken || plan->n_ranks == 1;
        expect_silence(plan, fault, e);
        break;
    case SIM_PAUSES:
        e->culprits |= 1u << fault->rank;
        expect_pause(plan, fault, e);
        break;
    case SIM_LOSES:
        expect_stall(e, 1u << fault->rank | 1u << fault->peer);
        break;
    case SIM_CUTS:
        if (plan->hosts[fault->rank] != plan->hosts[fault->peer]) {
            expect_pause(plan, fault, e);
        }
        break;
    case SIM_SIGNAL:
    case SIM_SIGNAL_ALL:
        e->codes[DT_STOPPED] = true;
        break;
    case SIM_NO_MEMORY:
        e->codes[DT_NO_MEMORY] = true;
        e->culprits |= 1u << fault->rank | plan->wide; /* an error of some ranks is their first's */
        break;
    case SIM_DISK_FULL:
    case SIM_DISK_FAILS:
        e->codes[DT_IO] = e->codes[DT_CANT_CREATE] = true;
        e->codes[DT_NO_INPUT] =
            fault->call > 0; /* of a checkpoint, which is read back at the end */
        e->culprits |= 1u;   /* rank 0, which writes */
        break;
    case SIM_POWER_CUT:
        e->taken = true;
        break;
    case SIM_NAN:
        e->codes[DT_NON_FINITE] = true;
        e->codes[DT_OK] = false;
        e->culprits |= 1u << fault->rank | 1u; /* rank 0 looks at the weights that it saves */
        break;
    case SIM_FLIP:
        /* Two may be the same bit, and nothing. A normalization moves the weight so far that its
         * exponent may grow, and rounding takes the bit away (flip.c compares the replicas). */
        e->codes[DT_OK] = e->codes[DT_INTERNAL] || plan->config.model.rows != NULL;
        e->codes[DT_INTERNAL] = true;
        e->culprits |= ~0u; /* of two replicas nobody knows which is right */
        break;
    case SIM_FLIP_GRADIENT:
    case SIM_FLIP_MESSAGE: /* wherever the replicas are equal, they may be (flip.c) */
        e->codes[DT_INTERNAL] = true;
        e->culprits |= ~0u;
        break;
    case SIM_MPI_FAILS:
        e->codes[DT_STALLED] = true;
        e->codes[DT_OK] = may_go_on(fault);
        e->culprits |= 1u << fault->rank;
        break;
    case SIM_DEVICE_FAILS:
        e->codes[DT_UNAVAILABLE] = true;
        e->codes[DT_OK] = may_go_on(fault);
        e->culprits |= 1u << fault->rank;
        break;
    case SIM_HOOK_FAILS:
        e->codes[DT_FAILED] = true;
        e->culprits |= 1u << fault->rank;
        break;
    case SIM_SLOW:
    case SIM_CLOCK_JUMPS:
    case SIM_N_FAULT_KINDS:
        break;
    }
}

/* A rank that comes back just when the others give up has them look behind for a moment; a clock
 * that has just jumped makes neighbours look silent. */
static bool misleads(const struct sim_plan *plan, uint64_t ns)
{
    bool any = false;
    for (int i = 0; i < plan->n_faults; i++) {
        const struct sim_fault *fault = &plan->faults[i];
        const double ago_s = seconds(ns) - seconds(sim.struck_ns[i]);
        const bool back = fault->kind == SIM_PAUSES && fabs(ago_s - fault->seconds) < JUST_S,
                   jumped = fault->kind == SIM_CLOCK_JUMPS && ago_s < JUMPED_S;
        any = any || (sim.struck[i] && (back || jumped));
    }
    return any;
}

/* The code of the whole job; -1: there is none. */
static int job_code(const struct sim_plan *plan)
{
    int code = sim.job_code;
    for (int r = 0; r < plan->n_ranks && code < 0; r++) {
        code = sim.ranks[r].state == SIM_ENDED ? sim.ranks[r].code : code;
    }
    return code;
}

/* When the last one was over. */
static double last_fault_s(const struct sim_plan *plan)
{
    double last_s = 0;
    for (int i = 0; i < plan->n_faults; i++) {
        const double s = seconds(sim.struck_ns[i]) + plan->faults[i].seconds;
        last_s = sim.struck[i] && s > last_s ? s : last_s;
    }
    return last_s;
}

static void check_end(struct verdict *v, const struct expected *e)
{
    const double late_s = last_fault_s(v->plan);
    const double limit_s =
        v->plan->config.timeout_s * (sim.stalled_saving ? DT_LONG_LIMITS : 1) + OTHERS_FIRST_S;
    bool leaves = e->codes[DT_OK];
    for (int r = 0; r < v->plan->n_ranks; r++) {
        leaves = leaves || (sim.ranks[r].leaves && sim.ranks[r].code != DT_STALLED);
    }
    const double most_s = leaves && limit_s < LEAVING_S ? LEAVING_S : limit_s;
    for (int r = 0; r < v->plan->n_ranks; r++) {
        const struct sim_rank *rank = &sim.ranks[r];
        const double s = seconds(rank->end_ns) - late_s;
        if (rank->state == SIM_ALIVE && !e->taken) {
            fail(v, "rank %d has not ended", r);
        }
        if (e->late && s > most_s + GRACE_S) {
            fail(v, "rank %d ends %.3f s after the fault, at a limit of %g s", r, s, most_s);
        }
    }
}

/* Ranks that a line names, a bit each. */
static unsigned named_in(const char *line)
{
    unsigned named = 0;
    for (const char *at = line; (at = strstr(at, "rank ")) != NULL; at += 5) {
        named |= at[5] >= '0' && at[5] <= '9' ? 1u << strtoul(at + 5, NULL, 10) : 0;
    }
    return named;
}

/* "ranks 0, 1 wait" names several; one of them is meant. */
static unsigned group_in(const char *line)
{
    unsigned group = 0;
    const char *at = strstr(line, "ranks ");
    char *end = NULL;
    for (at = at != NULL ? at + 6 : NULL; at != NULL; at = *end == ',' ? end + 2 : NULL) {
        const unsigned long rank = strtoul(at, &end, 10);
        group |= end != at ? 1u << rank : 0;
    }
    return group;
}

/* Ranks that cannot leave after an error tell it once more, since nobody else may have. */
static bool is_echo(const struct sim_line *line)
{
    return strstr(line->text, " alone: ") != NULL;
}

/* Each host tells once of a stall, and once of what else there is: a rank that a stall keeps from
 * an agreement on an error cannot know of it. */
static void check_n_lines(struct verdict *v, const struct expected *e)
{
    int n_stalls = 0, n_others = 0;
    for (int i = 0; i < sim.n_lines; i++) {
        const bool stall = strstr(sim.lines[i].text, " stalled for ") != NULL;
        n_stalls += stall && !is_echo(&sim.lines[i]);
        n_others += !stall && !is_echo(&sim.lines[i]);
    }
    if (sim.n_lines < 1 || n_stalls > v->plan->n_hosts || n_others > v->plan->n_hosts) {
        fail(v, "%d lines tell of the error", sim.n_lines);
    }
    if (n_stalls > 0 && !e->codes[DT_STALLED]) {
        fail(v, "a line tells of a stall, and nothing stalled");
    }
}

static void check_lines(struct verdict *v, const struct expected *e, int code)
{
    if (code <= DT_OK || code == DT_STOPPED || e->taken) {
        return;
    }
    check_n_lines(v, e);
    for (int i = 0; i < sim.n_lines; i++) {
        const unsigned group = group_in(sim.lines[i].text);
        if (is_echo(&sim.lines[i]) || misleads(v->plan, sim.lines[i].ns)) {
            continue;
        }
        if (group != 0 && (group & e->culprits) == 0) {
            fail(v, "only innocent ranks are named: %s", sim.lines[i].text);
        }
        if ((named_in(sim.lines[i].text) & ~e->culprits) != 0) {
            fail(v, "an innocent rank is named: %s", sim.lines[i].text);
        }
    }
    if (e->named >= 0 && code == DT_STALLED && sim.n_lines > 0 &&
        (named_in(sim.lines[0].text) & 1u << e->named) == 0) {
        fail(v, "rank %d is not named: %s", e->named, sim.lines[0].text);
    }
}

/* All ranks are dead or stopped by faults. */
static bool nobody_is_left(const struct sim_plan *plan)
{
    bool none = true;
    for (int r = 0; r < plan->n_ranks; r++) {
        const struct sim_rank *rank = &sim.ranks[r];
        none = none && (rank->state == SIM_DEAD ||
                        (rank->state == SIM_ALIVE && rank->time_ns == SIM_NEVER));
    }
    return none;
}

bool sim_check_faulty(const struct sim_plan *plan, char *text, size_t n_text)
{
    struct verdict v = begin(plan, text, n_text);
    struct expected e = {
        .codes =
            {[DT_OK] = !plan->refused, [DT_CONFIG] = plan->refused, [DT_NON_FINITE] = plan->flips},
        .culprits = plan->refused ? ~0u : 0,
        .named = -2};
    for (int i = 0; i < plan->n_faults; i++) {
        if (sim.struck[i]) {
            expect_of(plan, &plan->faults[i], &e);
        }
    }
    e.named = plan->n_faults > 1 || e.named < 0 ? -1 : e.named;
    const int code = job_code(plan);
    e.taken = e.taken || nobody_is_left(plan);
    check_end(&v, &e);
    check_lines(&v, &e, code);
    if (!e.taken && (code < 0 || !e.codes[code])) {
        fail(&v, "the job ends with code %d: %s", code,
             sim.n_lines > 0 ? sim.lines[0].text : "no line");
    }
    return v.right;
}
