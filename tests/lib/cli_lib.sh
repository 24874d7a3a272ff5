# Shared by the tests of the program as users run it: sourced, not run.
#
# They want $DTRAIN, the program, and $MPIEXEC, the launcher. Each works in a folder of its own, $work, which is removed at the end
# together with every process that was started from it. Failures are counted; `finish` tells.
# shellcheck shell=bash
set -uo pipefail
: "${DTRAIN:?the path of dtrain}" "${MPIEXEC:?the path of mpiexec}"
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck disable=SC2034 # for the tests
configs=$(cd "$tests/../configs" && pwd)
work=$(mktemp -d /tmp/dtrain-test.XXXXXX)
n_checks=0 n_failed=0 program=$DTRAIN
touch "$work/started"
unset DTRAIN_TIMEOUT DTRAIN_ISA NO_COLOR
export LC_ALL=C.UTF-8
# MPICH keeps memory until the process ends; everything else that the sanitizers find is ours.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"

# Files that MPI leaves in /dev/shm when its processes are killed: files of ours, no older than this test, that no process uses.
remove_shared_memory() {
  local file
  for file in /dev/shm/mpich_shar_tmp* /dev/shm/ucx_shm_posix_*; do
    if [[ -O $file && $file -nt $work/started ]] && ! grep -qsF "$file" /proc/[0-9]*/maps &&
      [[ -z $(find /proc/[0-9]*/fd -lname "$file" -print -quit 2>/dev/null) ]]; then
      rm -f -- "$file"
    fi
  done
}

clean_up() {
  local pid
  for pid in $(processes_of "$work"); do
    kill -KILL "$pid" 2>/dev/null
  done
  remove_shared_memory
  rm -rf "$work"
}
trap clean_up EXIT
cd "$work" || exit 1

fail() { # fail TEXT [FILE...]: counts a failure; the files are shown
  printf 'FAILED: %s\n' "$1"
  shift
  head -n 8 -- "$@" 2>/dev/null | cut -c 1-400 | sed 's/^/    /'
  n_failed=$((n_failed + 1))
}

check() { # check TEXT COMMAND...: the command must succeed
  local text=$1
  shift
  n_checks=$((n_checks + 1))
  "$@" || fail "$text"
}

is() { # is WHAT EXPECTED ACTUAL: the same text
  n_checks=$((n_checks + 1))
  [[ $2 == "$3" ]] || fail "$1: expected '$2', got '$3'" out err
}

layer() { # layer WORD: as JSON; conv8 is 3 x 3 with a ReLU, pool the largest of 2 x 2, dense16:relu has an activation, dense16 has none
  case $1 in
  conv*) printf '{"type": "conv2d", "filters": %s, "kernel": 3, "activation": "relu"}' "${1#conv}" ;;
  pool) printf '{"type": "max_pool2d", "size": 2}' ;;
  dropout*) printf '{"type": "dropout", "rate": %s}' "${1#dropout}" ;;
  dense*:*) printf '{"type": "dense", "units": %s, "activation": "%s"}' "$(cut -d: -f1 <<<"${1#dense}")" "${1#*:}" ;;
  dense*) printf '{"type": "dense", "units": %s}' "${1#dense}" ;;
  *) printf '{"type": "%s"}' "$1" ;;
  esac
}

configure() { # configure INPUT LAYERS MEMBERS: writes config.json, with layers in such words, and its members beside the model
  local word layers=
  for word in $2; do
    layers+=${layers:+, }$(layer "$word")
  done
  printf '{ "model": { "input": %s, "layers": [%s] }, %s }\n' "$1" "$layers" "$3" >config.json
}

says() { # says WHAT PATTERN [FILE]: a line of err, or of the file, matches as a whole
  n_checks=$((n_checks + 1))
  grep -Eqx -- "$2" "${3:-err}" || fail "$1: no line '$2'" "${3:-err}"
}

dtrain() { # dtrain RANKS ARGUMENT...: leaves out, err and $got
  local n=$1
  shift
  got=0
  timeout -k 5 60 "$MPIEXEC" -n "$n" "$DTRAIN" "$@" >out 2>err </dev/null || got=$?
}

run() { # run CODE RANKS ARGUMENT...: $program has to end so; leaves out, err and $got; 0 ranks: without a launcher
  local code=$1 n=$2 launcher=()
  shift 2
  ((n == 0)) || launcher=("$MPIEXEC" -n "$n")
  got=0
  timeout -k 5 120 "${launcher[@]}" "$program" "$@" >out 2>err </dev/null || got=$?
  n_checks=$((n_checks + 1))
  ((got == code)) || fail "exit code $got, expected $code: $* with $n ranks" err out
}

refuses() { # refuses CODE RANKS TEXT ARGUMENT...: as run, with nothing on stdout and one line of error, which has the text; "^TEXT" begins it, "=TEXT" is it
  run "$1" "$2" "${@:4}"
  is "${*:4}: bytes on stdout, lines of error" '0 1' "$(wc -c <out) $(wc -l <err)"
  n_checks=$((n_checks + 1))
  case $3 in
  =*) [[ $(cat err) == "dtrain: ${3#=}" ]] ;;
  ^*) [[ $(cat err) == "dtrain: ${3#^}"* ]] ;;
  *) [[ $(cat err) == 'dtrain: '*"$3"* ]] ;;
  esac || fail "${*:4}: no '$3'" err
}

