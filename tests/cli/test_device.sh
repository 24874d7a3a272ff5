#!/usr/bin/env bash
# How the ranks choose a device together and what sums their gradients, with a module that needs no GPU (fake_module.c).
# usage: DTRAIN=... MPIEXEC=... test_device.sh MODULE MODULE_OF_ANOTHER_VERSION MODULE_THAT_LACKS_A_LIBRARY LIBRARY
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
module=$1 old_module=$2 far_module=$3 far_library=$4
config=(--config "$configs/synthetic.json" --set train.epochs=1 --set data.train_samples=640 --set model.layers.0.filters=96)
unset FAKE_GPUS DTRAIN_CUDA_MODULE

gpus() { # gpus CODE WORDS RANKS ARGUMENT...: as run, with these GPUs
  FAKE_GPUS=$2 DTRAIN_CUDA_MODULE=$module run "$1" "${@:3}"
}
refused() { # refused WHAT PATTERN: this is the one line
  is "$1: lines of errors" 1 "$(grep -c . err)"
  says "$1" "dtrain: $2"
}

# The CPU, asked for: nothing is said of GPUs, and the module is not touched.
DTRAIN_CUDA_MODULE=/none run 0 2 "${config[@]}" --run cpu --set device=cpu
is 'device cpu' 0 "$(grep -c 'device:' err)"
run 0 2 "${config[@]}" --run still --set device=cpu --set cuda.deterministic=true
check 'cuda.deterministic, without a GPU: the same weights' same_weights {cpu,still}/checkpoints/step-000000000010.safetensors
run 0 2 "${config[@]}" --run auto
is 'device auto' 0 "$(grep -c idle err)"

# Without a driver.
if [[ $(ldconfig -p 2>/dev/null) == *libcuda.so.1* ]]; then
  echo 'skipped: this host has a driver; what is said without one'
else
  says 'no driver' '  device: cpu, because there is no NVIDIA driver on this host'
  run 69 2 "${config[@]}" --run refused --set device=cuda
  refused 'no driver, cuda' 'device "cuda" needs a GPU for every rank \(without one use "device": "cpu"\): there is no NVIDIA driver on this host'
  check 'no driver, cuda: a run folder is left' test ! -e refused
  "$DTRAIN" --version >version
  says 'no driver, version' '  GPU       there is no NVIDIA driver on this host' version
  says 'no driver, version: devices' '  devices   cpu, ref' version
fi

# A program with more rights than its caller loads no code that the caller names.
if [[ $EUID -ne 0 || $(findmnt -no OPTIONS -T "$work") == *nosuid* ]]; then
  echo 'skipped: no root, or no setuid here; a module named to a setuid program'
else
  cp "$DTRAIN" setuid && chown 65534 setuid && chmod 4755 setuid
  DTRAIN_CUDA_MODULE=$module ./setuid --version >version
  says 'setuid' '  GPU       DTRAIN_CUDA_MODULE names code for a program that has more rights than its caller \(unset it\)' version
fi

# Every rank has a GPU of its own: NCCL. The fake ones count as the CPU does, so the weights are the same to the bit.
gpus 0 'aaaaaaaa bbbbbbbb' 2 "${config[@]}" --run own
says 'own GPUs: first row' ' +0 +[^ ]+ +0  cuda Fake GPU, f32, aaaaaaaa +.*'
says 'own GPUs: second row' ' +1 +[^ ]+ +1  cuda Fake GPU, f32, bbbbbbbb +.*'
says 'own GPUs: memory' 'peak memory per rank: [0-9.]+ MB; on its GPU 1\.24 GB of 139 GB, 137 GB left'
says 'own GPUs: NCCL' '  allreduce of gradients: [0-9]+ buckets?, nccl'
is 'own GPUs: no excuse' 0 "$(grep -c 'device:' err)"
check 'own GPUs: the weights of the CPU run' cmp "$(newest_checkpoint auto)" "$(newest_checkpoint own)"
gpus 0 'aaaaaaaa bbbbbbbb' 2 "${config[@]}" --run mpi --set distributed.allreduce=mpi
says 'own GPUs, mpi: staged' '  allreduce of gradients: [0-9]+ buckets?, staged'
gpus 0 'aaaaaaaa bbbbbbbb' 2 "${config[@]}" --run fp16 --set distributed.compression.type=fp16
says 'own GPUs, fp16: staged' '  allreduce of gradients: [0-9]+ buckets?, staged, because gradients are sent as fp16'

