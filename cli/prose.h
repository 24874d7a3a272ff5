/* Texts of the help and the manual page beyond the rows of commands, options and exit codes. In all
 * texts `code` stands between backticks. */
#ifndef DT_CLI_PROSE_H
#define DT_CLI_PROSE_H

/* X(variable, meaning, more for the manual page) */
#define DT_ENVIRONMENT_LIST(X)                                                                     \
    X("DTRAIN_ISA", "CPU kernels in place of the best: x86-64-v4, x86-64-v3 or baseline", "")      \
    X("DTRAIN_TIMEOUT",                                                                            \
      "seconds (2..3600) until a collective counts as stalled, over distributed.timeout_s",        \
      "Also until ranks that do not start do, in place of 120.")                                   \
    X("DTRAIN_CUDA_MODULE", "the CUDA module in place of libdtrain_cuda.so",                       \
      "That is looked for beside the program and in `../lib/dtrain`. One that is named is loaded " \
      "also where no driver is found, "                                                            \
      "for tests. It runs any code; a program that has more rights than its caller (setuid, "      \
      "capabilities) refuses it.")                                                                 \
    X("DTRAIN_CUDA_GRAPH", "file for the CUDA graph of a training step, for Graphviz", "")         \
    X("DTRAIN_CUDA_WITHOUT", "parts of the GPU path to leave out, with commas (docs/gpu.md)", "")

/* The files of a run's folder. X(file, meaning) */
#define DT_RUN_FILE_LIST(X)                                                                        \
    X("config.json", "the configuration as it was understood")                                     \
    X("metrics.jsonl", "one JSON object per line: what the run began with, steps and epochs, "     \
                       "what averaging sends in a step")                                           \
    X("metrics.csv", "the epochs as a table")                                                      \
    X("summary.json", "how the run ended, the result, where the time of a step went, peak memory") \
    X("trace.json", "with `trace.steps`: what every rank did when in those steps, for Perfetto "   \
                    "and chrome://tracing")                                                        \
    X("report.html", "a page about all of it, unless `report` is false")                           \
    X("checkpoints/*.safetensors", "weights under PyTorch's names, optimizer state and counters; " \
                                   "best.safetensors of `checkpoint.best`")

/* Examples in the manual page. X(purpose, commands) */
#define DT_EXAMPLE_LIST(X)                                                                 \
    X("Train on four ranks, and resume later where it was stopped:",                       \
      "mpirun -np 4 dtrain --config configs/mnist.json --run runs/first\n"                 \
      "mpirun -np 4 dtrain --config configs/mnist.json --run runs/first --resume\n")       \
    X("Measure its newest checkpoint:", "dtrain eval runs/first:last\n")                   \
    X("On four GPUs, with activations of 16 bits; CPUs with AMX know `bf16` too, for the " \
      "products of convolutions:",                                                         \
      "mpirun -np 4 dtrain --config configs/mnist.json --set device=cuda \\\n    --set "   \
      "precision=bf16\n")                                                                  \
    X("What an allreduce over four ranks costs:",                                          \
      "mpirun -np 4 dtrain bench allreduce -b 1K -e 64M -f 4 --json sums.json\n")

#endif
