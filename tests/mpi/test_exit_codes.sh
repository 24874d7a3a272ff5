#!/usr/bin/env bash
# How a job ends under mpirun: the exit code, one line of error however many ranks, no output lost, no process left.
# usage: DTRAIN=... MPIEXEC=... test_exit_codes.sh JOB_END LONE_FAILURE codes|signals: jobs that end by themselves, or are ended
# shellcheck disable=SC2317 # functions that $part and wait_for call
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
program=$1 lone_failure=$2 part=$3
version=$("$lone_failure" --version)

# expect CODE N_LINES TEXT RANKS ARGUMENT...: this exit code, so many lines on stderr, one of them with TEXT. All of stdout too, unless one
# rank ends while another may still be printing.
expect() {
  run "$1" "$4" "${@:5}"
  is "-np $4 ${*:5}: lines on stderr" "$2" "$(wc -l <err)"
  (($2 == 0)) || check "-np $4 ${*:5}: no '$3' on stderr" grep -q -- "$3" err
  [[ $5 =~ ^(alone|again|wrong|stray|early|network)$ ]] || is "-np $4 ${*:5}: lines on stdout" 1000 "$(wc -l <out)"
}

has_begun() { [[ -f pids && $(wc -l <pids) -eq $1 ]]; } # has_begun N: so many processes have written their numbers
no_rank() {
  local pid
  for pid in "${ranks[@]}"; do
    ! kill -0 "$pid" 2>/dev/null || grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null || return 1
  done
}

start() { # start N: a running job of N ranks; sets job and ranks
  rm -f pids
  "$MPIEXEC" -np "$1" "$program" run pids >out 2>err &
  job=$!
  check "the job of $1 ranks did not start" wait_for 30 has_begun "$1"
  mapfile -t ranks <pids
}

ended() { # ended WHAT CODE: the launcher's exit code is CODE ("any": not 0), and no rank is left
  got=0
  wait "$job" 2>/dev/null || got=$?
  [[ $2 != any || $got -eq 0 ]] || got=any
  is "$1: exit code" "$2" "$got"
  check "$1: processes are left" wait_for 5 no_rank
}

