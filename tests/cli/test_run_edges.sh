#!/usr/bin/env bash
# Where runs begin, end and are resumed: the limits of plan and train agree, a checkpoint of an epoch's last step, max_steps inside an
# epoch and over a change of the number of ranks, the switch of the progress lines. usage: DTRAIN=... MPIEXEC=... test_run_edges.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"

config=(--config "$configs/synthetic.json")
epochs_of() { cut -d , -f 1,2 "$1/metrics.csv" | tail -n +2 | paste -sd ' '; }

for command in plan train; do
  run 78 2 "$command" "${config[@]}" --set 'train.batch={"global":1}'
  run 78 2 "$command" "${config[@]}" --set 'train.batch={"per_rank":5000}'
done

# A plan needs no data, and says what it then cannot know; a folder that was named must be right, and damage is never passed over.
idx=(--config "$configs/mnist.json" --set data.dir=nowhere)
run 0 2 plan "${idx[@]}"
check 'plan without data: not reported' grep -q '^No data in nowhere: ' out
check 'plan without data: the cure' grep -qF '(add --data DIR)' out
check 'plan without data: the batch' grep -Eqx 'batch +256 \(128 [×x] 2\)' out
check 'plan without data: the rate' grep -Eqx 'learning rate +0.002 \(0.001 [×x] 2\)' out
check 'plan without data: the parameters' grep -Eq '^. total .* 1,199,882 ' out
is 'plan without data: something is invented' 0 "$(grep -cE '^steps|^Ranks' out)"
# Predicted messages of averaging: for algorithms, in buckets as a run has them; for the rest, their names. Nothing without averaging.
averaging() { # averaging RANKS WAY: the plan's part about it
  run 0 "$1" plan "${idx[@]}" --set "distributed.allreduce=$2" --set distributed.bucket_mb=1
  sed -n '/^Averaging/,$p' out
}
averaging 4 ring >said
check 'plan: ring' grep -Eqx 'buckets +2' said
check 'plan: what ring sends' grep -Eqx 'sent a step +7.20 MB \(by each rank\)' said
check 'plan: its messages' grep -Eqx 'messages a step +12' said
averaging 4 master_worker >said
check 'plan: what a master sends' grep -Eqx 'sent a step +14.4 MB \(by the busiest rank\)' said
for way in auto shared_memory hierarchical; do
  averaging 2 "$way" >said
  is "plan: $way is predicted" 0 "$(grep -c 'a step' said)"
done
averaging 1 ring >said
check 'plan: one rank averages' test ! -s said
run 78 2 plan "${idx[@]}" --set 'train.batch={"global":1}'
run 66 2 plan --config "$configs/mnist.json" --data nowhere
mkdir damaged
for name in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
  printf 'no data' >"damaged/$name-ubyte"
done
run 65 2 plan --config "$configs/mnist.json" --set data.dir=damaged

# max_steps inside an epoch; then again with nothing left to do; then on to the end. Each epoch has one row.
run 0 1 "${config[@]}" --run limit --set train.max_steps=100
is 'stopped by max_steps' '1,64 2,100' "$(epochs_of limit)"
cp out first
run 0 1 "${config[@]}" --run limit --set train.max_steps=100 --resume
is 'nothing left' '1,64 2,100' "$(epochs_of limit)"
check 'nothing left: the same result' cmp first out
check 'nothing left: not reported' grep -Eq '^epoch 2/3 .* %  .*no step was left$' err
is 'nothing left: a speed is shown' '0 0' "$(grep -c 'images/s' err) $(grep -c 'ms_per_step' limit/summary.json)"
check 'nothing left: a speed is recorded' grep -q '"epoch":2,.*"images_per_s":null' limit/metrics.jsonl
run 0 1 "${config[@]}" --run limit --resume
is 'on to the end' '1,64 2,128 3,192' "$(epochs_of limit)"
run 0 1 "${config[@]}" --run limit --resume
is 'resumed at the end' '0 1' "$(grep -c 'images/s' err) $(grep -c '^nothing to do: the run had ended$' err)"
run 0 1 "${config[@]}" --run whole
check 'the same weights and the same result by either way' cmp "$(newest_checkpoint whole)" "$(newest_checkpoint limit)"

# Which steps have records is a function of their numbers: on any number of ranks, and whether the run was interrupted or not. The
# first are all there, later ones further apart, and some have the gradient's norm. A number given is the distance between two.
records_of() { # the steps with records, those with a norm behind a bar
  sed -n 's/.*"type":"step","step":\([0-9]*\),.*/\1/p' "$1/metrics.jsonl"
  echo '|'
  sed -n 's/.*"type":"step","step":\([0-9]*\),.*"grad_norm":[0-9].*/\1/p' "$1/metrics.jsonl"
}
long=(--config "$configs/linear.json" --set data.train_samples=1280 --set 'train.batch={"global":2}' --set train.epochs=1 --set data.sharding=global
  --set report=false)
