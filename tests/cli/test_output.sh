#!/usr/bin/env bash
# A run's output: the result alone on stdout, the log on stderr, complete files in its folder; and what happens
# when they cannot be written. usage: DTRAIN=... MPIEXEC=... test_output.sh
# shellcheck disable=SC2317 # functions that wait_for calls
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
command -v python3 >/dev/null || { echo 'skipped: python3 reads the files, and is not installed'; exit 77; }
configure '[1, 8, 8]' 'flatten dense64 dense4' '
  "data": { "format": "synthetic", "train_samples": 320, "test_samples": 100 }, "train": { "epochs": 3, "batch": { "per_rank": 16 } },
  "log": { "every_s": 0.001, "every_steps": 4 }, "threads": 1'

one_line() { # one_line FILE PATTERN
  [[ $(wc -l <"$1") -eq 1 ]] && grep -Eqx -- "$2" "$1"
}

plain() { # no carriage return, no escape sequence, nothing else that moves a cursor
  ! LC_ALL=C grep -q $'[\001-\010\013-\037\177]\|\302[\200-\237]\|\342\200[\250-\256]' "$1"
}

result='test accuracy [0-9]+\.[0-9]{2} % \([0-9]+/100\) after 3 epochs'

# ---- a run ----
for n in 0 1 3; do
  run 0 "$n" --config config.json --run "run$n"
  check "-np $n: stdout is not the result alone: $(cat out)" one_line out "$result"
  check "-np $n: stderr is not plain text" plain err
  check "-np $n: no line of progress" grep -Eq 'step [ 0-9]+/[0-9]+ .* images/s .* left$' err
done
printf '%s\n' "$(cat out)" >first
check 'no memory of a rank' grep -Eqx 'peak memory per rank: [0-9.]+ MB' err
check 'no roster of three ranks' test "$(grep -Ec '^ +[012]  .* of 320 samples$' err)" -eq 3
check 'no arithmetic of the batch' grep -Fq 'batch 16 × 3 = 48, lr 0.001 × 3 = 0.003' err
n_cores=$(getconf _NPROCESSORS_ONLN)
is 'three ranks on fewer cores' "$((n_cores < 3))" "$(grep -c "^  3 ranks share $n_cores cores*: expect no speed-up$" err)"
run 0 0 --config config.json --run chance --lr 1e-9 --epochs 1
check 'learned nothing: no hint' grep -Fqx 'accuracy is near chance (25 %): try a lower train.optimizer.lr' err
check 'the files are not as documented' python3 - <<'PY'
import csv, json, math
folder = "run3"
lines = [json.loads(line) for line in open(f"{folder}/metrics.jsonl")]
kinds = {kind: [r for r in lines if r["type"] == kind] for kind in ("run", "step", "epoch")}
assert sum(map(len, kinds.values())) == len(lines), "records of other types"
assert [len(kinds[k]) for k in ("run", "step", "epoch")] == [1, 5, 3], {k: len(v) for k, v in kinds.items()}
assert kinds["run"][0]["world_size"] == 3 and kinds["run"][0]["global_batch"] == 48 and kinds["run"][0]["parameters"] == 4420
for i, r in enumerate(kinds["epoch"]):
    numbers = ["train_loss", "train_accuracy", "test_loss", "test_accuracy", "images_per_s", "lr"]
    assert list(r) == ["type", "epoch", "step", *numbers, "world_size", "allreduce", "messages", "bytes_sent", "messages_between_hosts", "bytes_between_hosts", "rank0_ms_per_step", "seconds"], list(r)
    assert r["epoch"] == i + 1 and r["step"] == 7 * (i + 1) and r["world_size"] == 3 and r["lr"] == 0.003, r
    assert all(math.isfinite(r[k]) and r[k] >= 0 for k in numbers), r
for i, r in enumerate(kinds["step"]):
    assert list(r) == ["type", "step", "epoch", "loss", "accuracy", "lr", "grad_norm", "images_per_s", "seconds"], list(r)
    assert r["step"] == 4 * (i + 1) and r["epoch"] == 1 + (r["step"] - 1) // 7, r
