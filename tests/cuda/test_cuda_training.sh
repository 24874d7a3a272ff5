#!/usr/bin/env bash
# The whole program on fake CUDA gives the results of the CPU, and ends well without a GPU or NCCL.
# usage: DTRAIN=... MPIEXEC=... test_cuda_training.sh MODULE RANKS
# shellcheck disable=SC2013,SC2154,SC2317 # words, not lines; what cli_lib.sh sets; functions that check calls
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
module=$1 ranks=$2
config=(--config "$configs/synthetic.json" --set train.epochs=2 --set data.train_samples=128 --set data.test_samples=30
  --set train.batch.per_rank=8 --set distributed.check_every=1 --set threads=1 --set log.every_steps=4)

gpus() { # gpus N ARGUMENT...: the ranks on a host with N GPUs; leaves out, err and $got
  local n=$1
  shift
  FAKE_DEVICES=$n DTRAIN_CUDA_MODULE=$module dtrain "$ranks" "$@"
}
train() { # train GPUS RUN ARGUMENT...: with one, the ranks share it
  local n=$1 run=$2
  shift 2
  gpus "$n" "${config[@]}" --run "$run" --set device=cuda "$@"
  is "$run" 0 "$got"
}
ends() { # ends WHAT CODE PATTERN: with this code, and one line about it on all ranks
  is "$1" "$2 1" "$got $(grep -Ec '^(dtrain: |\[mpiexec|Fatal|Abort)' err)"
  says "$1" "dtrain: $3"
}
close_to() { # close_to TOLERANCE RUN RUN: the losses of all epochs, and the accuracy to one image
  paste -d , "$2/metrics.csv" "$3/metrics.csv" | awk -F , -v tolerance="$1" '
    function off(a, b) { return (a > b ? a - b : b - a) / (b + 1e-30) }
    NR == 1 { for (i = 1; i <= NF / 2; i++) column[$i] = i; half = NF / 2; next }
    { t = column["train_loss"]; v = column["test_loss"]; n++
      if (off($t, $(t + half)) > tolerance || off($v, $(v + half)) > tolerance) { print; bad = 1 } }
    END { exit bad || n == 0 }'
}

# Steps recorded and call by call: the same bytes, and the same numbers of each step. With every option of a step, and a
# short last batch; and with batches of 1 to 3 samples, whose sizes differ between ranks and change at different steps.
steps_of() { # steps_of RUN: without what depends on time, and the norms of gradients
  grep '"type":"step"' "$1/metrics.jsonl" | sed 's/,"grad_norm":.*//'
}
norms_of() { # norms_of RUN: "step norm", where it is known: of steps taken together, of the last one
  sed -n 's/.*"type":"step","step":\([0-9]*\),.*"grad_norm":\([0-9][^,]*\),.*/\1 \2/p' "$1/metrics.jsonl" | sort
}
audits_of() { grep '"type":"audit"' "$1/metrics.jsonl"; }
same_bits() { # same_bits NAME STEPS ARGUMENT...: with and without graphs
  local name=$1 n_steps=$2
  shift 2
  train "$ranks" "$name" --set log.every_steps=1 --set log.audit=true "$@"
  train "$ranks" "$name-by_call" --set log.every_steps=1 --set log.audit=true --set cuda.graph=false "$@"
  says "$name, call by call" '  steps call by call: cuda.graph is off'
  check "$name: the same weights" same_weights "$name" "$name-by_call"
  check "$name: the same steps" test "$(steps_of "$name")" == "$(steps_of "$name-by_call")"
  check "$name: the same samples" test "$(audits_of "$name")" == "$(audits_of "$name-by_call")"
  is "$name: steps" "$n_steps" "$(steps_of "$name" | grep -c .)"
  is "$name: norms, call by call" "$n_steps" "$(norms_of "$name-by_call" | grep -c .)"
  check "$name: no norms" test "$(norms_of "$name" | grep -c .)" -ge 2
  check "$name: another norm" test -z "$(comm -23 <(norms_of "$name") <(norms_of "$name-by_call"))"
}
DTRAIN_CUDA_GRAPH=recorded.dot same_bits everything 20 --set data.train_samples=$((ranks * 27 - 1)) --set train.epochs=5 --set train.accumulate=3 \
  --set train.optimizer.clip_norm=0.1 --set train.warmup_epochs=2 --set train.schedule.type=cosine --set checkpoint.every_steps=3 \
  --set distributed.bucket_mb=0
