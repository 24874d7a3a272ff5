#!/usr/bin/env bash
# `dtrain sweep`: every combination is trained as `dtrain` trains it, by one rank or by several; what fails, stops or hangs is told.
# usage: DTRAIN=... MPIEXEC=... test_sweep.sh
# shellcheck disable=SC2054,SC2317 # values with commas; functions that wait_for calls
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
set -e
cat >tiny.json <<'END'
{"data": {"format": "synthetic", "train_samples": 600, "test_samples": 100},
 "model": {"input": [1, 12, 12], "layers": [{"type": "flatten"}, {"type": "dense", "units": 16}, {"type": "dense", "units": 10}]},
 "train": {"epochs": 2, "batch": {"per_rank": 20}}, "report": false}
END
sets=(--set train.optimizer.lr=0.001,0.01,1e6 --set 'train.batch={"global":30},{"global":60}' --set threads=1)

sweep() { run "$1" "$2" sweep --config tiny.json "${@:3}"; } # sweep CODE RANKS OPTION...
begin() { # begin RUN OPTION...: a sweep by two ranks, until both train; sets job
  timeout 100 "$MPIEXEC" -n 2 "$DTRAIN" sweep --config tiny.json --run "$@" >out 2>err </dev/null &
  job=$!
  check "$1: does not begin" wait_for 60 both_train "$1"
}
both_train() { [[ -s $1/1/metrics.jsonl && -s $1/2/metrics.jsonl ]]; }
ended() { # ended CODE WHAT: the job
  got=0
  wait "$job" || got=$?
  is "$2" "$1" "$got"
}
says() { grep -qE -- "$1" "$2" || fail "no '$1' in: $(cat "$2")"; }
results() { rev <"$1/sweep.csv" | cut -d, -f2- | rev; } # without the seconds

# The table has a row for each of six, the best first, which is what the run alone gives; diverged runs are last, and no failure.
sweep 0 1 "${sets[@]}" --run one --json - --html page.html
cp out one.json
sweep 0 3 "${sets[@]}" --run three
cmp <(results one) <(results three) || fail 'three ranks have other results'
[[ $(head -1 one/sweep.csv) == $'run,lr,batch,state,test accuracy,test loss,steps,time\r' ]] || fail "the head is $(head -1 one/sweep.csv)"
says '^4,0.01,"\{""global"":60\}",done,[0-9.]+,[0-9.]+,20,' one/sweep.csv
says '^6,1e6,.*,diverged,,,' one/sweep.csv
says 'Warning: the test samples choose the run' out
says '^run 4 lr=0.01 batch=\{"global":60\}: done, test accuracy 0.' err
says 'run 5: training diverged at step' err
"$DTRAIN" --config tiny.json --run alone --set train.optimizer.lr=0.01 --set 'train.batch={"global":60}' --set threads=1 >/dev/null 2>&1
python3 - <<'END' || fail "the document: $(cat one.json)"
import json, sys
result = json.load(open("one.json"))
rows = result["parts"][0]["rows"]
one = {row["run"]: row for row in rows}[4]
alone = json.load(open("alone/summary.json"))
accuracies = [row["test accuracy"] for row in rows[:4]]
sys.exit(not (result["command"] == "sweep" and [row["run"] for row in rows[4:]] == [5, 6] and accuracies == sorted(accuracies, reverse=True)
              and one["lr"] == "0.01" and one["test loss"] == alone["test_loss"] and one["steps"] == 20 and rows[5]["state"] == "diverged"))
END
cmp alone/checkpoints/step-000000000020.safetensors three/4/checkpoints/step-000000000020.safetensors 2>/dev/null ||
  python3 - alone three/4 <<'END' || fail 'the weights are others than those of the run alone'
import sys
read = lambda run: open(run + "/checkpoints/step-000000000020.safetensors", "rb").read()
tensors = lambda bytes: bytes[8 + int.from_bytes(bytes[:8], "little"):]
sys.exit(tensors(read(sys.argv[1])) != tensors(read(sys.argv[2])))
END
[[ -s one/report.html && -s page.html ]] || fail 'no page'

# A signal to one rank stops all, with checkpoints; --resume ends with what the sweep would have been.
long=(--set train.optimizer.lr=0.001,0.002,0.003 --set train.epochs=150 --set threads=1)
begin stopped "${long[@]}"
kill -TERM "$(grep -oE '[0-9]+' stopped/2/run.lock | head -1)"
ended 75 'after a signal to one rank'
[[ -n $(ls stopped/1/checkpoints) && -n $(ls stopped/2/checkpoints) && ! -e stopped/3 ]] || fail 'not all stopped with a checkpoint'
sweep 0 2 "${long[@]}" --run stopped --resume
sweep 0 1 "${long[@]}" --run whole
cmp <(results stopped) <(results whole) || fail "after --resume: $(cat stopped/sweep.csv)"

# A rank that is frozen is named while the others train, and they save; a run that cannot be is a row, and the others continue.
for frozen in 1 2; do
  DTRAIN_TIMEOUT=2 begin frozen$frozen --set train.seed=1,2 --set train.epochs=100000
  kill -STOP "$(grep -oE '[0-9]+' frozen$frozen/$frozen/run.lock | head -1)"
  ended 76 "with rank $((frozen - 1)) frozen"
  says "sign of life of the sweep stalled for 2 s: rank $((frozen - 1)) " err
  [[ -n $(ls frozen$frozen/$((3 - frozen))/checkpoints) ]] || fail "the run beside frozen rank $((frozen - 1)) is not saved"
