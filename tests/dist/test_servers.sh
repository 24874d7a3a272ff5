#!/usr/bin/env bash
# Servers hold the weights: the bits of an allreduce of as many workers, messages as predicted, resume under any strategy, and an end of
# the whole job, with the name of the rank, when a server dies or hangs. usage: DTRAIN=... MPIEXEC=... test_servers.sh
# shellcheck disable=SC2317 # functions that wait_for calls
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
configure '[1, 12, 12]' 'conv8 pool flatten dropout0.25 dense16:relu dense10' '
  "data": { "format": "synthetic", "train_samples": 600, "test_samples": 60 },
  "train": { "epochs": 2, "seed": 5, "batch": { "per_rank": 16 }, "accumulate": 2, "optimizer": { "type": "adam", "lr": 0.002 } },
  "distributed": { "check_every": 1 }, "device": "cpu", "threads": 1'

alike() { python3 "$tests/lib/python/checkpoint.py" alike "$@"; } # alike RUN...
servers() { echo --set distributed.strategy=parameter_server --set "distributed.parameter_server.servers=$1"; }
central='--set distributed.strategy=central'

# shellcheck disable=SC2046,SC2086 # arguments
{
  for workers in 1 2 3; do
    train "all$workers" $workers
    train "one$workers" $((workers + 1)) $(servers 1)
    train "two$workers" $((workers + 2)) $(servers 2)
    train "central$workers" $workers $central
    check "$workers workers: other bits than an allreduce" alike "all$workers" "one$workers" "two$workers" "central$workers"
    for run in "one$workers" "two$workers"; do
      check "$run: messages" grep -q '^messages of a step: .* sent by .*, as predicted$' "$run.err"
    done
  done
  check 'the roster does not tell servers from workers' test "$(grep -c 'none: serves ' two3.err)" -eq 2
  train apart 2 $(servers 1) --set distributed.overlap=false
  check 'without overlap: other bits' alike all1 apart

  # Compressed gradients: servers and a worker that serves make the same of them; all of the largest are all.
  for type in fp16 int8 onebit topk; do
    train "one-$type" 3 $(servers 1) --set distributed.compression.type=$type
    train "central-$type" 2 $central --set distributed.compression.type=$type
    check "$type: other bits" alike "one-$type" "central-$type"
    check "$type: nothing is lost" test "$(alike all2 "one-$type" 2>&1 | tail -n 1)" = "AssertionError: one-$type"
    check "$type: messages" grep -q '^messages of a step: .*, as predicted$' "one-$type.err"
  done
  train dense 3 $(servers 1) --set distributed.compression.type=topk --set distributed.compression.ratio=1
  check 'topk of all: other bits' alike all2 dense

  # A run continues under the strategy that it began with, or another.
  train half 3 $(servers 1) --set train.max_steps=13
  cp -r half half2
  train half 3 $(servers 1) --resume
  train half2 2 --resume
  check 'resumed: other bits' alike all2 half half2
  grep -q 'resumed at step 13 ' half2.err || fail 'not resumed' half2.err
  train other 2 --set train.max_steps=13
  train other 4 $(servers 2) --resume
  check 'resumed with servers: other bits' alike all2 other
}

# Servers that do not wait: with one worker nothing differs; with more, every push is counted, and nobody runs further ahead than he may.
cat >staleness.py <<'PY'
"""staleness.py RUN WORKERS MAX_STALENESS [REACHED]: the last record of an epoch counts every push of every piece of every step. A worker
that continues is at most MAX_STALENESS steps ahead of the slowest, so between two pushes of one another makes 2 MAX_STALENESS + 1 at most."""
import json, sys
run, workers, bound = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
epoch = [r for r in map(json.loads, open(run + "/metrics.jsonl")) if r["type"] == "epoch"][-1]
counts = epoch["staleness"]
assert sum(counts) == workers * epoch["step"] * 3, (sum(counts), epoch["step"])
assert len(counts) - 1 <= (workers - 1) * (2 * bound + 1), counts
assert len(sys.argv) < 5 or len(counts) - 1 >= int(sys.argv[4]), counts
assert bound > 0 or len(set(counts)) == 1 and len(counts) == workers, counts # each worker's is the first, the second, ... of a step
PY
async='--set distributed.parameter_server.mode=async --set distributed.parameter_server.max_staleness'
# shellcheck disable=SC2046,SC2086
{
  train alone 2 $(servers 1) $async=4
  check 'async with one worker: other bits' alike all1 alone
  for bound in 0 2; do
    train free$bound 4 $(servers 1) $async=$bound
    check "async, max_staleness $bound: the counts" python3 staleness.py free$bound 3 $bound
    check "async, max_staleness $bound: not told" grep -q '^staleness of gradients, in steps: mean ' free$bound.err
  done
  # One worker waits 40 ms in each step, so the other is soon as far ahead as it may be, and one push more; further only in vain.
  train ahead 3 $(servers 1) $async=1 --set distributed.check_every=0 --inject slow:rank=1,ms=40
  check 'async: a fast worker does not run ahead, or too far' python3 staleness.py ahead 2 1 2
  train again 4 $(servers 1) $async=2 --set train.max_steps=9
  train again 4 $(servers 1) $async=2 --resume
  check 'async: not resumed' grep -q 'resumed at step 9 ' again.err
}

# Impossible servers.
# shellcheck disable=SC2046,SC2086
{
  refused 78 2 'distributed.parameter_server.servers: 2 servers of 2 ranks leave no worker' $(servers 2)
  refused 78 2 'train.optimizer.clip_norm needs the norm of the whole gradient' $central --set train.optimizer.clip_norm=1
  check 'plan: the servers' grep -qE '^ +1 +3 +.*weight.* [0-9.]+ [kM]?B$' <("$MPIEXEC" -n 4 "$DTRAIN" plan --config config.json $(servers 2) 2>&1)
}

# A server that dies, that hangs, and a job that is told to stop.
# shellcheck disable=SC2046,SC2086
{
  ends_well sync 2 $(servers 1)
  ends_well async 2 $(servers 1) $async=4
}
finish
