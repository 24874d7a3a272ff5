#!/usr/bin/env bash
# A run that is killed in the middle of an epoch resumes at another number of ranks and uses each sample exactly once an epoch: its audit
# proves it, from any of 1 to 4 ranks to any other, and also where the batch follows the number of ranks. With distributed.deterministic
# its weights are those of the run that was never stopped. Where the ranks have orders of their own it is refused. And the audit sees what
# it is for. usage: DTRAIN=... MPIEXEC=... test_elastic.sh WRONG_LAB
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
command -v python3 >/dev/null || { echo 'skipped: python3, which reads the audit, is not installed'; exit 77; }
wrong_lab=$1 samples=$tests/../scripts/check-samples
# 7 steps of 48 an epoch, the last one of 42; a checkpoint every second step.
configure '[1, 8, 8]' 'conv4 dropout0.25 flatten dense10' '
  "data": { "format": "synthetic", "train_samples": 330, "test_samples": 40, "sharding": "global" },
  "train": { "epochs": 2, "seed": 5, "batch": { "global": 48 }, "optimizer": { "type": "adam", "lr": 0.002 } },
  "distributed": { "deterministic": true, "leaf": 8, "check_every": 1 }, "checkpoint": { "every_steps": 2 }, "log": { "audit": true },
  "report": false, "device": "cpu", "threads": 1'
per_rank=(--set 'train.batch={"per_rank":12}' --set 'distributed={}')

killed() { # killed RUN RANKS STEP ARGUMENT...: the run's last rank is killed before this step
  local run=$1 n=$2 step=$3
  shift 3
  dtrain "$n" --config config.json --run "$run" --inject "kill:rank=$((n - 1)),step=$step" "$@"
  check "$run: the run on $n ranks was not killed" test "$got" -ne 0
}

audit() { # audit CODE TEXT RUN...: what scripts/check-samples says
  local code=$1 text=$2 told=0
  shift 2
  "$samples" "$@" >told 2>&1 || told=$?
  is "audit of $*: exit code" "$code" "$told"
  check "audit of $*: not '$text'" grep -qF -- "$text" told
  [[ $told -eq $code ]] || cat told
}

once() { # once RUN RANKS: both epochs used each sample once; RANKS: those of the first
  audit 0 "on $2 ranks used 330 of 330 samples, each once" "$1"
  is "$1: epochs that used each sample once" 2 "$(grep -c 'used 330 of 330 samples, each once$' told)"
}

hash_of() { sed -n 's/^hash of the weights //p' "$1"; }

train whole 1
once whole 1
check 'no hash of the weights' test -n "$(hash_of whole.err)"

for n in 1 2 3 4; do
  for m in 1 2 3 4; do
    [[ $n -ne $m ]] || continue
    run=from$n-to$m
    killed "$run" "$n" 6
    is "$run: steps that the first start has told" 5 "$(grep -c '"type":"audit"' "$run/metrics.jsonl")"
    train "$run" "$m" --resume
    check "$run: not resumed at the last checkpoint" grep -q 'resumed at step 4 (0 epochs done)' "$run.err"
    once "$run" "$n, $m"
    is "$run: hash of the weights" "$(hash_of whole.err)" "$(hash_of "$run.err")"
    check "$run: another order" diff <(grep '"type":"audit"' whole/metrics.jsonl | sed 's/"world_size":.,//') \
      <(grep '"type":"audit"' "$run/metrics.jsonl" | sed 's/"world_size":.,//') >/dev/null
  done
done
check 'batch and rate of train.batch.global change' grep -q '^  batch 48 over 3 ranks, lr 0.002$' from4-to3.err

# Batch and rate follow the number of ranks: 48, 36, 12, 24 samples a step, each start killed in the same epoch.
killed chain 4 3 "${per_rank[@]}"
killed chain 3 6 "${per_rank[@]}" --resume
check 'batch and rate of train.batch.per_rank stay' grep -q '^  batch 12 × 3 = 36, lr 0.002 × 3 = 0.006 (linear)$' err
killed chain 1 10 "${per_rank[@]}" --resume
train chain 2 "${per_rank[@]}" --resume
once chain '4, 3, 1, 2'
# 2 steps of 48, 2 of 36 after a short one, 4 of 12, and so on: steps end where they would, had the epoch begun with this batch.
is 'chain: samples of the steps' '48 48 12 36 12 12 12 12 24 24 24 24 24 18' \
  "$(grep '"type":"audit".*"epoch":1,' chain/metrics.jsonl | sed 's/.*"samples":\([0-9]*\).*/\1/' | tr '\n' ' ' | sed 's/ $//')"

# Each rank has an order of its own.
for sharding in shard replicate; do
  own=(--set data.sharding=$sharding --set 'distributed={}')
  killed $sharding 4 6 "${own[@]}"
  dtrain 3 --config config.json --run $sharding --resume "${own[@]}"
  is "$sharding: exit code" 78 "$got"
  check "$sharding: not refused" grep -qF 'number of ranks was 4, now it is 3 (inside an epoch it may differ only with data.sharding "global"' err
  train $sharding 4 --resume "${own[@]}" --set train.epochs=1
  train $sharding 3 --resume "${own[@]}"
done
once shard 4
audit 0 'epoch 2: 7 steps on 3 ranks used 330 of 330 samples, each once' shard
audit 1 'epoch 1: 28 steps on 4 ranks used 1320 of 330 samples, not each once' replicate

# Killed behind the checkpoint of an epoch's last step, and before the epoch was over: no sample of it is left.
cat >last_step.py <<PYTHON
import sys
from checkpoint import join, read, split, write
header, data = split(read("last/checkpoints/step-000000000006.safetensors"))
header["__metadata__"].update(step="7", step_in_epoch="7", optimizer_steps="7", n_samples=(330.0).hex())
write("last.safetensors", join(header, data))
PYTHON
for sharding in shard global; do
  rm -rf last after
  own=(--set data.sharding=$sharding "${per_rank[@]}")
  train last 4 "${own[@]}" --set train.max_steps=6
  python3 last_step.py
  train after 3 "${own[@]}" --resume=last.safetensors
  is "$sharding, an epoch without a step left: steps of both epochs" '7 17' "$(sed -n '2,$s/^[0-9]*,\([0-9]*\),.*/\1/p' after/metrics.csv | tr '\n' ' ' | sed 's/ $//')"
done

# The audit sees a batch that has a sample twice, a step without a record and a hash that is wrong; the epoch under way is not judged.
killed twice 4 6
check 'the wrong program ends with an error' "$MPIEXEC" -n 3 "$wrong_lab" --config config.json --run twice --resume >out 2>err </dev/null
audit 1 'epoch 1: 7 steps on 4, 3 ranks used 330 of 330 samples, not each once' twice
grep -v '"type":"audit","step":4,' whole/metrics.jsonl >lines && mkdir gap changed && mv lines gap/metrics.jsonl
audit 65 'step 4 has no record' gap
sed '/"audit","step":4,/s/"hash":"../"hash":"zz/' whole/metrics.jsonl | sed 's/"hash":"zz/"hash":"00/' >changed/metrics.jsonl
audit 1 'epoch 1: 7 steps on 1 ranks used 330 of 330 samples, not each once' changed
killed short 2 6
audit 0 'used 240 of 330 samples, the epoch is not over' short
audit 66 'nowhere' nowhere
train unaudited 1 --set log.audit=false
audit 65 'step 1 has no record (train with log.audit from the first step on)' unaudited
# Resumed into another folder.
train other 3 --resume=short
audit 0 'epoch 1: 7 steps on 2, 3 ranks used 330 of 330 samples, each once' short other
finish