rows = list(csv.DictReader(open(f"{folder}/metrics.csv")))
assert len(rows) == 3 and all(float(row[k]) == r[k] for row, r in zip(rows, kinds["epoch"]) for k in row), rows
accuracy = float(open("first").read().split("(")[1].split("/")[0]) / 100
summary = json.load(open(f"{folder}/summary.json"))
assert abs(kinds["epoch"][2]["test_accuracy"] - accuracy) < 1e-9 and abs(summary["test_accuracy"] - accuracy) < 1e-9
assert summary["exit_code"] == 0 and summary["epochs"] == 3 and summary["steps"] == 21 and summary["world_size"] == 3
assert set(summary["rank0_ms_per_step"]) == {"data", "forward", "backward", "communication", "update"}
assert 1e6 < summary["host_memory_peak_bytes"] < 1e10 and not any(k.startswith("gpu") for k in summary), summary
json.load(open(f"{folder}/config.json"))
PY
check 'the summary names no checkpoint' grep -q 'checkpoints/step-000000000021.safetensors"' run3/summary.json
for file in config.json summary.json metrics.jsonl metrics.csv; do
  check "$file does not end in a line end, or in two" test "$(tail -c 2 "run3/$file" | tr '\n' '$' | sed 's/^[^$]//')" = '$'
done
check 'two checkpoints are kept' test "$(find run3/checkpoints -type f | wc -l)" -eq 2

# The resolved configuration is a configuration, and trains the same.
run 0 3 --config run3/config.json --run again
check 'the resolved configuration gives another result' cmp -s out first
check 'the resolved configuration does not resolve to itself' cmp -s run3/config.json again/config.json

# Without --run each run has a folder of its own.
run 0 0 --config config.json --set train.max_steps=1
run 0 0 --config config.json --set train.max_steps=1
check 'two runs, not two folders' test "$(find runs/config -mindepth 1 -maxdepth 1 -type d | wc -l)" -eq 2

# Paths are relative to the working directory, also those inside the configuration.
"$tests/lib/python/make_bad_input.py" data data
mkdir -p else/where/data configs
mv data/good else/where/data/mine
sed 's/"format": "synthetic", [^}]*/"format": "idx", "dir": "data\/mine" /' config.json >configs/idx.json
(cd else/where && run 0 2 --config ../../configs/idx.json --run here --set train.epochs=1 && mv out err "$work")
check 'no result in another directory' grep -q '^test accuracy' out
check 'the run folder is elsewhere' test -s else/where/here/summary.json
run 0 2 --config configs/idx.json --data else/where/data/mine --run there --set train.epochs=1

# ---- what only prints ----
for option in --help help --version "help config"; do
  run 0 0 $option
  check "$option: more than 80 columns" test -z "$(grep -v '^  CPU\|^  GPU\|^  build' out | grep '.\{81\}')"
  check "$option: nothing on stdout" test -s out
  check "$option: text on stderr" test ! -s err
  cp out alone
  run 0 2 $option
  check "$option: printed once for each rank" cmp -s out alone
done
run 64 2
is 'nothing at all: how to begin' 1 "$(grep -c 'dtrain init ' out)"
run 0 2 --print-config --config config.json
check '--print-config differs from what a run resolves' diff -q <(python3 -m json.tool out) <(python3 -m json.tool run3/config.json)
for locale in C C.UTF-8; do
  LC_ALL=$locale run 0 0 plan --config config.json --set train.accumulate=2 --set model.layers.1.activation=relu
  check "plan, LC_ALL=$locale: no layers of a block" grep -q ' dense 64, relu' <(sed 's/flatten, //' out)
done
run 0 0 --version
for word in '^dtrain [0-9]' 'MPICH [0-9]' 'x86-64-v\|baseline' '^  build '; do
  check "--version does not say $word" grep -q "$word" out
done