train() { # train RUN RANKS ARGUMENT...: a run of config.json, which has to work; leaves RUN.out and RUN.err
  local run=$1 n=$2
  shift 2
  check "$run: the run fails" timeout 120 "$MPIEXEC" -n "$n" "$DTRAIN" --config config.json --run "$run" "$@" >"$run.out" 2>"$run.err" </dev/null
}

try() { # try RUN RANKS ARGUMENT...: a run of config.json, however $program ends; leaves RUN.out, RUN.err and $got
  got=0
  timeout -k 5 120 "$MPIEXEC" -n "$2" "$program" --config config.json --run "$work/$1" "${@:3}" >"$1.out" 2>"$1.err" </dev/null || got=$?
}

refused() { # refused CODE RANKS TEXT ARGUMENT...: a run of config.json that ends with this code and one line, with the text
  refuses "$1" "$2" "$3" --config config.json --run no "${@:4}"
}

finish() {
  printf '%d checks, %d failed\n' "$n_checks" "$n_failed"
  exit $((n_failed > 0))
}

processes_of() { # the processes, not zombies, with this text, which has no spaces, in their command line
  grep -laF -f <(printf '%s\n' "$1") /proc/[0-9]*/cmdline 2>/dev/null | tr -dc '0-9\n'
}

ranks_of() { # the ranks among them: this program, not its launcher, nor a relay of signals, in the order of their numbers
  local pid
  for pid in $(processes_of "$1"); do
    if [[ $(readlink "/proc/$pid/exe" 2>/dev/null) == "$(readlink -f "$DTRAIN")" ]] && [[ -n $(tr -d '\0' 2>/dev/null <"/proc/$pid/environ") ]]; then
      echo "$(tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | sed -n 's/^\(PMI\|OMPI_COMM_WORLD\)_RANK=//p') $pid"
    fi
  done | sort -n | cut -d ' ' -f 2
}

# wait_for SECONDS COMMAND...: until it succeeds. The limit is a guard against hanging, not a measure of speed.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.02
  done
}

gone() { # no process of the run is left
  [[ -z $(processes_of "$1") ]]
}

has_steps() { [[ -s $1/metrics.jsonl ]] && (($(wc -l <"$1/metrics.jsonl") > 3)); } # the run has made some

has_epoch() { grep -q '"type":"epoch"' "$1/metrics.jsonl" 2>/dev/null; }

start_job() { # start_job RUN RANKS ARGUMENT...: a run of config.json in the background; 0 ranks: without a launcher; sets job
  local launcher=()
  (($2 == 0)) || launcher=("$MPIEXEC" -n "$2")
  "${launcher[@]}" "$DTRAIN" --config config.json --run "$work/$1" "${@:3}" >"$1.out" 2>"$1.err" </dev/null &
  job=$!
}

start_steps() { # start_steps RUN RANKS ARGUMENT...: the same, until it makes steps; sets job and ranks
  start_job "$@"
  check "$1: makes no steps" wait_for 60 has_steps "$1"
  mapfile -t ranks < <(ranks_of "$work/$1")
}

start_endless() { # start_endless RUN ARGUMENT...: a job of three ranks that does not end by itself; sets job and ranks
  DTRAIN_TIMEOUT=2 start_steps "$1" 3 --set train.epochs=1000000 "${@:2}"
  check "$1: ends no epoch" wait_for 60 has_epoch "$1"
}

ended() { # ended RUN: nothing is left; sets got, the exit code
  check "$1: processes are left" wait_for 20 gone "$work/$1"
  got=0
  wait "$job" 2>/dev/null || got=$?
}

# ends_well NAME RANK ARGUMENT...: the whole job ends when this rank dies, or hangs, and then with its name; told to stop, it saves.
ends_well() {
  local name=$1 rank=$2
  shift 2
  start_endless "$name-killed" "$@"
  kill -KILL "${ranks[rank]}"
  ended "$name-killed"
  check "$name, killed: exit code 0" test "$got" -ne 0
  start_endless "$name-hangs" "$@"
  kill -STOP "${ranks[rank]}"
  wait_for 30 grep -qE "stalled for [0-9]+ s: rank $rank " "$name-hangs.err" || fail "$name: the rank that hangs is not named" "$name-hangs.err"
  kill -KILL "${ranks[rank]}" 2>/dev/null
  ended "$name-hangs"
  start_endless "$name-stopped" "$@"
  kill -TERM "$job"
  ended "$name-stopped"
  check "$name, told to stop: exit code $got" test "$got" -eq 75
}

is_valid_json_lines() { # every line of the file is an object
  python3 -c 'import json, sys
for line in open(sys.argv[1]): assert isinstance(json.loads(line), dict)' "$1"
}

weights() { # weights RUN-OR-FILE: the tensors of the newest checkpoint, or of this one, whatever its header says
  local file=$1
  [[ ! -d $1 ]] || file=$(newest_checkpoint "$1")
  tail -c +$((9 + $(od -An -tu8 -N8 "$file"))) "$file"
}
same_weights() { cmp <(weights "$1") <(weights "$2"); }

newest_checkpoint() { # of a run folder
  find "$1/checkpoints" -name 'step-*.safetensors' 2>/dev/null | sort | tail -n 1
}
