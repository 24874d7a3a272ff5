#!/usr/bin/env bash
# The sources of base, model and cpu compile without a warning for another processor, aarch64, and there, under an emulator, the vector
# kernels agree with the reference backend. Needs Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static.
# Usage: test_aarch64.sh <source folder>
set -euo pipefail
cd "$1"
cc=aarch64-linux-gnu-gcc emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
command -v "$cc" >/dev/null || { echo "skipped: no compiler for aarch64 ($cc)"; exit 77; }
[[ -n $emulator ]] || { echo 'skipped: no emulator of aarch64 (qemu-user-static)'; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

flags=(-std=gnu11 -D_GNU_SOURCE -DDT_EMULATED -O2 -ffunction-sections -Wall -Wextra -Werror -I. -fno-math-errno -fno-trapping-math)
compile() { # compile <source> [options]
  local object=$folder/${1//\//_}.o
  "$cc" "${flags[@]}" -c "$1" -o "$object" "${@:2}"
  objects+=("$object")
}
objects=()
for source in cpu/kernels/*.c cpu/kernels/winograd/*.c cpu/layers/*.c; do
  [[ $source != *_amx.c ]] || continue # of another processor's units
  compile "$source" -DDT_CPU_ISA=baseline -DDT_CPU_ISA_NAME='"baseline"' -ffp-contract=fast
done
for source in cpu/*.c cpu/reference/*.c base/{clock,memory,status}.c model/{describe,init,lower,network,optimizer,stages}.c model/layers/*.c; do
  compile "$source"
done
aarch64-linux-gnu-ar rcs "$folder/all.a" "${objects[@]}"
for test in test_cpu_threads test_gradients test_dense_match test_winograd test_winograd_blank; do
  "$cc" "${flags[@]}" -static -Wl,--gc-sections "tests/unit/cpu/$test.c" "$folder/all.a" -o "$folder/$test" -lm -pthread
  "$emulator" "$folder/$test"
done
