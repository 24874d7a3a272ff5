/* What `bench blocks` measures (bench_blocks.c) and tells (bench_blocks_report.c). */
#ifndef DT_OPS_BENCH_BLOCKS_H
#define DT_OPS_BENCH_BLOCKS_H

#include "ops/bench/bench.h"
#include "train/trainer.h"

#define DT_BENCH_WARMUP 20 /* steps that are not measured */
#define DT_BENCH_ROUNDS 15

/* A round is one step of each kind: without clocks, with them, and with a look at every element. */
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
    double n_samples, n_outputs; /* of all counted steps */
    double n_alive_outputs,
        n_alive_grads;   /* those elements that are not zero, of the output and of its gradient */
    double n_alive_both; /* those where neither is: gradients that activation and dropout let
                            through */
};

/* Of one rank. */
struct dt_block_times {
    struct dt_bench_timer parts[DT_N_PARTS], steps[DT_N_STEPS];
    struct dt_block_bench blocks[DT_MAX_LAYERS];
    double peak_flops; /* of a core; 0: not known */
    bool made_again;   /* the first block, in the backward pass */
};

void dt_block_times_print(const struct dt_trainer *trainer, const struct dt_block_times *times);
cJSON *dt_block_times_json(const struct dt_trainer *trainer, const struct dt_block_times *times);

#endif
