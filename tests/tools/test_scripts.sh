#!/usr/bin/env bash
# The scripts that people run: clean by shellcheck, each explains itself, and get-data never takes the wrong data silently.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
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
  shellcheck -x -P scripts:. .ci/run scripts/{test,quickstart,get-data,lib.sh,dtrain.sbatch} packaging/completions/dtrain.bash tests/tools/test_{scripts,quickstart}.sh
  shellcheck -S error tests/*/*.sh
  cd "$work"
fi
for script in "$top"/scripts/*; do
  [[ ! -x $script || -d $script || $script == *.sbatch ]] || ! { command -v python3 >/dev/null || head -n 1 "$script" | grep bash >/dev/null; } ||
    expect 0 "${script##*/}" "$script" --help
done
if command -v python3 >/dev/null; then
  expect 1 'no program at' python3 "$top/scripts/chart-cpu" --dtrain "$work/nowhere"
  expect 1 'no program at' python3 "$top/scripts/bench-cpu" --dtrain "$work/nowhere"
  expect 1 "no folder $work/nowhere" python3 "$top/scripts/bench-cpu" --dtrain /bin/true --data "$work/nowhere"
  expect 2 'choose from cnn,isa' python3 "$top/scripts/bench-cpu" --groups cnn,gpu
fi

# A reader that ends early ends its writer by SIGPIPE, which `pipefail` takes for a failure: now and then, by chance.
piped=$(grep -d skip -nE '(^|[^|])[|] *(grep( -[a-zA-Z]*)* -[a-zA-Z]*[qm]|sed [^|]*[0-9]q)' "$top"/scripts/* "$top"/tests/*/*.sh \
  "$top"/.ci/run 2>/dev/null) && fail "a pipe into what may end before its writer: $piped"

