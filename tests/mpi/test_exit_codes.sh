#!/usr/bin/env bash
# How a job ends under mpirun: the exit code, one line of error however many ranks, no output lost, no process left.
# Usage: test_exit_codes.sh MPIEXEC JOB_END LONE_FAILURE codes|signals: jobs that end by themselves, or are ended
# shellcheck disable=SC2317 # functions that $part calls
set -u
mpiexec=$1 job=$2 lone_failure=$3 part=$4
synthetic=$(cd "$(dirname "$0")/../../configs" && pwd)/synthetic.json
version=$("$lone_failure" --version)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n_failed=0

fail() {
    echo "FAILED: $1"
    sed 's/^/    stderr: /;5q' "$tmp/err"
    n_failed=$((n_failed + 1))
}

# expect RC N_LINES TEXT RANKS ARGUMENTS...: this exit code, so many lines on stderr, one of them with TEXT. All of stdout too,
# unless one rank ends while another may still be printing.
expect() {
    local rc=$1 n_lines=$2 text=$3 np=$4
    shift 4
    timeout 60 "$mpiexec" -np "$np" "$job" "$@" >"$tmp/out" 2>"$tmp/err"
    local got=$?
    local what="-np $np $*"
    [ $got -eq "$rc" ] || fail "$what: exit code $got, expected $rc"
    [ "$(wc -l <"$tmp/err")" -eq "$n_lines" ] || fail "$what: $(wc -l <"$tmp/err") lines on stderr, expected $n_lines"
    grep -q -- "$text" "$tmp/err" || [ "$n_lines" -eq 0 ] || fail "$what: no '$text' on stderr"
    [[ $1 =~ ^(alone|again|wrong|stray|early|network)$ ]] || [ "$(wc -l <"$tmp/out")" -eq 1000 ] || fail "$what: $(wc -l <"$tmp/out") of 1000 lines on stdout"
}

# Waits until N processes have written their numbers; prints them.
pids_of() {
    for _ in $(seq 300); do
        [ -f "$1" ] && [ "$(wc -l <"$1")" -eq "$2" ] && break
        sleep 0.1
    done
    cat "$1"
}

# All these processes are gone within 5 s.
all_gone() {
    for _ in $(seq 50); do
        local left=0
        for pid in "$@"; do
            kill -0 "$pid" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null && left=1
        done
        [ $left -eq 0 ] && return 0
        sleep 0.1
    done
    return 1
}

