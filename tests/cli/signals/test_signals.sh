#!/usr/bin/env bash
# A signal to mpirun, to one rank, or while the job still starts: the step is finished, a checkpoint saved, the exit code is 75, and
# --resume continues from there. usage: DTRAIN=... MPIEXEC=... test_signals.sh
# shellcheck disable=SC2317 # functions that wait_for calls
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../lib/cli_lib.sh"
configure '[1, 8, 8]' 'flatten dense4' '
  "data": { "format": "synthetic", "train_samples": 640, "test_samples": 64 },
  "train": { "epochs": 1000000, "batch": { "per_rank": 32 } }, "checkpoint": { "every_epochs": 0 }, "log": { "every_steps": 1 },
  "threads": 1'

is_ready_for() { # is_ready_for SIGNAL PID: the program has begun, and blocks or catches the signal
  local name mask bit=$((1 << ($(kill -l "$1") - 1)))
  while read -r name mask; do
    [[ $name == SigBlk: || $name == SigCgt: ]] && ((0x$mask & bit)) && return 0
  done 2>/dev/null <"/proc/$2/status"
  return 1
}

find_rank() { # find_rank RUN NUMBER: sets rank
  mapfile -t found < <(ranks_of "$work/$1")
  rank=${found[$2]:-}
  [[ -n $rank ]]
}

stopped_well() { # stopped_well RUN SIGNAL RANKS: the job that got it ends, as it should
  local run=$1 signal=$2 n=$3 got=0 saved step launcher=()
  wait "$job" || got=$?
  check "$run: exit code $got, expected 75" test "$got" -eq 75
  check "$run: a result on stdout" test "$(grep -cv '^\[mpiexec' "$run.out")" -eq 0
  check "$run: not one line about SIG$signal" test "$(grep -c "^stopped by SIG$signal at step [0-9]*; saved " "$run.err")" -eq 1
  saved=$(sed -n 's/^stopped by .*; saved //p' "$run.err")
  step=$(sed -n 's/^stopped by .* at step \([0-9]*\); .*/\1/p' "$run.err")
  check "$run: the checkpoint that was saved is not the newest" test "$saved" = "$(newest_checkpoint "$work/$run")"
  check "$run: no exit code in the summary" grep -q '"exit_code":.*75' "$run/summary.json"
  if ((n > 0)); then
    launcher=("$MPIEXEC" -n "$n")
  fi
  got=0
  timeout -k 5 60 "${launcher[@]}" "$DTRAIN" --config config.json --run "$work/$run" --resume --set "train.max_steps=$((step + 2))" \
    >"$run.out" 2>"$run.err" </dev/null || got=$?
  check "$run: resuming ends with $got" test "$got" -eq 0
  check "$run: not resumed from what was saved" grep -qF ", from $saved" "$run.err"
}

for signal in TERM INT USR1; do
  run=launcher-$signal # one rank: mpirun is most inclined to forget its exit code
  start_steps "$run" 1
  kill "-$signal" "$job"
  stopped_well "$run" "$signal" 1

  run=rank-$signal
  start_steps "$run" 2
  kill "-$signal" "${ranks[1]}"
  stopped_well "$run" "$signal" 2

  run=start-$signal
  start_job "$run" 2
  check "$run: does not start" wait_for 30 find_rank "$run" 0
  check "$run: does not block the signal" wait_for 30 is_ready_for "$signal" "$rank"
  kill "-$signal" "$rank"
  stopped_well "$run" "$signal" 2
done

# Terminals and schedulers have signals of their own; UCX, which catches SIGHUP by itself, writes nothing to stdout (stopped_well looks).
for signal in HUP USR2 XCPU; do
  run=rank-$signal
  start_steps "$run" 2
  kill "-$signal" "${ranks[1]}"
  stopped_well "$run" "$signal" 2
done

run=alone-hangup
start_steps "$run" 0
kill -HUP "$job"
stopped_well "$run" HUP 0

run=nohup # whoever started it so wants it to outlive the terminal
nohup "$DTRAIN" --config config.json --run "$work/$run" >"$run.out" 2>"$run.err" </dev/null &
job=$!
check "$run: makes no steps" wait_for 60 has_steps "$run"
kill -HUP "$job"
n_steps=$(wc -l <"$run/metrics.jsonl")
goes_on() { (($(wc -l <"$run/metrics.jsonl") > n_steps + 20)); }
check "$run: does not go on after SIGHUP" wait_for 30 goes_on
kill -TERM "$job"
stopped_well "$run" TERM 0

# Under a launcher that is not MPICH's all ranks end by MPI_Finalize: MPI_Abort would cost the code under Slurm, and the job its requeue.
run=other-launcher
"$MPIEXEC" -n 2 env -u MPI_LOCALNRANKS "$DTRAIN" --config config.json --run "$work/$run" >"$run.out" 2>"$run.err" </dev/null &
job=$!
check "$run: makes no steps" wait_for 30 has_steps "$run"
find_rank "$run" 1 && kill -TERM "$rank"
wait "$job"
check "$run: does not stop" grep -q '^stopped by SIGTERM at step ' "$run.err"
check "$run: MPI_Abort: $(grep MPI_Abort "$run.err")" test "$(grep -c MPI_Abort "$run.err")" -eq 0

run=alone
start_steps "$run" 0
kill -INT "$job"
stopped_well "$run" INT 0

# Commands that have nothing to save end at once, alone with the signal and under mpirun with its code, and leave no half-written file.
ends_at_once() { # ends_at_once NAME CODE SIGNAL COMMAND...
  local name=$1 code=$2 signal=$3 got=0
  shift 3
  "$@" >"$name.out" 2>"$name.err" </dev/null &
  job=$!
  catches() { mapfile -t found < <(ranks_of "$work/$name"); [[ -n ${found[0]:-} ]] && is_ready_for "$signal" "${found[0]}"; }
  check "$name: does not start" wait_for 30 catches
  kill "-$signal" "$job"
  check "$name: still there after SIG$signal" wait_for 5 gone "$work/$name"
  wait "$job" || got=$?
  check "$name: exit code $got, expected $code" test "$got" -eq "$code"
  check "$name: a temporary file is left" test -z "$(find . -maxdepth 2 -name '.tmp-*')"
}
slow=(--set train.epochs=1 --set data.train_samples=20000000) # generating them would take long
ends_at_once blocks 130 INT "$DTRAIN" bench model --config config.json "${slow[@]}" --json "$work/blocks"
ends_at_once lesson 143 TERM "$MPIEXEC" -n 4 "$DTRAIN" lab stragglers --html "$work/lesson" # 4 s, most of them asleep
printf '#!/bin/sh\nexec sleep 10\n' >sbatch && chmod +x sbatch
ends_at_once slurm 130 INT env PATH="$work:$PATH" "$DTRAIN" slurm --config config.json --script "$work/slurm"

# Both at once, as a terminal's Ctrl-C does, is one wish to stop and not an insistent one.
run=both
start_steps "$run" 2
kill -INT "$job" "${ranks[0]}"
stopped_well "$run" INT 2

# Rank 1 is stopped, so rank 0 can neither finish the step nor save; it waits, until the second signal.
run=twice
start_steps "$run" 2
rank=${ranks[0]}
kill -STOP "${ranks[1]}"
kill -INT "$rank"
sleep 2.1 # what counts as insisting is more than a second later
check "$run: gone after the first signal" test -d "/proc/$rank"
kill -INT "$rank"
check "$run: the second signal does not end it" wait_for 5 gone "$work/$run"
got=0
wait "$job" || got=$?
check "$run: exit code 0" test "$got" -ne 0
finish
