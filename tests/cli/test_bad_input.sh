#!/usr/bin/env bash
# Each bad input gets one line and its exit code, however many ranks find it.
#
# Each row below is one bad input: it must end at -np 1 and at -np 4 with the stated exit code, an empty stdout, and on stderr one
# line that begins with "dtrain: " and has the stated text. Variants of a row ("ranks=1") save time and run at -np 1 only, unless
# DTRAIN_TEST_ALL=1 is set. usage: DTRAIN=... MPIEXEC=... test_bad_input.sh [NAME of one row]
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
command -v python3 >/dev/null || { echo 'skipped: python3 makes the bad files, and is not installed'; exit 77; }
only=${1:-}

judge() { # judge NAME CODE TEXT: of the run that wrote `out`, `err` and ended with $got
  local name=$1 code=$2 text=$3 line
  n_checks=$((n_checks + 1))
  line=$(cat err)
  ((got == code)) || { fail "$name: exit code $got, expected $code" err; return; }
  [[ ! -s out ]] || { fail "$name: text on stdout" out; return; }
  [[ $(wc -l <err) -eq 1 && $line == 'dtrain: '* ]] || { fail "$name: not one line of error" err; return; }
  [[ $line == *"$text"* ]] || { fail "$name: does not say '$text'" err; return; }
  [[ -z $(tr -d '[:print:]\n\200-\377' <err) ]] || fail "$name: control characters" err
}

row() { # row NAME CODE TEXT ARGUMENT...
  local name=$1 code=$2 text=$3 n got all=${DTRAIN_TEST_ALL:+1 4}
  shift 3
  [[ -z $only || $only == "$name" ]] || return 0
  for n in ${exactly:-${all:-${ranks:-1 4}}}; do
    got=0
    timeout -k 5 20 "$MPIEXEC" -n "$n" "$DTRAIN" "$@" >out 2>err </dev/null || got=$?
    judge "$name, -np $n" "$code" "$text"
  done
}

# The good configuration, and ways to spoil it.
good='{
  "data": { "format": "idx", "dir": "data/good" },
  "model": {
    "input": [1, 8, 8],
    "layers": [
      { "type": "conv2d", "filters": 2, "kernel": 3, "activation": "relu" },
      { "type": "flatten" },
      { "type": "dense", "units": 4 }
    ]
  },
  "train": { "epochs": 2, "batch": { "per_rank": 4 }, "optimizer": { "type": "sgd", "lr": 0.01, "momentum": 0.5 } },
  "threads": 1
}'
printf '%s\n' "$good" >good.json
mkdir bad

config() { # config NAME CODE TEXT FROM TO: a row; the good configuration with FROM replaced by TO
  local file=bad/$1.json
  printf '%s\n' "${good/"$4"/$5}" >"$file"
  if cmp -s good.json "$file"; then
    fail "$1: nothing replaced"
  fi
  row "$1" "$2" "$3" --config "$file"
}

text() { # text NAME CODE TEXT FORMAT: a row; the configuration is what printf makes of FORMAT
  # shellcheck disable=SC2059
  printf "$4" >"bad/$1.json"
  row "$1" "$2" "$3" --config "bad/$1.json"
}

data() { # data FAULT CODE TEXT: a row; a folder that make_bad_input.py made
  row "data-$1" "$2" "$3" --config good.json --data "data/$1"
}

checkpoint() { # checkpoint FAULT CODE TEXT: two rows; a file that make_bad_input.py made
  row "resume-$1" "$2" "$3" --config good.json --run resumed --resume="checkpoints/$1.safetensors"
  rm -rf resumed
  ranks=1 row "eval-$1" "$2" "$3" eval --checkpoint "checkpoints/$1.safetensors"
}

train() { # train ARGUMENT...: must work; makes files for rows
  n_checks=$((n_checks + 1))
  timeout -k 5 60 "$MPIEXEC" "$@" >out 2>err </dev/null || fail "does not work: $*" err
}

"$tests/lib/make_bad_input.py" data data