codes() {
  expect 0 0 '' 4 all 0
  for code in 1 65 75 76 78; do
    expect $code 1 'dtrain: the test wants it so' 4 all $code
  done
  expect 66 1 'dtrain: rank 3 (' 4 one 66
  expect 65 1 'dtrain: rank 1 (' 2 one 65
  expect 65 1 'dtrain: the test' 1 all 65
  expect 71 1 'dtrain: the test' 4 alone 71
  expect 74 1 'dtrain: the test' 4 again 74
  expect 71 1 'dtrain: rank 3 alone: the test' 4 wrong 71
  expect 70 1 'without dt_world_exit' 4 stray 0
  expect 3 1 'without dt_world_exit' 2 stray 3
  [[ $version != *MPICH* ]] || expect 76 1 '^dtrain: UCX, which connects the ranks, failed: endpoint 7 is gone (' 3 network
  export DTRAIN_TIMEOUT=2
  expect 76 1 "the last barrier stalled for 2 s: rank 3 has not arrived; it was last seen .* in 'data load'" 4 stall
  expect 76 1 "a sum stalled for 2 s: rank 2 waits in 'data load' for a collective that other ranks have finished: it, its device, or" 3 overtake
  expect 76 1 "the last barrier stalled for 2 s: rank 1 has not arrived; it was last seen .* in 'data load'" 2 freeze
  expect 76 1 '^dtrain: MPI did not start within 2 s: rank 3 ([^)]*) is stopped (' 4 early
  # A stall after an agreed error: the ranks leave without waiting for each other once more, which would take 10 s.
  SECONDS=0
  expect 65 1 'dtrain: the test' 3 apart 65
  check "a stall after an agreed error: $SECONDS s to the end, expected 2" test $SECONDS -lt 10
  run 76 4 mute # another rank may say the same
  is 'a rank that should speak and never does: other lines' 1 "$(sort -u err | wc -l)"
  check 'a rank that should speak and never does: not that line' grep -q '^dtrain: MPI did not start within 2 s: rank 3 ([^)]*) is stopped (' err
  expect 76 1 '^dtrain: MPI cannot start: rank 1 ([^)]*) ended before it began (' 2 early 0
  DTRAIN_TIMEOUT=abc run 78 4 all 0
  is 'DTRAIN_TIMEOUT=abc' "dtrain: DTRAIN_TIMEOUT: expected seconds 2..3600, got 'abc'" "$(cat err)"
  unset DTRAIN_TIMEOUT
  SECONDS=0 # the usual limit is 120 s
  expect 76 1 '^dtrain: MPI cannot start: rank 2 ([^)]*) ended before it began (' 3 early 0
  check "a rank that has ended is named after $SECONDS s" test $SECONDS -lt 30

  # A wrapper that closes the connection to MPICH's launcher.
  if [[ $version == *MPICH* ]]; then
    # shellcheck disable=SC2016 # for the inner shell
    program=bash run 78 3 -c 'eval "exec $PMI_FD>&-"; exec "$@"' wrapper "$program" all 0
    is 'PMI_FD closed: lines' 1 "$(grep -cv '^$' err)"
    check 'PMI_FD closed: not a clear line' grep -q '^dtrain: PMI_FD=[0-9]*: the connection to the launcher is closed (' err
  fi

  # A rank that is stopped on its way out, when all others have left, ends in time and with the right code.
  for code in 0 65; do
    timeout 60 "$MPIEXEC" -np 3 "$program" linger $code >"out$code" 2>"err$code" &
    lingering[code]=$!
  done
  for code in 0 65; do
    got=0
    wait "${lingering[code]}" || got=$?
    is 'a rank stopped on its way out: exit code' $code "$got"
  done

  # dtrain itself, one rank of which fails in a step: its own word ends the job, and not the limit on the way out ("rank 2 alone").
  program=$lone_failure run 71 3 --config "$configs/synthetic.json" --run run
  is 'a lone failure: the line' 'dtrain: rank 2 (HOST): the test wants it so' "$(grep '^dtrain: ' err | sed 's/([^)]*)/(HOST)/')"
  check 'a lone failure: status.json has not its code' grep -q '"exit_code":.71,' run/status.json
  check 'a lone failure: status.json has not its text' grep -q '"error":."rank 2 ([^)]*): the test wants it so"' run/status.json
  check 'a lone failure: no flight records' test -s run/flight-0.json -a -s run/flight-2.json

  # MPICH 4.0 hangs in MPI_Finalize over TCP, if it is let.
  export UCX_TLS=tcp,self
  for _ in 1 2 3 4; do
    expect 0 0 '' 4 all 0
    expect 75 1 'dtrain: the test' 4 all 75
  done
  unset UCX_TLS

  # Without a launcher.
  run 65 0 all 65
  OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 run 69 0 all 0
  check "Open MPI's launcher is not refused" grep -q 'the mpirun of the MPI that' err
  OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 run 69 0 all 0
  is 'the second of two singletons, which may be a left-over number: lines' 1 "$(wc -l <err)"
}

signals() {
  local signal
  for signal in TERM INT USR1; do
    start 4
    kill -$signal "${ranks[2]}"
    ended "SIG$signal to one rank" 75
    is "SIG$signal to one rank: lines" 1 "$(grep -c '^dtrain: stopped by a signal$' err)"
  done
  start 4
  kill -USR1 "$job"
  ended 'SIGUSR1 to mpirun' 75
  start 4
  kill -KILL "${ranks[2]}"
  ended 'SIGKILL of one rank' any
  start 4
  kill -SEGV "${ranks[1]}"
  ended 'SIGSEGV of one rank' any
  start 4
  disown "$job"
  kill -KILL "$job"
  check 'SIGKILL of mpirun: processes are left' wait_for 5 no_rank
}

$part
finish
