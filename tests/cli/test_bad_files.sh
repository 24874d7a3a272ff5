#!/usr/bin/env bash
# Bad data, checkpoints and run folders, and ranks that differ (bad_input.sh says how each must end).
# shellcheck source=tests/lib/bad_input.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/bad_input.sh"

data() { # data FAULT CODE TEXT: a row; a folder that make_bad_input.py made
  row "data-$1" "$2" "$3" --config good.json --data "data/$1"
}

checkpoint() { # checkpoint FAULT CODE TEXT: two rows; a file that make_bad_input.py made
  row "resume-$1" "$2" "$3" --config good.json --run resumed --resume="checkpoints/$1.safetensors"
  rm -rf resumed
  ranks=0 row "eval-$1" "$2" "$3" eval "checkpoints/$1.safetensors"
}

train() { # train ARGUMENT...: must work; makes files for rows
  n_checks=$((n_checks + 1))
  timeout -k 5 60 "$MPIEXEC" "$@" >out 2>err </dev/null || fail "does not work: $*" err
}

# ---- data files; test_idx.c and test_dataset.c have all faults of their contents ----
ranks=0 row data-nowhere 66 'data/nowhere: no such folder' --config good.json --data data/nowhere
data missing 66 'neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz'
ranks=$most data html 65 'looks like HTML'
data label 65 'train-labels-idx1-ubyte: label 6 at index 30, model has 4 classes (0..3)'
row plan-label 65 'train-labels-idx1-ubyte: label 6 at index 30, model has 4 classes (0..3)' plan --config good.json --data data/label
data test-size 65 't10k-images-idx3-ubyte: test images are 1x10x10, the model is trained on 1x8x8'
data fifo 66 'train-images-idx3-ubyte: not a regular file'
ranks=0 data socket 66 'train-images-idx3-ubyte'

# ---- the run's folder ----
: >file
ranks=$most row run-under-file 73 'file/run: ' --config good.json --run file/run
ranks=0 row run-in-proc 73 '/proc/dtrain' --config good.json --run /proc/dtrain
ranks=0 row run-too-long 64 '--run: the path is longer' --config good.json --run "$(printf '%02000d' 0)"
mkdir linked && ln -s ../target linked/run.lock
row run-lock-link 73 'linked/run.lock' --config good.json --run linked
check 'a symbolic link was followed' test ! -e target

# ---- checkpoints; the first lines make good ones: whole epochs, the middle of an epoch, other models ----
train -n 1 "$DTRAIN" --config good.json --data data/gz-raw --run run --set train.epochs=1
train -n 1 "$DTRAIN" --config good.json --run middle --set train.max_steps=3
row run-used 73 'run: already holds a run' --config good.json --run run
saved=$(newest_checkpoint run)
middle=$(newest_checkpoint middle)
"$tests/lib/python/make_bad_input.py" checkpoints "$saved" checkpoints
train -n 4 "$DTRAIN" --config good.json --run resumed --resume=checkpoints/same.safetensors
rm -rf resumed
ranks=$most row resume-missing 66 'nowhere.safetensors: No such file or directory' --config good.json --run resumed --resume=nowhere.safetensors
# The folder of a run stands for its checkpoint: the best where one is kept, or the newest; --resume takes the newest.
train -n 2 "$DTRAIN" eval run/
train -n 1 "$DTRAIN" --config good.json --run from_run --resume=run
check 'resumed from another file' grep -q "resumed at step .* (1 epoch done), from $saved" err
cp -r run kept && cp checkpoints/flipped-data.safetensors kept/checkpoints/best.safetensors
ranks=0 row eval-best 65 'kept/checkpoints/best.safetensors: damaged' eval kept
train -n 1 "$DTRAIN" --config good.json --run from_kept --resume=kept
# RUN:best and RUN:last say which; a file of that very name comes first.
ranks=0 row eval-named-best 65 'kept/checkpoints/best.safetensors: damaged' eval kept:best
train -n 1 "$DTRAIN" eval kept/:last
ranks=0 row eval-no-best 66 'run:best: the run keeps no best checkpoint (take run:last; checkpoint.best keeps one)' eval run:best
ranks=0 row eval-nowhere-best 66 'nowhere: No such file or directory' eval nowhere:best
ranks=0 row eval-other-word 66 "run:newest: of a run's checkpoints, take run:best or run:last" eval run:newest
ranks=$most row resume-best 65 'kept/checkpoints/best.safetensors: damaged' --config good.json --run resumed --resume=kept:best
rm -rf resumed
cp "$saved" kept/checkpoints/best.safetensors
train -n 1 "$DTRAIN" --config good.json --run from_best --resume=kept:best
check 'resumed from another file than the best' grep -q '(1 epoch done), from kept/checkpoints/best.safetensors' err
train -n 1 "$DTRAIN" --config good.json --run from_last --resume=kept:last
check 'resumed from another file than the newest' grep -q "(1 epoch done), from kept/checkpoints/$(basename "$saved")" err
cp "$saved" file:best
train -n 1 "$DTRAIN" eval file:best
ranks=0 row eval-folder 66 'checkpoints: is a directory' eval checkpoints
checkpoint flipped-data 65 "flipped-data.safetensors: damaged (tensor '"
checkpoint steps 65 'step_in_epoch is 18446744073709551615, expected 0 to 8'
checkpoint path 65 'path.safetensors: its configuration:1:1: '
row eval-huge 80 'huge.safetensors: the test loss is not a number' eval checkpoints/huge.safetensors
row predict-huge 80 "huge.safetensors: output for $tests/corpus/png/grey is not finite" predict checkpoints/huge.safetensors "$tests/corpus/png/grey"
resume=(--config good.json --run resumed "--resume=$saved")
row resume-model 78 'model.layers[0].filters was 2, now it is 3' "${resume[@]}" --set model.layers.0.filters=3
ranks=0 row resume-optimizer 78 'train.optimizer.type was "sgd", now it is "adam"' "${resume[@]}" --set 'train.optimizer={"type":"adam"}'
row resume-seed 78 'train.seed was 1, now it is 2' "${resume[@]}" --set train.seed=2
ranks=0 row resume-data 78 'number of training samples was 32, now it is 16' "${resume[@]}" --set data.train_samples=16
exactly=0 row resume-batch 78 'global batch was 4, now it is 2' --config good.json --run resumed "--resume=$middle" \
  --set train.batch.per_rank=2
