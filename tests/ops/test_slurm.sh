#!/usr/bin/env bash
# `dtrain slurm` on a double of Slurm: the script it writes runs the job that was asked for, and Slurm is asked about that script.
# usage: DTRAIN=... MPIEXEC=... test_slurm.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
set -e
unset DTRAIN # the batch script would take it
dtrain=$program template=$tests/../scripts/dtrain.sbatch
mkdir "$work/slurm" "$work/empty"
cp "$configs/mnist.json" job.json

cat >slurm/sbatch <<'END'
#!/bin/sh
echo "$*" >"$SEEN/options"
cat >"$SEEN/script"
echo 'sbatch: Job 12 to start at noon'
exit "${SBATCH_CODE:-0}"
END
cat >slurm/srun <<'END'
#!/usr/bin/env bash
printf '<%s>' "$@"
END
chmod +x slurm/sbatch slurm/srun
export SEEN=$work
write() { # write <exit code> <option>...
  local want=$1 got=0
  shift
  PATH=$work/slurm:$PATH "$dtrain" slurm --config job.json "$@" >out 2>err || got=$?
  [[ $got -eq $want ]] || fail "slurm $* ended with $got, expected $want: $(cat err)"
}
refused() { # refused <exit code> <text> <option>...
  local text=$2
  write "$1" "${@:3}"
  [[ ! -s out && $(wc -l <err) -eq 1 && $(cat err) == "dtrain: $text"* ]] || fail "slurm ${*:3}, not '$text' but: $(cat err)"
}
run() { # run <words of srun>: what the script in out does
  local got
  got=$(PATH=$work/slurm:$PATH SLURM_JOB_NAME=job SLURM_JOB_ID=7 SLURM_CPUS_PER_TASK=2 bash out more)
  [[ $got == "$1" ]] || fail "the script runs $got, expected $1"
}

# Nothing is said: the script of the repository, with the configuration's name and arithmetic.
write 0
diff <(grep -v '^# 4 ranks' out | sed 's/job-name=job/job-name=dtrain/; s/:-job.json/:-configs\/mnist.json/') "$template" ||
  fail 'the defaults are not those of scripts/dtrain.sbatch'
grep -qFx '# 4 ranks: 512 samples a step, learning rate 0.004' out || fail "no arithmetic: $(cat out)"
run '<--mpi=pmi2><-K1><--cpus-per-task=2><dtrain><--config><job.json><--run><runs/job-7><--resume><more>'
[[ $(cat options) == --test-only ]] || fail "sbatch was asked with '$(cat options)'"
cmp out script || fail 'sbatch was asked about another script'
[[ $(cat err) == 'sbatch: Job 12 to start at noon' ]] || fail "what sbatch says is lost: $(cat err)"

# The code of a rank that failed alone is that of the job, whatever srun makes of it; of an earlier start it is not.
ends() { # ends <expected code> <srun's code> [<code in status.json>]
  local got=0
  mkdir -p runs/job-7
  printf '{\n\t"exit_code":\t65\n}\n' >runs/job-7/status.json
  printf '#!/bin/sh\n%s\nexit %s\n' "${3:+printf '{\\n\\t\"exit_code\":\\t$3,\\n\\t\"rank\":\\t1\\n}\\n' >runs/job-7/status.json}" "$2" >slurm/srun
  PATH=$work/slurm:$PATH SLURM_JOB_NAME=job SLURM_JOB_ID=7 DTRAIN_MAX_REQUEUES=0 bash "$template" >text 2>&1 || got=$?
  [[ $got -eq $1 ]] || fail "srun ends with $2 and status.json has '${3:-}': the script ends with $got, expected $1: $(cat text)"
}
cp slurm/srun srun.words
ends 71 137 71
ends 137 137
ends 137 137 0
ends 74 74 0
ends 71 143 71
ends 0 0 0
ends 1 137 75 # stopped with a checkpoint, and no requeue is left
grep -q 'after 0 restarts: not put back' text || fail "a saved run is not seen: $(cat text)"
mv srun.words slurm/srun

# All is said.
mv job.json "it's a job.json"
cp "it's a job.json" job.json
write 0 --nodes 3 --ntasks-per-node 2 --cpus-per-task 5 --gpus-per-node 4 --time 1-02:03:04 --partition gpu,big --account me@here \
  --data "d'1" --run 'my runs' --set train.epochs=2 --set 'train.batch={"global":600}'
for line in nodes=3 ntasks-per-node=2 cpus-per-task=5 gpus-per-node=4 time=1-02:03:04 partition=gpu,big account=me@here signal=USR1@180; do
  grep -qFx -- "#SBATCH --$line" out || fail "no $line: $(cat out)"
done
grep -qFx '# 6 ranks: 600 samples a step, learning rate 0.001' out || fail "no arithmetic of one batch: $(cat out)"
run "<--mpi=pmi2><-K1><--cpus-per-task=2><dtrain><--config><job.json><--run><my runs><--resume>""\
<--set><device=cuda><--set><train.epochs=2><--set><train.batch={\"global\":600}><--data><d'1><more>"
if command -v shellcheck >/dev/null; then
  shellcheck out
fi
mv "it's a job.json" job.json
write 0 --gpus-per-node 8
grep -qFx -- '#SBATCH --ntasks-per-node=8' out || fail 'not a rank for each GPU'

# A file, which Slurm refuses: it is written all the same. It is never overwritten.
SBATCH_CODE=1 write 69 --script mine.sbatch
grep -q 'sbatch --test-only refuses the script' err || fail "the refusal is not told: $(cat err)"
cmp mine.sbatch script || fail 'the file is another script'
echo changed >>mine.sbatch
refused 73 'mine.sbatch: exists already' --script mine.sbatch
[[ $(tail -1 mine.sbatch) == changed ]] || fail 'a file was overwritten'
refused 73 'none/: ' --script none/x
PATH=$work/empty "$dtrain" slurm --config job.json >out 2>err
[[ $(cat err) == 'not checked: no sbatch here' ]] || fail "without Slurm: $(cat err)"

refused 64 "--time: expected [D-]HH:MM:SS, got '90'" --time 90
refused 64 "--time: expected [D-]HH:MM:SS, got '00:99:00'" --time 00:99:00
refused 64 "--time: expected [D-]HH:MM:SS, got '1:2:3 '" --time '1:2:3 '
refused 64 '--time 00:03:00: the ranks save a checkpoint 180 s before' --time 00:03:00
refused 64 '--nodes: expected a whole number' --nodes 0
refused 64 '--partition: expected letters' --partition $'a\n#SBATCH --exclusive'
refused 64 '4 ranks on a node share 2 GPUs' --gpus-per-node 2 --ntasks-per-node 4
refused 64 'job.json: device is cuda, and the job asks for no GPU' --set device=cuda
refused 78 'distributed.parameter_server.servers: 1 server of 1 rank leave no worker' --set distributed.strategy=parameter_server --ntasks-per-node 1
refused 64 '--set: train.epoch: unknown key' --set train.epoch=1
refused 64 '--junit does not belong to slurm' --junit x
finish