# ---- the command line ----
row no-config 64 '--config FILE is required'
row typo 64 "unknown option '--confg' (did you mean '--config'?)" --confg good.json
row no-value 64 '--config needs a value' --config
ranks=1 row empty-value 64 '--run needs a value' --config good.json --run=
row twice 64 '--run is given twice' --config good.json --run a --run b
ranks=1 row one-dash 64 "unknown option '-np'" -np 4 --config good.json
ranks=1 row command 64 "unknown command 'evel' (did you mean 'eval'?)" evel
ranks=1 row forgot-config 64 '--config good.json' good.json
ranks=1 row argument 64 "unexpected argument 'good.json'" train good.json
ranks=1 row foreign-option 64 '--resume does not belong to plan' plan --config good.json --resume
ranks=1 row eval-nothing 64 '--checkpoint FILE is required' eval
ranks=1 row predict-nothing 64 'at least one image' predict --checkpoint x
row control-characters 64 "unknown option '--a\\x0ab\\x1b[2J'" $'--a\nb\033[2J'
row set-text 64 'train.epochs: expected an integer 1..1000000, got string "3x"' --config good.json --set train.epochs=3x
ranks=1 row set-negative 64 'train.epochs: expected an integer 1..1000000, got -1' --config good.json --set train.epochs=-1
ranks=1 row set-no-value 64 'train.epochs' --config good.json --set train.epochs
ranks=1 row set-unknown 64 "did you mean 'train.epochs'?" --config good.json --set train.epoch=3
ranks=1 row set-layer 64 "model.layers: '9' is no number of an entry" --config good.json --set model.layers.9.filters=3
ranks=1 row set-deep 64 "--set" --config good.json --set a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s=1
ranks=1 row set-group 64 'train.batch: expected an object, got 64 (say train.batch.per_rank=64, or write it in braces)' --config good.json --set train.batch=64
ranks=1 row set-group-name 64 '(say train.optimizer.type=sgd, or write it in braces)' --config good.json --set train.optimizer=sgd
ranks=1 row set-other-word 64 "did you mean 'train.batch.per_rank'?" --config good.json --set train.batch_size=64
row data-for-generated 64 '--data' --config "$configs/synthetic.json" --data data/good
row plan-config 64 'train.epochs' plan --config good.json --set train.epochs=0

# ---- the configuration: the file, JSON, keys, values ----
row config-missing 66 'nowhere.json: No such file or directory' --config nowhere.json
ranks=1 row config-typo 66 "goood.json: No such file or directory (did you mean 'good.json'?)" --config goood.json
ranks=1 row config-typo-in-folder 66 "(did you mean 'bad/../good.json'?)" --config bad/../god.json
row config-folder 66 'bad: is a directory' --config bad
mkfifo pipe.json
ranks=1 row config-pipe 66 'pipe.json: not a regular file' --config pipe.json
ranks=1 row config-device 66 '/dev/zero: not a regular file' --config /dev/zero
text config-empty 78 'config-empty.json: empty file' ''
head -c 1100000 /dev/zero | tr '\0' ' ' >bad/large.json
ranks=1 row config-large 78 'large.json: too large' --config bad/large.json
if ((EUID != 0)); then
  install -m 0 good.json bad/secret.json
  row config-secret 77 'secret.json: Permission denied' --config bad/secret.json
fi
text truncated 78 'truncated.json:1:' '{ "data": { "format": "idx" }, "model": {'
ranks=1 config trailing-comma 78 'trailing-comma.json:13:1' '"threads": 1' '"threads": 1,'
ranks=1 config comment 78 'comment.json:2:' '"data"' '// where
  "data"'
