/* Whole ranks of the real trainer in one process, on a virtual clock. A seed decides who runs next,
 * how long each message takes, and every fault; so what fails, fails again by its seed.
 *
 *   fiber.c           a fiber per rank, and the scheduler
 *   system.c          what the trainer asks of the system: clock, memory, how a process ends
 *   calls.c           calls that fail, one by one, and the places that make them
 *   simulate_mpi.c    collectives and messages of MPI
 *   mpi_job.c         MPI's communicators, begin and end
 *   simulate_wire.c   links: delays, cuts, losses
 *   disk.c            files that tear, and disks that fail
 *   flip.c            bits that turn over in gradients
 *   simulate_plan.c   what the seed decides: the run and its faults
 *   rank.c            a rank's main function
 *   check.c           what must be so after each run
 *   simulate_main.c   the command
 *
 * The trainer is not changed: the linker gives its calls of MPI and of the C library to __wrap_
 * functions here. */
#ifndef DT_SIMULATE_SIM_H
#define DT_SIMULATE_SIM_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

#include "base/status.h"
#include "tests/simulate/simulate_plan.h"

struct dt_trainer;

#define SIM_NEVER UINT64_MAX
#define SIM_MS UINT64_C(1000000)
#define SIM_S (1000 * SIM_MS)
#define SIM_MAX_LINES 32
#define SIM_LINE_SIZE (DT_ERROR_TEXT_SIZE + 128)

enum sim_state {
    SIM_ALIVE,
    SIM_ENDED, /* by itself: there is a code */
    SIM_DEAD,  /* killed by the fault */
    SIM_TAKEN  /* killed by the launcher, because another rank ended the job */
};

/* In which a bit of the rank turns over next. */
enum sim_flip { SIM_FLIP_NOTHING, SIM_FLIP_OWN, SIM_FLIP_RECEIVED };

/* Calls of a rank that can fail one at a time. */
enum sim_call {
    SIM_CALL_MEMORY,
    SIM_CALL_MPI,
    SIM_CALL_FILE,
    SIM_CALL_DEVICE,
    SIM_CALL_HOOK, /* the trainer's of a hook, an observer of spans, or who gets the events */
    SIM_N_CALLS
};

/* A rank: a process of its own to the trainer. */
struct sim_rank {
    int number, host;
    enum sim_state state;
    int code;          /* that it ended with */
    uint64_t time_ns;  /* it has come so far; SIM_NEVER: stopped for ever */
    uint64_t pause_ns; /* of its next wait: grows as long as nothing comes */
    uint64_t kill_ns;  /* the launcher kills it then; SIM_NEVER: not */
    uint64_t alarm_ns; /* it has set one; SIM_NEVER: none */
    int alarm_code;    /* and would end the job with this code */
    char alarm_line[SIM_LINE_SIZE];
    uint64_t n_points;    /* places of its run so far at which a fault can strike */
    uint64_t open_points; /* of these, until the world was open; 0: it is not yet */
    uint64_t end_ns;      /* when its state changed */
    bool leaves;          /* its training has ended, one way or the other */
    bool finalizes;       /* waits in MPI_Finalize */
    int signal;           /* it was asked to stop, or 0 */
    enum sim_flip flip;
    uint64_t n_calls[SIM_N_CALLS];  /* so far */
    int fails_in[SIM_N_CALLS];      /* the n-th call from now fails; 0: none */
    char error[DT_ERROR_TEXT_SIZE]; /* of dt_error, while another rank runs */
    bool error_agreed;
    ucontext_t first; /* how it begins */
    jmp_buf context;  /* how it resumes, once it runs */
    bool runs;
    void *fake_stack; /* the address sanitizer's */
    char *stack;
};

/* A line that a rank printed as an error. */
struct sim_line {
    int rank;
    uint64_t ns;
    char text[SIM_LINE_SIZE];
};

