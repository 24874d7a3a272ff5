#!/usr/bin/env bash
# distributed.deterministic: the same bits of weights and optimizer state at any number of ranks and threads, also resumed at another
# number of ranks in the middle of an epoch. Its refusals, and the end of a training whose gradients no integer holds.
# usage: DTRAIN=... MPIEXEC=... test_deterministic.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
command -v python3 >/dev/null || { echo 'skipped: python3, which reads checkpoints, is not installed'; exit 77; }
# Leaves of 8 of batches of 100, and a last batch of 30: short leaves, and ranks without any.
cat >config.json <<'JSON'
{
  "data": { "format": "synthetic", "train_samples": 330, "test_samples": 40, "sharding": "global" },
  "model": {
    "input": [1, 12, 12],
    "layers": [
      { "type": "conv2d", "filters": 8, "kernel": 3, "activation": "relu" },
      { "type": "conv2d", "filters": 16, "kernel": 3, "activation": "relu" },
      { "type": "max_pool2d", "size": 2 },
      { "type": "dropout", "rate": 0.25 },
      { "type": "flatten" },
      { "type": "dense", "units": 32, "activation": "relu" },
      { "type": "dense", "units": 10 }
    ]
  },
  "train": { "epochs": 2, "seed": 5, "batch": { "global": 100 }, "optimizer": { "type": "adam", "lr": 0.002, "clip_norm": 1 } },
  "distributed": { "deterministic": true, "leaf": 8 },
  "device": "cpu",
  "threads": 1
}
JSON
# bits.py RUN...: a line for each run's newest checkpoint, the hash of its tensors
cat >bits.py <<'PY'
import glob, hashlib, json, struct, sys
for run in sys.argv[1:]:
    path = max(glob.glob(run + "/checkpoints/step-*.safetensors"))
    file = open(path, "rb").read()
    n = struct.unpack("<Q", file[:8])[0]
    header, data = json.loads(file[8 : 8 + n]), file[8 + n :]
    tensors = [(name, *header[name]["data_offsets"]) for name in sorted(header) if name != "__metadata__"]
    assert len(tensors) >= 8, tensors
    print(path[-20:], hashlib.sha256(b"".join(name.encode() + data[begin:end] for name, begin, end in tensors)).hexdigest())
PY

train() { # train RUN RANKS ARGUMENT...
  local run=$1 n=$2
  shift 2
  check "$run: the run fails" timeout 120 "$MPIEXEC" -n "$n" "$DTRAIN" --config config.json --run "$run" "$@" >"$run.out" 2>"$run.err" </dev/null
}
alike() { test "$(python3 bits.py "$@" | sort -u | wc -l)" -eq 1; } # alike RUN...

for n in 1 2 3 5; do train "ranks$n" "$n"; done
train threads 2 --set threads=2
check 'another number of ranks or threads: other bits' alike ranks1 ranks2 ranks3 ranks5 threads
check 'banner' grep -q '^  allreduce of gradients: 1 bucket, 64-bit integers over mpi$' ranks2.err

check 'another hash in summary.json' test "$(grep -ho '"weights_xxh3":\s*"[0-9a-f]\{32\}"' ranks?/summary.json | sort | uniq -c | awk '{ print $1 }')" = 4
check 'summary.json names another sum' grep -q '"allreduce":\s*"64-bit integers over mpi"' ranks2/summary.json
check 'no hash at the end, or another' test "$(grep -h '^hash of the weights [0-9a-f]*$' ranks?.err | sort -u | wc -l)" -eq 1

train parts 3 --set train.max_steps=6
train parts 2 --resume
check 'resumed at another number of ranks: other bits' alike parts ranks1

train ref1 1 --set device=ref
train ref3 3 --set device=ref
check 'ref: other bits' alike ref1 ref3

train float2 2 --set 'distributed={}'
train float3 3 --set 'distributed={}'
check 'the hash is blind' test "$(grep -h '^hash of the weights ' float?.err | sort -u | wc -l)" -eq 2
check 'this test sees no rounding: sums of floats are alike, too' test "$(python3 bits.py float2 float3 | sort -u | wc -l)" -eq 2

refused() { # refused CODE TEXT ARGUMENT...
  local code=$1 text=$2
  shift 2
  timeout 60 "$MPIEXEC" -n 2 "$DTRAIN" --config config.json --run refused "$@" >out 2>err </dev/null
  check "$*: exit code $?, not $code" test $? -eq "$code"
  check "$*: $text" grep -qF -- "$text" err
}
refused 64 'distributed.deterministic: ranks need the slices of one order (set data.sharding to global)' --set data.sharding=shard \
  --set distributed.deterministic=true
refused 78 'set train.batch.global instead' --set 'train.batch={"per_rank":50}'
refused 78 'integers are added by MPI alone (set distributed.allreduce to auto or mpi)' --set distributed.allreduce=ring
refused 78 'codecs round what each rank sends (set distributed.compression.type to none)' --set distributed.compression.type=fp16
refused 78 'a step ends with all its gradients (set distributed.order to backward)' --set distributed.order=priority
refused 78 'set train.accumulate to 1' --set train.accumulate=2
refused 78 'distributed.deterministic: replicas that step alone differ' --set distributed.average=false
refused 80 'gradients are not below 2048, no checkpoint saved (lower train.optimizer.lr)' --set train.optimizer.type=sgd --set train.optimizer.clip_norm=0 --set train.optimizer.lr=1e6
check 'diverged: more than one line' test "$(grep -c '^dtrain: ' err)" -eq 1

# Replicas that differ by design have no one hash.
train apart 2 --set 'distributed={"broadcast":false,"init_per_rank":true}'
check 'one hash for replicas that differ' test "$(grep -c '^hash of the weights' apart.err)" -eq 0
finish