text after 78 'after.json:1:4: ' '{} x'
ranks=1 text two-documents 78 'two-documents.json:2:1: ' '{}\n{}\n'
ranks=1 text after-nul 78 'after-nul.json:1:3: ' '{}\000{}'
ranks=1 text only-nul 78 'only-nul.json:1:1' '\000'
config key-twice 78 'key-twice.json: train.epochs: the key is given twice' '"epochs": 2' '"epochs": 2, "epochs": 3'
config unknown-key 78 "did you mean 'train.epochs'?" '"epochs"' '"epoch"'
ranks=1 config wrong-case 78 "did you mean 'train.epochs'?" '"epochs"' '"Epochs"'
ranks=1 config layer-key 78 'model.layers[0].units: unknown key' '"kernel": 3' '"kernel": 3, "units": 3'
ranks=1 config layer-type 78 'did you mean "conv2d"?' '"conv2d"' '"conv2D"'
ranks=1 row no-layers 64 'model.layers: expected 1..64 layers, got 0' --config good.json --set 'model.layers=[]'
text root-list 78 'expected an object in braces, got a list' '[1, 2]'
ranks=1 text root-number 78 'expected an object in braces, got 7' '7'
ranks=1 text no-model 78 'model' '{"data": {"format": "idx"}}'
config string-for-number 78 'train.epochs: expected an integer 1..1000000, got string "ten"' '"epochs": 2' '"epochs": "ten"'
ranks=1 config number-for-group 78 'train: expected an object, got 3' '"train": {' '"train": 3, "xx": {'
ranks=1 config null 78 'train.epochs: expected an integer 1..1000000, got null' '"epochs": 2' '"epochs": null'
config fraction 78 'train.epochs: expected an integer 1..1000000, got 1.5' '"epochs": 2' '"epochs": 1.5'
ranks=1 config over-int 78 'got 2147483648' '"format"' '"train_samples": 2147483648, "format"'
ranks=1 config over-double 78 'train.seed: expected an integer 0..9007199254740991, got ' '"epochs"' '"seed": 9007199254740993, "epochs"'
config infinite 78 'train.optimizer.lr: expected a number > 0' '0.01' '1e999'
ranks=1 config lr-zero 78 'train.optimizer.lr: expected a number > 0' '0.01' '0'
ranks=1 config lr-negative 78 'train.optimizer.lr: expected a number > 0' '0.01' '-0.01'
ranks=1 config momentum-one 78 'train.optimizer.momentum: expected a number' '0.5' '1'
config leading-zero 78 'leading-zero.json:11:' '"epochs": 2' '"epochs": 007'
ranks=1 config no-digits 78 'no-digits.json:11:' '0.01' '5.'
ranks=1 config nan 78 'nan.json:11:' '0.01' 'NaN'
config nul-in-string 78 'nul-in-string.json:2:' 'data/good' 'data/\u0000good'
ranks=1 config bad-utf8 78 'bad-utf8.json:2:' 'data/good' $'data/\xc3\x28'
ranks=1 config control-character 78 'control-character.json:2:' 'data/good' $'data/\tgood'
text deep 78 'deep.json:1:' "$(printf '%017d' 0 | tr 0 '[')"
ranks=1 text very-deep 78 'very-deep.json:1:' "$(printf '%01001d' 0 | tr 0 '[')"
ranks=1 config both-batches 78 'train.batch: both per_rank and global' '"per_rank": 4' '"per_rank": 4, "global": 4'
ranks=1 config no-momentum 78 'train.optimizer.beta1: has a meaning only with train.optimizer.type=adam|adamw' '0.5' '0.5, "beta1": 0.9'

ranks=1 config group-in-file 78 'train.batch: expected an object, got 64 (say train.batch.per_rank=64, or write it in braces)' '{ "per_rank": 4 }' '64'
ranks=1 config softmax 78 'got string "softmax" (leave it out: the loss softmax_cross_entropy has it)' '"units": 4' '"units": 4, "activation": "softmax"'
ranks=1 config softmax-layer 78 '(leave it out: the loss softmax_cross_entropy has it)' '"units": 4 }' '"units": 4 }, { "type": "softmax" }'

# Ranks that were given different ones: the first key is named.
two=0
"$MPIEXEC" -n 1 "$DTRAIN" --config good.json --run differ : -n 1 "$DTRAIN" --config good.json --run differ --set train.epochs=3 >out 2>err </dev/null || two=$?
got=$two judge differ 78 'has another configuration than rank 0, whose train.epochs was 2, now it is 3 (give all ranks the same)'

