/* simulate SEED [--count N] [--brief] [--shrink] [--trace] [--places] [--without I]...: runs N
 * seeds from SEED on. Of the first that fails it prints the last events, and the command that
 * replays it. */
#include <fcntl.h>
#include <ftw.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/simulate/sim.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#define TRACE_SIZE 40
#define TRACE_LINE 256

static char trace[TRACE_SIZE][TRACE_LINE];
static unsigned n_traced;
static bool traces;        /* all are printed at once */
static bool brief;         /* none is printed */
static uint64_t n_refused; /* whose configuration cannot be served */

struct options {
    uint64_t seed, count;
    unsigned without; /* these faults, a bit each */
    bool brief;       /* a line for each seed that fails, and on with the next one */
    bool places; /* instead of the seed's faults, each place that calls the system fails once */
    bool shrink; /* leave out faults as long as the seed fails */
};

void sim_trace(const char *format, ...)
{
    int n = 0;
    va_list args;
    if (brief && !traces) {
        return;
    }
    char *line = trace[n_traced++ % TRACE_SIZE];
    if (sim.now != NULL) {
        n = snprintf(line, TRACE_LINE, "%12.6f rank %d ", (double)sim.now->time_ns * 1e-9,
                     sim.now->number);
    }
    va_start(args, format);
    vsnprintf(line + n, (size_t)(TRACE_LINE - n), format, args);
    va_end(args);
    if (traces) {
        puts(line);
    }
}

void sim_wrong(const char *format, ...)
{
    va_list args;
    if (sim.wrong[0] == '\0') {
        va_start(args, format);
        vsnprintf(sim.wrong, sizeof sim.wrong, format, args);
        va_end(args);
        sim_trace("%s", sim.wrong);
    }
}

static void print_trace(void)
{
    for (unsigned i = n_traced > TRACE_SIZE ? n_traced - TRACE_SIZE : 0; i < n_traced; i++) {
        puts(trace[i % TRACE_SIZE]);
    }
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path);
}

static void remove_run(void)
{
    nftw(sim.run_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The memory that a process leaves to the kernel. */
static void clean_up(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            sim_wrong("a rank has closed file %d, which is not its own", fd);
        }
    }
    sim_memory_end();
    close_range(STDERR_FILENO + 1, ~0U, 0);
}

static bool same_weights(const struct sim_plan *plan, char *text, size_t n_text)
{
    if (plan->exact && strcmp(sim.digest, plan->digest) != 0) {
        snprintf(text, n_text, "the weights are others than of the run that nothing happened to");
        return false;
    }
    return true;
}

/* The run that nothing happens to: how long it is, and its weights. */
static bool run_clean(struct sim_plan *plan, char *text, size_t n_text, bool *refused)
{
    sim_trace("---- a run without faults");
    sim_run(plan, false, false);
    *refused = sim_all_end(plan, DT_CONFIG);
    const bool right = *refused || sim_check_clean(plan, text, n_text);
    for (int r = 0; r < plan->n_ranks; r++) {
        plan->n_points[r] = sim.ranks[r].n_points;
        plan->open_points[r] = sim.ranks[r].open_points;
    }
    snprintf(plan->digest, sizeof plan->digest, "%s", sim.digest);
    clean_up();
    remove_run();
    return right;
}

static bool run_faulty(const struct sim_plan *plan, bool resume, char *text, size_t n_text)
{
    sim_trace("---- the run with faults");
    sim_run(plan, true, resume);
    bool right = sim_check_faulty(plan, text, n_text);
    right = right && (sim.digest[0] == '\0' || same_weights(plan, text, n_text));
    clean_up();
    return right;
}

/* At another number of ranks, where the weights do not depend on it. */
static struct sim_plan plan_resumed(const struct sim_plan *plan)
{
    struct sim_plan resumed = *plan;
    resumed.n_ranks = plan->n_resumed;
    for (int r = plan->n_ranks; r < resumed.n_ranks; r++) {
        resumed.hosts[r] = plan->hosts[r % plan->n_ranks];
        resumed.n_points[r] = plan->n_points[r % plan->n_ranks];
        resumed.open_points[r] = plan->open_points[r % plan->n_ranks];
    }
    resumed.faults[0] = plan->faults[plan->n_faults];
    resumed.n_faults = plan->n_again;
    return resumed;
}

