#!/usr/bin/env bash
# dtrain accept: each check fails when it should, and says so on every kind of output.
# usage: DTRAIN=... MPIEXEC=... test_accept_wrong.sh WRONG_CLUSTER MODULE: wrong_cluster.c, fake_module.c
# shellcheck source=tests/lib/accept.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/accept.sh"

# A baseline of this machine, so far below that no busy machine comes near.
accept 2 - --json 2.json
baseline low.json 'for f in rows.values():
  for name in f: f[name] *= 1000 if name == "latency_us" else 0.001'

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
cat >fits.py <<'PYTHON'
"""usage: fits.py COLUMNS COMMAND...: what it writes to a terminal so wide, to stdout; all lines have to fit."""
import os, re, sys
from terminal import Terminal
columns = int(sys.argv[1])
terminal = Terminal(*sys.argv[2:], columns=columns, env={**os.environ, "TERM": "xterm"})
terminal.end()
text = terminal.text
shown = [re.sub(r"\x1b\[[0-9;]*[a-zA-Z]", "", part) for part in re.split(r"\r?\n|\r", text)]
wide = [line for line in shown if len(line) > columns and len(line.split()) > 1 and not line.startswith("dtrain: ")]
assert not wide, wide
sys.stdout.write(text)
PYTHON
terminal() { # terminal RUN COLUMNS: three hosts, of which the second has wrong gradients, and the third slow messages
  WRONG='gradients latency' timeout -k 5 90 python3 fits.py "$2" "$MPIEXEC" -n 3 "$program" accept --short --run "$1" >out 2>err </dev/null
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

# Other programs on the CPUs: a comment above the measurements.
for command in 'bench allreduce -b 8 -e 8 -n 1' "bench model --config $configs/synthetic.json" "bench scaling --config $configs/synthetic.json"; do
  # shellcheck disable=SC2086
  WRONG=busy timeout -k 5 90 "$MPIEXEC" -n 2 "$program" $command --set device=cpu >out 2>err </dev/null
  check "$command: the load" grep -qE '^# load 15\.2 on 4 CPUs of .*: others use them$' out
  check "$command: its place" grep -qE '^# load' <(head -n 1 out)
done
finish
