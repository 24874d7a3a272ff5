#!/usr/bin/env bash
# `dtrain init`: what it writes is a commented configuration that works, and never in the place of a file.
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"

init() { run "$1" 0 init "${@:2}"; } # init CODE ARGUMENT...
refused() { refuses "$1" 0 "=$2" init "${@:3}"; } # refused CODE TEXT ARGUMENT...

# mnist and mlp mean what configs/ has; their comments are all that differs.
for pair in mnist:mnist mlp:mnist-mlp; do
  name=${pair%:*}
  init 0 "$name"
  is "$name: what is next" "wrote $name.json; next: mpirun -np 2 dtrain --config $name.json" "$(cat out)"
  check "$name: has no comments" grep -q '// ' "$name.json"
  check "$name: another configuration" cmp <("$DTRAIN" --print-config --config "$name.json") \
    <("$DTRAIN" --print-config --config "$configs/${pair#*:}.json")
done
init 73
rm mnist.json
init 0
is 'without a name: mnist' 'wrote mnist.json; next: mpirun -np 2 dtrain --config mnist.json' "$(cat out)"

# cifar has the model of configs/; without its data the error tells how to get them, and with images in their place it trains.
model_of() { # model_of CONFIG
  "$DTRAIN" --print-config --config "$1" | sed -n '/"model"/,/^  }/p'
}
init 0 cifar mine.json
check 'cifar: has no model' test "$(model_of mine.json | wc -l)" -gt 50
check 'cifar: another model' cmp <(model_of mine.json) <(model_of "$configs/cifar-resnet20.json")
for ranks in 1 2; do
  run 66 "$ranks" --config mine.json --run never
  is "cifar without data, ranks: $ranks" "dtrain: data/cifar10: no such folder (scripts/get-data cifar10 fetches it; or name the folder \
with CIFAR's binary files: --data DIR)" "$(cat err)"
done
mkdir cifar
for name in data_batch_{1..5} test_batch; do
  for label in 1 2 3 4 5 6 7 8; do
    printf "\\x0$label" && head -c 3072 "$DTRAIN"
  done >"cifar/$name.bin"
done
run 0 2 --config mine.json --data cifar --run run --set train.max_steps=2 --set train.batch.global=16 --set report=false

# Each key that a comment offers works, all of them together.
for name in mnist mlp cifar; do
  "$DTRAIN" init "$name" "$name-all.json" >/dev/null
  sed -i '/"extends"/!s#^\( *\)// \("[a-z_]*":\)#\1\2#' "$name-all.json"
  run 0 0 --print-config --config "$name-all.json"
  check "$name: validation" grep -q '"validation": 0.1' out
done

# A child of a file that was written: fewer epochs, the rest as it is.
mkdir below && printf '{ "extends": "../mnist.json", // mine\n  "train": { "epochs": 3 } }\n' >below/short.json
check 'extends: another configuration' cmp <("$DTRAIN" --print-config --config below/short.json) \
  <("$DTRAIN" --print-config --config mnist.json --set train.epochs=3)
printf '{ "extends": "../mnist.json",\n  "train": { "epochs": 3, } }\n' >below/wrong.json
refuses 78 0 '=below/wrong.json:2:27: a comma before a closing bracket (remove the comma)' --config below/wrong.json

# What is there stays.
echo mine >kept.json
refused 73 'kept.json: exists already (remove it, or write dtrain init mlp FILE)' mlp kept.json
is 'a file that was there' mine "$(cat kept.json)"
ln -s nowhere.json link.json
refused 64 "init: expected one of mnist, mlp, cifar, got 'mnsit' (take mnist)" mnsit
refused 64 "init: expected one of mnist, mlp, cifar, got 'images' (see dtrain init --help)" images
refused 64 "init: 'mine.json' is the file's name (write dtrain init mnist mine.json)" mine.json
refused 64 'init: expected a name and a file (dtrain init mnist FILE)' mnist a.json b.json
refused 73 'nowhere/: No such file or directory' mnist nowhere/a.json
finish
