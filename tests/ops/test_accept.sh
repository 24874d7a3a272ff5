#!/usr/bin/env bash
# dtrain accept: a row for each check, baselines, and what is refused; test_accept_wrong.sh makes each check fail.
# usage: DTRAIN=... MPIEXEC=... test_accept.sh WRONG_CLUSTER MODULE: wrong_cluster.c, fake_module.c
# shellcheck source=tests/lib/accept.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/accept.sh"

for n in 1 2 3; do # of 3, one rank has nobody to write to in each round
  ((n > 1)) && run=fine$n || run=-
  accept "$n" "$run" --junit "$n.xml" --json "$n.json" --html "$n.html"
  failing "$n ranks"
  is "$n ranks: stderr" 0 "$(wc -c <err)"
  check "$n ranks: the folder of the training stays" test ! -e runs -a "$([[ $n == 1 || -e fine$n/config.json ]] && echo asked)"
  check "$n ranks: pairs that were not measured" test "$(grep -cE '^[A-Z]+ +links .* 0\.0 to |inf' out)" -eq 0
  case $n in
    1) verdicts '1 rank' MEASURED memory compute && verdicts '1 rank' SKIPPED links frozen
      is '1 rank: the sum' '7 of 11 passed, 2 measured, 2 skipped' "$(tail -n 1 out)" ;;
    2) verdicts '2 ranks' MEASURED links memory compute && verdicts '2 ranks' SKIPPED
      check 'one host compares nothing' grep -qE '^MEASURED  memory .* GB/s a rank; nothing to compare with: 1 host, no --baseline$' out
      is '2 ranks: the sum' '8 of 11 passed, 3 measured' "$(tail -n 1 out)" ;;
  esac
done
check 'pairs of 3 ranks' grep -qE '^MEASURED +links +[0-9.]+ s  3 pairs: ' out
check 'a rank that froze is named' grep -qE '^PASS +frozen +[0-9.]+ s  named on 1 host, after [1-4]\.[0-9] s' out
check 'JUnit' python3 - 3.xml $rows <<'PYTHON'
import sys, xml.etree.ElementTree as tree
suite, rows = tree.parse(sys.argv[1]).getroot(), sys.argv[2:]
cases = suite.findall("testcase")
assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", str(len(rows)), "0")
assert [case.get("name") for case in cases] == rows
assert all(float(case.get("time")) >= 0 and case.find("failure") is None for case in cases)
skipped = [case for case in cases if case.find("skipped") is not None]
assert {"links", "memory"} <= {case.get("name") for case in skipped} and suite.get("skipped") == str(len(skipped)), skipped
assert "nothing to compare with: 1 host" in skipped[0].find("skipped").get("message")
record = {p.get("name"): p.get("value") for p in suite.find("properties")}
assert set(record) - {"warning"} == {"date", "command", "version", "commit", "mpi", "launcher", "device", "host"}, record
assert suite.get("timestamp") + "Z" == record["date"] and "accept --short --run fine3" in record["command"], record
assert ": 3 ranks; " in record["host"] and "; Linux " in record["host"], record
PYTHON

