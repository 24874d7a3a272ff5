#!/usr/bin/env bash
# With sharding "global" the number of ranks does not change the training: at -np 1, 2, 3 and 4 the loss of each of 50 steps agrees to 1e-4
# relative, with dropout on, while the replicas are compared bit for bit after every step. usage: DTRAIN=... MPIEXEC=... test_invariance.sh
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > config.json <<'JSON'
{
  "data": { "format": "synthetic", "train_samples": 2000, "test_samples": 64, "sharding": "global" },
  "model": {
    "input": [1, 14, 14],
    "layers": [
      { "type": "conv2d", "filters": 8, "kernel": 3, "activation": "relu" },
      { "type": "conv2d", "filters": 16, "kernel": 3, "activation": "relu" },
      { "type": "max_pool2d", "size": 2 },
      { "type": "dropout", "rate": 0.25 },
      { "type": "flatten" },
      { "type": "dense", "units": 32, "activation": "relu" },
      { "type": "dropout", "rate": 0.5 },
      { "type": "dense", "units": 10 }
    ],
    "loss": "softmax_cross_entropy"
  },
  "train": { "epochs": 3, "max_steps": 50, "seed": 3, "batch": { "global": 96 }, "optimizer": { "type": "adam", "lr": 0.001 } },
  "distributed": { "check_every": 1 },
  "log": { "every_steps": 1 }
}
JSON
for n in 1 2 3 4; do
  "$MPIEXEC" -n "$n" "$DTRAIN" --config config.json --run "np$n" > "np$n.txt" 2> "np$n.log" || { cat "np$n.log"; exit 1; }
  sed -n 's/.*"type":"step","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "np$n/metrics.jsonl" > "np$n.loss"
  [ "$(wc -l < "np$n.loss")" = 50 ] || { echo "np $n: not 50 steps"; exit 1; }
done
for n in 2 3 4; do
  paste -d ' ' np1.loss "np$n.loss" | awk -v n="$n" '
    { d = $2 - $4; if (d < 0) d = -d; r = d / $2; if (!(r <= 1e-4)) { print "np " n ", step " $1 ": " $2 " and " $4; bad = 1 } if (r > worst) worst = r }
    END { printf "np %d: worst relative difference %.2g over %d steps\n", n, worst, NR; exit bad }'
done
awk 'NR == 1 { first = $2 } { last = $2 } END { if (!(last < 0.8 * first)) { print "the loss does not fall: " first " to " last; exit 1 } }' np1.loss