check 'a graph has a line for each node' grep -q '^"graph_1_node_4"\[.*label=' recorded.dot
same_bits uneven $((ranks == 3 ? 15 : 12)) --set data.train_samples=25 --set train.epochs=3 --set 'train.batch={"global":8}' \
  --set 'model.layers.1={"type":"conv2d","filters":4,"kernel":3}' # its gradient has its own place
# Images that are normalized and augmented, as on the CPU.
changes=(--set data.train_samples=25 --set train.epochs=3 --set 'train.batch={"global":8}' --set data.normalize=dataset
  --set 'data.augment=[{"shift":2},{"flip":"horizontal"},{"crop":{"padding":3}}]')
same_bits changed $((ranks == 3 ? 15 : 12)) "${changes[@]}"
dtrain "$ranks" "${config[@]}" "${changes[@]}" --run changed-cpu --set device=cpu
is 'changed-cpu' 0 "$got"
check 'changed: the losses of the CPU' close_to 1e-4 changed changed-cpu
# Resumed inside an epoch with another batch: the short step that comes first is no recorded one of full size.
for graph in true false; do
  resized=(--set data.sharding=global --set data.train_samples=61 --set log.audit=true --set cuda.graph=$graph)
  train "$ranks" "resized_$graph" "${resized[@]}" --set 'train.batch={"global":8}' --set train.max_steps=3
  train "$ranks" "resized_$graph" "${resized[@]}" --set 'train.batch={"global":13}' --resume
done
check 'another batch: the same weights' same_weights resized_true resized_false
check 'another batch: the same samples' test "$(audits_of resized_true)" == "$(audits_of resized_false)"
is 'another batch: samples of the steps' '8 8 8 2 13 13 9 13 13 13 13 9' \
  "$(audits_of resized_true | sed 's/.*"samples":\([0-9]*\).*/\1/' | tr '\n' ' ' | sed 's/ $//')"
faulty() { # faulty VARIABLE=VALUE RUN ARGUMENT...: on the last rank
  local fault=$1 run=$2
  shift 2
  export FAKE_RANK=$((ranks - 1)) "${fault?}"
  gpus "$ranks" "${config[@]}" --run "$run" --set device=cuda "$@"
  unset FAKE_RANK "${fault%%=*}"
}
# Where no graph can have a step, the run goes on call by call, and says why.
no_graph() { # no_graph NAME WHY VARIABLE=VALUE: on the last rank
  faulty "$3" "$1" --set cuda.deterministic=true "${two_convs[@]}"
  is "$1" 0 "$got"
  says "$1" "  steps call by call: $rank$2"
  check "$1: the same weights" same_weights "$1" calls
}
two_convs=(--set 'model.layers.1={"type":"conv2d","filters":4,"kernel":3}' --set train.epochs=1)
rank="(rank $((ranks - 1)) \\([^)]+\\): )?"
train "$ranks" calls --set cuda.deterministic=true "${two_convs[@]}"
says 'calls' '  steps recorded as a CUDA graph'
no_graph unrecordable "cuDNN's engine 6, of the [a-z ]+ of conv2, cannot be part of a CUDA graph" FAKE_UNRECORDABLE_ENGINES=64
no_graph lost_writes "what Fake GPU writes to the host's memory does not arrive \\(switch confidential computing off\\)" FAKE_LOST_WRITES=1

((ranks != 3)) || finish # for the rest three ranks are like four

dtrain "$ranks" "${config[@]}" --run cpu --set device=cpu
is 'cpu' 0 "$got"

