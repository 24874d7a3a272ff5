#!/usr/bin/env bash
# The main job on real images: one epoch, then eval of its checkpoint must count the same hits.
# usage: DTRAIN=... MPIEXEC=... test_idx_training.sh mnist|fashion LEAST_ACCURACY RANKS
# mnist wants $DTRAIN_DATA; fashion is Debian's package dataset-fashion-mnist.
set -euo pipefail
which=$1 least=$2 ranks=$3
configs=$(cd "$(dirname "$0")/../configs" && pwd)
skip() {
  echo "skipped: $1"
  exit 77
}
if [ "$which" = mnist ]; then
  [ -n "${DTRAIN_DATA:-}" ] || skip "real MNIST is looked for in \$DTRAIN_DATA, which is not set"
  data=$(cd "$DTRAIN_DATA" && pwd)
  # MNIST's own labels begin 7 2 1 0 4 in the test set; another data set of the same format is not what this test is about.
  labels=$({ gzip -dcf "$data"/t10k-labels-idx1-ubyte* || true; } | od -An -tu1 -j8 -N5 | tr -s ' ')
  [ "$labels" = " 7 2 1 0 4" ] || skip "$data is not MNIST"
else
  data=/usr/share/datasets/fashion-mnist
  [ -e "$data/train-labels-idx1-ubyte.gz" ] || skip "package dataset-fashion-mnist is not installed"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$MPIEXEC" -n "$ranks" "$DTRAIN" --config "$configs/mnist.json" --data "$data" --set train.epochs=1 --run run > train.txt 2> log ||
  { cat log; exit 1; }
checkpoint=$(find run/checkpoints -name '*.safetensors' | sort | tail -n 1)
"$MPIEXEC" -n 3 "$DTRAIN" eval --checkpoint "$checkpoint" --data "$data" > eval.txt 2>> log || { cat log; exit 1; }
cat train.txt eval.txt
[ "$(cut -d ' ' -f 1-5 train.txt)" = "$(cut -d ' ' -f 1-5 eval.txt)" ] || { echo "eval counts other hits"; exit 1; }
awk -v least="$least" '{ if (!($3 >= least)) { print "below " least " %"; exit 1 } }' train.txt