# ---- a terminal: one line, drawn again and again, in its width, also after it was resized; no colour ----
cat >progress.py <<'PY'
import re, signal, subprocess, sys
from terminal import Terminal
progress = r"epoch +\d+/99 +(step +)?\d+/\d+  train "
lines_of = {80: progress + r"\d+\.\d{4} +\d+\.\d\d %.*  [\d:]+ left", 40: progress + r"\d+\.\d{4}.*",
            132: progress.replace("?", "") + r"loss \d+\.\d{4}  train accuracy +\d+\.\d\d %  [\d,]+ images/s  [\d:]+ left"}
clear = "\r\x1b[K"
signal.alarm(120)
terminal = Terminal(*sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
for width, line in lines_of.items():
    terminal.resize(width)
    drawn = []  # five in a row as they should be: those before may have been drawn before it was resized
    while not (len(drawn) > 5 and all(len(d) < width and re.fullmatch(line, d) for d in drawn[-5:])):
        terminal.read()
        banner, *pieces = terminal.text.split(clear)
        drawn = [p for p in pieces[:-1] if p and "\r\n" not in p]  # without the lines of epochs
    if width == 80:
        banner = banner.split("\r\n")
        assert len(banner) > 5 and max(map(len, banner[:-1])) <= 80, banner
assert not re.search("\x1b(?!\\[K)", terminal.text), "escape sequences other than 'clear the line'"
terminal.process.send_signal(signal.SIGTERM)
code = terminal.end()
assert code == 75, code
screen = [line.rpartition(clear)[2] for line in terminal.text.split("\r\n")]
assert any(line.startswith("stopped by SIGTERM") for line in screen), screen[-20:]
left = [line for line in screen if re.search(progress, line)]
assert not left, f"lines of progress are left on the screen: {left}"
PY
endless=(--config config.json --set train.epochs=99 --set data.train_samples=200000 --set train.batch.per_rank=1)
check 'on a terminal' env NO_COLOR=1 python3 progress.py "$DTRAIN" "${endless[@]}" --run terminal1
check "on mpirun's terminal" python3 progress.py "$MPIEXEC" -n 2 "$DTRAIN" "${endless[@]}" --run terminal2

# The line of an epoch, by the terminal's width: the same word never stands for the training samples here and for the test samples there.
cat >epoch.py <<'PY'
import re, subprocess, sys
from terminal import Terminal
lines_of = {132: r"epoch 1/3  train loss \S+  test loss \S+  test accuracy +\S+ %  lr \S+  [\d,]+ images/s  [\d:]+",
            80: r"epoch 1/3  train \S+  test \S+ +\S+ %  lr \S+  [\d,]+ images/s  [\d:]+", 60: r"epoch 1/3  train \S+  test \S+ +\S+ %  lr \S+  [\d:]+"}
for width, line in lines_of.items():
    terminal = Terminal(*sys.argv[1:], "--run", f"width{width}", columns=width, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert terminal.end() == 0
    epoch = re.search(r"epoch 1/3  train[^\r\n]*test[^\r\n]*", terminal.text)[0]
    assert re.fullmatch(line, epoch) and len(epoch) <= width, (width, epoch)
PY
check 'the line of an epoch' python3 epoch.py "$DTRAIN" --config config.json

# ---- where the locale has no ×, there is none; the words of a schedule; numbers that are no images ----
for locale in C POSIX; do
  LC_ALL=$locale run 0 2 --config config.json --run "run-$locale" --set train.max_steps=1 --set train.warmup_epochs=1
  check "LC_ALL=$locale: no ASCII" grep -Fq 'batch 16 x 2 = 32, lr 0.001 x 2 = 0.002' err
  check "LC_ALL=$locale: not ASCII alone" test -z "$(tr -d '\n[:print:]' <err)"
done
check 'warm-up: not one epoch' grep -Fqx '  schedule constant, warm-up 1 epoch; 10 steps/epoch, 3 epochs' err
run 0 1 --config config.json --run no-warm-up --set train.max_steps=1 --set train.warmup_epochs=1
check 'a warm-up that changes nothing is not reported' \
  grep -Fq 'schedule constant, warm-up 1 epoch that changes nothing (set train.warmup_from, such as 0.1); ' err
run 0 1 --config config.json --run warm-up --set train.max_steps=1 --set train.warmup_epochs=1 --set train.warmup_from=0.1
check 'a warm-up of one rank' grep -Fqx '  schedule constant, warm-up 1 epoch; 20 steps/epoch, 3 epochs' err
check 'no learning rate on the line of an epoch' grep -Eq '^epoch 1/3  train loss .*  lr 0\.00[0-9]+  ' err
run 0 1 --config "$configs/linear.json" --run line --set train.epochs=1
check 'a line fit speaks of images' test -z "$(grep images err)"
check 'a line fit has no speed' grep -Eq '^epoch 1/1 .* samples/s ' err
check 'the last line does not name the page' test "$(tail -n 1 err)" = 'report line/report.html'
run 0 1 --config "$configs/linear.json" --run no_page --set train.epochs=1 --set report=false
check 'a page is named that is not there' test -z "$(grep '^report' err)"

# ---- names that would steer the terminal: shown, not obeyed; those that are only not English stay readable ----
hostile=$'odd\033[2J\302\233\342\200\256ü'
shown='odd\x1b[2J\u009b\u202eü'
cp config.json "$hostile.json"
for action in 'run  ' 'saved'; do
  run 0 2 --config "$hostile.json" --run "$hostile" --resume --set "train.max_steps=1"
  check "hostile names: stderr is not plain" plain err
  check "hostile names: no line '$action'" grep -Fq "$action $shown" err
done
check 'hostile names: not resumed from there' grep -Fq ", from $shown/checkpoints/" err
run 0 0 plan --config "$hostile.json"
check "hostile names: plan's stdout is not plain" plain out
check 'hostile names: no name in the plan' test "$(head -n 1 out)" = 'odd_[2J\u009b\u202eü'
run 0 0 --print-config --config "$hostile.json"
check "hostile names: --print-config's stdout is not plain" plain out
run 66 0 --config $'\342\200\256none.json'
check 'hostile names: not in the error' one_line err 'dtrain: \\u202enone\.json: .*'

# ---- a prepared folder: nothing is written, or cut short, through a link ----
prepare() { # prepare KIND FILE
  rm -rf prepared victim
  mkdir prepared
  case $1 in
    symlink) printf 'precious\n' >victim && ln -s ../victim "prepared/$2" ;;
    dangling) ln -s ../victim "prepared/$2" ;;
    hard) printf 'precious\n' >victim && ln victim "prepared/$2" ;;
    fifo) mkfifo "prepared/$2" ;;
    folder) mkdir "prepared/$2" ;;
  esac
}
n=0
for file in run.lock config.json metrics.jsonl metrics.csv summary.json report.html; do
  for kind in symlink dangling hard fifo folder; do
    prepare "$kind" "$file"
    run 73 $((n++ % 2 * 2)) --config config.json --run prepared --resume
    check "$file, $kind: not reported" one_line err "dtrain: .*prepared/$file: is (a symbolic link|a hard link|not a regular file) \\(.*\\)"
    check "$file, $kind: its target was written" test "$(cat victim 2>/dev/null)" = "$([[ $kind != [sh]* ]] || echo precious)"
  done