# One GPU for each rank; one for all ranks.
for n in $(printf '%d\n' "$ranks" 1 | sort -u); do
  run=gpus$n
  train "$n" "$run"
  check "$run: the losses of the CPU" close_to 1e-4 "$run" cpu
  check "$run: the norms of the CPU" awk '{ d = $2 / $3 - 1; if (d * d > 1e-6) exit 1; n++ } END { exit n == 0 }' \
    <(join <(norms_of "$run") <(norms_of cpu))
  is "$run: roster" "$ranks" "$(grep -Ec '^ +[0-9]+ +[^ ]+ +[0-9]+  cuda Fake GPU, f32, [0-9a-f]{8} ' err)"
  says "$run" 'peak memory per rank: [0-9.]+ MB; on its GPU [0-9.]+ MB of 1\.07 GB, [0-9.]+ GB left'
  is "$run: GPUs" "$n" "$(grep -Eo 'f32, [0-9a-f]{8} ' err | sort -u | wc -l)"
  if ((ranks == 1 || n > 1)); then
    says "$run" '  steps recorded as a CUDA graph'
  else
    says "$run" '  steps call by call: gradients pass through the host'
  fi
done

# Twice the same run: the same bytes. Other precisions: nearly the same losses.
train "$ranks" again
check 'twice: the same checkpoint' cmp "$(newest_checkpoint again)" "$(newest_checkpoint "gpus$ranks")"
for tolerance in bf16=5e-2 tf32=1e-2; do
  precision=${tolerance%=*}
  train "$ranks" "$precision" --set precision="$precision"
  is "$precision: roster" "$ranks" "$(grep -c "cuda Fake GPU, $precision, " err)"
  check "$precision: the losses of the CPU" close_to "${tolerance#*=}" "$precision" cpu
done

# A NaN loss is detected in the same step, recorded or not.
for graph in true false; do
  gpus "$ranks" --config "$configs/linear.json" --run "nan_$graph" --set device=cuda --set train.optimizer.lr=100 --set cuda.graph=$graph
  is "not a number, $graph" '80 1' "$got $(grep -Ec '^dtrain: training diverged at step ' err)"
  grep '^dtrain: ' err >"nan_$graph.text"
done
check 'not a number: in the same step' cmp nan_true.text nan_false.text

# Faults are injected into steps that the host takes.
gpus "$ranks" "${config[@]}" --run fault --set device=cuda --inject nan:rank=0,step=2
ends 'a fault in recorded steps' 78 '--inject nan:rank=0,step=2: the GPU takes steps on its own, recorded \(set cuda.graph=false\)'
gpus "$ranks" "${config[@]}" --run fault --set device=cuda --set cuda.graph=false --inject nan:rank=0,step=2
ends 'a fault call by call' 80 'training diverged at step 3: the loss is not a number, .*'

# The rest does not depend on the number of other ranks: 2 ranks suffice.
((ranks <= 2)) || finish

# Without one of the fusions: the same results, to the bit where the same kernels compute the sums; an unknown name is refused.
without() { # without NAMES HOW...: a check of the run against the one with all of them
  DTRAIN_CUDA_WITHOUT=$1 train "$ranks" "without-$1" "${fused[@]}"
  check "without $1: the same" "${@:2}" "without-$1" with-all
}
fused=(--set train.epochs=1 --set train.accumulate=2 --set 'model.layers.1={"type":"conv2d","filters":4,"kernel":3,"activation":"relu"}')
train "$ranks" with-all "${fused[@]}" --set cuda.deterministic=true
for name in engine_trial engine_trial,packed engine_trial,branch engine_trial,steps; do
  without $name same_weights
done
for name in first_conv head; do
  without $name close_to 1e-4
done
for name in '' engine_trial; do
  DTRAIN_CUDA_WITHOUT=$name gpus 1 bench model "${config[@]}" "${fused[@]}" --set device=cuda
  is "without $name: engines timed" "$((3 * (${#name} == 0)))" "$(grep -Ec '^  conv2 +[0-9]+ +[0-9]+ +2 ' out)"
done
for device in cuda auto; do
  DTRAIN_CUDA_WITHOUT=head,heads gpus "$ranks" "${config[@]}" --run unknown --set device=$device
  ends 'an unknown fusion' 64 '.*DTRAIN_CUDA_WITHOUT: there is no "heads" \(choose from: first_conv, head, packed, branch, engine_trial, steps\)'
done