# ---- the model ----
config kernel 78 'kernel.json: model.layers[0] conv2d: ' '"kernel": 3' '"kernel": 9'
ranks=1 config zero-units 78 'model.layers[2].units: expected an integer 1..65536, got 0' '"units": 4' '"units": 0'
ranks=1 config pool 78 'model.layers[1] max_pool2d: ' '"type": "flatten" }' '"type": "max_pool2d", "size": 7 }, { "type": "flatten" }'
ranks=1 config flat-conv 78 'model.layers[2] conv2d: ' '{ "type": "dense", "units": 4 }' '{ "type": "conv2d", "filters": 4, "kernel": 1 }'
config not-flat 78 'flatten' '{ "type": "flatten" },' ''
ranks=1 config one-class 78 'softmax_cross_entropy needs at least 2 classes' '"units": 4' '"units": 1'
ranks=1 config loss 78 'data.format: labelled images need a model with 2 or more classes' '"dense", "units": 4 }
    ]' '"dense", "units": 1 }
    ], "loss": "mean_squared_error"'
line=(--config "$configs/linear.json" --run line)
row line-units 78 'data.format: linear is one number in and one out' "${line[@]}" --set model.layers.0.units=2
ranks=1 row line-input 78 'data.format: linear is one number in and one out' plan --config "$configs/linear.json" --set 'model.input=[2]'
ranks=1 row line-loss 78 'or use mean_squared_error' "${line[@]}" --set model.loss=softmax_cross_entropy
config too-large 78 'model.layers' '{ "type": "flatten" },' '{ "type": "conv2d", "filters": 65536, "kernel": 3 },
      { "type": "conv2d", "filters": 65536, "kernel": 3 }, { "type": "flatten" },'
config memory 78 'GiB' '{ "type": "flatten" },' '{ "type": "flatten" },
      { "type": "dense", "units": 30000 }, { "type": "dense", "units": 65536 }, { "type": "dense", "units": 30000 },
      { "type": "dense", "units": 65536 }, { "type": "dense", "units": 30000 },'
ranks=1 row input-size 78 'model.input' --config good.json --set 'model.input=[65536,65536,65536]'

# ---- the run as a whole ----
row batch-above-data 78 'the training set has 32' --config good.json --set 'train.batch={"global":33}'
exactly=4 row batch-below-ranks 78 'train.batch.global: 2 is smaller than the number of ranks 4' --config good.json \
  --set 'train.batch={"global":2}'
row cuda 69 'device "cuda"' --config good.json --set device=cuda
DTRAIN_TIMEOUT=abc row timeout-word 78 "DTRAIN_TIMEOUT: expected seconds 2..3600, got 'abc'" --config good.json
ranks=1 DTRAIN_TIMEOUT=1e9 row timeout-large 78 "DTRAIN_TIMEOUT: expected seconds 2..3600, got '1e9'" --config good.json
DTRAIN_ISA=sse9 row isa 78 'DTRAIN_ISA=sse9: no such instruction set' --config good.json

