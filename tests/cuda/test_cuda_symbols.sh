#!/usr/bin/env bash
# test_cuda_symbols.sh <libdtrain_cuda.so> <dtrain>: the module exports one symbol, finds its others in the program, and needs no driver.
set -euo pipefail
module=$1 program=$2
failed() { echo "$*" >&2; exit 1; }

# The address sanitizer adds symbols; the linker exports its own three if a library does, such as NCCL 2.18.
shown=$(nm -D --defined-only "$module" | awk '$3 !~ /^(__odr_asan.*|__bss_start|_edata|_end)$/ { print $3 }')
[[ $shown == dt_device_module ]] || failed "$module shows these symbols:" $shown

missing=$(comm -23 <(nm -D --undefined-only "$module" | awk '$2 ~ /^dt_/ { print $2 }' | sort) \
  <(nm -D --defined-only "$program" | awk '{ print $3 }' | sort))
[[ -z $missing ]] || failed "$module needs symbols that $program does not export:" $missing

! readelf -d "$module" "$program" | grep 'NEEDED.*libcuda\.so' || failed 'a driver is needed to start'
! readelf -d "$program" | grep -E 'NEEDED.*(cublas|cudnn|nccl)' || failed "$program is linked with CUDA's libraries"
