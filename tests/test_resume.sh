#!/usr/bin/env bash
# Resume is bit-exact, also in the middle of an epoch, and also after kill -9 at any moment: the last checkpoint of an interrupted run is
# byte for byte that of an uninterrupted one, and so are the losses. usage: DTRAIN=... MPIEXEC=... test_resume.sh RANKS
set -euo pipefail
ranks=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > config.json <<'JSON'
{
  "data": { "format": "synthetic", "train_samples": 900, "test_samples": 64, "sharding": "shard" },
  "model": {
    "input": [1, 12, 12],
    "layers": [
      { "type": "conv2d", "filters": 8, "kernel": 3, "activation": "relu" },
      { "type": "max_pool2d", "size": 2 },
      { "type": "dropout", "rate": 0.25 },
      { "type": "flatten" },
      { "type": "dense", "units": 16, "activation": "relu" },
      { "type": "dropout", "rate": 0.5 },
      { "type": "dense", "units": 10 }
    ],
    "loss": "softmax_cross_entropy"
  },
  "train": { "epochs": 3, "seed": 5, "batch": { "per_rank": 16 }, "accumulate": 2, "optimizer": { "type": "adam", "lr": 0.002 } },
  "distributed": { "check_every": 1 },
  "checkpoint": { "every_steps": 3, "keep": 3 },
  "log": { "every_steps": 1 }
}
JSON
dtrain() {
  "$MPIEXEC" -n "$ranks" "$DTRAIN" --config config.json "$@" 2>> log
}
last() {
  find "$1/checkpoints" -name 'step-*.safetensors' | sort | tail -n 1
}

dtrain --run whole > whole.txt
steps=$(wc -l < <(grep '"type":"step"' whole/metrics.jsonl))
[ "$steps" -gt 40 ] || { echo "only $steps steps"; exit 1; }

# Killed three times at unforeseeable moments, each time resumed.
for try in 1 2 3; do
  dtrain --run cut --resume > cut.txt &
  pid=$!
  for _ in $(seq 400); do # until it has made some progress, or is done
    now=$(basename "$(last cut 2> /dev/null)" 2> /dev/null || true)
    [ "${now:-}" \> "step-0000000000$((try * 12)).safetensors" ] && break
    kill -0 "$pid" 2> /dev/null || break
    sleep 0.02
  done
  pkill -9 -f -- "--run cut --resume" -P "$pid" 2> /dev/null || true
  kill -9 "$pid" 2> /dev/null || true
  wait "$pid" 2> /dev/null || true
  sleep 0.3
done
dtrain --run cut --resume > cut.txt

resumed=$(grep -c '  resumed from' log || true)
[ "$resumed" -ge 1 ] || { echo "never interrupted"; cat log; exit 1; }

cmp whole.txt cut.txt
cmp "$(last whole)" "$(last cut)"
losses() {
  grep '"type":"step"' "$1/metrics.jsonl" | sed 's/,"images_per_s.*//'
}
diff <(losses whole) <(losses cut) || { echo "step records differ"; exit 1; }
[ "$(grep -c . whole/metrics.csv)" = "$(grep -c . cut/metrics.csv)" ] || { echo "metrics.csv differs"; exit 1; }
echo "resumed $resumed times, to the same bits after $steps steps"
