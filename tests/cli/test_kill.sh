#!/usr/bin/env bash
# A rank or the launcher that dies, at any moment, ends the whole job: the exit code is not 0, and nothing is left running after 5 s. A
# rank that hangs is named. usage: DTRAIN=... MPIEXEC=... test_kill.sh
# shellcheck disable=SC2317 # functions that wait_for calls
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
configure '[1, 8, 8]' 'flatten dense4' '
  "data": { "format": "synthetic", "train_samples": 640, "test_samples": 64 },
  "train": { "epochs": 1000000, "batch": { "per_rank": 8 } }, "checkpoint": { "every_epochs": 0 }, "log": { "every_steps": 1 },
  "threads": 1'

has_ranks() { # has_ranks RUN N: so many have begun; sets ranks
  mapfile -t ranks < <(ranks_of "$work/$1")
  ((${#ranks[@]} == $2))
}

has_folder() { [[ -e $1/run.lock ]]; }
has_checkpoint() { [[ -n $(newest_checkpoint "$1") ]]; }

ended() { # ended RUN WHAT [SECONDS]: the launcher's exit code is not 0, and nothing is left after 5 s; sets got
  check "$2: processes are left after ${3:-5} s" wait_for "${3:-5}" gone "$work/$1"
  got=0
  wait "$job" 2>/dev/null || got=$?
  check "$2: exit code 0" test "$got" -ne 0
  check "$2: a result on stdout" test -z "$(grep accuracy "$1.out")"
}

# One of four ranks is killed, in one phase of the job after the other.
n=0
for phase in "has_ranks RUN 4" "has_folder RUN" "has_steps RUN" "has_epoch RUN" "has_checkpoint RUN"; do
  run=phase$n
  start_job "$run" 4 --set checkpoint.every_steps=7
  # shellcheck disable=SC2086 # a command and its arguments
  check "$run: does not get there" wait_for 30 ${phase//RUN/$run}
  has_ranks "$run" 4
  kill -KILL "${ranks[n % 4]}"
  ended "$run" "rank $((n % 4)) killed when ${phase%% *}"
  n=$((n + 1))
done

# The launcher is killed.
start_steps launcher 4
kill -KILL "$job"
ended launcher 'mpirun killed'

# A rank that stands still is named, and the job ends with 76, in whatever way gradients are added.
export DTRAIN_TIMEOUT=2
statistics='model.layers=[{"type":"flatten"},{"type":"batch_norm","sync":true},{"type":"dense","units":4}]'
for comm in auto mpi ring hierarchical statistics; do
  run=stalled-$comm set=distributed.allreduce=$comm way=", ${comm/auto/shared_memory}\$"
  if [[ $comm == statistics ]]; then # which are all ranks', in the middle of a step's passes
    set=$statistics way='^  batch_norm with sync: .* 2 more '
  fi
  start_steps "$run" 4 --set "$set"
  check "$run: takes another way" grep -q "$way" "$run.err"
  kill -STOP "${ranks[2]}"
  ended "$run" "$run" 20
  check "$run: exit code $got, expected 76" test "$got" -eq 76
  check "$run: $(grep -c '^dtrain: ' "$run.err") lines of error, expected 1" test "$(grep -c '^dtrain: ' "$run.err")" -eq 1
  check "$run: rank 2 is not named: $(grep '^dtrain: ' "$run.err")" \
    grep -q '^dtrain: .* stalled for 2 s: .*rank 2' "$run.err"
  check "$run: rank 0 had no time to write what became of the run" grep -q '"exit_code":[[:space:]]*76' "$run/summary.json"
done

# The same when the launcher of that host does not answer either, as where all links are cut: the healthy rank ends by itself.
start_steps unanswered 2
proxy=$(sed -n 's/^PPid:\t//p' "/proc/${ranks[0]}/status")
kill -STOP "$proxy" "${ranks[1]}"
is_dead() { ! [[ -d /proc/$1 ]] || grep -q '^State:.Z' "/proc/$1/status"; }
check 'unanswered: a healthy rank is left after 9 s' wait_for 9 is_dead "${ranks[0]}"
kill -CONT "$proxy"
ended unanswered 'unanswered'
unset DTRAIN_TIMEOUT

# A limit on the size of files is told as an error of writing, and does not keep MPI from starting.
limited() { # limited KB RC TEXT: one line of error with it, or none
  local run=limited$1 got=0
  (ulimit -f "$1" && exec "$MPIEXEC" -n 2 "$DTRAIN" --config config.json --run "$work/$run" --set train.max_steps=2 \
    --set log.every_steps=100 --set model.layers.1.units=64) >"$run.out" 2>"$run.err" </dev/null || got=$?
  check "$run: exit code $got, expected $2: $(head -n 3 "$run.err")" test "$got" -eq "$2"
  check "$run: not one line of error with '$3'" test "$(grep -c '^dtrain: ' "$run.err")" -eq $((got > 0))
  check "$run: no '$3'" grep -q "$3" "$run.err"
}
limited 100 0 'saved '
limited 8 74 'File too large'
limited 1 74 'ulimit -f'

finish
