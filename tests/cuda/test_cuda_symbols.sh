#!/usr/bin/env bash
# The module exports one symbol and finds its others in the program, which loads it, and needs no driver to say that there is none.
# usage: DTRAIN=... test_cuda_symbols.sh libdtrain_cuda.so, in the source folder
set -euo pipefail
module=$1 program=$DTRAIN
failed() { echo "$*" >&2; exit 1; }

# The address sanitizer adds symbols; the linker exports its own three if a library does, such as NCCL 2.18.
shown=$(nm -D --defined-only "$module" | awk '$3 !~ /^(__odr_asan.*|__bss_start|_edata|_end)$/ { print $3 }')
[[ $shown == dt_device_module ]] || failed "$module shows these symbols:" $shown

missing=$(comm -23 <(nm -D --undefined-only "$module" | awk '$2 ~ /^dt_/ { print $2 }' | sort) \
  <(nm -D --defined-only "$program" | awk '{ print $3 }' | sort))
[[ -z $missing ]] || failed "$module needs symbols that $program does not export:" $missing

! readelf -d "$module" "$program" | grep 'NEEDED.*libcuda\.so' || failed 'a driver is needed to start'
! readelf -d "$program" | grep -E 'NEEDED.*(cublas|cudnn|nccl)' || failed "$program is linked with CUDA's libraries"

export DTRAIN_CUDA_MODULE=$module
version=$("$program" --version)
[[ $version == *'cuDNN 9.'*'devices   cpu, ref, cuda'* ]] || failed "$module is not loaded: $version"
if [[ $(ldconfig -p) != *libcuda.so.1* ]]; then
  code=0
  said=$("$program" --config configs/synthetic.json --set device=cuda 2>&1) || code=$?
  [[ $code == 69 && $said == *'there is no NVIDIA driver'* ]] || failed "without a driver: $code, $said"
fi
