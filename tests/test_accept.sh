#!/usr/bin/env bash
# dtrain accept: a row for each check, and each fails when it should. usage: DTRAIN=... MPIEXEC=... test_accept.sh WRONG_SUM
# shellcheck source=tests/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli_lib.sh"
wrong_sum=$1
program=$DTRAIN

accept() { # accept RANKS RUN ARGUMENT...: leaves out, err and $got
  local n=$1 run=$2
  shift 2
  got=0
  DTRAIN_TIMEOUT=3 timeout -k 5 90 "$MPIEXEC" -n "$n" "$program" accept --run "$run" "$@" >out 2>err </dev/null || got=$?
}
verdicts() { sed -n 's/^\(PASS\|FAIL\)  \([a-z]*\) .*/\2 \1/p' out | paste -sd ' '; }
is() { # is WHAT EXPECTED ACTUAL
  n_checks=$((n_checks + 1))
  [[ $2 == "$3" ]] || fail "$1: expected '$2', got '$3'" out err
}
all='doctor PASS sums PASS links PASS memory PASS training PASS checkpoint PASS'

for n in 1 2 5; do # of 5, one rank has nobody to write to in each round
  accept "$n" "fine$n" --junit "$n.xml"
  is "$n ranks" "0 $all" "$got $(verdicts)"
  is "$n ranks: the sum" '6 of 6 passed' "$(tail -n 1 out)"
  is "$n ranks: stderr" 0 "$(wc -c <err)"
  check "$n ranks: pairs that were not measured" test "$(grep -cE '^PASS  links .* 0\.0 to |inf' out)" -eq 0
done
check 'pairs of 5 ranks' grep -qE '^PASS  links +[0-9.]+ s  10 pairs: ' out
check 'JUnit' python3 - 5.xml <<'PYTHON'
import sys, xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot()
assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "6", "0")
assert [case.get("name") for case in suite] == ["doctor", "sums", "links", "memory", "training", "checkpoint"]
assert all(float(case.get("time")) >= 0 and case.find("failure") is None for case in suite)
PYTHON

accept 2 nan --inject nan:rank=1,step=9 --junit nan.xml
is 'gradients that are no numbers' "1 ${all/training PASS checkpoint PASS/training FAIL checkpoint FAIL}" "$got $(verdicts)"
check 'no numbers: the row' grep -q '^FAIL  training .*diverged at step' out
check 'no numbers: the line' grep -qx 'dtrain: accept: 2 of 6 checks failed (the rows that begin with FAIL say what)' err
check 'no numbers: JUnit' grep -q 'name="training" time="[0-9.]*"><failure message="training diverged' nan.xml

accept 2 flip --inject flip:rank=1,step=9,tensor=fc1.weight
is 'a flipped bit' "1 ${all/training PASS checkpoint PASS/training FAIL checkpoint FAIL}" "$got $(verdicts)"
check 'a flipped bit: tensor and rank' grep -q '^FAIL  training .*fc1.weight' out

program=$wrong_sum accept 2 sums
is 'a wrong sum' "1 ${all/sums PASS/sums FAIL}" "$got $(verdicts)"
check 'a wrong sum: the row' grep -q '^FAIL  sums .*: 2 of 100003 sums are wrong on some rank$' out

accept 1 /proc/none
is 'no place for runs' '1 doctor FAIL sums PASS links PASS memory PASS training FAIL checkpoint FAIL' "$got $(verdicts)"

accept 3 stopped --inject stop:rank=1,step=20
is 'a rank that is stopped' 76 "$got"
check 'a rank that is stopped: its name' grep -q 'stalled for .* rank 1 ' err
pkill -KILL -f "$work/stopped" 2>/dev/null
finish