# ---- data files ----
ranks=1 row data-nowhere 66 'data/nowhere: no such folder' --config good.json --data data/nowhere
data missing 66 'neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz'
ranks=1 data empty 65 'data/empty/train-images-idx3-ubyte: empty file'
ranks=1 data short3 65 'train-images-idx3-ubyte: header truncated: 3 bytes, need 16'
data short6 65 'train-images-idx3-ubyte: header truncated: 6 bytes, need 16'
ranks=1 data short15 65 'train-images-idx3-ubyte: header truncated: 15 bytes, need 16'
ranks=1 data short-labels 65 'train-labels-idx1-ubyte: header truncated: 6 bytes, need 8'
data swapped 65 'train-images-idx3-ubyte: holds labels'
ranks=1 data swapped-labels 65 'train-labels-idx1-ubyte: holds images'
ranks=1 data little-endian 65 'little-endian'
ranks=1 data png 65 'looks like a PNG image'
data html 65 'looks like HTML'
data float 65 'element type 0x0d (float) is not supported'
ranks=1 data two-dims 65 'train-images-idx3-ubyte: 2 dimensions'
data huge 65 '4294967295 x 65536 x 65536 items is impossible for a 16-byte file'
ranks=1 data no-items 65 '0 x 8 x 8 items'
ranks=1 data no-rows 65 '32 x 0 x 8 items'
data short-data 65 'header says 32 x 8 x 8 = 2048 bytes, file has 1948'
data extra 65 '17 extra bytes after the data'
data uneven 65 '32 images but 31 labels'
data label 65 'train-labels-idx1-ubyte: label 6 at index 30, model has 4 classes (0..3)'
row plan-label 65 'train-labels-idx1-ubyte: label 6 at index 30, model has 4 classes (0..3)' plan --config good.json --data data/label
data size 65 'train-images-idx3-ubyte: images are 1x10x10, model.input is 1x8x8'
data test-size 65 't10k-images-idx3-ubyte: test images are 1x10x10, the model is trained on 1x8x8'
data fifo 66 'train-images-idx3-ubyte: not a regular file'
ranks=1 data socket 66 'train-images-idx3-ubyte'
ranks=1 data device 66 'train-images-idx3-ubyte: not a regular file'
ranks=1 data folder 66 'train-images-idx3-ubyte: is a directory'
data gz-short 65 'train-images-idx3-ubyte.gz: unexpected end of file'
data gz-crc 65 'train-images-idx3-ubyte.gz: damaged gzip data: incorrect data check'
ranks=1 data gz-bits 65 'train-images-idx3-ubyte.gz: damaged gzip data'
data gz-garbage 65 'train-images-idx3-ubyte.gz: extra data after the first member'
ranks=1 data gz-member 65 'train-images-idx3-ubyte.gz: extra data after the first member'
data gz-not 65 'train-images-idx3-ubyte.gz: not an IDX3 ubyte file'
ranks=1 data gz-empty 65 'train-images-idx3-ubyte.gz: empty file'
data gz-bomb 65 'train-images-idx3-ubyte.gz: expands past the 2064 bytes its header declares'

# ---- the run's folder ----
: >file
row run-under-file 73 'file/run: ' --config good.json --run file/run
ranks=1 row run-in-proc 73 '/proc/dtrain' --config good.json --run /proc/dtrain
ranks=1 row run-too-long 64 '--run: the path is longer' --config good.json --run "$(printf '%02000d' 0)"
mkdir linked && ln -s ../target linked/run.lock
row run-lock-link 73 'linked/run.lock' --config good.json --run linked
check 'a symbolic link was followed' test ! -e target

