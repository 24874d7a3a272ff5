# One row for each bad input, for test_bad_*.sh: sourced, not run.
#
# Each row must end with the stated exit code, an empty stdout, and on stderr one line that begins with "dtrain: " and has the stated
# text, however many ranks find it: without a launcher, and at -np 2. Variants of a row ("ranks=0") save time and run without a
# launcher only; a row of each kind ("ranks=$most") runs at -np 1 and -np 4, too. DTRAIN_TEST_ALL=1 runs all rows so.
# usage: DTRAIN=... MPIEXEC=... test_bad_....sh [NAME of one row]
# shellcheck shell=bash
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli_lib.sh"
command -v python3 >/dev/null || { echo 'skipped: python3 makes the bad files, and is not installed'; exit 77; }
only=${1:-}
most='0 1 2 4'

judge() { # judge NAME CODE TEXT: of the run that wrote `out`, `err` and ended with $got
  local name=$1 code=$2 text=$3 lines line
  n_checks=$((n_checks + 1))
  mapfile lines <err
  line=${lines[0]:-}
  ((got == code)) || { fail "$name: exit code $got, expected $code" err; return; }
  [[ ! -s out ]] || { fail "$name: text on stdout" out; return; }
  [[ ${#lines[@]} -eq 1 && $line == 'dtrain: '*$'\n' ]] || { fail "$name: not one line of error" err; return; }
  [[ $line == *"$text"* ]] || { fail "$name: does not say '$text'" err; return; }
  [[ ${line%$'\n'} != *[[:cntrl:]]* ]] || fail "$name: control characters" err
}

row() { # row NAME CODE TEXT ARGUMENT...
  local name=$1 code=$2 text=$3 n got all=${DTRAIN_TEST_ALL:+$most} launcher
  shift 3
  [[ -z $only || $only == "$name" ]] || return 0
  for n in ${exactly:-${all:-${ranks:-0 2}}}; do
    launcher=()
    ((n == 0)) || launcher=("$MPIEXEC" -n "$n")
    got=0
    timeout -k 5 20 "${launcher[@]}" "$DTRAIN" "$@" >out 2>err </dev/null || got=$?
    judge "$name, -np $n" "$code" "$text"
  done
}

# The good configuration, and ways to spoil it.
good='{
  "data": { "format": "idx", "dir": "data/good" },
  "model": {
    "input": [1, 8, 8],
    "layers": [
      { "type": "conv2d", "filters": 2, "kernel": 3, "activation": "relu" },
      { "type": "flatten" },
      { "type": "dense", "units": 4 }
    ]
  },
  "train": { "epochs": 2, "batch": { "per_rank": 4 }, "optimizer": { "type": "sgd", "lr": 0.01, "momentum": 0.5 } },
  "threads": 1
}'
printf '%s\n' "$good" >good.json
mkdir bad

config() { # config NAME CODE TEXT FROM TO: a row; the good configuration with FROM replaced by TO
  local file=bad/$1.json
  printf '%s\n' "${good/"$4"/$5}" >"$file"
  if cmp -s good.json "$file"; then
    fail "$1: nothing replaced"
  fi
  row "$1" "$2" "$3" --config "$file"
}

text() { # text NAME CODE TEXT FORMAT: a row; the configuration is what printf makes of FORMAT
  # shellcheck disable=SC2059
  printf "$4" >"bad/$1.json"
  row "$1" "$2" "$3" --config "bad/$1.json"
}

"$tests/lib/python/make_bad_input.py" data data
