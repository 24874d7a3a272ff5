#!/usr/bin/env bash
# bf16 on a CPU, as users run it: what is said where there is none; losses near those of float32, the same weights at any number of
# threads, an exact resume. usage: DTRAIN=... MPIEXEC=... test_bf16.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
configure '[1, 14, 14]' 'conv20 conv32 pool dropout0.25 flatten dense32:relu dense10' '
  "data": { "format": "synthetic", "train_samples": 2000, "test_samples": 64, "sharding": "shard" },
  "train": { "epochs": 2, "seed": 5, "batch": { "per_rank": 32 }, "optimizer": { "type": "adam", "lr": 0.001 } },
  "checkpoint": { "every_steps": 10, "keep": 20 }, "device": "cpu", "log": { "every_steps": 1 }'

trains() { run 0 2 --config config.json --run "$@"; } # trains RUN ARGUMENT...

# Where there is no AMX: one line with the cure, and nothing is left behind.
DTRAIN_ISA=baseline dtrain 2 --config config.json --set precision=bf16 --run refused
check "refused: exit status $got" test "$got $(grep -c . err)" = '69 1'
check "refused: $(cat err)" grep -q '^dtrain: precision "bf16" on a CPU needs AMX, .* (use "precision": "f32", which is as fast)$' err
check 'refused: a run folder is left' test ! -e refused

dtrain 2 --config config.json --set precision=bf16 --run whole
if ((got == 69)) && grep 'needs AMX' err && ((n_failed == 0)); then
  echo 'skipped: the rest of the test'
  exit 77
fi
check "exit status $got: $(cat err)" test "$got" = 0
check 'the roster does not say AMX' grep -q 'cpu x86-64-v4 with AMX' err

# Another rounding, not another result.
trains float
cat >losses.py <<'PYTHON'
import json
float_, bf16 = [[r["loss"] for r in map(json.loads, open(run + "/metrics.jsonl")) if r.get("type") == "step"] for run in ("float", "whole")]
assert len(float_) == len(bf16) > 40, (len(float_), len(bf16))
assert float_[0] != bf16[0] and abs(float_[0] - bf16[0]) < 0.01, (float_[0], bf16[0])
ends = sum(float_[-10:]) / 10, sum(bf16[-10:]) / 10
assert ends[0] < float_[0] / 2 and abs(ends[0] - ends[1]) < 0.1 * float_[0], (float_[0], ends)
PYTHON
check 'losses' python3 losses.py

trains threads --set precision=bf16 --set threads=3
check 'with 3 threads' same_weights whole threads
trains resumed --set precision=bf16 --set train.max_steps=23
trains resumed --set precision=bf16 --resume
check 'resumed' same_weights whole resumed
finish
