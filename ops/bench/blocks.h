/* Measurements of `bench model` (blocks.c) and their output (blocks_report.c). */
#ifndef DT_OPS_BENCH_BLOCKS_H
#define DT_OPS_BENCH_BLOCKS_H

#include "ops/bench/bench.h"
#include "train/trainer.h"

#define DT_BENCH_WARMUP 20 /* unmeasured steps */
#define DT_BENCH_ROUNDS 15

/* A round is one step of each kind: without clocks, with them, and counting nonzero elements. */
enum dt_bench_step { DT_STEP_PLAIN, DT_STEP_TIMED, DT_STEP_COUNTED, DT_N_STEPS };

enum dt_bench_part { DT_PART_GATHER, DT_PART_LOSS, DT_PART_OPTIMIZER, DT_N_PARTS };

struct dt_bench_cost {
    double wall_s, cpu_s; /* cpu: of all threads of this rank */
};

struct dt_bench_timer {
    struct dt_bench_cost rounds[DT_BENCH_ROUNDS];
};

struct dt_block_bench {
    struct dt_bench_timer forward, backward;
    double n_samples, n_outputs;           /* of all counted steps */
    double n_alive_outputs, n_alive_grads; /* nonzero elements of the output, and of its gradient */
    double
        n_alive_both; /* elements nonzero in both: gradients that activation and dropout pass on */
};

/* Results of one rank. */
struct dt_block_times {
    const struct dt_trainer *trainer;
    struct dt_bench_timer parts[DT_N_PARTS], steps[DT_N_STEPS];
    struct dt_block_bench blocks[DT_MAX_LAYERS];
    double peak_flops; /* of a core; 0: unknown */
    bool made_again;   /* the backward pass recomputes the first block */
};

void dt_block_times_print(const struct dt_block_times *times);
/* A dt_file_put_fn, of struct dt_block_times. */
void dt_block_times_put_json(FILE *out, const void *times);

#endif