done

rm -rf prepared && mkdir prepared elsewhere && ln -s ../elsewhere prepared/checkpoints
run 73 2 --config config.json --run prepared
check 'checkpoints, symlink: not reported' one_line err 'dtrain: .*prepared/checkpoints: is a symbolic link \(.*\)'
check 'checkpoints, symlink: its target was written' test -z "$(ls elsewhere)"

# A folder that takes no checkpoints is found before the first step, not at the first save.
if ((EUID == 0)) && unshare -m true 2>/dev/null; then
  mkdir -p full/checkpoints
  unshare -m bash -c 'mount -t tmpfs -o ro dtrain-test full/checkpoints && "$@"' - timeout -k 5 60 "$MPIEXEC" -n 2 "$DTRAIN" \
    --config config.json --run full >out 2>err </dev/null
  check 'checkpoints read-only: not 73' test $? -eq 73
  check 'checkpoints read-only: not reported, or not at once' one_line err 'dtrain: .*full/checkpoints: .*Read-only file system'
elif ((EUID != 0)); then
  mkdir -p full/checkpoints && chmod 555 full/checkpoints
  run 73 2 --config config.json --run full
  check 'checkpoints not writable: not reported, or not at once' one_line err 'dtrain: .*full/checkpoints: .*Permission denied'