check 'JSON' python3 - 2.json $rows <<'PYTHON'
import datetime, json, os, sys
a, rows = json.load(open(sys.argv[1])), sys.argv[2:]
assert (a["kind"], a["ranks"], a["ranks_per_host"], a["device"], a["passed"]) == ("accept", 2, 2, "cpu", True), a
assert [row["name"] for row in a["rows"]] == rows and all(row["seconds"] >= 0 for row in a["rows"])
assert {row["name"]: row["verdict"] for row in a["rows"]} == {name: "MEASURED" if name in ("links", "memory", "compute") else "PASS" for name in rows}
when = datetime.datetime.strptime(a["date"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)
assert abs((datetime.datetime.now(datetime.timezone.utc) - when).total_seconds()) < 3600, a["date"]
assert a["command"].endswith("accept --short --run fine2 --junit 2.xml --json 2.json --html 2.html"), a["command"]
assert a["version"] and a["commit"] and a["mpi"].startswith("MPICH") and a["launcher"] == "mpirun", a
host, = a["hosts"]
assert (host["ranks"], host["gpus"], host["kernel"]) == (2, [], "Linux " + os.uname().release) and host["cpus"] >= 1, host
assert isinstance(a["warnings"], list)
figures = {row["name"]: row["figures"] for row in a["rows"] if row["figures"]}
assert {name: list(f) for name, f in figures.items()} == {"links": ["bandwidth_gbs", "latency_us"], "memory": ["bandwidth_gbs"],
    "compute": ["gflops"]}, figures
assert all(value > 0 for f in figures.values() for value in f.values())
PYTHON
check 'the page asks for something' test "$(grep -cE 'https?:|<script [^>]|<link|src=' 3.html)" -eq 0
check 'the page: checks' test "$(grep -o '<th>[a-z]*' 3.html | sed 's/<th>//' | grep -cxF "$(tr ' ' '\n' <<<"$rows")")" -eq 11
check 'the page: the record' test "$(grep -cE '^<tr><td>(date|command|version|commit|mpi|launcher|device|host)<td>.' 3.html)" -eq 8
check 'the page: frames are explained' grep -q 'A framed pair is worth a look, and no failure' 3.html
check 'the page: pairs' test "$(grep -o '<rect class="cell' 3.html | wc -l)" -eq 12

# A baseline: 2.json, where what was measured is changed so far that no busy machine comes near.
baseline high.json 'rows["memory"]["bandwidth_gbs"] = rows["compute"]["gflops"] = 1e6; rows["links"] = rows["links"].update(bandwidth_gbs=1e-3, latency_us=1e-4)'
accept 2 - --baseline high.json --inject nan:rank=1,step=9 --junit nan.xml
failing 'a baseline far above, and gradients that are no numbers' links memory compute training checkpoint
says training 'diverged at step'
kept=$(sed -n "s/^the training's folder is kept: //p" err)
check 'no numbers: the folder of the training' test -s "${kept:-none}/config.json"
rm -rf runs
check 'no numbers: the line' grep -qx 'dtrain: accept: 5 of 11 checks failed (see the rows that begin with FAIL)' err
check 'no numbers: JUnit' grep -q 'name="training" time="[0-9.]*"><failure message="training diverged' nan.xml
says links 'latency_us [0-9.]+, above 0.0001 of the baseline by more than a tenth; 1 pair: '
says memory 'bandwidth_gbs [0-9.]+, below 1e\+06 of the baseline by more than a tenth; '
refuses() { # refuses CODE FILE PATTERN: as a baseline
  accept 2 refused --baseline "$2"
  is "$2" "$1 1 0" "$got $(wc -l <err) $(grep -c '^PASS\|^FAIL\|^MEASURED' out)"
  check "$2 is refused with: $(cat err)" grep -qE "^dtrain: (rank 0 \(.*\): )?$2:?$3" err
}
refuses 66 nowhere.json ' No such file'
head -c 100 2.json >cut.json
refuses 65 cut.json '[0-9]+:[0-9]+: '
echo '[1, 2]' >other.json
refuses 65 other.json ' no baseline \(give a file that dtrain accept --json wrote\)'
baseline four.json 'a["ranks_per_host"] = 4'
refuses 65 four.json ' was measured with 4 ranks on a host, here are 2 '
baseline gpu.json 'a["device"] = "cuda"'
refuses 65 gpu.json ' was measured on the device "cuda", here it is "cpu" '
baseline text.json 'rows["memory"]["bandwidth_gbs"] = "fast"'
refuses 65 text.json ' the figures of .memory. are no measurements'
baseline zero.json 'rows["compute"]["gflops"] = 0'
refuses 65 zero.json ' the figures of .compute. are no measurements'
baseline many.json 'rows["links"].update(x=1)'
refuses 65 many.json ' the figures of .links. are no measurements'
baseline none.json 'a["rows"] = []'
refuses 65 none.json ' has no figures '

# A file that cannot take the results is an error before anything is measured.
refuses_place() { # refuses_place TEXT RUN ARGUMENT...
  local text=$1
  shift
  accept 1 "$@"
  is "no place: $*" "73 dtrain: $text" "$got $(cat err)"
  check "no place, $*: a row" test "$(grep -cE '^(PASS|FAIL) ' out)" -eq 0
}
refuses_place '/proc/none: cannot create the folder: No such file or directory' /proc/none
refuses_place 'fine2: already holds a run (choose another --run; a training resumes with --resume)' fine2
refuses_place 'none/: No such file or directory' - --junit none/x.xml
check 'a folder is left of what was refused' test ! -e runs

DTRAIN_CUDA_MODULE=$module FAKE_GPUS='aaaaaaaa bbbbbbbb' accept 2 gpus
failing 'GPUs'
check 'implementations for GPUs' grep -qE '^PASS +sums .* 11 implementations, nccl, staged, ' out
check 'gradients on GPUs' grep -qE '^PASS +gradients .*\(cuda\)' out

program=$DTRAIN
for fault in 'nan:rank=9,step=1' 'flip:rank=0,step=1,tensor=none' 'drop:rank=0,step=1'; do
  accept 1 impossible --inject "$fault"
  is "$fault" '78 1 0' "$got $(wc -l <err) $(grep -cE '^[A-Z]+  ' out)"
  check "$fault: a folder is left" test ! -e impossible
done
limit=3
accept 2 lost --inject drop:rank=1,step=20
is 'messages that are lost' 76 "$got"
check 'messages that are lost: the rows before' grep -qE '^MEASURED +compute' out
accept 3 stopped --inject stop:rank=1,step=20
is 'a rank that is stopped' 76 "$got"
check 'a rank that is stopped: its name' grep -q 'stalled for .* rank 1 ' err
pkill -KILL -f "$work/stopped" 2>/dev/null
finish