# Libraries that take longer to load than any wait may take later, on a cold disk, say; and ones that never end.
opens=(--set train.max_steps=2 --set data.train_samples=$((ranks * 16)))
DTRAIN_TIMEOUT=2 faulty FAKE_LOAD_MS=5000 slow_to_load "${opens[@]}"
is 'slow to load' 0 "$got"
DTRAIN_TIMEOUT=2 faulty FAKE_LOAD_MS=40000 never_loaded "${opens[@]}"
ends 'never loaded' 76 ".* (shown no sign of life|stalled) for 10 s: .* in 'opening the GPU'.*"

# Stopped after an epoch, and resumed on the other device, or on the same.
for devices in 'cuda cpu' 'cpu cuda' 'cuda cuda'; do
  run=${devices/ /_}
  train "$ranks" "$run" --set device="${devices% *}" --set train.max_steps=$((128 / 8 / ranks))
  train "$ranks" "$run" --set device="${devices#* }" --resume
  check "resumed, $devices: as without a break" close_to 1e-4 "$run" cpu
done
check 'resumed where it was: the same checkpoint' cmp "$(newest_checkpoint cuda_cuda)" "$(newest_checkpoint again)"

# eval and predict, with two images, give the same results with and without a GPU.
saved=$(newest_checkpoint again)
for command in eval predict; do
  images=("$tests/corpus/png/grey" "$tests/corpus/png/grey-alpha")
  [[ $command == predict ]] || images=()
  for n in "$ranks" -1; do
    gpus "$n" $command "$saved" "${images[@]}"
    is "$command, $n GPUs" "0 $((n < 0))" "$got $(grep -c 'device: cpu, because there is no NVIDIA driver' err)"
    cp out "$command.$n"
  done
  check "$command: the same result" cmp "$command.$ranks" "$command.-1"
done

# Several hosts, through host memory: the messages sent match the prediction.
if ((ranks == 4)); then
  MPIR_CVAR_NUM_CLIQUES=2 train 4 hosts --set distributed.allreduce=hierarchical --set train.epochs=1
  says 'two hosts' 'allreduce of a step: .*, as predicted'
fi

# Out of memory on the last rank's GPU.
size='[0-9.]+ [kM]?B'
needs=".*out of memory on Fake GPU: .* needs $size, $size of $size are free"
for n_bytes in 100000 67200000; do
  faulty FAKE_DEVICE_BYTES=$n_bytes small
  ends "$n_bytes bytes" 71 "$rank$needs \\(use a smaller batch, model or data set\\)"
done

# The suggested cures work.
large=(--set data.train_samples=2048 --set train.max_steps=1 --set distributed.check_every=0)
for batch in per_rank=512 global=$((512 * ranks)); do
  key=train.batch.${batch%=*}
  faulty FAKE_DEVICE_BYTES=69600000 large "${large[@]}" --set "train.batch={\"${batch%=*}\":${batch#*=}}"
  ends "$batch" 71 "$rank$needs \\([0-9]+ samples at a time would fit: set $key=[0-9]+, or train.accumulate=[0-9]+\\)"
  for cure in $(grep -Eo "($key|train.accumulate)=[0-9]+" err); do
    faulty FAKE_DEVICE_BYTES=69600000 "cured-$batch-$cure" "${large[@]}" --set "train.batch={\"${batch%=*}\":${batch#*=}}" --set "$cure"
    is "$batch, then $cure" 0 "$got"
    says "$batch, then $cure" "peak memory per rank: $size; on its GPU 6[0-9.]+ MB of 69\\.6 MB, $size left"
  done
done

