/* `dtrain lab allreduce` and `reduce`: all ranks run in one process over the local wire, with real
 * numbers.
 *
 *   allreduce.c          what is run, the proof, the table of all algorithms
 *   replay.c             runs a schedule and keeps what happened in each round
 *   allreduce_text.c     names for ranks and pieces; the rounds as text
 *   allreduce_picture.c  a round as SVG
 *   allreduce_page.c     the pages with all of them
 *
 * Everything that is told and drawn comes from the schedule's moves: a new algorithm needs no
 * change here. */
#ifndef DT_LAB_ALLREDUCE_H
#define DT_LAB_ALLREDUCE_H

#include "cli/args.h"
#include "dist/allreduce/simulate.h"
#include "lab/replay.h"

#define DT_LAB_MAX_LETTERS \
    8 /* ranks that are called A, B, ...; where there are more, they have numbers */
#define DT_LAB_MAX_DRAWN 16 /* ranks in a picture */

/* A replay, and what its numbers mean. */
struct dt_lesson {
    const struct dt_replay *replay;
    bool numbers; /* they are numbers; else sets of ranks: bit r of a piece says that rank r's is in
                     the sum */
    const struct dt_replay *sets; /* for pictures: the same moves with sets; may be `replay` */
};

/* Whether the sum is the same on every rank, and exact; what was sent, and what the formula says.
 */
struct dt_lab_proof {
    bool equal, exact;
    struct dt_traffic sent, formula;
};

struct dt_lab_row {
    const struct dt_algorithm *algorithm;
    int n_rounds;
    struct dt_simulation simulation;
};

/* Each begins out, of DT_LAB_WORD bytes, and returns it. */
#define DT_LAB_WORD 80
const char *dt_lab_rank(const struct dt_lesson *lesson, int rank, char *out); /* "A" */
const char *dt_lab_cell(const struct dt_lesson *lesson, int piece, float value,
                        char *out); /* "ab0"; "" where it has no name */
const char *dt_lab_content(const struct dt_lesson *lesson, const struct dt_transfer *t,
                           char *out); /* "ab0", "piece 3" */
const char *dt_lab_sentence(const struct dt_lesson *lesson, const struct dt_transfer *t,
                            char *out); /* "A sends ..." */

/* Rounds begin .. end - 1, in 80 columns; what is long is abbreviated. */
void dt_lab_print_rounds(FILE *out, const struct dt_lesson *lesson, int begin, int end);
void dt_lab_print_state(FILE *out, const struct dt_lesson *lesson, int n_rounds);

/* The vectors after so many rounds as SVG, with the last one's messages. */
void dt_lab_picture(FILE *out, const struct dt_lesson *lesson, int n_rounds);

/* What the simulated times stand for, as text and page say it. */
#define DT_LAB_COSTS "10 us a message, 10 Gbit/s, 1 ns an addition, a rank a host"

/* Pages of their own: nothing in them comes from anywhere else. n_reduce: rounds after which the
 * root has the sum. */
enum dt_status dt_lab_page(const char *path, const struct dt_lesson *lesson,
                           const struct dt_lab_proof *proof, const struct dt_lab_row *rows,
                           int n_rows);
enum dt_status dt_lab_reduce_page(const char *path, const struct dt_lesson *lesson, int n_reduce);

#endif