exactly=4 row resume-ranks 78 'number of ranks was 1, now it is 4' --config good.json --run resumed "--resume=$middle" \
  --set train.batch.per_rank=1
ranks=0 row eval-size 65 'test images are 1x10x10, the model is trained on 1x8x8' eval "$saved" --data data/test-size
row predict-missing 66 'nowhere.png: No such file or directory' predict "$saved" nowhere.png
ranks=0 row predict-text 65 'good.json: ' predict "$saved" good.json

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
check 'the older one is used' grep -q 'resumed at step .*step-000000000001' err

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
mkdir -p node1/data/good node2/data node3/data # the same names, other files there
cp good.json node1 && cp good.json node2 && cp -r data/label node2/data/good
cp good.json node3 && cp -r data/good node3/data/good
python3 -c 'import sys
labels = bytearray(open(sys.argv[1], "rb").read())
labels[-1] ^= 1
open(sys.argv[1], "wb").write(labels)' node3/data/good/train-labels-idx1-ubyte
differ differ-data 66 'rank 3 (' "${both[@]}" : -n 1 -wdir "$work/node1" "$DTRAIN" --config good.json --run differ
differ differ-bad-data 65 'rank 0 (' -n 1 -wdir "$work/node2" "$DTRAIN" --config good.json --run differ : "${both[@]}"
differ differ-labels 78 'has a different data set (number of samples, or labels): crc ' \
  "${both[@]}" : -n 1 -wdir "$work/node3" "$DTRAIN" --config good.json --run differ
differ differ-option 64 'rank 1 (' -n 1 "$DTRAIN" --config good.json : -n 1 "$DTRAIN" --confg good.json
differ differ-resume 78 'rank 3 (' "${both[@]}" : -n 1 "$DTRAIN" --config good.json --run differ --resume
differ differ-command 78 'rank 1 (' -n 1 "$DTRAIN" --config good.json : -n 1 "$DTRAIN" plan --config good.json
python3 -c 'import sys
program = open(sys.argv[1], "rb").read()
open("dtrain-other", "wb").write(program.replace(sys.argv[2].encode() + b"\0", sys.argv[2].encode()[:-1] + b"Z\0"))' \
  "$DTRAIN" "$("$DTRAIN" --version | sed -n 's/^dtrain \([^ ]*\).*/\1/p')"
chmod +x dtrain-other
differ differ-version 78 'rank 2 (' -n 2 "$DTRAIN" --config good.json : -n 2 ./dtrain-other --config good.json

check 'a row left a run folder' test ! -e runs
finish
