#!/usr/bin/env bash
# scripts/dtrain.sbatch under a Slurm of its own, with one node: a job whose time is up saves, is requeued, resumes and ends with the weights
# of a run that nothing interrupted; scancel saves; a killed rank and a stalled one (76, from status.json), an agreed error and a step without pmi2 end as
# docs/operating.md says. Slurm lets a requeued job wait for two minutes.
# usage, as root: DTRAIN=... MPIEXEC=... test_real_slurm.sh
# shellcheck disable=SC2317 # functions that wait_for calls
PATH=$PATH:/usr/sbin
for program in slurmctld slurmd munged sbatch srun scontrol; do
  command -v $program >/dev/null || { echo "skipped: no $program (apt-get install slurm-wlm munge)"; exit 77; }
done
[[ $(id -u) == 0 ]] || { echo 'skipped: slurmd wants to be root'; exit 77; }
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
unset "${!SLURM_@}" "${!SBATCH_@}"
daemons=()

stop_slurm() {
  local pid end
  [[ -z ${SLURM_CONF:-} ]] || timeout 10 scancel --full --signal=KILL --me 2>/dev/null
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null; done
  end=$((SECONDS + 10))
  for pid in "${daemons[@]}"; do
    while kill -0 "$pid" 2>/dev/null && ((SECONDS < end)); do sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null
  done
  clean_up
}
trap stop_slurm EXIT

start_slurm() {
  local host port
  host=$(hostname -s)
  port=$((20000 + $$ % 20000))
  mkdir -p slurm/{spool,state,munge}
  chmod 755 "$work" slurm slurm/*
  dd if=/dev/urandom of=slurm/munge/key bs=1024 count=1 status=none && chmod 400 slurm/munge/key
  cat >slurm/slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/slurm/munge/socket
CredType=cred/munge
StateSaveLocation=$work/slurm/state
SlurmdSpoolDir=$work/slurm/spool
SlurmctldPidFile=$work/slurm/slurmctld.pid
SlurmdPidFile=$work/slurm/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
SwitchType=switch/none
KillWait=10
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP
CONF
  export SLURM_CONF=$work/slurm/slurm.conf
  munged --foreground --force --num-threads=1 --key-file=slurm/munge/key --socket="$work/slurm/munge/socket" \
    --pid-file="$work/slurm/munge/pid" --log-file="$work/slurm/munge/log" --seed-file="$work/slurm/munge/seed" 2>/dev/null &
  daemons+=($!)
  slurmctld -D -c >slurm/slurmctld.log 2>&1 &
  daemons+=($!)
  slurmd -D -N n1 >slurm/slurmd.log 2>&1 &
  daemons+=($!)
  wait_for 60 is_idle
}
is_idle() { [[ $(sinfo -h -t idle -o %D 2>/dev/null) == 1 ]]; }

state() { scontrol -o show job "$1" 2>/dev/null | grep -o "$2=[^ ]*" | cut -d = -f 2; } # state JOB FIELD
is_over() { [[ $(state "$1" JobState) =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL) ]]; }
runs() { has_epoch "$1"; }

submit() { # submit RUN OPTION OF SBATCH... -- OPTION OF DTRAIN...: sets job
  local run=$1 options=()
  shift
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  job=$(DTRAIN_CONFIG=config.json DTRAIN_RUN=$work/$run sbatch --parsable --ntasks-per-node=2 --output="$work/$run.log" "${options[@]}" \
    "$tests/../scripts/dtrain.sbatch" "${@:2}" 2>"$run.sbatch")
  check "$run: $(cat "$run.sbatch")" test -n "$job"
}

ended_as() { # ended_as RUN SECONDS STATE CODE: the job, of which nothing is left
  check "$1: not over: $(state "$job" JobState)" wait_for "$2" is_over "$job"
  is "$1: how it ends" "$3 $4" "$(state "$job" JobState) $(state "$job" ExitCode)"
  check "$1: processes are left" wait_for 15 gone "$work/$1"
}
tells() { check "$1: no '$2': $(tail -n 3 "$1.log")" grep -qE "$2" "$1.log"; }

configure '[1, 8, 8]' 'flatten dense10' '
  "data": { "format": "synthetic", "train_samples": 320, "test_samples": 64 },
  "train": { "epochs": 100, "batch": { "per_rank": 16 } }, "checkpoint": { "every_epochs": 0 }, "distributed": { "timeout_s": 3 },
  "threads": 1'
start_slurm || { cat slurm/*.log; echo 'skipped: Slurm does not start here'; exit 77; }
echo "Slurm runs after $SECONDS s"

# The time is up after 60 s; Slurm looks every 30 s, and sends the signal to a job that has less than 45 s left. Meanwhile the others end.
submit time --time=1 --signal=USR1@45 -- --inject slow:rank=0,ms=45
timed=$job

submit cancelled -- --inject slow:rank=0,ms=50
check 'cancelled: makes no steps' wait_for 60 runs cancelled
scancel "$job"
ended_as cancelled 60 CANCELLED 0:15
tells cancelled '^stopped by SIGTERM at step [0-9]+; saved '
check 'cancelled: the code in the summary' grep -q '"exit_code":[[:space:]]*75' cancelled/summary.json

submit killed -- --inject kill:rank=1,step=30
ended_as killed 60 FAILED 76:0

submit stalled -- --inject stop:rank=1,step=30
ended_as stalled 60 FAILED 76:0
tells stalled '^dtrain: .* stalled for 3 s: rank 1 has not arrived'
check 'stalled: the code in status.json' grep -q '"exit_code":[[:space:]]*76' stalled/status.json

submit diverged -- --inject nan:rank=1,step=30
ended_as diverged 60 FAILED 80:0

got=0
timeout 60 srun --mpi=none -n 2 "$DTRAIN" --config config.json --run "$work/alone" >out 2>err </dev/null || got=$?
is 'without pmi2: exit code' 69 "$got"
check 'without pmi2: the cure' grep -q 'srun --mpi=pmi2' err
check 'without pmi2: a run begins' test ! -e alone

train whole 2
job=$timed
ended_as time 400 COMPLETED 0:0
tells time '^stopped by SIGUSR1 at step [0-9]+; saved '
tells time "^stopped with a checkpoint: putting job $timed back into the queue \(restart 1 of at most 50\)$"
tells time 'resumed at .*step-'
check "time: other weights: $(tail -n 3 time.log)" test "$(grep '^hash of the weights' time.log)" == "$(grep '^hash of the weights' whole.err)"
finish
