/* `dtrain lab allreduce` and `reduce`: all ranks run in one process over the local wire, with real
 * numbers.
 *   allreduce.c          options, the proof, the table of all algorithms
 *   replay.c             runs a schedule and records each round
 *   allreduce_text.c     names of ranks and pieces; the rounds as text
 *   allreduce_page.c     a round as SVG, and the pages with all of them
 * All text and pictures come from the schedule's moves: a new algorithm needs no change here. */
#ifndef DT_LAB_ALLREDUCE_H
#define DT_LAB_ALLREDUCE_H

#include "cli/args.h"
#include "dist/allreduce/algorithm.h"
#include "dist/allreduce/simulate.h"
#include "dist/ranks/wire.h"

/* ---- an allreduce recorded round by round (replay.c). The executor runs the schedule's moves over
 * the local wire, on real numbers; all records come from the moves and from the numbers after each
 * round, and nothing depends on an algorithm. A round ends for a rank when its executor ends it:
 * when ranks wait for each other, some end it later, and the record shows when. */

/* A message that arrived, or the adding of a rank's own input: then from == to. */
struct dt_transfer {
    int from, to;
    bool adds;      /* else it replaces the old value */
    int begin, end; /* pieces; an empty message has none */
    float value; /* of its first piece; NAN: its pieces have different values, or there are none */
};

struct dt_replay {
    const struct dt_algorithm *algorithm; /* borrowed */
    int size, n_rounds, n_pieces;
    size_t n_elems;
    size_t *cuts; /* piece i is elements [cuts[i], cuts[i + 1]): every move covers whole pieces */
    struct dt_transfer *transfers;
    int *ends; /* the transfers of round r end before transfers[ends[r]] */
    float *
        states; /* before the first round and after each: each rank's first element of each piece */
    float **data;               /* each rank's vector at the end */
    struct dt_wire_count *sent; /* by each rank */
};

/* Runs it on the inputs of `value`. DT_INTERNAL: the schedule is wrong; the text says how.
 * DT_NO_MEMORY. */
enum dt_status dt_replay_open(const struct dt_algorithm *algorithm, int size, size_t n_elems,
                              float (*value)(int rank, size_t i), struct dt_replay *out);
void dt_replay_close(struct dt_replay *replay);

/* The transfers that a round delivers, in the order of senders; round 0 .. n_rounds - 1. */
const struct dt_transfer *dt_replay_transfers(const struct dt_replay *replay, int round, int *n);
/* A rank's n_pieces values after `n_rounds` rounds. */
const float *dt_replay_state(const struct dt_replay *replay, int n_rounds, int rank);

/* ---- the lesson */

#define DT_LAB_MAX_LETTERS \
    8 /* ranks are named A, B, ... up to this many; if there are more, they have numbers */
#define DT_LAB_MAX_DRAWN 16 /* ranks in a picture */

/* A replay, and the meaning of its numbers. */
struct dt_lesson {
    const struct dt_replay *replay;
    bool numbers; /* plain numbers; else sets: bit r of a piece means that its sum includes rank r's
                   */
    const struct dt_replay *sets; /* for pictures: the same moves on sets; may be `replay` */
};

/* The checks: the sum is the same on every rank, and exact; messages sent, and the formula's. */
struct dt_lab_proof {
    bool equal, exact;
    struct dt_traffic sent, formula;
};

struct dt_lab_row {
    const struct dt_algorithm *algorithm;
    int n_rounds;
    struct dt_simulation simulation;
};

/* Each writes to `out`, of DT_LAB_WORD bytes, and returns it. */
#define DT_LAB_WORD 80
const char *dt_lab_rank(const struct dt_lesson *lesson, int rank, char *out); /* "A" */
const char *dt_lab_cell(const struct dt_lesson *lesson, int piece, float value,
                        char *out); /* "ab0"; "" if it has no name */
const char *dt_lab_content(const struct dt_lesson *lesson, const struct dt_transfer *t,
                           char *out); /* "ab0", "piece 3" */
const char *dt_lab_sentence(const struct dt_lesson *lesson, const struct dt_transfer *t,
                            char *out); /* "A sends ..." */

/* Prints rounds [begin, end) in 80 columns; abbreviates long ones. */
void dt_lab_print_rounds(FILE *out, const struct dt_lesson *lesson, int begin, int end);
void dt_lab_print_state(FILE *out, const struct dt_lesson *lesson, int n_rounds);

/* The costs behind the simulated times, for text and page. */
#define DT_LAB_COSTS "10 us a message, 10 Gbit/s, 1 ns an addition, a rank a host"

/* Self-contained pages. n_reduce: number of rounds after which the root has the sum. */
enum dt_status dt_lab_page(const char *path, const struct dt_lesson *lesson,
                           const struct dt_lab_proof *proof, const struct dt_lab_row *rows,
                           int n_rows);
enum dt_status dt_lab_reduce_page(const char *path, const struct dt_lesson *lesson, int n_reduce);

#endif
