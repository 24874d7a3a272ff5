#!/usr/bin/env bash
# The scripts that people run: clean by shellcheck, each explains itself, and get-data never takes the wrong data silently.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
unset DTRAIN_DATA

fail() {
  printf 'test_scripts: %s\n' "$*" >&2
  exit 1
}

expect() { # expect <exit code> <text that stdout and stderr together must have> <command>...
  local want=$1 text=$2 got=0
  shift 2
  "$@" >out 2>&1 </dev/null || got=$?
  [[ $got -eq $want ]] || fail "$* ended with $got, expected $want: $(cat out)"
  grep -qF -- "$text" out || fail "$* did not say '$text' but: $(cat out)"
}

names=(train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte)
get=$top/scripts/get-data

if command -v shellcheck >/dev/null; then
  cd "$top"
  shellcheck -x -P scripts:. .ci/run scripts/{test,quickstart,get-data,lib.sh,dtrain.sbatch} tests/test_{scripts,quickstart}.sh
  shellcheck -S error tests/*.sh
  cd "$work"
fi
for script in test quickstart get-data; do
  expect 0 "./scripts/$script" "$top/scripts/$script" --help
done
if command -v python3 >/dev/null; then
  expect 0 './scripts/bench-cpu' python3 "$top/scripts/bench-cpu" --help
  expect 1 'no program at' python3 "$top/scripts/bench-cpu" --dtrain "$work/nowhere"
fi

expect 64 "unknown option '--dat'" "$get" --dat
expect 64 'needs a folder' "$get" --data
expect 64 "unknown option '--epochs'" "$top/scripts/quickstart" --epochs
expect 66 'no train-images-idx3-ubyte' "$get" --data "$work/nowhere"
expect 66 'no train-images-idx3-ubyte' env DTRAIN_DATA="$work/nowhere" "$get" --no-install

# A folder that was named, or is in the usual place, is taken as it is; half of one is an error, not a reason to look elsewhere.
mkdir -p mine
for name in "${names[@]}"; do
  touch "mine/$name"
done
expect 0 "data: $work/mine (--data)" "$get" --data "$work/mine"
expect 0 "data: $work/mine (DTRAIN_DATA)" env DTRAIN_DATA="$work/mine" "$get"
mkdir data && mv mine data/mnist
expect 0 'data: data/mnist' "$get"
rm data/mnist/t10k-labels-idx1-ubyte
expect 66 'has no t10k-labels-idx1-ubyte' "$get"
rm -r data

# Mirrors that answer with a web page, with something else, or not at all: each said, none believed.
fashion=/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz
if command -v curl >/dev/null; then
  mkdir page wrong
  for name in "${names[@]}"; do
    printf '<!DOCTYPE html><html>Sign in</html>' >"page/$name.gz"
    printf 'not these' | gzip >"wrong/$name.gz"
  done
  export DTRAIN_MNIST_MIRRORS="file://$work/page file://$work/wrong file://$work/nowhere"
  if [[ -f $fashion ]]; then
    expect 0 'NOT the digits' "$get" --no-install
  else
    expect 69 'no data' "$get" --no-install
  fi
  grep -q 'train-images-idx3-ubyte.gz is an HTML page' out || fail "the web page was not recognised: $(cat out)"
  grep -q 'train-images-idx3-ubyte.gz has the wrong SHA-256' out || fail "the wrong file was not recognised: $(cat out)"
  [[ ! -e data/mnist ]] || fail 'a failed download left data/mnist behind'
  [[ -z $(find data -mindepth 1) ]] || fail "a failed download left files behind: $(find data)"
fi
printf 'scripts: ok\n'
