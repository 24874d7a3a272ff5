#!/usr/bin/env bash
# The README's first command, in a copy of the sources with no build, data or network: it builds, says that it takes the substitute
# data, trains, prints what the README shows, and the commands that it proposes work as printed. usage: test_quickstart.sh BUILD_DIR, with objects to take (reuse.sh)
set -euo pipefail
build=$(realpath "$1")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
fashion=/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz
if [[ ! -f $fashion ]]; then
  echo "skipped: needs Debian's package dataset-fashion-mnist"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$top" && tar -c --exclude=./build* --exclude=./runs --exclude=./data/mnist --exclude=./.git .) | tar -x -C "$work"
cd "$work"

fail() {
  printf 'test_quickstart: %s\n' "$*" >&2
  cat log >&2
  exit 1
}

unset DTRAIN_DATA
export DTRAIN_MNIST_MIRRORS=file:///nowhere
export REUSE_COPY=$work REUSE_BUILD=$build REUSE_LIST=$work/commands
export CMAKE_C_COMPILER_LAUNCHER=$top/tests/lib/reuse.sh CMAKE_CUDA_COMPILER_LAUNCHER=$top/tests/lib/reuse.sh
"$top/tests/lib/reuse.sh" --list "$top" "$build" "$REUSE_LIST"
./scripts/quickstart --no-install -- --set data.train_samples=2560 >result 2>log </dev/null || fail "ended with $?"
grep -q '^test accuracy .* after 1 epoch$' result || fail "the last line is no result: $(cat result)"
cat log result >both
python3 tests/lib/python/shown.py README.md ./scripts/quickstart both || fail 'the README shows another output'
if [[ ! -e /dev/nvidiactl ]]; then
  grep -q '^no NVIDIA driver here .*: built without CUDA' log || fail 'it was not said that CUDA is left out'
  grep -q '^DTRAIN_WITH_CUDA:STRING=OFF$' build/release/CMakeCache.txt || fail 'CUDA is built where no driver is'
fi
grep -q '^a first build: kernels of this processor alone' log || fail 'it was not said that kernels are left out'
grep -q '^DTRAIN_ISAS:STRING=native$' build/release/CMakeCache.txt || fail "kernels of other processors are built"
grep -q 'NOT the digits' log || fail 'the substitute data was not announced'
grep -q '^\$ .* -np 2 build/release/dtrain --config configs/mnist.json' log || fail 'the command was not shown'

n_commands=0
while read -r command; do
  case $command in
    'open in a browser: '*) command="grep -q '</html>' ${command#*: }" ;;
    *' -np 4 '*) command+=' --set train.max_steps=2' ;;
  esac
  bash -c "$command" >>result 2>>log </dev/null || fail "proposed but does not work: $command"
  n_commands=$((n_commands + 1))
done < <(sed -n '/^Try next:/,$s/^  //p' log)
[[ $n_commands -eq 4 ]] || fail "$n_commands commands proposed, expected 4"

# The program built then can be installed, and runs from there; the module, where the CUDA toolkit is, also without a driver.
{ cmake --preset release && cmake --build --preset release --target dtrain; } >>log 2>&1 || fail 'what the quickstart left cannot be built on'
cmake --install build/release --prefix prefix >>log 2>&1 || fail 'what the quickstart built cannot be installed'
prefix/bin/dtrain plan --config prefix/share/dtrain/configs/mnist.json >>result 2>>log || fail 'the installed program does not run'
if [[ -e prefix/lib/dtrain/libdtrain_cuda.so ]]; then
  DTRAIN_CUDA_MODULE=$PWD/prefix/lib/dtrain/libdtrain_cuda.so prefix/bin/dtrain --version >version 2>>log || fail 'no --version'
  grep -q 'NCCL [0-9]' version || fail "the installed module does not load: $(cat version)"
fi
printf 'quickstart: ok\n'