static bool run_resumed(const struct sim_plan *plan, char *text, size_t n_text)
{
    const struct sim_plan resumed = plan_resumed(plan);
    uint64_t saved_step = sim.saved_step;
    if (resumed.n_faults > 0 && !run_faulty(&resumed, true, text, n_text)) {
        return false;
    }
    saved_step = sim.saved_step > saved_step ? sim.saved_step : saved_step;
    sim_trace("---- resumed by %d ranks", resumed.n_ranks);
    sim_run(&resumed, false, true);
    bool right = (plan->flips && sim_all_end(&resumed, DT_NON_FINITE)) ||
                 (sim_check_clean(&resumed, text, n_text) && same_weights(&resumed, text, n_text));
    if (right && sim.resumed_step < saved_step) {
        snprintf(text, n_text, "step %llu was saved, and the run continues from step %llu",
                 (unsigned long long)saved_step, (unsigned long long)sim.resumed_step);
        right = false;
    }
    clean_up();
    return right;
}

static bool run_plan(struct sim_plan *plan, char *text, size_t n_text)
{
    n_traced = 0;
    bool refused, right = run_clean(plan, text, n_text, &refused);
    n_refused += right && refused;
    if (right && !refused) {
        right = run_faulty(plan, false, text, n_text) && run_resumed(plan, text, n_text);
    }
    clean_up();
    remove_run();
    if (right && sim.wrong[0] != '\0') {
        snprintf(text, n_text, "%s", sim.wrong);
    }
    return right && sim.wrong[0] == '\0';
}

static uint64_t n_failed_places, n_tried_places;

/* Lets each place fail that the run comes to, if no seed before has; the first that does not end as
 * it should stays the plan's fault. */
static bool try_places(struct sim_plan *plan, bool resume, char *text, size_t n_text)
{
    const struct sim_fault *places;
    const int n = sim_places(&places);
    bool right = true;
    for (int i = 0; i < n && (right || brief); i++) {
        n_traced = 0;
        plan->n_faults = 1;
        plan->faults[0] = places[i];
        n_tried_places++;
        if (!run_faulty(plan, resume, text, n_text)) {
            char fault[128];
            right = false;
            n_failed_places++;
            if (brief) {
                printf("%llu%s: %s: %s\n", (unsigned long long)plan->seed,
                       resume ? ", resumed" : "", sim_fault_text(&places[i], fault, sizeof fault),
                       text);
                fflush(stdout);
            }
        }
        if (!resume) {
            remove_run();
        }
    }
    return right;
}

/* A run, where nothing but what is recorded happens, and then each place of it. */
static bool run_and_try(struct sim_plan *plan, bool resume, char *text, size_t n_text)
{
    plan->n_faults = 0;
    n_traced = 0;
    sim_places_record(true);
    sim_run(plan, false, resume);
    sim_places_record(false);
    const bool refused = sim_all_end(plan, DT_CONFIG);
    const bool right = refused || sim_check_clean(plan, text, n_text);
    clean_up();
    n_refused += right && refused && !sim.differ;
    plan->refused = refused;
    if (!resume) {
        remove_run();
    }
    return right && try_places(plan, resume, text, n_text);
}

/* A run; one that finds the end of it, to resume; and one whose ranks differ. */
static bool run_places(struct sim_plan *plan, char *text, size_t n_text)
{
    sim_plan_widen(plan);
    bool right = run_and_try(plan, false, text, n_text);
    if (right && !plan->refused) {
        plan->n_faults = 0;
        sim_run(plan, false, false);
        clean_up();
        right = run_and_try(plan, true, text, n_text);
    }
    remove_run();
    sim.differ = true;
    right = right && (plan->n_ranks == 1 || run_and_try(plan, false, text, n_text));
    sim.differ = false;
    remove_run();
    return right;
}

/* Leaves out each fault without which the run fails as well. */
static void shrink_plan(struct sim_plan *plan, char *text, size_t n_text)
{
    for (int i = 0; i < plan->n_faults + plan->n_again; i++) {
        plan->faults[i].off = true;
        plan->faults[i].off = !run_plan(plan, text, n_text);
    }
    (void)run_plan(plan, text, n_text);
}

static void tell_failure(const struct sim_plan *plan, const char *text)
{
    sim_plan_print(plan);
    print_trace();
    printf("FAILED: %s\nsimulate %llu --trace", text, (unsigned long long)plan->seed);
    for (int i = 0; i < plan->n_faults + plan->n_again; i++) {
        if (plan->faults[i].off) {
            printf(" --without %d", i + 1);
        }
    }
    puts("");
}

