# `dtrain accept` and what it says, for test_accept.sh and test_accept_wrong.sh: sourced, not run.
# shellcheck shell=bash
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli_lib.sh"
# shellcheck disable=SC2034 # for the tests
wrong_cluster=$1 module=$2
unset DTRAIN_CUDA_MODULE
rows='launch doctor example gradients sums links memory compute training checkpoint frozen'

accept() { # accept RANKS RUN ARGUMENT...: leaves out, err and $got; `limit` is for a test that waits for it
  local n=$1 folder=(--run "$2")
  [[ $2 != - ]] || folder=()
  shift 2
  got=0
  DTRAIN_TIMEOUT=${limit:-60} timeout -k 5 180 "$MPIEXEC" -n "$n" "$program" accept --short "${folder[@]}" "$@" >out 2>err </dev/null || got=$?
}
failing() { # failing WHAT ROW...: these rows fail, and no others; with an exit code that says so. What only measures does not fail
  local what=$1 row expected=
  shift
  for row in $rows; do
    [[ " $* " == *" $row "* ]] && expected+="$row FAIL " || expected+="$row PASS "
  done
  is "$what" "$(($# > 0)) $expected" "$got $(sed -nE 's/^(PASS|FAIL|MEASURED|SKIPPED) +([a-z]+) .*/\2 \1/; s/ (MEASURED|SKIPPED)$/ PASS/; T; p' out | tr '\n' ' ')"
}
verdicts() { # verdicts WHAT VERDICT ROW...
  is "$1: rows that are $2" "${*:3}" "$(awk -v verdict="$2" '$1 == verdict {print $2}' out | tr '\n' ' ' | sed 's/ $//')"
}
says() { # says ROW PATTERN: what the row that fails says
  check "$1: the row" grep -qE "^FAIL +$1 .*$2" out
}
baseline() { # baseline FILE PYTHON: changes a, the JSON
  python3 -c 'import json, sys
a = json.load(open("2.json")); rows = {row["name"]: row["figures"] for row in a["rows"]}
exec(sys.argv[2]); json.dump(a, open(sys.argv[1], "w"))' "$1" "$2"
}
