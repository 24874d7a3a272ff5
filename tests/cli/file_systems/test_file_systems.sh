#!/usr/bin/env bash
# File systems that lack a call: dtrain trains, and says what is missing; a call that fails is an error. Without flock, run.lock names the
# process that uses the folder.
# usage: DTRAIN=... MPIEXEC=... test_file_systems.sh LACKING: dtrain, whose calls fail as LACKING says (lacking.c)
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../lib/cli_lib.sh"
lacking=$1
sleep 100 & # a process that will have the number of another, which held a lock
sleeper=$!
configure '[1, 8, 8]' 'flatten dense10' '
  "data": { "format": "synthetic", "train_samples": 640, "test_samples": 60 }, "train": { "epochs": 1, "batch": { "per_rank": 16 } },
  "report": false, "threads": 1'

# ---- each call ----
program=$lacking
row() { # row CODE LINES CALL:ERRNO...: the run ends so; lines of warning; ENOLCK 37, ENOSYS 38, EOPNOTSUPP 95
  local code=$1 lines=$2
  export LACKING="${*:3}"
  run "$code" 0 --config config.json --run "$LACKING"
  is "$LACKING: warnings" "$lines" "$(grep -c '^dtrain: warning: ' err)"
  [[ $code == 73 ]] || check "$LACKING: status.json" grep -q '"exit_code":	0' "$LACKING/status.json"
  check "$LACKING: temporary files" test -z "$(find "$LACKING" -name '.tmp-*' 2>/dev/null)"
}
for errno in 37 38 95 22; do
  row 0 1 "flock:$errno"
  says "flock:$errno" "dtrain: warning: flock:$errno: the file system has no locks \\(.*\\)"
done
for errno in 1 13 38 95; do
  row 0 1 "fchmod:$errno"
  says "fchmod:$errno" "dtrain: warning: fchmod:$errno: the file system has no chmod \\(.*\\)"
done
for errno in 22 38 95; do
  row 0 1 "fsync:$errno"
  says "fsync:$errno" "dtrain: warning: fsync:$errno: the file system has no fsync \\(.*\\)"
done
for call in fallocate:{22,38,95} linkat:{1,31,38,95} renameat:{13,16,26}; do
  row 0 0 "$call"
done
row 0 1 flock:95 fchmod:1 fsync:95 fallocate:95 linkat:1
says 'all' 'dtrain: warning: .*: the file system has no locks \(.*\), no chmod \(.*\), no fsync \(.*\)'
for call in flock fchmod fsync; do # EIO is no lack
  row 73 0 "$call:5"
done

# ---- a lock without flock ----
export LACKING=flock:37
host=$(hostname)
state() { LACKING=$1 "$lacking" runs "$2" 2>&1 | awk 'NR == 5 { print $2 }'; }
hold() { # hold RUN: a run that goes on, whose process is $job
  "$lacking" --config config.json --run "$1" --set train.epochs=1000000 --resume >"$1.out" 2>"$1.err" </dev/null &
  job=$!
  check "$1: makes no steps" wait_for 30 has_steps "$1"
}
crash() { # crash RUN: one whose process was killed
  hold "$1"
  kill -KILL "$job"
  wait "$job" 2>/dev/null
}
hold held
is 'a run under way' 'running' "$(state flock:37 held)"
is 'a run under way, seen by one with flock' 'running' "$(state none held)"
for LACKING in flock:37 flock:95 none; do
  refuses 73 0 "=held: in use by pid $job on host $host (wait for it, or choose another --run)" --config config.json --run held --resume
done
export LACKING=flock:37
kill -KILL "$job"
wait "$job" 2>/dev/null
is 'a killed run' 'killed killed' "$(state flock:37 held) $(state none held)"
run 0 0 --config config.json --run held --resume
is 'the lock of a run that ended' '' "$(head -n 1 held/run.lock | tr -d ' ')"

crash again
sed -i "1s/pid [0-9]* /pid $sleeper /" again/run.lock
is 'a number used again' 'killed' "$(state flock:37 again)"
run 0 0 --config config.json --run again --resume
kill "$sleeper"

elsewhere() { # elsewhere NAME SED-COMMAND HOST: a lock of a process that nobody here can look for
  crash "$1"
  sed -i "1s/$2/" "$1/run.lock"
  is "$1" 'running' "$(state flock:37 "$1")"
  refuses 73 0 "=$1: in use by pid $job on host $3 (if that process is gone, remove $1/run.lock; else wait for it, or choose another --run)" \
    --config config.json --run "$1" --resume
  rm "$1/run.lock"
  run 0 0 --config config.json --run "$1" --resume
}
elsewhere otherhost "on host [^,]*/on host elsewhere" elsewhere
elsewhere container "namespace [0-9]*/namespace 1" "$host"

crash torn
for text in '' 'pid' 'pid 0 on host' 'pid 99999999999999 on host x' "pid -1 on host $host, start 1, namespace 1, no flock"; do
  printf '%s\n' "$text" >torn/run.lock
  run "$([[ $text == *x || $text == *flock ]] && echo 73 || echo 0)" 0 --config config.json --run torn --resume
done

# ---- several at once, of which one may take the lock of a killed run ----
for round in 1 2 3; do
  crash "race$round"
  racers=()
  for i in 1 2 3 4; do
    "$lacking" --config config.json --run "race$round" --set train.epochs=1000000 --resume >/dev/null 2>"race$i.err" </dev/null &
    racers+=($!)
  done
  left() { jobs -pr | grep -cxF -f <(printf '%s\n' "${racers[@]}"); }
  one_left() { (($(left) == 1)); }
  check "race $round: not one is left" wait_for 30 one_left
  is "race $round: refused" 3 "$(cat race?.err | grep -c 'in use by pid')"
  kill -KILL "${racers[@]}" 2>/dev/null
  wait "${racers[@]}" 2>/dev/null
done
check 'the race leaves a file' test ! -e race1/run.lock.mutex

touch torn/run.lock.mutex # of one that was killed at the start
rm torn/run.lock
refuses 73 0 'torn/run.lock.mutex: ' --config config.json --run torn --resume
finish