done
sweep 78 2 --set train.optimizer.lr=0.001,0.01 --set 'train.batch={"global":30},{"global":6000}' --set threads=1 --run some
says 'run 2: ' err
cmp <(results one | grep '^[13],') <(results some | grep 'done') || fail "a run that fails changes others: $(cat some/sweep.csv)"
says '^2,0.001,.*,failed,,,,' some/sweep.csv

# A rank that loads and evaluates for longer than the limit is not taken for dead by one that has finished.
export DTRAIN_TIMEOUT=2
sweep 0 2 --set data.test_samples=20,250000 --set train.max_steps=1 --set model.layers.1.units=2000 --set threads=1 --run slow
unset DTRAIN_TIMEOUT

# A loss far above that of a model that knows nothing is no result, although it is a number. On a terminal nobody's line has another's behind it.
cat >lines.py <<'END'
import re, sys
from terminal import Terminal
terminal = Terminal(*sys.argv[1:])
code = terminal.end()
for line in re.split(r"[\r\n]+", terminal.text):
    shown = re.sub(r".*\x1b\[K", "", line)
    if " runs, " in shown and "dtrain:" in shown:
        sys.exit(f"behind another's line: {line}")
sys.exit(code)
END
bad=(--set train.optimizer.lr=0.001,1e6,20 --set 'train.batch={"global":10}' --set threads=1)
timeout 100 python3 lines.py "$MPIEXEC" -n 2 "$DTRAIN" sweep --config tiny.json "${bad[@]}" --set train.epochs=40 --run bad </dev/null >/dev/null ||
  fail "on a terminal: $?"
says '^2,1e6,diverged,,,' bad/sweep.csv
says '^3,20,diverged,' bad/sweep.csv

# A run is known again by its values, whatever their order; a new value is a new run, and so is a key of the file that has changed.
sweep 0 1 --set train.optimizer.lr=0.001,0.01 --run values
mkdir before
cp values/sweep.csv before
sleep 0 & # what its writers left who were killed goes
wait $!
touch "values/.tmp-sweep.csv-$!" "values/.tmp-report.html-$!"
sweep 0 2 --set train.optimizer.lr=0.01,1e-3 --set data.dir=elsewhere --run values --resume
cmp <(results values | sed s/1e-3/0.001/) <(results before) || fail "resuming what is done changes it: $(cat values/sweep.csv)"
[[ -z $(find values -name '.tmp-*') ]] || fail 'temporary files are left'
sweep 0 2 --set train.optimizer.lr=0.02,0.01 --run values --resume
[[ $(ls -d values/[0-9]) == $'values/1\nvalues/2\nvalues/3' ]] || fail "other folders: $(ls values)"
says '^3,0.02,done,' values/sweep.csv
cmp <(results values | grep '^2,') <(results before | grep '^2,') || fail 'a run that is done is trained again'
sweep 0 1 --set train.optimizer.lr=0.001,0.01 --set train.epochs=1 --run values --resume
says '^5,0.01,done,[0-9.]+,[0-9.]+,30,' values/sweep.csv

# Asked to stop before it has a folder: as later, and what was not begun is called so.
"$DTRAIN" sweep --config tiny.json --set train.seed=1,2 --set train.epochs=100000 --run early >out 2>err </dev/null &
job=$!
until [[ $(sed -n 's/^SigBlk:.*\(....\)$/\1/p' /proc/$job/status 2>/dev/null) == 4[0-9a-f]* ]]; do [[ -d /proc/$job ]] || break; done
kill -TERM $job
ended 75 'a signal before there is a folder'
says '^2,2,not begun,,,,' early/sweep.csv

refused() { refuses "$1" 1 "^$2" sweep --config tiny.json "${@:3}"; } # refused CODE TEXT OPTION...
refused 64 '--set train.epochs is given twice' --set train.epochs=1 --set train.epochs=2
refused 64 '--set train.epochs=1,,2: an empty value' --set train.epochs=1,,2
refused 64 '--set train.epochs: not of the form' --set train.epochs
refused 64 '--set =1,2: not of the form' --set =1,2
refused 64 '--set train.epochs=1,: an empty value' --set train.epochs=1,
refused 64 '--set: train.seed: expected an integer 0..9007199254740991, got a list of 2' --set 'train.seed=[1,2],3'
refused 64 '--set: train.seed: expected an integer 0..9007199254740991, got string "f,g"' --set 'train.seed="f,g",3'
refused 64 '--set: train.seed: expected an integer 0..9007199254740991, got an object' --set 'train.seed={"e":"},]\",\""},3'
refused 64 'more than 1000 runs' --set "train.seed=$(seq -s, 40)" --set "train.epochs=$(seq -s, 40)"
refused 64 '--set: train.epoch: unknown key' --set train.epoch=1,2
refused 64 'nothing to sweep (list the values of a key: --set KEY=A,B)' --set train.epochs=1
refused 64 '--resume: no run is named' --resume
refused 64 'sweep: --resume is for all runs' --resume=one/1/checkpoints --run one
refused 73 'one: is already there' --run one --set train.seed=1,2
refused 73 '--run /: is the root of the file system' --run / --resume --set train.seed=1,2
mkdir linked
ln -s ../before/sweep.csv linked/sweep.csv
refused 73 'linked/sweep.csv: is a symbolic link' --run linked --resume --set train.seed=1,2
rm linked/sweep.csv
mkdir target
echo precious >target/report.html
ln -s ../target linked/2
refused 73 'linked/2: is a symbolic link' --run linked --resume --set train.optimizer.lr=0.1,0.2
rm -rf linked/2
ln -s nowhere linked/2
refused 73 'linked/2: is a symbolic link' --run linked --resume --set train.optimizer.lr=0.1,0.2
[[ $(ls target) == report.html && $(cat target/report.html) == precious ]] || fail "the target of a link has changed: $(ls target)"
finish
