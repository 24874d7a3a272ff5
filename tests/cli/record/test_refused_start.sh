#!/usr/bin/env bash
# A start that is refused, whatever the reason, leaves every file of an earlier run as it is, says so on stderr alone, and takes away the
# folders that it has made. usage: DTRAIN=... MPIEXEC=... test_refused_start.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../lib/cli_lib.sh"
configure '[1, 8, 8]' 'flatten dense8:relu dense10' '
  "data": { "format": "synthetic", "train_samples": 256, "test_samples": 32, "validation": 0.25 },
  "train": { "epochs": 2, "batch": { "global": 32 } }, "checkpoint": { "best": "validation_loss" }, "tensorboard": false'

contents() { # contents FOLDER: each file but the lock and the largest, with its hash
  find "$1" -type f -size -9M ! -name run.lock -exec sha256sum {} + | sort -k 2
}
state() { "$DTRAIN" runs "$1" | awk 'NR == 5 { print $2, $3 "/" $4 }'; }

# ---- a run that is done

train done 2
is 'a run that is done' 'done 2/2' "$(state done)"
cp -r done good
contents done >before
printf 'no checkpoint' >text
: >empty
head -c 900 "$(newest_checkpoint done)" >cut

still() { # still WHAT: of the run `done`
  contents done >after
  n_checks=$((n_checks + 1))
  cmp -s before after || fail "$1: files of the run have changed" <(diff before after)
  is "$1: its state" 'done 2/2' "$(state done)"
}
leaves() { # leaves CODE RANKS TEXT ARGUMENT...: a start that is refused
  refuses "$1" "$2" "$3" --config config.json --run done "${@:4}"
  still "${*:4}"
}

leaves 73 1 'already holds a run'
for n in 1 2; do
  leaves 78 "$n" 'train.seed was 1, now it is 9' --resume --set train.seed=9
  leaves 78 "$n" 'units was 8, now it is 4' --resume --set model.layers.1.units=4
  leaves 66 "$n" nowhere --resume=nowhere
done
while read -r code text arguments; do
  # shellcheck disable=SC2086 # several words
  leaves "$code" 1 "${text//_/ }" $arguments
done <<'CASES'
78 training_samples --resume --set data.train_samples=320
78 train.optimizer.type --resume --set train.optimizer={"type":"sgd","lr":0.1}
78 data.sharding --resume --set data.sharding=replicate
78 data.validation --resume --set data.validation=0.5
78 batch --resume --set train.batch={"global":4096}
65 text --resume=text
65 cut --resume=cut
65 empty --resume=empty
66 text/below --resume=text/below
66 nowhere --resume --data nowhere --set data={"format":"idx","validation":0.25}
64 --weights --resume=cut --weights text
64 unknown_key --resume --set no_such_key=1
64 nan --resume --inject nan
CASES

# The records are beyond reading, or there is no room for new ones.
beyond() { # beyond WHAT CODE TEXT NAME: `make` has made the file `done/NAME`
  contents done >before
  refuses "$2" 1 "$3" --config config.json --run done --resume --set train.epochs=4 --set tensorboard="${5:-false}"
  contents done >after
  check "$1: files of the run have changed" cmp -s before after
  rm -rf "done/$4"
  [[ ! -e good/$4 ]] || cp -r "good/$4" done
}
truncate -s 1100M done/metrics.csv
beyond 'metrics.csv, too large' 65 'too large' metrics.csv
rm done/metrics.jsonl && mkdir done/metrics.jsonl
beyond 'metrics.jsonl, a folder' 73 metrics.jsonl metrics.jsonl
ln -sf ../text done/metrics.csv
beyond 'metrics.csv, a link' 73 metrics.csv metrics.csv
if "$DTRAIN" --config config.json --set tensorboard=true --print-config >/dev/null 2>&1; then
  : >done/tensorboard
  beyond 'tensorboard, a file' 73 tensorboard tensorboard true
fi
rm -rf done && cp -r good done
contents done >before

# Only damaged checkpoints are left: their warnings come first.
for file in done/checkpoints/*; do cp cut "$file"; done
contents done >before
run 65 1 --config config.json --run done --resume
check 'all damaged: not said' grep -q 'checkpoints are damaged' err
still 'all damaged'

# It was no run yet, but the right command goes on.
rm -rf done && cp -r good done
run 0 1 --config config.json --run done --resume --set train.epochs=3
is 'the right command' 'done 3/3' "$(state done)"

# ---- a run that was stopped, and may go on

rm -rf done && cp -r good done
sed -i 's/"exit_code":\t0/"exit_code":\t75/' done/summary.json done/status.json
contents done >before
refuses 78 1 'train.seed' --config config.json --run done --resume --set train.seed=9
contents done >after
check 'stopped: files of the run have changed' cmp -s before after
is 'stopped: its state' 'stopped 2/2' "$(state done)"

# ---- folders that were not there

gone() { # gone CODE TEXT ARGUMENT...: the working folder is as it was
  find . ! -name out ! -name err ! -name names | sort >names
  refuses "$1" 1 "$2" --config config.json "${@:3}"
  is "${*:3}: what is left" '' "$(find . ! -name out ! -name err ! -name names | sort | comm -13 names -)"
}
for place in '--run new' '--run new/below/it' ''; do
  # shellcheck disable=SC2086 # two words, or none
  {
    gone 66 nowhere $place --resume=nowhere
    gone 65 text $place --weights text
    gone 65 cut $place --resume=cut
    gone 78 seed $place --resume="$(newest_checkpoint good)" --set train.seed=9
    gone 78 batch $place --set 'train.batch={"global":4096}'
  }
done
mkdir kept
refuses 66 2 nowhere --config config.json --run kept/new --weights nowhere
is 'a folder that was there' 1 "$(find kept | wc -l)"
finish