# Shared by ranks: through host memory, and NCCL is refused.
gpus 0 'aaaaaaaa' 2 "${config[@]}" --run shared
says 'shared GPU: staged' '  allreduce of gradients: [0-9]+ buckets?, staged, because ranks 0 and 1 share GPU-aaaaaaaa-0000'
check 'shared GPU: the weights of the CPU run' cmp "$(newest_checkpoint auto)" "$(newest_checkpoint shared)"
gpus 69 'aaaaaaaa bbbbbbbb aaaaaaaa' 3 "${config[@]}" --run refused --set distributed.allreduce=nccl
refused 'shared GPU, nccl' 'allreduce "nccl" needs a GPU of its own for every rank \(.*"allreduce": "auto"\): ranks 0 and 2 share GPU-aaaaaaaa-0000'

# Alone: no communicator, except where NCCL is asked for.
gpus 0 'aaaaaaaa' 1 "${config[@]}" --run alone
is 'alone' 0 "$(grep -c 'averaged' err)"
gpus 0 'aaaaaaaa' 1 "${config[@]}" --run alone_nccl --set distributed.allreduce=nccl

# What GPUs do not do.
for changes in '[{"flip": "horizontal"}, {"rotate": 5}]' '[{"cutout": 5}]'; do
  gpus 69 'aaaaaaaa bbbbbbbb' 2 "${config[@]}" --run refused --set "data.augment=$changes"
  refused "$changes" 'data.augment: rotate and cutout: not on GPUs \(use "device": "cpu"\)'
done
gpus 69 'aaaaaaaa bbbbbbbb' 2 "${config[@]}" --run refused --set 'train.class_weights=balanced'
refused 'class weights' 'train.class_weights: not on GPUs \(use "device": "cpu"\)'
gpus 0 '- -' 2 "${config[@]}" --run cut --set "data.augment=$changes"
FAKE_GPUS=aaaaaaaa DTRAIN_CUDA_MODULE=$module "$DTRAIN" eval cut >out 2>err
is 'eval on a GPU, trained with cutout' 0 $?

# One of them has none: all use the CPU, or nobody begins.
gpus 0 'aaaaaaaa -' 2 "${config[@]}" --run mixed
is 'one without' 2 "$(grep -c '  cpu ' err)"
says 'one without' '  device: cpu, because rank 1 on [^ ]+ has no GPU: no GPU is visible \(the test wants it so\)'
says 'one without, at the end' 'warning: the GPUs were idle, because rank 1 on [^ ]+ has no GPU: no GPU is visible \(the test wants it so\)'
check 'one without: the weights of the CPU run' cmp "$(newest_checkpoint auto)" "$(newest_checkpoint mixed)"
gpus 69 'aaaaaaaa -' 2 "${config[@]}" --run refused --set device=cuda
refused 'one without, cuda' 'device "cuda" needs .*: rank 1 on [^ ]+ has no GPU: no GPU is visible \(the test wants it so\)'
gpus 69 '-' 2 "${config[@]}" --run refused --set distributed.allreduce=nccl
refused 'all without, nccl' 'allreduce "nccl" needs a GPU for every rank \(.*\): no GPU is visible \(the test wants it so\)'
gpus 69 'aaaaaaaa bbbbbbbb' 2 "${config[@]}" --run refused --set distributed.allreduce=nccl --set device=ref
refused 'nccl on the CPU' 'allreduce "nccl" needs .*: the device is "ref"'

