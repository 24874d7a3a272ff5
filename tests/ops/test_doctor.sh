#!/usr/bin/env bash
# dtrain doctor as its users see it: rows and verdicts, folders that are not there, and nothing left behind.
# usage: DTRAIN=... MPIEXEC=... test_doctor.sh MODULE NVML: fake_module.c, fake_nvml.c
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"

doctor() { run "$1" "$2" doctor "${@:3}"; } # doctor CODE RANKS ARGUMENT...
finds() { # finds CHECK VERDICT TEXT
  check "$1: not $2: $3" grep -qE "^$2 +${1/_/ } +.*$3" out
}
verdict() { awk -v name="$1" 'index($0, name) == 10 {print $1}' out; }

doctor 0 2 --config "$configs/synthetic.json" --run runs/night
check 'a row for each rank' test "$(grep -cE '^ +[01]  ' out)" -eq 2
check 'the sum of the verdicts' test "$(grep -cE '^(ok|-|warning) ' out)" -eq "$(awk '/ problems$/ {print $1 + $3 + $6 + $8}' out)"
check 'the launcher' grep -qE '^ok +versions +dtrain .* on MPICH .*, started by mpirun$' out
check 'the data of the configuration' test "$(verdict data)" = ok
check 'the folder of runs' test "$(verdict runs)" = ok
check 'something is left behind' test -z "$(find . -name '.tmp-*')" -a ! -e runs
check 'wider than 100 columns' test "$(grep -c '.\{101\}' out)" -eq 0

doctor 69 2 --config "$configs/mnist.json" --data nowhere
check 'no data: the verdict' test "$(verdict data)" = problem
check 'no data: the line' grep -qx 'dtrain: doctor: 1 of 17 checks found a problem (each says above how to mend it)' err
check 'no data: one line' test "$(wc -l <err)" -eq 1

doctor 69 1 --run /proc/none
check 'no place for runs: the verdict' test "$(verdict runs)" = problem
finds data - 'not checked \(give --config\)$'
finds environment - 'one rank'
check 'what is not checked is not ok' grep -qE '^[0-9]+ ok, [4-9] not checked, ' out

(ulimit -n 200 && doctor 69 1)
check 'few files' test "$(verdict limits)" = problem

dtrain 5 doctor
check 'more ranks than cores are no problem' test "$got" -eq 0 -o "$(nproc)" -gt 4
check 'more ranks than cores' test "$(verdict cores)" = warning -o "$(nproc)" -gt 4

# Doctor and runs warn of a file in the current folder that configures UCX.
touch ucx.conf
doctor 0 1
finds environment warning 'UCX obeys ./ucx.conf in the working folder of rank 0'
run 0 2 --config "$configs/synthetic.json" --run conf --set train.max_steps=1
check 'a run does not warn of ucx.conf' test "$(grep -c '^dtrain: warning: UCX obeys ./ucx.conf, ' err)" -eq 1
rm ucx.conf

doctor 66 1 --config nowhere.json

# GPUs, with fakes of CUDA's module and of NVIDIA's management library.
mkdir lib && cp "$2" lib/libnvidia-ml.so.1
gpus() { # gpus CODE "ECC THROTTLE NVLINKS LANES MIG": two ranks, a GPU each
  FAKE_NVML=$2 LD_LIBRARY_PATH=$work/lib DTRAIN_CUDA_MODULE=$module FAKE_GPUS='aaaaaaaa bbbbbbbb' doctor "$1" 2
}
module=$1
gpus 0 '0 1 12 16 0'
finds gpu_health ok 'driver 580.1; no ECC errors, no throttling$'
finds gpu_links ok '12 NVLinks, PCIe 4 x16$'
gpus 69 '2 1 0 16 0'
finds gpu_health problem 'rank 0 \(.*\): 2 ECC errors of GPU-aaaaaaaa-0000 were not corrected$'
finds gpu_links ok 'no NVLink: PCIe 4 x16$'
gpus 0 '0 28 12 8 0'
finds gpu_health warning 'hardware slowdown slows GPU-aaaaaaaa-0000 down$'
finds gpu_links warning 'GPU-aaaaaaaa-0000 has 8 of 16 PCIe lanes$'
gpus 0 '0 0 12 16 1'
finds gpu_health warning 'GPU-aaaaaaaa-0000 is in MIG mode'
FAKE_NVML='0 0 0 16 0' LD_LIBRARY_PATH=$work/lib FAKE_GPUS='-' DTRAIN_CUDA_MODULE=$module doctor 0 1
finds gpus warning 'has 2, which no rank uses: '
echo broken >lib/libnvidia-ml.so.1
gpus 0 ''
finds gpu_health - 'not checked: '
finish
