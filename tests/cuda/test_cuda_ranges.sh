#!/usr/bin/env bash
# The NVTX ranges that a profiler sees: a block name, forward and backward, within the step if a GPU takes steps on its own.
# usage: DTRAIN=... MPIEXEC=... test_cuda_ranges.sh MODULE LISTENER
# shellcheck disable=SC2154 # what cli_lib.sh sets
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
export DTRAIN_CUDA_MODULE=$1 FAKE_DEVICES=1 FAKE_NVTX_LOG=$work/log
listener=$2
config=(--config "$configs/synthetic.json" --set device=cuda --set train.epochs=1 --set train.max_steps=3 --set data.train_samples=24
  --set data.test_samples=8 --set train.batch.per_rank=8 --set threads=1 --set checkpoint.every_epochs=0)

ranges() { # ranges NAME LISTENER ARGUMENT...: its ranges go into log
  local name=$1
  export NVTX_INJECTION64_PATH=$2
  shift 2
  rm -f log
  check "$name: trains" timeout -k 5 60 "$DTRAIN" "${config[@]}" --run "$name" "$@" >out 2>err </dev/null
}
step() { # step INDENT: the ranges of a training step
  printf "$1%s\n" 'conv1 forward' 'fc1 forward' 'fc1 backward' 'conv1 backward'
}
is() { # is WHAT FILE: the log has these lines
  n_checks=$((n_checks + 1))
  cmp -s "$2" log || fail "$1: $(diff "$2" log | head -n 6)" err
}
evaluation=('conv1 forward' 'fc1 forward')

ranges calls "$listener" --set cuda.graph=false
for _ in 1 2 3; do step ''; done >expected
printf '%s\n' "${evaluation[@]}" >>expected
is 'call by call' expected

# The first step is call by call; a recorded step is one launch, without ranges of its blocks.
ranges graph "$listener"
{
  echo 'step'
  step '  '
  echo 'step, recorded'
  step '  '
  printf '%s\n' 'step, launched' 'step, launched' "${evaluation[@]}"
} >expected
is 'recorded' expected

ranges quiet ''
check 'nobody listens: a log' test ! -e log
finish