run 0 1 "${long[@]}" --run records
is 'records' "$(seq 63; seq 64 2 640; echo '|'; seq 16 16 640)" "$(records_of records)"
run 0 2 "${long[@]}" --run records2
is 'records of two ranks' "$(records_of records)" "$(records_of records2)"
run 0 1 "${long[@]}" --run parts --set train.max_steps=201
run 0 1 "${long[@]}" --run parts --resume
is 'records of a run that was resumed' "$(records_of records)" "$(records_of parts)"
run 0 1 "${long[@]}" --run sparse --set log.every_steps=100
is 'records at a chosen distance' "$(seq 100 100 600; echo '|'; seq 100 100 600)" "$(records_of sparse)"
run 0 1 "${long[@]}" --run none --set log.every_steps=0
is 'no records' '|' "$(records_of none)"
check 'the position of a run without records' grep -aqx 'step 0*[1-9][0-9]*' none/run.lock

# A run that died after it had saved its epoch's last step: the epoch is evaluated and recorded, also the last one.
every=(--set checkpoint.every_epochs=0 --set checkpoint.every_steps=64 --set checkpoint.keep=9)
run 0 1 "${config[@]}" --run steps "${every[@]}"
for epochs in 2 3; do
  mkdir -p "cut$epochs/checkpoints"
  cp steps/checkpoints/step-000000000128.safetensors "cut$epochs/checkpoints"
  cp steps/config.json steps/metrics.csv steps/metrics.jsonl "cut$epochs"
  run 0 1 "${config[@]}" --run "cut$epochs" "${every[@]}" --set "train.epochs=$epochs" --resume
  is "cut in epoch 2 of $epochs" "0 after $epochs epochs" "$got $(grep -o 'after .*' out)"
done
is 'cut in the last epoch' '1,64 2,128' "$(epochs_of cut2)"
is 'cut in the middle' '1,64 2,128 3,192' "$(epochs_of cut3)"
check 'cut in the middle: the same weights' cmp "$(newest_checkpoint steps)" "$(newest_checkpoint cut3)"

# Back to an older checkpoint: not into the folder where the later ones are, or the next --resume would take those.
run 73 1 "${config[@]}" --run steps --resume=steps/checkpoints/step-000000000064.safetensors
check 'back in time: the later checkpoint is named' grep -q 'later checkpoint, of step 192' err
run 0 1 "${config[@]}" --run again --resume=steps/checkpoints/step-000000000064.safetensors
is 'back in time in a new folder' '1,64 2,128 3,192' "$(epochs_of again)"
check 'back in time: the same weights' cmp "$(newest_checkpoint whole)" "$(newest_checkpoint again)"

# max_steps counts steps that were taken: 4 ranks have 16 in an epoch, 2 have 32.
run 0 4 "${config[@]}" --run ranks --set train.max_steps=32
run 0 2 "${config[@]}" --run ranks --set train.max_steps=50 --resume
is 'max_steps over a change of ranks' 'after 50 steps' "$(grep -o 'after .*' out)"

# A loss beyond sense, or no number, ends the run in that step; that of the last update of an epoch is seen in the test loss.
diverges() { # diverges STEP WHAT RANKS ARGUMENT...
  local line="^dtrain: training diverged at step $1: the $2, no checkpoint saved \(lower train.optimizer.lr or set clip_norm\)$" what=$2 n=$3
  shift 3
  rm -rf diverged
  run 80 "$n" "$@" --run diverged
  is "-np $n, $what: $*" '1 1' "$(grep -c '^dtrain: ' err) $(grep -Ec "$line" err)"
  is "-np $n, $what: checkpoints" '' "$(newest_checkpoint diverged)"
  check "-np $n, $what: summary" grep -Eq '"exit_code":[[:space:]]*80,' diverged/summary.json
}
for n in 1 2; do
  diverges 2 'loss is [1-9][0-9.]*e\+[0-9]+' "$n" "${config[@]}" --set train.optimizer.lr=1e6
done
diverges 1 'test loss is [1-9][0-9.]*e\+[0-9]+' 2 "${config[@]}" --set train.optimizer.lr=1e6 --set train.max_steps=1
diverges 2 'loss is [1-9][0-9.]*e\+[0-9]+' 1 --config "$configs/mnist.json" --set train.optimizer.lr=1e6 \
  --set 'data={"format":"synthetic","train_samples":256,"test_samples":32}'
line=(--config "$configs/linear.json")
diverges 4 'test loss is [1-9][0-9.]*e\+[0-9]+' 2 "${line[@]}" --set train.optimizer.lr=10 --set checkpoint.every_epochs=0

# But not a loss that is large because its targets are, nor one that a bad beginning throws far away.
run 0 2 "${line[@]}" --run steep --set data.slope=1e6 --set data.intercept=-1e6 --set data.noise=1e5
is 'large targets' 1 "$(grep -c '^test loss [0-9.]*e+\?[0-9]* ' out)"
run 0 1 "${config[@]}" --run thrown --set train.optimizer.lr=1 --set train.epochs=1

run 0 1 "${config[@]}" --run quiet --set log.every_s=0
is 'no progress lines' 0 "$(grep -c ' left$' err)"

finish