# The plan predicts the memory of a run to within a fiftieth.
planned=(--set train.batch.per_rank=1024 --set data.train_samples=4096 --set train.max_steps=1)
train "$ranks" planned "${planned[@]}"
dtrain "$ranks" plan "${config[@]}" --set device=cuda "${planned[@]}"
check 'the plan of the memory' awk -v peak="$(grep -Eo '"gpu_memory_peak_bytes":.[0-9]+' planned/summary.json | tr -dc 0-9)" '
  /^GPU +[0-9.]+ MB \(with the data/ { ratio = 1e6 * $2 / peak }
  END { exit !(ratio > 0.98 && ratio < 1.02) }' out

# A GPU that fails in the middle of the training; NCCL that loses a peer, does not start, or never ends a sum.
for at in 40 99 101 110; do # call by call, in a copy, and in recorded steps whose sums are under way
  faulty FAKE_FAIL_LAUNCH_AT=$at broken-$at
  ends "a GPU fails at $at" 70 "${rank}CUDA: an illegal memory access was encountered, .*"
done

# A GPU that hangs: the error says so, and nothing waits for the GPU on the way out.
small=(--set train.epochs=1 --set data.train_samples=$((ranks * 32)) --set data.test_samples=8)
gpu='Fake GPU, GPU-[0-9a-f-]+'
export DTRAIN_TIMEOUT=3
faulty FAKE_HANG_LAUNCH_AT=60 hung-graph "${small[@]}"
ends 'a GPU hangs' 76 "($gpu: )?steps on the GPU stalled for 3 s: .*"
faulty FAKE_HANG_LAUNCH_AT=80 hung-calls "${small[@]}" --set cuda.graph=false
ends 'a GPU hangs, call by call' 76 "($gpu, has not finished its work within 3 s .*|.* stalled for 3 s: .*|.* has shown no sign of life for 3 s: .*)"
unset DTRAIN_TIMEOUT
if ((ranks > 1)); then
  faulty FAKE_NCCL_ERROR_AT=4 lost
  ends 'NCCL loses a peer' 76 '.*(allreduce of gradient bucket 0|steps on the GPU): NCCL: remote process exited .*'
  FAKE_NCCL_ERROR_CODE=2 faulty FAKE_NCCL_ERROR_AT=4 host_fails
  ends "NCCL's own host fails" 69 \
    '.*: NCCL: another error; fake: .* \(NCCL_DEBUG=INFO shows more; in a container: --ipc=host, or --shm-size=1g\)'
  faulty FAKE_NCCL_INIT_FAILS=1 no_start
  ends 'NCCL does not start' 69 "rank $((ranks - 1)): NCCL cannot start: .*"
  export DTRAIN_TIMEOUT=3
  stalled=".* stalled for 3 s: rank $((ranks - 1)) waits in 'training' for a collective that other ranks have .*"
  for graph in true false; do
    faulty FAKE_NCCL_HANG_AT=4 "hanging-$graph" --set cuda.graph=$graph
    ends "NCCL hangs, $graph" 76 "$stalled"
  done
  faulty FAKE_NCCL_HANG_AT=40 hanging-late --set data.train_samples=$((ranks * 100)) --set train.batch.per_rank=1 --set distributed.check_every=0
  ends 'NCCL hangs when many steps are taken together' 76 "$stalled"
  faulty FAKE_NCCL_LAUNCH_HANGS_AT=1 hanging-launch
  ends 'NCCL hangs while a step is recorded' 76 "$stalled"
  unset DTRAIN_TIMEOUT
fi

# The test set is evaluated with the best weights, which have to reach the GPU.
train 1 validated --set data.validation=0.25 --set checkpoint.best=validation_loss --set train.epochs=13 --set train.lr_scaling=none \
  --set train.optimizer.lr=0.3
field() { sed -n "s/^\t\"$1\":\t\([0-9.e-]*\),*\$/\1/p" validated/summary.json | xargs printf '%.5g'; }
is 'validated: the weights of another epoch' "$(field best_value) $(field best_epoch)" "$(field validation_loss) $(field tested_epoch)"
check 'validated: the last epoch is the best, which shows nothing' test "$(field best_epoch)" -lt 13

# Stopped by a signal.
cp "$configs/synthetic.json" config.json
export FAKE_DEVICES=$ranks DTRAIN_CUDA_MODULE=$module
start_steps stopped "$ranks" "${config[@]:2}" --set device=cuda --set train.epochs=1000000 --set checkpoint.every_epochs=0 --set log.every_steps=1
kill -TERM "$job"
ended stopped
is 'SIGTERM' '75 1' "$got $(grep -Ec '^stopped by SIGTERM at step [0-9]+; saved ' stopped.err)"
check 'SIGTERM: the checkpoint' test -s "$(newest_checkpoint stopped)"
finish
