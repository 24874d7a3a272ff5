#!/usr/bin/env bash
# Bad arguments, configurations, models and surroundings (bad_input.sh says how each must end).
# shellcheck source=tests/lib/bad_input.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/bad_input.sh"

# ---- the command line ----
row no-config 64 '--config FILE is required' --run never
ranks=$most row typo 64 "unknown option '--confg' (did you mean '--config'?)" --confg good.json
row control-characters 64 "unknown option '--a\\x0ab\\x1b[2J'" $'--a\nb\033[2J'
row data-for-generated 64 '--data' --config "$configs/synthetic.json" --data data/good
row plan-config 64 'train.epochs' plan --config good.json --set train.epochs=0

# ---- the configuration: the file, JSON, keys; test_args.c and test_config*.c have all texts ----
row config-missing 66 'nowhere.json: No such file or directory' --config nowhere.json
ranks=0 row config-typo 66 "goood.json: No such file or directory (did you mean 'good.json'?)" --config goood.json
ranks=0 row config-typo-in-folder 66 "(did you mean 'bad/../good.json'?)" --config bad/../god.json
row config-folder 66 'bad: is a directory' --config bad
printf 'data:\n' >c.yaml && printf '[data]\n' >c.toml
ranks=0 row config-yaml 78 'c.yaml: a configuration is JSON, not YAML (dtrain init writes one)' --config c.yaml
ranks=0 row config-toml 78 'c.toml: a configuration is JSON, not TOML (dtrain init writes one)' --config c.toml
mkfifo pipe.json
ranks=0 row config-pipe 66 'pipe.json: not a regular file' --config pipe.json
ranks=0 row config-device 66 '/dev/zero: not a regular file' --config /dev/zero
if ((EUID != 0)); then
  install -m 0 good.json bad/secret.json
  row config-secret 77 'secret.json: Permission denied' --config bad/secret.json
fi
ranks=$most text truncated 78 'truncated.json:1:' '{ "data": { "format": "idx" }, "model": {'
ranks=$most config unknown-key 78 "did you mean 'train.epochs'?" '"epochs"' '"epoch"'

# Ranks that were given different ones: the first key is named.
two=0
"$MPIEXEC" -n 1 "$DTRAIN" --config good.json --run differ : -n 1 "$DTRAIN" --config good.json --run differ --set train.epochs=3 >out 2>err </dev/null || two=$?
got=$two judge differ 78 'has another configuration than rank 0, whose train.epochs was 2, now it is 3 (give all ranks the same)'

# ---- the model ----
ranks=$most config kernel 78 'kernel.json: model.layers[0] conv2d: ' '"kernel": 3' '"kernel": 9'
ranks=0 config input-order 78 '; model.input is [channels, height, width]: [1, 8, 8]?' '[1, 8, 8]' '[8, 8, 1]'
ranks=0 config loss 78 'data.format: labelled images need a model with 2 or more classes' '"dense", "units": 4 }
    ]' '"dense", "units": 1 }
    ], "loss": "mean_squared_error"'
line=(--config "$configs/linear.json" --run line)
row line-units 78 'data.format: linear is one number in and one out' "${line[@]}" --set model.layers.0.units=2
ranks=0 row line-input 78 'data.format: linear is one number in and one out' plan --config "$configs/linear.json" --set 'model.input=[2]'
ranks=0 row line-loss 78 'or use mean_squared_error' "${line[@]}" --set model.loss=softmax_cross_entropy
config too-large 78 'model.layers' '{ "type": "flatten" },' '{ "type": "conv2d", "filters": 65536, "kernel": 3 },
      { "type": "conv2d", "filters": 65536, "kernel": 3 }, { "type": "flatten" },'
config memory 78 'GiB' '{ "type": "flatten" },' '{ "type": "flatten" },
      { "type": "dense", "units": 30000 }, { "type": "dense", "units": 65536 }, { "type": "dense", "units": 30000 },
      { "type": "dense", "units": 65536 }, { "type": "dense", "units": 30000 },'
ranks=0 row input-size 78 'model.input' --config good.json --set 'model.input=[65536,65536,65536]'

# ---- the run as a whole ----
row batch-above-data 78 'the training set has 32' --config good.json --set 'train.batch={"global":33}'
exactly=4 row batch-below-ranks 78 'train.batch.global: 2 is smaller than the number of ranks 4' --config good.json \
  --set 'train.batch={"global":2}'
norm='model.layers=[{"type":"flatten"},{"type":"dense","units":4},{"type":"batch_norm"}]'
row batch-of-one 78 'train.batch: a rank takes one sample at a time, of which model.layers[2] batch_norm can take no variance' \
  --config good.json --set "$norm" --set train.batch.per_rank=1
exactly=3 row batch-of-one-somewhere 78 '): train.batch: a rank takes one sample at a time' --config good.json --set "$norm" --set 'train.batch={"global":4}' --run one
ranks=0 row batch-of-one-part 78 'train.batch: a rank takes one sample at a time' --config good.json --set "$norm" --set train.accumulate=4
# Rank 0's share is the smallest, and its statistics are kept; with sync all ranks' samples count.
exactly=2 row batch-of-one-on-rank-0 78 'batch_norm can take no variance (give ranks more, or give the layer "sync": true)' --config good.json --set "$norm" --set 'train.batch={"global":3}'
exactly=3 row batch-of-one-of-parts 78 'can take no variance (give ranks more, or' --config good.json --set "$norm" --set 'train.batch={"global":10}' --set train.accumulate=4
ranks=0 row batch-of-one-sync 78 'all ranks together take one sample at a time, of which model.layers[2] batch_norm can take no variance (take a larger batch, in fewer micro-batches)' \
  --config good.json --set "$norm" --set model.layers.2.sync=true --set train.batch.per_rank=1
conv='model.layers.0={"type":"conv2d","filters":2,"kernel":3,"padding":'
ranks=0 row padding-large 78 'model.layers[0] conv2d: padding 2 is more than half of kernel 3 (take at most 1)' --config good.json --set "${conv}2}"
ranks=0 row padding-below-0 64 'padding: expected valid, same or an integer 0..512, got -1' --config good.json --set "${conv}-1}"
ranks=0 row padding-word 64 'padding: expected valid, same or an integer 0..512, got string "full"' --config good.json --set "${conv}\"full\"}"
row cuda 69 'device "cuda"' --config good.json --set device=cuda
DTRAIN_TIMEOUT=abc row timeout-word 78 "DTRAIN_TIMEOUT: expected seconds 2..3600, got 'abc'" --config good.json
ranks=0 DTRAIN_TIMEOUT=1e9 row timeout-large 78 "DTRAIN_TIMEOUT: expected seconds 2..3600, got '1e9'" --config good.json
DTRAIN_ISA=sse9 row isa 78 'DTRAIN_ISA=sse9: no such instruction set' --config good.json

# ---- started by the launcher of another MPI: every program thinks it is alone ----
alone() { # alone NAME TEXT VARIABLE...
  local name=$1 text=$2 got=0
  shift 2
  timeout -k 5 20 env "$@" "$DTRAIN" --config good.json >out 2>err </dev/null || got=$?
  judge "$name" 69 "$text"
}
alone open-mpi "Open MPI's mpirun started 4 programs" OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0
alone slurm 'srun --mpi=pmi2' SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0
OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1 "$DTRAIN" --config good.json >out 2>err
check 'the second of them has another exit code' test $? -eq 69
check 'the second of them has no line of its own' grep -q 'started 4 programs' err
check 'a row left a run folder' test ! -e runs
finish
