#!/usr/bin/env bash
# What a resumed run and the list of runs say is true: how many epochs are done and to be done, that nothing was there to resume, and that
# a folder may not be read. usage: DTRAIN=... MPIEXEC=... test_true_words.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../lib/cli_lib.sh"
configure '[1, 8, 8]' 'flatten dense10' '
  "data": { "format": "synthetic", "train_samples": 256, "test_samples": 32 }, "train": { "epochs": 3, "batch": { "global": 32 } },
  "report": false'
listed() { # listed RUN: its state and epochs; `report --follow` tells the same epochs
  "$DTRAIN" runs "$1" | awk 'NR == 5 { print $2, $3 "/" $4 }'
}
starts='has no checkpoint: training starts at step 0'

train run 1
is 'a run' 'done 3/3' "$(listed run)"
is 'no resume: said to start afresh' 0 "$(grep -c "$starts" run.err)"
train run 1 --resume --set train.epochs=1
is 'fewer epochs than are done' 'done 3/3' "$(listed run)"
check 'fewer epochs: report --follow' grep -q '^progress  *epoch 3 of 3,' <("$DTRAIN" report --follow run)
train other 1 --resume=run
is 'nothing to do in a new folder' 'done 3/3' "$(listed other)"
train longer 1 --resume=run --set train.epochs=5
is 'more epochs in a new folder' 'done 5/5' "$(listed longer)"
train longer 1 --resume --set train.epochs=4
is 'fewer epochs in that folder' 'done 5/5' "$(listed longer)"

train typo 1 --resume
says 'a folder that was not there' "  typo $starts" typo.err
mkdir -p empty/checkpoints
train empty 2 --resume
says 'a folder without checkpoints' "  empty $starts" empty.err
train typo 1 --resume
is 'a folder with one: said to start afresh' 0 "$(grep -c "$starts" typo.err)"

# Ranks, batch and rate before and after, where they differ; a schedule that goes on is no change.
changed() { sed -n 's/^  changed since then: //p' "$1.err"; } # changed RUN
cosine=(--set 'train.schedule={"type":"cosine"}' --set train.optimizer.lr=0.01)
train rates 1 "${cosine[@]}" --set train.max_steps=12
cp -r rates steps
train rates 1 "${cosine[@]}" --resume
is 'the same schedule' 'train.max_steps was 12, now it is 0' "$(changed rates)"
train steps 1 "${cosine[@]}" --resume --set train.epochs=6
# 0.005 (1 + cos(pi 11 / 24)) is the rate of the last step, 0.005 (1 + cos(pi 12 / 48)) that of the next
check 'a longer cosine' grep -q '; learning rate was 0.005653, now it is 0.008536$' <(changed steps)
train wide 1 --set 'train.batch={"per_rank":16}' --set train.epochs=1
train wide 2 --set 'train.batch={"per_rank":16}' --set train.epochs=1 --resume
is 'another number of ranks' 'number of ranks was 1, now it is 2; global batch was 16, now it is 32; learning rate was 0.001, now it is 0.002' "$(changed wide)"

# Root may read everything.
others=()
if [[ $(id -u) == 0 ]]; then
  command -v setpriv >/dev/null || { echo "skipped: setpriv, which gives up root's rights, is not installed"; exit 77; }
  others=(setpriv --reuid 65534 --regid 65534 --clear-groups)
fi
chmod 711 "$work"
mkdir -p all/theirs/deep none/a
mv run all/
chmod 0 all/theirs/deep none/a
denied() { # denied CODE FOLDER WORDS
  got=0
  "${others[@]}" "$DTRAIN" runs "$2" >out 2>err </dev/null || got=$?
  is "runs $2" "$1" "$got"
  check "runs $2: no '$3'" grep -qF "$3" out err
}
if "${others[@]}" test -x "$DTRAIN"; then
  denied 77 none 'dtrain: none/a: permission denied'
  denied 77 all/theirs 'dtrain: all/theirs/deep: permission denied'
  denied 77 none/a 'dtrain: none/a: permission denied'
  denied 0 all 'all/run'
fi
chmod 700 all/theirs/deep none/a
finish
