#!/usr/bin/env bash
# dtrain accept: a row for each check, and each fails when it should.
# usage: DTRAIN=... MPIEXEC=... test_accept.sh WRONG_CLUSTER MODULE: wrong_cluster.c, fake_module.c
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
wrong_cluster=$1 module=$2
program=$DTRAIN
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
baseline() { # baseline FILE PYTHON: changes a, the JSON
  python3 -c 'import json, sys
a = json.load(open("2.json")); rows = {row["name"]: row["figures"] for row in a["rows"]}
exec(sys.argv[2]); json.dump(a, open(sys.argv[1], "w"))' "$1" "$2"
}
baseline low.json 'for f in rows.values():
  for name in f: f[name] *= 1000 if name == "latency_us" else 0.001'
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

# What cannot take the results, before anything is measured.
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

program=$wrong_cluster
mkfifo deaf # a file that cannot be written hides neither the verdict nor the next file
WRONG='example gradients sums checkpoint frozen' accept 2 spoilt --baseline low.json --json deaf --html spoilt.html
check 'a file that cannot be written: not told' grep -q '^dtrain: deaf: nobody reads from it' err
check 'a file that cannot be written: the page' grep -q '</html>' spoilt.html
failing 'much is wrong, and a baseline far below' example gradients sums checkpoint frozen
verdicts 'a baseline far below' PASS launch doctor links memory compute training
says example 'the weight after the step of input 1 on rank 0: '
says gradients 'rank 1 \(.*\): [1-9][0-9]* of 92 derivatives differ'
says sums ': 2 of 100003 sums are wrong on some rank$'
says checkpoint 'rank 1 \(.*\): nowhere: '
says frozen 'did not name rank 1 .*: somebody is late$'
WRONG='nccl version' DTRAIN_CUDA_MODULE=$module FAKE_GPUS='aaaaaaaa bbbbbbbb' accept 2 nccl
failing 'sums by NCCL' launch doctor sums
says launch 'versions: rank 1 \(.*\) has dtrain 9'
says sums 'nccl: 2 of 100003 sums'
WRONG=uneven accept 3 uneven
failing 'an uneven launch' launch
says launch 'lonely has 1 rank, .* has 2 \('
export ONE_EACH=1
WRONG='bandwidth memory compute' accept 4 slow
failing 'a slow host' links memory compute
says links 'node2: 5 GB/s, 50 % below the median of the hosts \(leave it out: mpirun -hosts, sbatch -x node2\)'
says memory 'node2: 10 GB/s, 50 % below the median of the hosts'
says compute 'node2.* 10 GFLOP/s, 50 % below the median of the (hosts|ranks)'
cat >terminal.py <<'PYTHON'
"""usage: terminal.py COLUMNS COMMAND...: what it writes to a terminal so wide, to stdout; all lines have to fit."""
import fcntl, os, pty, re, struct, sys, termios
columns, command = int(sys.argv[1]), sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execvp(command[0], command)
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
out = b""
while True:
    try:
        data = os.read(fd, 65536)
    except OSError:
        break
    if not data:
        break
    out += data
os.waitpid(pid, 0)
text = out.decode()
shown = [re.sub(r"\x1b\[[0-9;]*[a-zA-Z]", "", part) for part in re.split(r"\r?\n|\r", text)]
wide = [line for line in shown if len(line) > columns and len(line.split()) > 1 and not line.startswith("dtrain: ")]
assert not wide, wide
sys.stdout.write(text)
PYTHON
terminal() { # terminal RUN COLUMNS: three hosts, of which the second has wrong gradients, and the third slow messages
  WRONG='gradients latency' timeout -k 5 90 python3 terminal.py "$2" "$MPIEXEC" -n 3 "$program" accept --short --run "$1" >out 2>err </dev/null
  check "$1: $(cat err)" test -z "$(cat err)"
}
LC_ALL=C.UTF-8 terminal colours 60
check 'a terminal: what is under way' grep -qP '\.{4} +gradients +\.{3}  \r\x1b\[K' out
check 'a terminal: a mark for each host' grep -qF $'\033[1;31mFAIL\033[0m      gradients' out
check 'a terminal: the host that fails' grep -qF $'\033[32m✓\033[0m\033[1;31m✗\033[0m\033[32m✓\033[0m' out
LC_ALL=C NO_COLOR=1 terminal plain 180
check 'NO_COLOR: colours' test "$(grep -c $'\033\\[[0-9]' out)" -eq 0
check 'the C locale: a mark for each host' grep -qE 'FAIL +gradients +[0-9.]+ s  \+x\+' out
check 'the C locale: another alphabet' test "$(grep -c "$(printf '[\200-\377]')" out)" -eq 0
check 'slow messages' grep -qE 'FAIL +links +[0-9.]+ s  \+\+x  node2: messages take 3.0 us, 3.0 times the median of the hosts' out
unset ONE_EACH

# The doctor's warnings, in full and everywhere. One of two hosts is slow, but which is the odd one?
ONE_EACH=1 WRONG='busy memory' accept 2 busy --junit busy.xml --json busy.json --html busy.html
failing 'a busy host'
verdicts 'two hosts' MEASURED links memory compute
check 'two hosts compare nothing' grep -qE '^MEASURED  compute .*; nothing to compare with: 2 (hosts|ranks), no --baseline$' out
load='load: load 15\.2 on 4 CPUs of node0: others use them \(wait for them to end, or ask for whole nodes: sbatch --exclusive\)'
check 'a busy host: the terminal' grep -qE "^ +warning: $load\$" out
check 'a busy host: JUnit' grep -qE "<property name=\"warning\" value=\"$load\"/>" busy.xml
check 'a busy host: the page' grep -qE "<br>warning: $load" busy.html
check 'a busy host: JSON' grep -qE "\"$load\"" busy.json

# Other programs on the CPUs: a comment above what bench measures.
for bench in 'allreduce -b 8 -e 8 -n 1' "blocks --config $configs/synthetic.json" "scaling --config $configs/synthetic.json"; do
  # shellcheck disable=SC2086
  WRONG=busy timeout -k 5 90 "$MPIEXEC" -n 2 "$program" bench $bench --set device=cpu >out 2>err </dev/null
  check "bench $bench: the load" grep -qE '^# load 15\.2 on 4 CPUs of .*: others use them$' out
  check "bench $bench: its place" grep -qE '^# load' <(head -n 1 out)
done

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