else
  echo 'not checked: checkpoints that cannot be written (needs unshare -m)'
fi

run 73 0 --config config.json --run /
check 'the root: not reported' one_line err 'dtrain: --run /: is the root of the file system \(name a folder for the run\)'
check 'the root: something was written' test ! -e /run.lock -a ! -e /checkpoints
run 73 2 --config config.json --run "$work/../../"
check 'the root, by another name: not reported' one_line err 'dtrain: .* is the root of the file system .*'

# ---- what a writer left that was killed goes with the next use of the folder ----
sleep 0 &
gone=$!
wait "$gone"
for name in summary.json report.html config.json; do
  touch "run0/.tmp-$name-$gone"
done
touch run0/checkpoints/.tmp-{try,best.safetensors}-"$gone" "run0/.tmp-mine-$gone"
run 0 0 --config config.json --run run0 --resume
check 'leftovers stay' test "$(find run0 -name '.tmp-*')" = "run0/.tmp-mine-$gone"

# ---- a folder in use ----
flock -s run0/run.lock sleep 0.5 & # as one who looks at the run
reader=$!
wait_for 10 bash -c '! flock -xn run0/run.lock true'
run 0 0 --config config.json --run run0 --resume
check 'somebody looks at the run: in use' test -z "$(grep 'in use' err)"
wait "$reader"
start_steps busy 2 "${endless[@]:2}"
for np in 1 3; do
  run 73 "$np" --config config.json --run busy --resume
  check "-np $np: two lines about a busy folder" one_line err "dtrain: .*busy: in use by pid ${ranks[0]} on host $(hostname) \(.*\)"
done
kill -TERM "$job"
got=0
wait "$job" || got=$?
check "the run whose folder was wanted ends with $got" test "$got" -eq 75
check 'the log of a long run is not plain text' plain busy.err

# ---- nobody takes the output ----
exec 9> >(:) # a pipe whose reader is gone
wait_for 10 test -z "$(jobs -rp)"
got=0
"$DTRAIN" --config config.json --run deaf >out 2>&9 </dev/null || got=$?
check "stderr closed: exit code $got" test "$got" -eq 0
check 'stderr closed: no result' one_line out "$result"
got=0
"$DTRAIN" --config config.json --run mute 2>err >&9 </dev/null || got=$?
check "stdout closed: exit code $got" test "$got" -eq 0
check 'stdout closed: the run is not whole' grep -Eq '"exit_code":[[:space:]]*0,' mute/summary.json
got=0
"$DTRAIN" --config config.json --run unwritten >/dev/full 2>err </dev/null || got=$?
check "stdout on a full disk: exit code $got, expected 74" test "$got" -eq 74
check 'stdout on a full disk: not reported' grep -q '^dtrain: standard output cannot be written' err
got=0
timeout -k 5 60 "$MPIEXEC" -n 2 "$DTRAIN" --config config.json --run deaf2 >&9 2>&9 </dev/null || got=$?
check "nobody reads what mpirun writes: exit code $got" test "$got" -eq 0
exec 9>&-
for lines in 1 2 5 9; do # epochs come while head ends
  timeout -k 5 60 "$MPIEXEC" -n 2 "$DTRAIN" --config config.json --run "head$lines" 2>&1 </dev/null | head -n "$lines" >out
  check "mpirun | head -n $lines: exit code ${PIPESTATUS[0]}" test "${PIPESTATUS[0]}" -eq 0
  check "mpirun | head -n $lines: not these lines" test "$(wc -l <out)" -eq "$lines"
  check "mpirun | head -n $lines: the run is not whole" test -s "head$lines/checkpoints/step-000000000030.safetensors"