# ---- checkpoints; the first lines make good ones: whole epochs, the middle of an epoch, other models ----
train -n 1 "$DTRAIN" --config good.json --data data/gz-raw --run run --set train.epochs=1
train -n 1 "$DTRAIN" --config good.json --run middle --set train.max_steps=3
row run-used 73 'run: already holds a run' --config good.json --run run
saved=$(newest_checkpoint run)
middle=$(newest_checkpoint middle)
"$tests/lib/make_bad_input.py" checkpoints "$saved" checkpoints
train -n 4 "$DTRAIN" --config good.json --run resumed --resume=checkpoints/same.safetensors
rm -rf resumed
row resume-missing 66 'nowhere.safetensors: No such file or directory' --config good.json --run resumed --resume=nowhere.safetensors
# The folder of a run stands for its checkpoint: the best where one is kept, or the newest; --resume takes the newest.
train -n 2 "$DTRAIN" eval --checkpoint run/
train -n 1 "$DTRAIN" --config good.json --run from_run --resume=run
check 'resumed from another file' grep -q "resumed from $saved: 1 epoch" err
cp -r run kept && cp checkpoints/flipped-data.safetensors kept/checkpoints/best.safetensors
ranks=1 row eval-best 65 'kept/checkpoints/best.safetensors: damaged' eval --checkpoint kept
train -n 1 "$DTRAIN" --config good.json --run from_kept --resume=kept
ranks=1 row eval-folder 66 'checkpoints: is a directory' eval --checkpoint checkpoints
ranks=1 checkpoint empty 65 'empty.safetensors: empty file'
ranks=1 checkpoint short4 65 'short4.safetensors: truncated: 4 bytes'
ranks=1 checkpoint short-header 65 'short-header.safetensors: truncated'
checkpoint short-data 65 'short-data.safetensors: '
ranks=1 checkpoint flipped-header 65 'flipped-header.safetensors: damaged (header crc'
checkpoint flipped-data 65 "flipped-data.safetensors: damaged (tensor '"
ranks=1 checkpoint not-one 65 'not-one.safetensors: not a safetensors file'
ranks=1 checkpoint long-header 65 'long-header.safetensors: truncated: header length 524288'
ranks=1 checkpoint vast-header 65 'vast-header.safetensors: not a safetensors file, or damaged: header length 9223372036854775808'
ranks=1 checkpoint shape 65 "shape.safetensors: invalid header: tensor 'conv1.weight'"
checkpoint overlap 65 'overlap.safetensors: invalid header'
ranks=1 checkpoint hole 65 'hole.safetensors: invalid header'
ranks=1 checkpoint overflow 65 'overflow.safetensors: invalid header'
ranks=1 checkpoint type 65 "tensor 'conv1.weight' has dtype 'F64'"
ranks=1 checkpoint twice 65 "invalid header: 'conv1.weight' appears twice"
checkpoint version 65 'version.safetensors: format version 3'
ranks=1 checkpoint counter 65 "counter.safetensors: invalid header: metadata 'epoch'"
checkpoint nan 65 "tensor 'conv1.weight' contains 1 non-finite values"
checkpoint steps 65 'step_in_epoch is 18446744073709551615, expected 0 to 8'
ranks=1 checkpoint one-step 65 'step_in_epoch is 9, expected 0 to 8'
ranks=1 checkpoint ranks 65 'world_size is 0, expected 1 to '
ranks=1 checkpoint wide 65 "wide.safetensors: tensors missing: 'fc2.weight', 'fc2.bias', 'fc3.weight', 'fc3.bias'"
ranks=1 checkpoint nul 65 'nul.safetensors: not a safetensors file, or damaged: its header is not JSON'
checkpoint path 65 'path.safetensors: its configuration:1:1: '
row eval-huge 80 'huge.safetensors: the test loss is not a number' eval --checkpoint checkpoints/huge.safetensors
"$tests/lib/make_bad_input.py" image white.png
row predict-huge 80 'huge.safetensors: for white.png it computes no finite number' predict --checkpoint checkpoints/huge.safetensors white.png
resume=(--config good.json --run resumed "--resume=$saved")
row resume-model 78 'model.layers[0].filters was 2, now it is 3' "${resume[@]}" --set model.layers.0.filters=3
ranks=1 row resume-optimizer 78 'train.optimizer.type was "sgd", now it is "adam"' "${resume[@]}" --set 'train.optimizer={"type":"adam"}'
row resume-seed 78 'train.seed was 1, now it is 2' "${resume[@]}" --set train.seed=2
ranks=1 row resume-data 78 'number of training samples was 32, now it is 16' "${resume[@]}" --set data.train_samples=16
exactly=1 row resume-batch 78 'global batch was 4, now it is 2' --config good.json --run resumed "--resume=$middle" \
  --set train.batch.per_rank=2
exactly=4 row resume-ranks 78 'number of ranks was 1, now it is 4' --config good.json --run resumed "--resume=$middle" \
  --set train.batch.per_rank=1
ranks=1 row eval-size 65 'test images are 1x10x10, the model is trained on 1x8x8' eval --checkpoint "$saved" --data data/test-size
row predict-missing 66 'nowhere.png: No such file or directory' predict --checkpoint "$saved" nowhere.png
ranks=1 row predict-text 65 'good.json: ' predict --checkpoint "$saved" good.json

