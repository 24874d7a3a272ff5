#!/usr/bin/env bash
# --inject: every fault ends as it must, with its exit code and its words, without servers and with one; what cannot be is refused.
# usage: DTRAIN=... MPIEXEC=... test_inject.sh
# shellcheck disable=SC2016,SC2046,SC2086 # awk; arguments
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
configure '[1, 8, 8]' 'flatten dense12:relu dense10' '
  "data": { "format": "synthetic", "train_samples": 320, "test_samples": 60 },
  "train": { "epochs": 2, "seed": 5, "batch": { "per_rank": 16 }, "optimizer": { "type": "adam", "lr": 0.002 } },
  "distributed": { "check_every": 1 }, "device": "cpu", "threads": 1'
export DTRAIN_TIMEOUT=2

ends() { # ends RUN CODE [WORDS]: with this code, nothing left running, and one line about it
  check "$1: exit code $got" test "$got" -eq "$2"
  check "$1: processes are left" wait_for 20 gone "$work/$1"
  [[ $# -lt 3 ]] || grep -qE "^dtrain: $3" "$1.err" || fail "$1: no '$3'" <(tail -n 2 "$1.err")
  check "$1: lines of error" test "$(grep -c '^dtrain: ' "$1.err")" -eq $(($# - 2))
}
told() { # told RUN FAULT...: in the banner and in the run's record
  local run=$1 fault
  shift
  for fault; do
    check "$run: $fault: not in the banner" grep -qx "  INJECTED FAULT: $fault" "$run.err"
  done
  check "$run: the record" python3 - "$work/$run/metrics.jsonl" "$@" <<'PY'
import json, sys
assert json.loads(open(sys.argv[1]).readline())["injected"] == sys.argv[2:]
PY
}
losses() { cut -d , -f 1-6 "$work/$1/metrics.csv"; }
takes() { # takes RUN MILLISECONDS: so long at least, a step of 32 samples
  check "$1: a step takes less than $2 ms" awk -F , -v ms="$2" 'NR > 1 && $7 > 32 / (ms / 1000) { bad = 1 } END { exit bad || NR < 3 }' "$work/$1/metrics.csv"
}

try plain 2 # two epochs of ten steps of two workers
ends plain 0
check 'a fault in the record of a run without' test "$(grep -c injected plain/metrics.jsonl)" -eq 0
for way in 'ring 2 --set distributed.allreduce=ring' 'server 3 --set distributed.strategy=parameter_server'; do
  read -r name n arguments <<<"$way"
  inject() { # inject RUN FAULT...
    local run=$1 fault faults=()
    shift
    for fault; do
      faults+=(--inject "$fault")
    done
    try "$run" "$n" $arguments "${faults[@]}"
  }
  inject "slow-$name" slow:rank=1,ms=30 slow:rank=0,ms=30,steps=11-20
  ends "slow-$name" 0
  told "slow-$name" slow:rank=1,ms=30 slow:rank=0,ms=30,steps=11-20
  takes "slow-$name" 30
  inject "jitter-$name" jitter:ms=40
  ends "jitter-$name" 0
  takes "jitter-$name" 10 # drawn by the seed: more, the mean of the larger of two
  for run in "slow-$name" "jitter-$name"; do
    check "$run: other losses" diff <(losses plain) <(losses "$run")
  done

  inject "kill-$name" kill:rank=1,step=13
  check "kill-$name: exit code 0" test "$got" -ne 0
  check "kill-$name: processes are left" wait_for 20 gone "$work/kill-$name"
  told "kill-$name" kill:rank=1,step=13
  try "kill-$name" "$n" $arguments --resume
  ends "kill-$name" 0
  check "kill-$name: not resumed" grep -q 'resumed at step 10 ' "kill-$name.err"
  check "kill-$name: other losses" diff <(losses plain) <(losses "kill-$name")

  inject "stop-$name" stop:rank=1,step=7
  ends "stop-$name" 76 '.* stalled for 2 s: rank 1 has not arrived'
  inject "flip-$name" flip:rank=1,step=6,tensor=fc1.weight
  ends "flip-$name" 70 "replicas differ: tensor 'fc1.weight' (differs between rank 0 and rank 1|of rank 1 differs from that of the other 2 ranks) "
  inject "nan-$name" nan:rank=1,step=4
  ends "nan-$name" 80 'training diverged at step 5: the loss is not a number, .* \(an injected fault made gradients NaN: leave it out\)$'
  inject "drop-$name" drop:rank=1,step=3
  ends "drop-$name" 76 '.* stalled for [0-9.]+ s: '
done

# Workers that do not wait for each other.
try nan-async 3 --set distributed.strategy=parameter_server --set distributed.parameter_server.mode=async --inject nan:rank=1,step=4
ends nan-async 80 'training diverged at step [0-9]+: the loss is not a number, .* \(an injected fault made gradients NaN: leave it out\)$'

# Two of three agree: the third is named, also if it is rank 0.
try flip-first 3 --inject flip:rank=0,step=6,tensor=fc1.weight
ends flip-first 70 "replicas differ: tensor 'fc1.weight' of rank 0 differs from that of the other 2 ranks "

refused() { # refused CODE WORDS ARGUMENT...
  refuses "$1" 2 "$2" --config config.json --run no "${@:3}"
  check "$2: a folder" test ! -e no
}
refused 64 'kil:rank=1: unknown fault (one of slow, jitter, kill, stop, stall, flip, nan, drop, as in slow:' --inject kil:rank=1
refused 64 "kill:rank=1: 'step' is missing (write it as in kill:rank=1,step=100)" --inject kill:rank=1
refused 64 "'rank' is missing" --inject kill
refused 64 "'' is no key of this fault" --inject kill:rank=1,step=3,
refused 64 "'ms' is no key of this fault" --inject kill:rank=1,step=3,ms=4
refused 64 "'rank' is given twice" --inject kill:rank=1,rank=1
refused 64 "'rank' has no value" --inject kill:rank,step=1
refused 64 "rank is not a rank's number" --inject kill:rank=-1,step=1
refused 64 "step is not a step's number, from 1" --inject kill:rank=1,step=0
refused 64 'steps is not FIRST-LAST' --inject slow:rank=1,ms=3,steps=5-2
refused 64 'ms is not 1 to 60000 milliseconds' --inject jitter:ms=60001
refused 64 'ms is not 1 to 60000 milliseconds' --inject jitter:ms=99999999999999999999
refused 64 "tensor is not a tensor's name" --inject flip:rank=0,step=1,tensor=
refused 64 'is given 17 times' $(printf -- '--inject jitter:ms=%d ' {1..17})
refused 78 'kill:rank=2,step=1: there is no rank 2 (ranks are 0 to 1)' --inject kill:rank=2,step=1
refused 78 "the model has no tensor 'conv1.weight' (it has fc1.weight ... fc2.bias)" --inject flip:rank=0,step=1,tensor=conv1.weight
refused 78 'rank 1 is a server and has no gradient' --set distributed.strategy=parameter_server --inject nan:rank=1,step=1
refused 78 'no rank has the whole network' --set distributed.strategy=pipeline --inject nan:rank=1,step=1
refused 78 'shared_memory sends no messages that can be lost (set distributed.allreduce=ring' --inject drop:rank=1,step=1
got=0
"$MPIEXEC" -n 1 "$DTRAIN" --config config.json --run no : -n 1 "$DTRAIN" --config config.json --run no --inject jitter:ms=1 >no.out 2>no.err </dev/null ||
  got=$?
check "not the same on every rank: exit code $got" test "$got" -eq 78
check 'not the same on every rank: the words' grep -q -- '--inject' no.err
finish