# Modules that are none.
: >empty.so
DTRAIN_CUDA_MODULE=$work/empty.so run 0 2 "${config[@]}" --run broken
says 'no module, auto' '  device: cpu, because the CUDA module does not load: .*empty\.so: .*'
DTRAIN_CUDA_MODULE=$work/none.so run 69 1 "${config[@]}" --run refused --set device=cuda
refused 'a module that is not there' 'device "cuda" needs .*: the CUDA module does not load: .*none\.so: .*'
library=$(ldd "$DTRAIN" | awk '/libz\.so/ { print $3 }')
DTRAIN_CUDA_MODULE=$library run 69 1 "${config[@]}" --run refused --set device=cuda
refused 'another library' "device \"cuda\" needs .*: $library is not dtrain's CUDA module"
FAKE_GPUS=aaaaaaaa DTRAIN_CUDA_MODULE=$old_module run 69 2 "${config[@]}" --run refused --set device=cuda
refused 'another version' 'device "cuda" needs .*: .* has version 0 of the interface, this program [0-9]+ \(install both from one build\)'
# A library of the module's that only a Python package has: of an environment in use, on the PATH, or nowhere.
packages=venv/lib/python3.12/site-packages/nvidia/far/lib
mkdir -p venv/bin $packages && cp "$far_library" $packages
DTRAIN_CUDA_MODULE=$far_module "$DTRAIN" --version >version
says 'a library that is missing' "  GPU       the CUDA module does not load: $(basename "$far_library"): cannot open shared object file: .*" version
says 'where it was searched' "  searched  LD_LIBRARY_PATH, the module's folders, .*Python's packages.*" version
for way in "VIRTUAL_ENV=$work/venv" "PATH=$work/venv/bin:$PATH"; do
  env "$way" DTRAIN_CUDA_MODULE="$far_module" "$DTRAIN" --version >version
  says "a library of a Python package, by ${way%%=*}" '  GPU       fake CUDA' version
done

DTRAIN_CUDA_MODULE=$module "$DTRAIN" --version >version
says 'version' '  GPU       fake CUDA' version
says 'version: devices' '  devices   cpu, ref, cuda' version

# Precisions are a GPU's, but for bf16 on CPUs with AMX: test_bf16.sh.
gpus 69 '-' 2 "${config[@]}" --run refused --set precision=tf32
refused 'tf32 without a GPU' 'precision "tf32" needs a GPU for every rank \(.*"f32"\): no GPU is visible \(the test wants it so\)'
gpus 69 'aaaaaaaa bbbbbbbb' 2 "${config[@]}" --run refused --set device=cpu --set precision=tf32
refused 'tf32 on the CPU' 'precision "tf32" needs .*: the device is "cpu"'
gpus 69 '-' 2 "${config[@]}" --run refused --set precision=bf16 --set device=ref
refused 'bf16 on ref' 'the ref backend computes in f32 alone \(use "precision": "f32", or a GPU\)'
gpus 0 'aaaaaaaa bbbbbbbb' 2 "${config[@]}" --run half --set precision=bf16 --set device=cuda --set train.max_steps=7
says 'bf16: roster' ' +1 +[^ ]+ +1  cuda Fake GPU, bf16, bbbbbbbb +.*'

# A checkpoint of one device is good on any other: resuming, measuring, classifying.
half=$(newest_checkpoint half)
run 0 2 "${config[@]}" --run half --resume --set device=cpu --set distributed.allreduce=mpi --set threads=2
says 'resumed on the CPU: the precision' '  changed since then: .*precision was "bf16", now it is "f32".*'
run 0 2 "${config[@]}" --run half --resume --set device=cpu
is 'resumed as it was' 0 "$(grep -c 'precision' err)"
run 0 2 "${config[@]}" --run whole --set device=cpu
check 'resumed on the CPU: the weights of a run without a break' same_weights half whole
gpus 0 '-' 2 eval "$half"
says 'eval without a GPU' 'device: cpu, because no GPU is visible \(the test wants it so\)'
cp out expected
gpus 0 'aaaaaaaa' 2 eval "$half"
is 'eval on a GPU' 0 "$(grep -c 'device:' err)"
check 'eval on a GPU: the same result' cmp expected out
images=("$tests"/corpus/png/{grey,rgb,wide})
gpus 0 '-' 1 predict "$half" "${images[@]}"
cp out expected
gpus 0 'aaaaaaaa' 2 predict "$half" "${images[@]}"
check 'predict on a GPU: the same result' cmp expected out

finish