# All of a run's checkpoints damaged; and only the newest, which costs a warning and not the run.
mkdir -p damaged/checkpoints
for step in 1 2; do
  cp checkpoints/flipped-data.safetensors "damaged/checkpoints/step-00000000000$step.safetensors"
done
got=0
"$MPIEXEC" -n 2 "$DTRAIN" --config good.json --run damaged --resume >out 2>all || got=$?
grep -v '^dtrain: warning: .*damaged (tensor .*; passing it over$' all >err
judge 'all checkpoints damaged' 65 'all 2 checkpoints are damaged'
check 'each damaged checkpoint is named' test "$(grep -c warning all)" -eq 2
cp "$saved" damaged/checkpoints/step-000000000001.safetensors
cp checkpoints/steps.safetensors damaged/checkpoints/step-000000000003.safetensors
train -n 2 "$DTRAIN" --config good.json --run damaged --resume
check 'the damaged checkpoint is named' grep -q '^dtrain: warning: .*step-000000000002.safetensors: damaged' err
check 'false counters are damage' grep -q 'step-000000000003.safetensors: its counters contradict each other: .*; passing it over$' err
check 'the older one is used' grep -q 'resumed from .*step-000000000001' err

# ---- ranks that differ ----
differ() { # differ NAME CODE TEXT MPIEXEC-ARGUMENT...: programs started with colons between them
  local name=$1 code=$2 text=$3 got=0
  shift 3
  [[ -z $only || $only == "$name" ]] || return 0
  timeout -k 5 20 "$MPIEXEC" "$@" >out 2>err </dev/null || got=$?
  judge "$name" "$code" "$text"
}
sed 's/0.01/0.02/' good.json >bad/other.json
both=(-n 3 "$DTRAIN" --config good.json --run differ)
differ differ-lr 78 'rank 3 (' "${both[@]}" : -n 1 "$DTRAIN" --config bad/other.json --run differ
differ differ-sharding 78 'rank 3 (' "${both[@]}" : -n 1 "$DTRAIN" --config good.json --set data.sharding=global
differ differ-model 78 'rank 3 (' "${both[@]}" : -n 1 "$DTRAIN" --config good.json --set model.layers.0.filters=4
differ differ-batch 78 'rank 3 (' "${both[@]}" : -n 1 "$DTRAIN" --config good.json --set train.batch.per_rank=2
differ differ-config 66 'rank 3 (' "${both[@]}" : -n 1 "$DTRAIN" --config nowhere.json
mkdir -p node1/data/good node2/data # the same names, other files there
cp good.json node1 && cp good.json node2 && cp -r data/label node2/data/good
differ differ-data 66 'rank 3 (' "${both[@]}" : -n 1 -wdir "$work/node1" "$DTRAIN" --config good.json --run differ
differ differ-bad-data 65 'rank 0 (' -n 1 -wdir "$work/node2" "$DTRAIN" --config good.json --run differ : "${both[@]}"
differ differ-option 64 'rank 1 (' -n 1 "$DTRAIN" --config good.json : -n 1 "$DTRAIN" --confg good.json
differ differ-resume 78 'rank 3 (' "${both[@]}" : -n 1 "$DTRAIN" --config good.json --run differ --resume
differ differ-command 78 'rank 1 (' -n 1 "$DTRAIN" --config good.json : -n 1 "$DTRAIN" plan --config good.json
python3 -c 'import sys
program = open(sys.argv[1], "rb").read()
open("dtrain-other", "wb").write(program.replace(sys.argv[2].encode() + b"\0", sys.argv[2].encode()[:-1] + b"Z\0"))' \
  "$DTRAIN" "$("$DTRAIN" --version | sed -n 's/^dtrain \([^ ]*\).*/\1/p')"
chmod +x dtrain-other
differ differ-version 78 'rank 2 (' -n 2 "$DTRAIN" --config good.json : -n 2 ./dtrain-other --config good.json

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