done
timeout -k 5 60 "$MPIEXEC" -l -n 2 "$DTRAIN" --config config.json --run labels 2>err </dev/null | cat >out
check "mpirun's labels are lost" grep -q '^\[0\] test accuracy' out
for argument in --help --version; do
  got=0
  "$DTRAIN" "$argument" 2>err >/dev/full || got=$?
  check "$argument to a full disk: exit code $got, expected 74" test "$got" -eq 74
done
run=no-descriptors
got=0
"$DTRAIN" --config config.json --run "$work/$run" >&- 2>&- <&- || got=$?
check "$run: exit code $got" test "$got" -eq 0
check "$run: the log is in another file" is_valid_json_lines "$run/metrics.jsonl"

# ---- no room for checkpoints: a warning, the old ones are kept, and 74 at the end ----
large=(--config config.json --run large --set model.layers.1.units=8000) # 6 MB; MPI wants room for a file of 4 MB
run 0 0 "${large[@]}" --set train.epochs=1
old=$(newest_checkpoint large)
got=0
(
  ulimit -f 5500 # KiB
  exec "$DTRAIN" "${large[@]}" --resume --set checkpoint.every_steps=15 >out 2>err </dev/null
) || got=$?
check "no room: exit code $got, expected 74" test "$got" -eq 74
check 'no room: no warning' grep -q '^dtrain: warning: .*cannot be written: File too large' err
check 'no room: not one line of error' test "$(grep -c '^dtrain: ' <(grep -v warning err))" -eq 1
check 'no room: the old checkpoint is gone' test "$(newest_checkpoint large)" = "$old"
check 'no room: temporary files are left' test -z "$(find large -name '.tmp-*')"
run 0 0 "${large[@]}" --resume
check 'no room: does not resume later' grep -q 'resumed at step 20 .*step-0*20.safetensors' err

# ---- no room for records: said once, the run continues and has its result, and 74 at the end ----
run 0 0 --config config.json --run records --set train.epochs=1
python3 -c 'line = "{\"type\":\"step\",\"step\":1}\n"; print(line * (5500 * 1024 // len(line)), end="")' >records/metrics.jsonl
got=0
(
  ulimit -f 5500 # KiB
  exec "$DTRAIN" --config config.json --run records --resume >out 2>err </dev/null
) || got=$?
check "no room for records: exit code $got, expected 74" test "$got" -eq 74
check 'no room for records: not one warning' test "$(grep -c '^dtrain: warning: metrics.jsonl: File too large' err)" -eq 1
check 'no room for records: not one line of error' test "$(grep -c '^dtrain: .*records: records are missing from the metrics' err)" -eq 1
check 'no room for records: no result' one_line out "$result"
check 'no room for records: not in the summary' grep -Eq '"exit_code":[[:space:]]*74' records/summary.json

if unshare -m true 2>/dev/null; then
  mkdir disk
  unshare -m bash -c 'mount -t tmpfs -o size=300k dtrain-test disk && "$@"' - timeout -k 5 60 "$MPIEXEC" -n 2 "$DTRAIN" --config config.json \
    --run disk/run --set checkpoint.every_steps=1 --set checkpoint.keep=100 >out 2>err </dev/null
  check 'full disk: not 74' test $? -eq 74
  check 'full disk: no warning' grep -q '^dtrain: warning: .*No space left on device' err
  check 'full disk: not one line of error' test "$(grep -c '^dtrain: ' <(grep -v warning err))" -eq 1
else
  echo 'not checked: a full disk under mpirun (needs unshare -m)'
fi
finish
