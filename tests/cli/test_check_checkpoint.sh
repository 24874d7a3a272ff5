#!/usr/bin/env bash
# A checkpoint means the same to PyTorch: two models with every kind of layer, a few steps of training at -np 2, and what
# scripts/check-checkpoint.py counts on the 10,000 test images is what `dtrain eval` counts, but for 2 images that a sum taken in
# another order may tip over. Needs PyTorch and Debian's package dataset-fashion-mnist.
# usage: DTRAIN=... MPIEXEC=... test_check_checkpoint.sh
set -euo pipefail
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
data=/usr/share/datasets/fashion-mnist
[ -e "$data/t10k-labels-idx1-ubyte.gz" ] || { echo "skipped: package dataset-fashion-mnist is not installed"; exit 77; }
python=
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import torch' 2> /dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || { echo "skipped: PyTorch is not installed (package python3-torch)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

config() { # config LAYERS
  echo "{ \"data\": { \"format\": \"idx\", \"dir\": \"data\" }, \"model\": { \"input\": [1, 28, 28], \"layers\": [ $1 ] },
    \"train\": { \"max_steps\": 150, \"batch\": { \"global\": 128 }, \"optimizer\": { \"type\": \"adam\", \"lr\": 0.004 } } }"
}
config '{ "type": "conv2d", "filters": 6, "kernel": 4, "stride": 3, "padding": "same", "activation": "tanh" },
  { "type": "avg_pool2d", "size": 3, "stride": 2 }, { "type": "sigmoid" }, { "type": "dropout", "rate": 0.1 }, { "type": "flatten" },
  { "type": "dense", "units": 24, "activation": "tanh" }, { "type": "dense", "units": 10 }' > odd.json
config '{ "type": "conv2d", "filters": 6, "kernel": 3, "stride": 2, "activation": "relu" }, { "type": "max_pool2d", "size": 2 },
  { "type": "conv2d", "filters": 8, "kernel": 2, "padding": "same" }, { "type": "relu" }, { "type": "flatten" },
  { "type": "dense", "units": 24 }, { "type": "tanh" }, { "type": "dense", "units": 10, "activation": "sigmoid" }' > usual.json

n_correct() { # of the line "test accuracy 98.31 % (9831/10000)", and of nothing else
  sed -n 's|^test accuracy [0-9.]* % (\([0-9]*\)/10000)$|\1|p' "$1"
}
for name in odd usual; do
  "$MPIEXEC" -n 2 "$DTRAIN" --config $name.json --data "$data" --run $name > train.txt 2> log || { cat log; exit 1; }
  checkpoint=$(find $name/checkpoints -name '*.safetensors' | sort | tail -n 1)
  "$DTRAIN" eval "$checkpoint" --data "$data" > eval.txt 2> log || { cat log; exit 1; }
  "$python" "$scripts/check-checkpoint.py" "$checkpoint" --data "$data" > torch.txt 2> log || { cat log; exit 1; }
  cat log eval.txt torch.txt
  ours=$(n_correct eval.txt) theirs=$(n_correct torch.txt)
  difference=$((${ours:?no line of test accuracy} - ${theirs:?no line of test accuracy}))
  [ "${difference#-}" -le 2 ] || { echo "$name: dtrain counts $ours, PyTorch $theirs"; exit 1; }
  [ "$ours" -ge 3000 ] || { echo "$name learnt too little to show anything"; exit 1; }
done
