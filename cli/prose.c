#include "cli/prose.h"

/* clang-format off */
#define ROW(constant, text) [constant] = (text),
static const char *const of_command[DT_N_COMMANDS] = {
    ROW(DT_COMMAND_TRAIN,
        "Each rank works on its share of every batch, and the ranks' gradients are averaged before each step, so that all "
        "keep the same weights. Started alone it is one rank.")
    ROW(DT_COMMAND_EVAL,
        "All ranks share the test samples.")
    ROW(DT_COMMAND_PREDICT,
        "Prints the class, the probabilities, and the image as the model sees it, drawn in characters. An image is scaled "
        "to the model's input; colours become grey by ITU-R BT.601's luma, and gamma and colour profiles are not "
        "regarded. A transparent one lies on white, or on black where more of it can be seen then.")
    ROW(DT_COMMAND_EXPORT,
        "As ONNX of opset 13. The input is floats N C H W with any N, pixels from 0 to 1; the output is logits, whose "
        "softmax is the probabilities.")
    ROW(DT_COMMAND_PLAN,
        "Without training: shapes, operations, the memory that a rank wants on its device, the steps of an epoch, what "
        "each rank reads, and between several ranks what averaging gradients sends. Without data it leaves out the steps "
        "and what is read.")
    ROW(DT_COMMAND_REPORT,
        "Shows a run in a screen of text, and writes a page about it from its folder alone: verdict and result, curves, "
        "where the time went, the model and the configuration, and the numbers behind all that; from the newest "
        "checkpoint and the test data what the model learned: confusion, precision and recall of each class, the worst "
        "test samples, filters of the first layer. The run may have ended, be under way, or have been killed. The page is "
        "one file that asks for nothing else. Of several runs it shows the curves over each other, and needs `--html`.")
    ROW(DT_COMMAND_WATCH,
        "One screen, drawn again every second until the run is over: how far it is, what is left, loss, accuracy, rate and "
        "throughput as curves, where a step's time goes, the ranks. `q` leaves; the last screen stays. It reads the folder and "
        "nothing else, so any host that sees it will do. Where stdout is no terminal it prints one screen.")
    ROW(DT_COMMAND_DOCTOR,
        "Run it where a job will run. It checks each rank's versions, cores, load, memory and its limits, shared memory, NUMA "
        "nodes, clocks, network, GPUs and their health (NVML), whether it sees the data of the configuration and the folder "
        "of runs, and Slurm's settings. Each check is ok, a warning or a problem, with its cure, or `-` where there is "
        "nothing to check; a problem ends the program with status 69.")
    ROW(DT_COMMAND_ACCEPT,
        "Runs each check and prints PASS or FAIL: all ranks are there, of one version and as many on each host; `dtrain "
        "doctor` finds no problem; Horovod's worked example of the gradient tape comes out bit for bit; the backward pass "
        "agrees with finite differences; every allreduce algorithm, also between GPUs, gives exact sums of whole numbers; of "
        "three hosts or more none is 38 % below the median in messages between any two ranks, memory bandwidth and matrix "
        "products, or has twice the latency; a training of seconds keeps its replicas equal after each step, on GPUs where "
        "there are; every rank reads its checkpoint; a frozen rank is named within a second. With fewer hosts, and without "
        "`--baseline`, figures can be compared with nothing: their row is MEASURED. One that fails ends the program with "
        "status 1; `--inject` makes the training fail. The files begin with date, command, commit, MPI and the hosts' hardware.")
    ROW(DT_COMMAND_SWEEP,
        "Commas part the values of a key, outside of JSON's brackets and strings. Each run has a numbered folder in that of "
        "the sweep (default runs/sweep-<config name>/<UTC time>); under `mpirun` each rank trains every n-th of them by "
        "itself, with its share of the cores and its GPU. A run that fails is a row of the table, and the others go on; "
        "one that diverged is a result. `--resume` goes on with those that were stopped.")
    ROW(DT_COMMAND_SLURM,
        "Writes the batch script of a job to stdout or to a new file: the one in `scripts/`, which saves before the time "
        "limit, goes back into the queue and goes on, with the configuration and options given here. Where there is a "
        "`sbatch`, it is asked by `--test-only`; if it refuses the script, the program ends with status 69.")
    ROW(DT_COMMAND_BENCH_BLOCKS,
        "Times each block of the model inside real training steps, after 20 that are not measured: milliseconds forward "
        "and backward, the share of numbers that are not zero, and the rate of arithmetic beside what a loop of "
        "multiply-adds reaches on the same core. A rate counts the dense operation; above 100 % of the peak, work on "
        "zeros was skipped. On a GPU it says which engines of cuDNN run the convolutions. Rank 0 prints its own times. Interrupting discards the measurement.")
    ROW(DT_COMMAND_BENCH_SCALING,
        "Times training steps by 1, 2, 4 and so on of the ranks, and by all of them, while the others sleep: with the "
        "configuration's batch on every rank (weak scaling), and with one such batch that the ranks share (strong "
        "scaling). The batch is `train.batch.per_rank`, or `train.batch.global` where that is set. A rank has as many "
        "threads as when all ranks train. Efficiency is the samples per second over those of one rank times the ranks; "
        "with one batch that is T1 / (n Tn).")
    ROW(DT_COMMAND_BENCH_ALLREDUCE,
        "Times allreduces of floats by size, for each way of adding that `distributed.allreduce` names and that there is "
        "here. The columns msgs and sent count what the rank that sends most sends for one allreduce; where all ranks "
        "together send anything else than the algorithm's formula says, the row has FAIL and the program ends with status "
        "1. busbw is algbw times 2 (n - 1) / n, the share of a sum that each of n ranks has to send; #wrong counts "
        "elements with a wrong value, and one ends the program with status 70. Two tables end it: the latency and the "
        "bandwidth that describe each way best, and for each size the fastest way beside the one that `auto` takes.")
    ROW(DT_COMMAND_LAB_GRADTAPE,
        "Horovod's gradient tape on two ranks. Like every lesson with golden numbers it ends with PASS, or with status 1 "
        "and what differs.")
    ROW(DT_COMMAND_LAB_LINEAR,
        "Two ranks fit a line, in the four cases of the two switches, with one sample a step, 16, or all.")
    ROW(DT_COMMAND_LAB_LR,
        "Two steps of a rate against one of twice the rate over all their samples.")
    ROW(DT_COMMAND_LAB_SHARDS,
        "Who reads what in each of the three ways, that each sample is used once, and what shards by label and a sorted "
        "file do to the accuracy.")
    ROW(DT_COMMAND_LAB_BATCH,
        "Trains with batches of 8 to 1024 images until 95 % of the test images are right: steps and samples of each.")
    ROW(DT_COMMAND_LAB_MODEL_PARALLEL,
        "What four ways send in a step, and how many devices compute at once: a layer per device, a pipeline, vertical "
        "slices, data parallel.")
    ROW(DT_COMMAND_LAB_PIPELINE,
        "A step of a pipeline stage by stage, by the schedules naive, gpipe and 1f1b on a clock: how long a stage waits, "
        "beside the formula, and how many micro-batches it holds at once.")
    ROW(DT_COMMAND_LAB_SERVER,
        "Trains on four ranks by a ring, a master, central storage, and a parameter server that waits and one that does "
        "not: what each rank sends in a step, which weights are the same, and how stale gradients are.")
    ROW(DT_COMMAND_LAB_COMPRESSION,
        "Trains on four ranks with gradients as they are, and in each way of fewer bytes, without and with error "
        "feedback: what a rank sends in a step, and the accuracy.")
    ROW(DT_COMMAND_LAB_STRAGGLERS,
        "Trains on four ranks of which one is slow, as with `--inject`: who waits for it with an allreduce and with a "
        "parameter server that waits, that lets nobody be more than four steps ahead, or that never waits; and how much "
        "later than one rank the latest of several is.")
    ROW(DT_COMMAND_LAB_ALLREDUCE,
        "Who sends which piece to whom, who adds it, who puts it in the place of its own, and every rank's vector after "
        "it. All ranks run in this one process, with real numbers. It ends with the proof (all ranks have the exact sum; "
        "messages and bytes are as many as the formula says; else the status is 1) and a table of all algorithms for as "
        "many ranks and numbers, with simulated times.")
};

