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
results() { cut -d, -f1-8 "$1/sweep.csv"; } # without the seconds

# The table has a row for each of six, which is what the run alone gives; who diverged is last, and no failure of the sweep.
sweep 0 1 "${sets[@]}" --run one
sweep 0 3 "${sets[@]}" --run three
cmp <(results one) <(results three) || fail 'three ranks have other results'
[[ $(head -1 one/sweep.csv) == 'run,"train.optimizer.lr","train.batch","threads",verdict,test_accuracy,test_loss,steps,seconds' ]] ||
  fail "the head is $(head -1 one/sweep.csv)"
says '^4,"0.01","\{""global"":60\}","1",done,[0-9.]+,[0-9.]+,20,' one/sweep.csv
says '^6,"1e6",.*,diverged,nan,nan,' one/sweep.csv
says '^run +lr +batch +verdict +test accuracy +test loss +steps +time$' out
[[ $(sed -n '6,7p' out | awk '{print $1}' | sort | tr '\n' ' ') == '5 6 ' ]] || fail "who diverged is not last: $(cat out)"
awk 'NR > 1 && NR < 6 {print $5}' out | sort -rnc || fail "the best is not first: $(cat out)"
says '^ *6/6  run ' err
says 'run 5: training diverged at step' err
"$DTRAIN" --config tiny.json --run alone --set train.optimizer.lr=0.01 --set 'train.batch={"global":60}' --set threads=1 >/dev/null 2>&1
loss=$(python3 -c 'import json; print("%.9g" % json.load(open("alone/summary.json"))["test_loss"])')
says "^4,.*,$loss,20," three/sweep.csv
cmp alone/checkpoints/step-000000000020.safetensors three/4/checkpoints/step-000000000020.safetensors 2>/dev/null ||
  python3 - alone three/4 <<'END' || fail 'the weights are others than those of the run alone'
import sys
read = lambda run: open(run + "/checkpoints/step-000000000020.safetensors", "rb").read()
tensors = lambda bytes: bytes[8 + int.from_bytes(bytes[:8], "little"):]
sys.exit(tensors(read(sys.argv[1])) != tensors(read(sys.argv[2])))
END
[[ -s one/report.html ]] || fail 'no page'

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
rm -rf one/2 one/sweep.csv
touch one/2
sweep 73 2 "${sets[@]}" --run one --resume
says 'run 2: ' err
cmp <(grep -v '^2,' <(results one)) <(grep -v '^2,' <(results three)) || fail 'one run that fails changes the others'
says '^2,.*,failed,nan,nan,nan,nan$' one/sweep.csv

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
says '^2,"1e6",.*,diverged,nan,nan,' bad/sweep.csv

# Each run's results are those of its own values: resuming with others is refused, also where the file has changed.
sweep 0 1 --set train.optimizer.lr=0.001,0.01 --run values
cp values/sweep.csv before.csv
sweep 78 2 --set train.optimizer.lr=0.01,0.001 --run values --resume
says '^dtrain: (rank 0 .*: )?values: run 1: train.optimizer.lr was 0.001, now it is 0.01 \(' err
sweep 78 1 --set train.optimizer.lr=0.001,0.01 --set train.epochs=1 --run values --resume
says '^dtrain: values: run 1: train.epochs was 2, now it is 1 \(' err
cmp before.csv values/sweep.csv || fail 'a refused sweep has written'
sleep 0 & # what its writers left who were killed goes
wait $!
touch "values/.tmp-sweep.csv-$!" "values/.tmp-report.html-$!"
sweep 0 2 --set train.optimizer.lr=0.001,0.01 --run values --resume
[[ -z $(find values -name '.tmp-*') ]] || fail 'temporary files are left'
cmp <(cut -d, -f1-6 values/sweep.csv) <(cut -d, -f1-6 before.csv) || fail 'resuming what is done changes it'

# Asked to stop before it has a folder: as later, and what was not begun is called so.
"$DTRAIN" sweep --config tiny.json --set train.seed=1,2 --set train.epochs=100000 --run early >out 2>err </dev/null &
job=$!
until [[ $(sed -n 's/^SigBlk:.*\(....\)$/\1/p' /proc/$job/status 2>/dev/null) == 4[0-9a-f]* ]]; do [[ -d /proc/$job ]] || break; done
kill -TERM $job
ended 75 'a signal before there is a folder'
says '^2,"2","100000",not begun,nan,nan,nan,nan$' early/sweep.csv

refused() { refuses "$1" 1 "^$2" sweep --config tiny.json "${@:3}"; } # refused CODE TEXT OPTION...
refused 64 '--set train.epochs is given twice' --set train.epochs=1 --set train.epochs=2
refused 64 '--set train.epochs=1,,2: an empty value' --set train.epochs=1,,2
refused 64 '--set train.epochs: not of the form' --set train.epochs
refused 64 'more than 1000 runs' --set "train.seed=$(seq -s, 40)" --set "train.epochs=$(seq -s, 40)"
refused 64 '--set: train.epoch: unknown key' --set train.epoch=1,2
refused 64 '--resume: no run is named' --resume
refused 64 'sweep: --resume is for all runs' --resume=one/1/checkpoints --run one
refused 73 'one: is already there' --run one
refused 73 '--run /: is the root of the file system' --run / --resume
mkdir linked
ln -s ../before.csv linked/sweep.csv
refused 73 'linked/sweep.csv: is a symbolic link' --run linked --resume
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
