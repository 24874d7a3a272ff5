#!/usr/bin/env bash
# Bad arguments, configurations, models and surroundings (bad_input.sh says how each must end).
# shellcheck source=tests/lib/bad_input.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/bad_input.sh"

# ---- the command line ----
row no-config 64 '--config FILE is required'
ranks=$most row typo 64 "unknown option '--confg' (did you mean '--config'?)" --confg good.json
row no-value 64 '--config needs a value' --config
ranks=0 row empty-value 64 '--run needs a value' --config good.json --run=
row twice 64 '--run is given twice' --config good.json --run a --run b
ranks=0 row one-dash 64 "unknown option '-np'" -np 4 --config good.json
ranks=0 row command 64 "unknown command 'evel' (did you mean 'eval'?)" evel
ranks=0 row forgot-config 64 '--config good.json' good.json
ranks=0 row argument 64 "unexpected argument 'good.json'" train good.json
ranks=0 row foreign-option 64 '--resume does not belong to plan' plan --config good.json --resume
ranks=0 row eval-nothing 64 '--checkpoint FILE is required' eval
ranks=0 row predict-nothing 64 'at least one image' predict --checkpoint x
row control-characters 64 "unknown option '--a\\x0ab\\x1b[2J'" $'--a\nb\033[2J'
row set-text 64 'train.epochs: expected an integer 1..1000000, got string "3x"' --config good.json --set train.epochs=3x
ranks=0 row set-negative 64 'train.epochs: expected an integer 1..1000000, got -1' --config good.json --set train.epochs=-1
ranks=0 row set-no-value 64 'train.epochs' --config good.json --set train.epochs
ranks=0 row set-unknown 64 "did you mean 'train.epochs'?" --config good.json --set train.epoch=3
ranks=0 row set-layer 64 "model.layers: '9' is no number of an entry" --config good.json --set model.layers.9.filters=3
ranks=0 row set-deep 64 "--set" --config good.json --set a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s=1
ranks=0 row set-group 64 'train.batch: expected an object, got 64 (say train.batch.per_rank=64, or write it in braces)' --config good.json --set train.batch=64
ranks=0 row set-group-name 64 '(say train.optimizer.type=sgd, or write it in braces)' --config good.json --set train.optimizer=sgd
ranks=0 row set-other-word 64 "did you mean 'train.batch.per_rank'?" --config good.json --set train.batch_size=64
row data-for-generated 64 '--data' --config "$configs/synthetic.json" --data data/good
row plan-config 64 'train.epochs' plan --config good.json --set train.epochs=0

# ---- the configuration: the file, JSON, keys, values ----
row config-missing 66 'nowhere.json: No such file or directory' --config nowhere.json
ranks=0 row config-typo 66 "goood.json: No such file or directory (did you mean 'good.json'?)" --config goood.json
ranks=0 row config-typo-in-folder 66 "(did you mean 'bad/../good.json'?)" --config bad/../god.json
row config-folder 66 'bad: is a directory' --config bad
mkfifo pipe.json
ranks=0 row config-pipe 66 'pipe.json: not a regular file' --config pipe.json
ranks=0 row config-device 66 '/dev/zero: not a regular file' --config /dev/zero
text config-empty 78 'config-empty.json: empty file' ''
head -c 1100000 /dev/zero | tr '\0' ' ' >bad/large.json
ranks=0 row config-large 78 'large.json: too large' --config bad/large.json
if ((EUID != 0)); then
  install -m 0 good.json bad/secret.json
  row config-secret 77 'secret.json: Permission denied' --config bad/secret.json
fi
ranks=$most text truncated 78 'truncated.json:1:' '{ "data": { "format": "idx" }, "model": {'
ranks=0 config trailing-comma 78 'trailing-comma.json:13:1' '"threads": 1' '"threads": 1,'
ranks=0 config comment 78 'comment.json:2:' '"data"' '// where
  "data"'
