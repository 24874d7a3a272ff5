#!/usr/bin/env bash
# The norm of the mean gradient is in the records of steps, the same with every strategy, whoever has the gradient; where nobody has, it is null.
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
configure '[1, 8, 8]' 'conv4 flatten dense33:tanh dense10' '
  "data": { "format": "synthetic", "train_samples": 240, "test_samples": 20, "sharding": "global" },
  "train": { "epochs": 1, "batch": { "global": 24 } }, "log": { "every_steps": 2 }, "report": false'
train one 1
train allreduce 2 --set threads=1
train threads 2 --set threads=2
train priority 2 --set distributed.order=priority
train tree 2 --set distributed.allreduce=tree
train micro 2 --set train.accumulate=3
train clipped 2 --set train.optimizer.clip_norm=1000
train servers 3 --set distributed.strategy=parameter_server --set distributed.parameter_server.servers=1
train two_servers 4 --set distributed.strategy=parameter_server --set distributed.parameter_server.servers=2
train central 2 --set distributed.strategy=central
train pipeline 2 --set distributed.strategy=pipeline
train fp16 2 --set distributed.compression.type=fp16
train async 3 --set distributed.strategy=parameter_server --set distributed.parameter_server.mode=async
train apart 2 --set distributed.average=false
train clipped_much 1 --set train.optimizer.clip_norm=0.001
check 'not the same norms' python3 - <<'PY'
import json
def norms(run):
    steps = [r for r in map(json.loads, open(f"{run}/metrics.jsonl")) if r["type"] == "step"]
    assert [r["step"] for r in steps] == [2, 4, 6, 8, 10], steps
    return [r["grad_norm"] for r in steps]
one = norms("one")
assert all(1e-3 < x < 1e3 for x in one), one
for run in ("allreduce", "threads", "priority", "tree", "micro", "clipped", "servers", "two_servers", "central", "pipeline"):
    assert all(abs(x / y - 1) < 1e-3 for x, y in zip(norms(run), one)), (run, norms(run), one)
assert all(abs(x / y - 1) < 0.05 for x, y in zip(norms("fp16"), one)), norms("fp16")
assert norms("async") == norms("apart") == [None] * 5
much = norms("clipped_much")
assert all(x > 0.1 * one[0] for x in much), much  # as they were before clipping
PY
finish
