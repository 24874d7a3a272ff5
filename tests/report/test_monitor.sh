#!/usr/bin/env bash
# A run that ends early, with a rate that goes down on a plateau, and keeps its best checkpoint: it says why it ended, and a run that was
# stopped on the way, with any strategy, ends at the same epoch with the same bits.
. "$(dirname "$0")/../lib/cli_lib.sh"
configure '[1, 8, 8]' 'flatten dense16:relu dense10' '
  "data": { "format": "synthetic", "train_samples": 300, "test_samples": 60 },
  "train": { "epochs": 40, "seed": 3, "batch": { "global": 60 }, "optimizer": { "lr": 0.03 }, "early_stopping": { "metric": "test_loss", "patience": 4 }, "schedule": { "type": "plateau", "metric": "test_accuracy", "factor": 0.5, "patience": 2 } },
  "checkpoint": { "best": "test_loss", "keep": 99 }, "report": false'
epochs() { # of a run: what the test samples gave, and the rate
  cut -d , -f 1-6,8 "$1/metrics.csv"
}
step_of_epoch() { # its checkpoint
  awk -F , -v epoch="$2" '$1 == epoch { printf "step-%012d.safetensors", $2 }' "$1/metrics.csv"
}
tensors() { # of the best checkpoint, whose header has the configuration: weights and both states of Adam
  tail -c $((3 * 4 * (64 * 16 + 16 + 16 * 10 + 10))) "$1/checkpoints/best.safetensors"
}
field() { # field RUN KEY: of its summary, a number or text
  sed -n "s/^\t\"$2\":\t\"\{0,1\}\([^\"]*[^\",]\)\"\{0,1\},*\$/\1/p" "$1/summary.json"
}

# lines_agree RUN: terminal, summary and report give one reason, that of the table.
lines_agree() {
  local run=$1 best_epoch n best
  read -r best_epoch best < <(tail -n +2 "$run/metrics.csv" | sort -t , -k 5,5g -s | head -n 1 | awk -F , '{ printf "%d %.4f\n", $1, $5 }')
  n=$(tail -n 1 "$run/metrics.csv" | cut -d , -f 1)
  check "$run: not early" test "$n" -lt 40
  check "$run: not after 4 epochs" test "$((n - best_epoch))" -eq 4
  local why="test loss has not improved for 4 epochs; best $best at epoch $best_epoch"
  check "$run: the terminal: not '$why'" grep -qx "stopped early: $why" "$run.err"
  check "$run: the summary: not '$why'" test "$(field "$run" stopped_early)" = "$why"
  check "$run: the best is not named" grep -qx "best  $run/checkpoints/best.safetensors: test loss $best at epoch $best_epoch" "$run.err"
  check "$run: the summary: not the best" test "$(field "$run" best_epoch) $(field "$run" best_metric)" = "$best_epoch test loss"
  check "$run: the best is not of its epoch" cmp "$run/checkpoints/best.safetensors" "$run/checkpoints/$(step_of_epoch "$run" "$best_epoch")"
}

# resumes NAME RANKS ARGUMENT...: stopped inside an epoch, at the end of one, and just before the last decision; then the same bits.
resumes() {
  local name=$1 ranks=$2 all last
  shift 2
  train "$name" "$ranks" "$@"
  lines_agree "$name"
  all=$(tail -n 1 "$name/metrics.csv" | cut -d , -f 2)
  last=$(basename "$(newest_checkpoint "$name")")
  for stop in 13 $((all / 2)) $((all - 5)) $((all - 1)); do
    train "$name-parts" "$ranks" --resume "$@" --set train.max_steps="$stop"
  done
  train "$name-parts" "$ranks" --resume "$@"
  check "$name: another result" cmp "$name.out" "$name-parts.out"
  check "$name: other epochs" diff <(epochs "$name") <(epochs "$name-parts")
  check "$name: another end" cmp "$name/checkpoints/$last" "$name-parts/checkpoints/$last"
  check "$name: another best" cmp <(tensors "$name") <(tensors "$name-parts")
  check "$name: another best epoch" test "$(field "$name" best_epoch)" = "$(field "$name-parts" best_epoch)"
  check "$name: another reason" test "$(field "$name" stopped_early)" = "$(field "$name-parts" stopped_early)"
}

resumes alone 1
resumes allreduce 2
resumes servers 3 --set distributed.strategy=parameter_server
resumes pipeline 2 --set distributed.strategy=pipeline
check 'the rate never went down' test "$(tail -n +2 alone/metrics.csv | cut -d , -f 8 | sort -u | wc -l)" -ge 2
check 'a rate that goes down is not said' grep -q '^  lr 0.03 -> 0.015: a plateau of the test accuracy$' alone.err
check 'the banner does not say it' grep -qx '  ends early when the test loss has not improved for 4 epochs' alone.err

# Without repeatable bits, but it ends: nothing improves by 100.
train async 3 --set distributed.strategy=parameter_server --set distributed.parameter_server.mode=async --set train.early_stopping.min_delta=100
check 'async: not 5 epochs' test "$(tail -n 1 async/metrics.csv | cut -d , -f 1)" = 5
check 'async: another reason' grep -q '^stopped early: test loss has not improved for 4 epochs; best .* at epoch 1$' async.err
check 'async: the best is not of its epoch' cmp async/checkpoints/best.safetensors "async/checkpoints/$(step_of_epoch async "$(field async best_epoch)")"

# A run that ended early stays ended, unless it gets more patience; then the reason is another.
train alone 1 --resume
check 'ended early, resumed: continues' grep -qx 'nothing to do: the run had ended' alone.err
check 'ended early, resumed: another reason' grep -q '^stopped early: test loss has not improved for 4 epochs' alone.err
"$DTRAIN" report alone > report.txt 2> report.err
check 'the state does not say why' grep -q '^state  *done: stopped early, test loss has not improved' report.txt
train alone 1 --resume --set train.early_stopping.patience=6
check 'more patience: the old reason' grep -q '^stopped early: test loss has not improved for 6 epochs' alone.err

# A best that has been removed is sought anew; eval finds the one that is there.
check 'eval: not the best' test "$("$DTRAIN" eval allreduce/checkpoints/best.safetensors 2>/dev/null | sed -n 's/^test loss  */test loss /p')" = \
  "$(sed -n 's/^best .*: \(test loss [0-9.]*\) at epoch.*/\1/p' allreduce.err)"
rm alone/checkpoints/best.safetensors
train alone 1 --resume --set 'train.early_stopping={"metric":"none"}' --set train.epochs=41
check 'no best: not said' grep -q 'best.safetensors: not there any more' alone.err
check 'no best: none is made' test -e alone/checkpoints/best.safetensors

# Where it can mean nothing.
refused() { refuses 64 0 "=--set: $1" --config config.json --run refused "${@:2}"; } # refused TEXT ARGUMENT...
refused 'train.schedule.metric: mean squared error knows no classes, and so no accuracy (take test_loss)' --set model.loss=mean_squared_error \
  --set train.schedule.metric=test_accuracy
refused 'checkpoint.best: mean squared error knows no classes, and so no accuracy (take test_loss)' --set model.loss=mean_squared_error \
  --set checkpoint.best=test_accuracy
refused 'train.early_stopping.metric: with distributed.average off the test result mixes replicas that drift apart (leave it on)' \
  --set distributed.average=false --set train.early_stopping.metric=test_accuracy
finish