text after 78 'after.json:1:4: ' '{} x'
ranks=0 text two-documents 78 'two-documents.json:2:1: ' '{}\n{}\n'
ranks=0 text after-nul 78 'after-nul.json:1:3: ' '{}\000{}'
ranks=0 text only-nul 78 'only-nul.json:1:1' '\000'
config key-twice 78 'key-twice.json: train.epochs: the key is given twice' '"epochs": 2' '"epochs": 2, "epochs": 3'
ranks=$most config unknown-key 78 "did you mean 'train.epochs'?" '"epochs"' '"epoch"'
ranks=0 config wrong-case 78 "did you mean 'train.epochs'?" '"epochs"' '"Epochs"'
ranks=0 config layer-key 78 'model.layers[0].units: unknown key' '"kernel": 3' '"kernel": 3, "units": 3'
ranks=0 config layer-type 78 'did you mean "conv2d"?' '"conv2d"' '"conv2D"'
ranks=0 row no-layers 64 'model.layers: expected 1..64 layers, got 0' --config good.json --set 'model.layers=[]'
text root-list 78 'expected an object in braces, got a list' '[1, 2]'
ranks=0 text root-number 78 'expected an object in braces, got 7' '7'
ranks=0 text no-model 78 'model' '{"data": {"format": "idx"}}'
config string-for-number 78 'train.epochs: expected an integer 1..1000000, got string "ten"' '"epochs": 2' '"epochs": "ten"'
ranks=0 config number-for-group 78 'train: expected an object, got 3' '"train": {' '"train": 3, "xx": {'
ranks=0 config null 78 'train.epochs: expected an integer 1..1000000, got null' '"epochs": 2' '"epochs": null'
config fraction 78 'train.epochs: expected an integer 1..1000000, got 1.5' '"epochs": 2' '"epochs": 1.5'
ranks=0 config over-int 78 'got 2147483648' '"format"' '"train_samples": 2147483648, "format"'
ranks=0 config over-double 78 'train.seed: expected an integer 0..9007199254740991, got ' '"epochs"' '"seed": 9007199254740993, "epochs"'
config infinite 78 'train.optimizer.lr: expected a number > 0' '0.01' '1e999'
ranks=0 config lr-zero 78 'train.optimizer.lr: expected a number > 0' '0.01' '0'
ranks=0 config lr-negative 78 'train.optimizer.lr: expected a number > 0' '0.01' '-0.01'
ranks=0 config momentum-one 78 'train.optimizer.momentum: expected a number' '0.5' '1'
config leading-zero 78 'leading-zero.json:11:' '"epochs": 2' '"epochs": 007'
ranks=0 config no-digits 78 'no-digits.json:11:' '0.01' '5.'
ranks=0 config nan 78 'nan.json:11:' '0.01' 'NaN'
config nul-in-string 78 'nul-in-string.json:2:' 'data/good' 'data/\u0000good'
ranks=0 config bad-utf8 78 'bad-utf8.json:2:' 'data/good' $'data/\xc3\x28'
ranks=0 config control-character 78 'control-character.json:2:' 'data/good' $'data/\tgood'
text deep 78 'deep.json:1:' "$(printf '%017d' 0 | tr 0 '[')"
ranks=0 text very-deep 78 'very-deep.json:1:' "$(printf '%01001d' 0 | tr 0 '[')"
ranks=0 config both-batches 78 'train.batch: both per_rank and global' '"per_rank": 4' '"per_rank": 4, "global": 4'
ranks=0 config no-momentum 78 'train.optimizer.beta1: has a meaning only with train.optimizer.type=adam|adamw' '0.5' '0.5, "beta1": 0.9'

ranks=0 config group-in-file 78 'train.batch: expected an object, got 64 (say train.batch.per_rank=64, or write it in braces)' '{ "per_rank": 4 }' '64'
ranks=0 config softmax 78 'got string "softmax" (leave it out: the loss softmax_cross_entropy has it)' '"units": 4' '"units": 4, "activation": "softmax"'
ranks=0 config softmax-layer 78 '(leave it out: the loss softmax_cross_entropy has it)' '"units": 4 }' '"units": 4 }, { "type": "softmax" }'

# Ranks that were given different ones: the first key is named.
two=0
"$MPIEXEC" -n 1 "$DTRAIN" --config good.json --run differ : -n 1 "$DTRAIN" --config good.json --run differ --set train.epochs=3 >out 2>err </dev/null || two=$?
got=$two judge differ 78 'has another configuration than rank 0, whose train.epochs was 2, now it is 3 (give all ranks the same)'

# ---- the model ----
ranks=$most config kernel 78 'kernel.json: model.layers[0] conv2d: ' '"kernel": 3' '"kernel": 9'
ranks=0 config zero-units 78 'model.layers[2].units: expected an integer 1..65536, got 0' '"units": 4' '"units": 0'
ranks=0 config pool 78 'model.layers[1] max_pool2d: ' '"type": "flatten" }' '"type": "max_pool2d", "size": 7 }, { "type": "flatten" }'
ranks=0 config flat-conv 78 'model.layers[2] conv2d: ' '{ "type": "dense", "units": 4 }' '{ "type": "conv2d", "filters": 4, "kernel": 1 }'
config not-flat 78 'flatten' '{ "type": "flatten" },' ''
ranks=0 config one-class 78 'softmax_cross_entropy needs at least 2 classes' '"units": 4' '"units": 1'
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
check 'the second of them repeats the error' test ! -s err
check 'a row left a run folder' test ! -e runs
finish