# MPICH's launcher is found every time, also when it writes more after the word that tells it from others.
mkdir launcher
cat >launcher/mpirun.mpich <<'EOF'
#!/bin/sh
echo 'HYDRA build details:'
exec seq 60000
EOF
printf '#!/bin/sh\necho "mpirun (Open MPI) 4.1.4"\n' | tee launcher/mpiexec.hydra >launcher/mpirun
chmod +x launcher/*
searches() { # searches <how many>
  printf '. %q/scripts/lib.sh\nfor i in {1..%d}; do\n  find_mpirun || exit 9\ndone\n' "$top" "$1" >search
  PATH=$work/launcher:$PATH bash -euo pipefail search >found || return
  [[ $(sort -u found) == mpirun.mpich ]]
}
searches 100 || fail "after $(wc -l <found) searches no launcher was found"
cp launcher/mpiexec.hydra launcher/mpirun.mpich
! searches 1 || fail "a launcher that is not MPICH's was taken for it"

# The quickstart builds CUDA where there is a driver, where it was asked for, and where the build folder has it; else it does not.
mkdir built && touch driver
sets() { # sets <expected> <asked> <folder> <driver's file>
  [[ $(. "$top/scripts/lib.sh" && cuda_setting "${@:2}") == "$1" ]] || fail "cuda_setting ${*:2} is not $1"
}
sets OFF no built nowhere
sets AUTO no built driver
sets ON yes built nowhere
for was in AUTO:AUTO ON:AUTO OFF:OFF; do
  echo "DTRAIN_WITH_CUDA:STRING=${was%:*}" >built/CMakeCache.txt
  sets "${was#*:}" no built nowhere
done
sets AUTO no built driver # where there was none before

# A first build has this machine's kernels alone; a folder that has all of them keeps them.
for was in native:native all:all; do
  echo "DTRAIN_ISAS:STRING=${was%:*}" >built/CMakeCache.txt
  [[ $(. "$top/scripts/lib.sh" && isas_setting built) == "${was#*:}" ]] || fail "isas_setting: not ${was#*:}"
done
[[ $(. "$top/scripts/lib.sh" && isas_setting nowhere) == native ]] || fail 'isas_setting of a new folder is not native'

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
# A data set by its name: from its own folder, whole or not at all, and never another one.
expect 64 "no data set 'cifar' is known (mnist, fashion, kmnist, cifar10)" "$get" cifar
expect 64 'one data set at a time, not kmnist and mnist' "$get" kmnist mnist
expect 64 "a folder or a name: --data here and mnist are two" "$get" --data here mnist
if command -v curl >/dev/null; then
  mkdir -p archive/cifar-10-batches-bin
  printf 'not these' >archive/cifar-10-batches-bin/test_batch.bin
  tar -czf archive/cifar-10-binary.tar.gz -C archive cifar-10-batches-bin
  expect 69 'CIFAR-10 could not be downloaded (put its files into data/cifar10)' env DTRAIN_CIFAR10_MIRRORS="file://$work/archive" "$get" --no-install cifar10
  grep -q 'cifar-10-binary.tar.gz has the wrong SHA-256' out || fail "a wrong archive was not recognised: $(cat out)"
  expect 69 'KMNIST could not be downloaded' env DTRAIN_KMNIST_MIRRORS="file://$work/page" "$get" --no-install kmnist
  [[ -z $(find data -mindepth 1) ]] || fail "a failed download left files behind: $(find data)"
fi
mkdir -p data/cifar10
touch data/cifar10/data_batch_{1..5}.bin
expect 66 'data/cifar10 has no test_batch.bin' "$get" cifar10
touch data/cifar10/test_batch.bin.gz
expect 0 'data: CIFAR-10 in data/cifar10' "$get" cifar10
[[ ! -f $fashion ]] || expect 0 "data: Fashion-MNIST from Debian's package" "$get" fashion
rm -r data

# The batch script goes back into the queue after 75 and nothing else, unless the cluster does that or the job was back often enough.
mkdir slurm
cat >slurm/srun <<'EOF'
#!/bin/sh
echo "srun $*"
exit "$SRUN_CODE"
EOF
cat >slurm/scontrol <<'EOF'
#!/bin/sh
if [ "$1" = show ]; then echo "RequeueExit             = $REQUEUE_EXIT"; else echo "scontrol $*"; fi
EOF
chmod +x slurm/srun slurm/scontrol
batch() { # batch <exit code> <text> <exit code of srun> <variable>...
  local want=$1 text=$2 code=$3
  shift 3
  expect "$want" "$text" env PATH="$work/slurm:$PATH" SLURM_JOB_NAME=job SLURM_JOB_ID=7 SRUN_CODE="$code" REQUEUE_EXIT='(null)' "$@" \
    bash "$top/scripts/dtrain.sbatch"
}
requeued() { grep -q '^scontrol requeue 7$' out; }
batch 0 '--config configs/mnist.json --run runs/job-7 --resume' 0
batch 66 'srun' 66
! requeued || fail "an error is put back into the queue: $(cat out)"
batch 75 'scontrol requeue 7' 75
batch 75 'restart 50 of at most 50' 75 SLURM_RESTART_COUNT=49
batch 75 'srun' 75 REQUEUE_EXIT=74,75
! requeued || fail "put back into the queue twice: $(cat out)"
for cluster in '(null)' 75; do
  batch 1 'after 50 restarts: not put back' 75 SLURM_RESTART_COUNT=50 REQUEUE_EXIT="$cluster"
  ! requeued || fail "put back into the queue forever: $(cat out)"
done
batch 75 'scontrol requeue 7' 75 SLURM_RESTART_COUNT=2 DTRAIN_MAX_REQUEUES=3
batch 1 'not put back' 75 SLURM_RESTART_COUNT=3 DTRAIN_MAX_REQUEUES=3
batch 66 'srun' 66 SLURM_RESTART_COUNT=50

# A node dies: the job resumes on those that answer, and when these refuse, it is put back into the queue for all.
cat >slurm/srun <<'EOF'
#!/usr/bin/env bash
echo "srun $*"
if [[ ${!#} == true ]]; then # node by node
  [[ " $(cat "$SEEN/dead") " != *" ${4#--nodelist=} "* ]]
  exit
fi
read -r code dead <<<"$(head -n 1 "$SEEN/starts")" # how this start ends, and which nodes are dead then
sed -i 1d "$SEEN/starts"
echo "${dead-}" >"$SEEN/dead"
exit "$code"
EOF
cat >slurm/scontrol <<'EOF'
#!/bin/sh
case "$*" in
'show hostnames n[1-3]') printf 'n1\nn2\nn3\n' ;;
'show hostnames n1') printf 'n1\n' ;;
'show config') echo 'RequeueExit             = (null)' ;;
*) echo "scontrol $*" ;;
esac
EOF
nodes='n[1-3]'
starts() { # starts <exit code> <text> <line of slurm/srun's starts>...
  local want=$1 text=$2
  printf '%s\n' "${@:3}" >"$work/starts"
  batch "$want" "$text" 0 SEEN="$work" SLURM_JOB_NODELIST="$nodes" SLURM_NTASKS_PER_NODE=2
}
is_starts() { # is_starts <nodes of a start>...: '' for those of the job
  local got=() line
  while read -r line; do
    got+=("$(sed -n 's/.*--nodes=\([0-9]*\) --ntasks=\([0-9]*\) --nodelist=\([^ ]*\) .*/\1 \2 \3/p' <<<"$line")")
  done < <(grep '^srun --mpi' out)
  [[ "$(printf '<%s>' "${got[@]}")" == "$(printf '<%s>' "$@")" ]] || fail "starts on $(printf '<%s>' "${got[@]}"), expected $(printf '<%s>' "$@")"
}
starts 0 '2 of 3 nodes answer: resuming on n1,n3' '137 n2' 0
is_starts '' '2 4 n1,n3'
starts 75 'scontrol requeue 7' '1 n2' '76 n2 n3' 75
is_starts '' '2 4 n1,n3' '1 2 n1'
starts 75 'scontrol requeue 7' '137 n3' 78
is_starts '' '2 4 n1,n2'
starts 78 'srun' '78 n3'
is_starts ''
starts 137 'srun' 137 0 # all answer
is_starts ''
! requeued || fail "an error is put back into the queue: $(cat out)"
starts 137 'srun' '137 n1 n2 n3' 0
is_starts ''
nodes=n1
starts 76 'srun' '76 n1' 0
is_starts ''
! grep -q 'true$' out || fail "the only node is asked: $(cat out)"
printf 'scripts: ok\n'