struct sim {
    const struct sim_plan *plan;
    struct sim_rank ranks[SIM_MAX_RANKS];
    struct sim_rank *now; /* who runs; NULL: the scheduler */
    struct sim_random random;
    uint64_t n_switches;
    int job_code; /* that the first rank ended the job with; -1: none */
    struct sim_line lines[SIM_MAX_LINES];
    int n_lines;
    bool struck[SIM_MAX_FAULTS];
    uint64_t struck_ns[SIM_MAX_FAULTS];
    char wrong[512]; /* what the simulated system found to be against its rules; or "" */
    char run_dir[256];
    bool faulty, resume;
    bool differ;                     /* all but rank 0 have another configuration */
    char digest[64];                 /* of the last weights; "": the run did not come so far */
    bool stalled_saving;             /* a rank's wait, whose limit is longer there */
    uint64_t saved_step;             /* of the newest checkpoint that was announced; 0: none */
    uint64_t n_save_failures;        /* announced */
    uint64_t resumed_step;           /* of the checkpoint that the run began with; 0: none */
    uint64_t jump_ns[SIM_MAX_HOSTS]; /* how far each host's clock is before the simulation's */
};
extern struct sim sim;

/* ---- fiber.c */

/* Runs all ranks until each has ended. */
void sim_run(const struct sim_plan *plan, bool faulty, bool resume);
void sim_yield(void);        /* the rank waits for something a little while */
void sim_progress(void);     /* something came: it waits a short while again */
void sim_sleep(uint64_t ns); /* the rank's time passes */
void sim_end(enum sim_state state, int code) __attribute__((noreturn)); /* of the rank that runs */
/* The launcher kills all other ranks, soon. */
void sim_take_others(int code);
/* A place at which faults can strike, and a rank can be killed. */
void sim_point(const char *what);

/* ---- main.c */
void sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- system.c */
void sim_say(const char *text);
void sim_memory_begin(void);
size_t sim_memory_left(int rank, size_t *n_bytes); /* not freed: how many; of that rank */
void sim_memory_end(void);                         /* frees what is left of all ranks */
void *sim_alloc(size_t n_bytes);                   /* zeroed, of the simulation; never NULL */
void sim_free(void *memory);

/* ---- calls.c */
#define SIM_MOST_PLACES 4096
bool sim_call_fails(enum sim_call call); /* of the rank that runs */
/* From on to off, the places that call and that no run before has come to. */
void sim_places_record(bool on);
int sim_places(const struct sim_fault **out); /* how many, each as the fault that lets it fail */

enum dt_status sim_hook_call(void);
/* A hook each of whose functions can fail. Every rank calls it. */
enum dt_status sim_hook_open(struct dt_trainer *trainer);

/* ---- mpi.c */
void sim_mpi_begin(void);
void sim_mpi_end(void);

/* ---- wire.c: when what one rank sends now comes to another; SIM_NEVER: never */
void sim_wire_begin(void);
uint64_t sim_wire_arrival(int from, int to);
void sim_wire_cut(int host_from, int host_to, uint64_t until_ns);
void sim_wire_lose(int from, int to); /* the next message, and so all that come after it */

/* ---- disk.c */
void sim_disk_begin(void);
void sim_disk_fail(const struct sim_fault *fault);
void sim_disk_power_cut(void); /* what was not synced may be lost */

/* ---- flip.c */
void sim_flip_begin(void);
void sim_flip(enum sim_flip what, void *bytes, size_t n_bytes); /* if it is the rank's next */

/* ---- rank.c */
void sim_rank_main(void);

/* ---- check.c: false, with the text, if something is wrong: after a run without faults, or that is
 * resumed; after one with faults */
bool sim_all_end(const struct sim_plan *plan, enum dt_status code); /* with one line */
bool sim_check_clean(const struct sim_plan *plan, char *text, size_t n_text);
bool sim_check_faulty(const struct sim_plan *plan, char *text, size_t n_text);

#endif
