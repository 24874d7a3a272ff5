#!/usr/bin/env bash
# What stands between the launcher and dtrain, in any number, takes neither the checkpoint nor the exit code of a run that is told to stop,
# nor leaves a rank behind; and a log that cannot be written, or read, does not end mpirun. usage: DTRAIN=... MPIEXEC=... test_wrappers.sh
# shellcheck disable=SC2016 # the wrapper's shell expands
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../lib/cli_lib.sh"
[[ $("$DTRAIN" --version) == *MPICH* ]] || { echo "skipped: another MPI's launcher has signals of its own"; exit 77; }
configure '[1, 8, 8]' 'flatten dense4' '
  "data": { "format": "synthetic", "train_samples": 640, "test_samples": 64 },
  "train": { "epochs": 1000000, "batch": { "per_rank": 32 } }, "checkpoint": { "every_epochs": 0 }, "log": { "every_steps": 1 },
  "threads": 1'
export DTRAIN_TIMEOUT=20

# A wrapper's words, then `dtrain` where it goes; "sh:" has it in the text of a shell.
wrappers=(
  'sh: dtrain; exit $?'
  'env -u NOTHING sh: dtrain; exit $?'
  'nice sh: dtrain; exit $?'
  'taskset ffff sh: dtrain; true; exit $((75))'
  'sh: trap "" TERM INT USR1; dtrain; exit $?'
  'sh: dtrain 2>&1 | cat; exit ${PIPESTATUS[0]}'
  'sh: exec 2>&1; (dtrain); exit $?'
  'timeout 1000'
  'setsid -w'
  'setsid -w sh: dtrain; exit $?'
  'nice timeout 1000 sh: timeout 1000 dtrain; exit $?'
  'sh: setsid -w timeout 1000 dtrain; exit $?'
)
[[ ! -x /usr/bin/time ]] || wrappers+=('/usr/bin/time -o times')
! strace -o /dev/null true 2>/dev/null || wrappers+=('strace -o traced -e trace=none' 'strace -f -o traced -e trace=none')

wrap() { # wrap WRAPPER WORD...: sets command, the wrapper around these words
  local text=$1 dtrain
  shift
  dtrain=$(printf '%q ' "$@")
  command=()
  if [[ $text == *sh:* ]]; then
    read -ra command <<<"${text%%sh:*}"
    text=${text#*sh:}
    command+=(bash -c "${text//dtrain/$dtrain}")
  else
    read -ra command <<<"$text"
    command+=("$@")
  fi
}

start_wrapped() { # start_wrapped RUN WRAPPER RANKS: until it makes steps; sets job and ranks
  wrap "$2" "$DTRAIN" --config config.json --run "$work/$1"
  "$MPIEXEC" -n "$3" "${command[@]}" >"$1.out" 2>"$1.err" </dev/null &
  job=$!
  check "$1: makes no steps" wait_for 60 has_steps "$1"
  mapfile -t ranks < <(ranks_of "$work/$1")
}

i=0
signals=(TERM INT USR1)
for wrapper in "${wrappers[@]}"; do
  signal=${signals[i % 3]} run=run$((i++))
  start_wrapped "$run" "$wrapper" 2
  is "$wrapper: ranks" 2 "${#ranks[@]}"
  kill "-$signal" "$job"
  ended "$run"
  is "$wrapper, SIG$signal to mpirun: exit code" 75 "$got"
  check "$wrapper: no checkpoint" test -n "$(newest_checkpoint "$work/$run")"
  check "$wrapper: no exit code in the summary" grep -q '"exit_code":.*75' "$run/summary.json"
done

# The launcher ends without a word to the ranks: they go with it, also where it cannot kill them.
for wrapper in 'sh: dtrain; exit $?' 'setsid -w sh: dtrain; exit $?' 'setsid'; do
  run=gone$((i++))
  start_wrapped "$run" "$wrapper" 2
  kill -KILL "$job"
  ended "$run"
done

# A rank that is killed takes the others along, and one that is stopped is named, behind a wrapper too.
start_wrapped killed 'nice sh: dtrain; exit $?' 3
kill -KILL "${ranks[1]}"
ended killed
check "a rank is killed behind a wrapper: exit code 0" test "$got" -ne 0
export DTRAIN_TIMEOUT=2
for wrapper in 'timeout 1000 sh: dtrain; exit $?' 'nice sh: timeout 1000 dtrain; exit $?' 'setsid -w' 'setsid -w sh: dtrain; exit $?'; do
  run=hangs$((i++))
  start_wrapped "$run" "$wrapper" 2
  kill -STOP "${ranks[1]}"
  ended "$run"
  is "$wrapper, a rank is stopped: exit code" 76 "$got"
  check "$wrapper, a rank is stopped: not named" grep -q 'stalled for 2 s: rank 1 ' "$run.err"
done
unset DTRAIN_TIMEOUT

# ---- the output of mpirun
short=(--set train.epochs=2 --set checkpoint.every_epochs=1)
for wrapper in 'sh: dtrain; exit $?' 'nice timeout 100'; do
  run=head$((i++))
  wrap "$wrapper" "$DTRAIN" --config config.json --run "$work/$run" "${short[@]}"
  { "$MPIEXEC" -n 2 "${command[@]}" </dev/null 2>&1; echo $? >code; } | head -n 1 >/dev/null
  is "$wrapper, | head: exit code" 0 "$(cat code)"
  check "$wrapper, | head: no summary" test -s "$run/summary.json"
done

# Two ranks write one file, of which mpirun writes the end: nothing is written over, before or behind.
{ echo before; "$MPIEXEC" -n 2 "$DTRAIN" --config config.json --run "$work/log" "${short[@]}" </dev/null; echo after; } >log.txt 2>&1
is 'a log: the first line' before "$(head -n 1 log.txt)"
is 'a log: the last line' after "$(tail -n 1 log.txt)"
check 'a log: no result' grep -q '^test accuracy ' log.txt
check 'a log: not whole lines' test "$(grep -c '^before$\|^after$' log.txt)" -eq 2

small_disk() { # small_disk RANKS WRAPPER: mpirun's log is on a disk of 4 kB
  wrap "$2" "$DTRAIN" --config config.json --run "$work/full$1" "${short[@]}"
  printf '%q ' "$MPIEXEC" -n "$1" "${command[@]}" >job.sh
  mkdir -p full
  unshare -m bash -c 'mount -t tmpfs -o size=4k t full && head -c 4096 /dev/zero >full/other; . ./job.sh >full/log 2>&1 </dev/null; echo $? >code'
}
if unshare -m true 2>/dev/null; then
  for n in 1 2; do
    small_disk $n 'nice'
    is "-np $n, a full disk under the log: exit code" 74 "$(cat code)"
    check "-np $n, a full disk under the log: no checkpoint" test -n "$(newest_checkpoint "$work/full$n")"
  done
  small_disk 3 'sh: dtrain; exit $?'
  is 'a full disk under the log, behind a wrapper: exit code' 74 "$(cat code)"
else
  echo 'a full disk under the log: not tried, no right to mount one'
fi
finish