static uint64_t seed_now;

static void tell_crash(void)
{
    dprintf(STDERR_FILENO, "FAILED: a crash\nsimulate %llu --trace\n",
            (unsigned long long)seed_now);
}

#if defined(__SANITIZE_ADDRESS__)
void __ubsan_on_report(void); /* a hook of the undefined behaviour sanitizer's */
void __ubsan_on_report(void)
{
    tell_crash();
}

static void watch_crashes(void)
{
    __sanitizer_set_death_callback(tell_crash);
}
#else
static void on_crash(int number)
{
    tell_crash();
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_crashes(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        signal(numbers[i], on_crash);
    }
}
#endif

static bool run_seed(uint64_t seed, const struct options *options)
{
    struct sim_plan plan;
    char text[600] = "";
    seed_now = seed;
    sim_plan_make(seed, &plan);
    for (int i = 0; i < plan.n_faults + plan.n_again; i++) {
        plan.faults[i].off = (options->without >> i & 1) != 0;
    }
    const bool right =
        options->places ? run_places(&plan, text, sizeof text) : run_plan(&plan, text, sizeof text);
    if (!right && options->shrink && !options->places) {
        shrink_plan(&plan, text, sizeof text);
    }
    if (!right && options->brief) {
        printf("%llu: %s\n", (unsigned long long)seed, text);
    } else if (!right) {
        tell_failure(&plan, text);
    }
    fflush(stdout);
    return right;
}

/* A killed rank's memory is no leak; sim_check reports the leaks of a rank that ends. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0:handle_abort=1"; /* a failed DT_ASSERT names its seed */
}

static bool read_options(int argc, char **argv, struct options *o)
{
    *o = (struct options){.seed = 0, .count = 1};
    for (int i = 1; i < argc; i++) {
        const bool more = i + 1 < argc;
        if (strcmp(argv[i], "--count") == 0 && more) {
            o->count = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--without") == 0 && more) {
            o->without |= 1u << (strtoul(argv[++i], NULL, 10) - 1) % 32;
        } else if (strcmp(argv[i], "--trace") == 0) {
            traces = true;
        } else if (strcmp(argv[i], "--brief") == 0) {
            o->brief = true;
        } else if (strcmp(argv[i], "--places") == 0) {
            o->places = true;
        } else if (strcmp(argv[i], "--shrink") == 0) {
            o->shrink = true;
        } else if (argv[i][0] >= '0' && argv[i][0] <= '9') {
            o->seed = strtoull(argv[i], NULL, 10);
        } else {
            return false;
        }
    }
    return true;
}

/* Variables of a job that started this process. */
static void clear_environment(void)
{
    static const char *const names[] = {
        "DTRAIN_TIMEOUT",      "PMI_FD",       "PMI_RANK",   "PMI_SIZE",
        "SLURM_NTASKS",        "SLURM_PROCID", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS",
        "OMPI_COMM_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unsetenv(names[i]);
    }
}

int main(int argc, char **argv)
{
    struct options options;
    uint64_t n_failed = 0;
    if (!read_options(argc, argv, &options)) {
        fputs("usage: simulate SEED [--count N] [--brief] [--shrink] [--trace] [--places] "
              "[--without I]...\n",
              stderr);
        return DT_USAGE;
    }
    brief = options.brief;
    clear_environment();
    watch_crashes();
    mallopt(M_TRIM_THRESHOLD, 1 << 28); /* what one run gives back, the next takes */
    mallopt(M_MMAP_THRESHOLD, 1 << 28);
    snprintf(sim.run_dir, sizeof sim.run_dir, "%s/simulate-%ld",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
    const uint64_t end = options.seed + options.count;
    for (uint64_t s = options.seed; s < end && (options.brief || n_failed == 0); s++) {
        n_failed += !run_seed(s, &options);
    }
    printf("%llu seeds from %llu on: %llu refused, %llu failed\n",
           (unsigned long long)options.count, (unsigned long long)options.seed,
           (unsigned long long)n_refused, (unsigned long long)n_failed);
    if (options.places) {
        printf("%llu places, %llu failed\n", (unsigned long long)n_tried_places,
               (unsigned long long)n_failed_places);
    }
    return n_failed > 0;
}