# start N: a running job of N ranks; sets launcher and ranks.
start() {
    rm -f "$tmp/pids"
    "$mpiexec" -np "$1" "$job" run "$tmp/pids" >"$tmp/out" 2>"$tmp/err" &
    launcher=$!
    mapfile -t ranks < <(pids_of "$tmp/pids" "$1")
    [ ${#ranks[@]} -eq "$1" ] || fail "the job of $1 ranks did not start"
}

# ended WHAT CODE: the launcher's exit code is CODE ("any": not 0), and no rank is left.
ended() {
    wait "$launcher" 2>/dev/null
    local got=$?
    if [ "$2" = any ]; then
        [ $got -ne 0 ] || fail "$1: exit code 0"
    else
        [ $got -eq "$2" ] || fail "$1: exit code $got, expected $2"
    fi
    all_gone "${ranks[@]}" || fail "$1: processes are left"
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
    expect 76 1 "the last barrier stalled for 2 s: rank 1 has not arrived; it was last seen .* in 'data load'" 2 freeze
    expect 76 1 '^dtrain: MPI did not start within 2 s: rank 3 ([^)]*) is stopped (' 4 early
    # A stall after an agreed error: the ranks leave without waiting for each other once more, which would take 10 s.
    SECONDS=0
    expect 65 1 'dtrain: the test' 3 apart 65
    [ $SECONDS -lt 10 ] || fail "a stall after an agreed error: $SECONDS s to the end, expected 2"
    timeout 60 "$mpiexec" -np 4 "$job" mute >"$tmp/out" 2>"$tmp/err" # another rank may say the same
    [ $? -eq 76 ] && [ "$(sort -u "$tmp/err" | wc -l)" -eq 1 ] && grep -q '^dtrain: MPI did not start within 2 s: rank 3 ([^)]*) is stopped (' "$tmp/err" ||
        fail 'a rank that should speak and never does: not that line'
    expect 76 1 '^dtrain: MPI did not start within 2 s: rank 1 ([^)]*) ended before it began (' 2 early 0
    export DTRAIN_TIMEOUT=abc
    timeout 60 "$mpiexec" -np 4 "$job" all 0 >"$tmp/out" 2>"$tmp/err"
    [ $? -eq 78 ] && [ "$(cat "$tmp/err")" = "dtrain: DTRAIN_TIMEOUT: expected seconds 2..3600, got 'abc'" ] || fail 'DTRAIN_TIMEOUT=abc'
    unset DTRAIN_TIMEOUT

    # A wrapper that closes the connection to MPICH's launcher.
    if [[ $version == *MPICH* ]]; then
        timeout 60 "$mpiexec" -np 3 bash -c 'eval "exec $PMI_FD>&-"; exec "$@"' wrapper "$job" all 0 >"$tmp/out" 2>"$tmp/err"
        got=$?
        [ $got -eq 78 ] || fail "PMI_FD closed: exit code $got, expected 78"
        [ "$(grep -cv '^$' "$tmp/err")" -eq 1 ] && grep -q '^dtrain: PMI_FD=[0-9]*: the connection to the launcher is closed (' "$tmp/err" ||
            fail 'PMI_FD closed: not one clear line'
    fi

    # A rank that is stopped on its way out, when all others have left, ends in time and with the right code.
    for code in 0 65; do
        timeout 60 "$mpiexec" -np 3 "$job" linger $code >"$tmp/out$code" 2>"$tmp/err$code" &
        lingering[code]=$!
    done
    for code in 0 65; do
        wait "${lingering[code]}"
        got=$?
        [ $got -eq $code ] || fail "a rank stopped on its way out: exit code $got, expected $code"
    done

    # dtrain itself, one rank of which fails in a step: its own word ends the job, and not the limit on the way out ("rank 2 alone").
    timeout 60 "$mpiexec" -np 3 "$lone_failure" --config "$synthetic" --run "$tmp/run" >"$tmp/out" 2>"$tmp/err"
    got=$?
    [ $got -eq 71 ] || fail "a lone failure: exit code $got, expected 71"
    grep '^dtrain: ' "$tmp/err" >"$tmp/errors"
    [ "$(sed 's/([^)]*)/(HOST)/' "$tmp/errors")" = 'dtrain: rank 2 (HOST): the test wants it so' ] || fail 'a lone failure: not that line'

    grep -q '"exit_code":.71,' "$tmp/run/status.json" && grep -q '"error":."rank 2 ([^)]*): the test wants it so"' "$tmp/run/status.json" ||
        fail 'a lone failure: status.json has not its code and text'
    [ -s "$tmp/run/flight-0.json" ] && [ -s "$tmp/run/flight-2.json" ] || fail 'a lone failure: no flight records'

    # MPICH 4.0 hangs in MPI_Finalize over TCP, if it is let.
    export UCX_TLS=tcp,self
    for _ in 1 2 3 4; do
        expect 0 0 '' 4 all 0
        expect 75 1 'dtrain: the test' 4 all 75
    done
    unset UCX_TLS

    # Without a launcher.
    "$job" all 65 >"$tmp/out" 2>"$tmp/err"
    [ $? -eq 65 ] || fail 'alone, without mpirun: not 65'
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$job" all 0 >"$tmp/out" 2>"$tmp/err"
    [ $? -eq 69 ] && grep -q 'the mpirun of the MPI that' "$tmp/err" || fail "Open MPI's launcher is not refused"
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 "$job" all 0 >"$tmp/out" 2>"$tmp/err"
    [ $? -eq 69 ] && [ ! -s "$tmp/err" ] || fail 'the second of two singletons repeats the error'
}

signals() {
    local signal
    for signal in TERM INT USR1; do
        start 4
        kill -$signal "${ranks[2]}"
        ended "SIG$signal to one rank" 75
        [ "$(grep -c '^dtrain: stopped by a signal$' "$tmp/err")" -eq 1 ] || fail "SIG$signal to one rank: not one line"
    done
    start 4
    kill -USR1 $launcher
    ended 'SIGUSR1 to mpirun' 75
    start 4
    kill -KILL "${ranks[2]}"
    ended 'SIGKILL of one rank' any
    start 4
    kill -SEGV "${ranks[1]}"
    ended 'SIGSEGV of one rank' any
    start 4
    disown $launcher
    kill -KILL $launcher
    all_gone "${ranks[@]}" || fail 'SIGKILL of mpirun: processes are left'
}

$part
[ $n_failed -eq 0 ] && echo 'all jobs ended as they should'
exit $((n_failed > 0))