static const char *const of_option[N_OPTIONS] = {
    ROW(OPTION_DATA,
        "Files are raw or compressed by gzip.")
    ROW(OPTION_RESUME,
        "A job that is queued again needs no other command.")
    ROW(OPTION_SET,
        "The value is JSON, and otherwise a string; a later one wins. Numbers in the path reach into lists, as in "
        "`model.layers.1.filters=16`.")
    ROW(OPTION_WEIGHTS,
        "The tensors are float32 with the names and shapes of the model's checkpoints: `conv1.weight`, `conv1.bias`, "
        "`fc1.weight` and so on, numbered in the order of the layers. A checkpoint will do too; its optimizer's state is "
        "not used. Training takes them where there is nothing to resume; `eval` and `predict` need `--config` with it, "
        "whose model they are.")
    ROW(OPTION_INJECT,
        "Steps count from 1, over the whole run. It is not a part of the configuration: a run that goes on without it is "
        "as any other. Not where a GPU takes steps on its own: set `cuda.graph=false`.")
    ROW(OPTION_INVERT,
        "With `auto`, the default, borders tell which ground an image is on. A file that does not say what the training's "
        "were like is taken as MNIST's, light on dark.")
    ROW(OPTION_LATENCY,
        "It comes on top of what a message takes here. With `hierarchical`, only messages between hosts are slow.")
    ROW(OPTION_BANDWIDTH,
        "Messages take turns on the links of their two ranks. It concerns the algorithms, whose messages dtrain sends "
        "itself; the other ways are left out.")
    ROW(OPTION_HTML,
        "The page of `lab allreduce` has the rounds, to be stepped through with buttons and arrow keys.")
};
/* clang-format on */

const char *dt_prose_of_command(enum dt_command command)
{
    return of_command[command] == NULL ? "" : of_command[command];
}

const char *dt_prose_of_option(enum option option)
{
    return of_option[option] == NULL ? "" : of_option[option];
}
