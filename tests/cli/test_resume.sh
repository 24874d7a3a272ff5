#!/usr/bin/env bash
# Resume is bit-exact, also in the middle of an epoch, and also after kill -9 at any moment: the last checkpoint of an interrupted run is
# byte for byte that of an uninterrupted one, and so are the losses. usage: DTRAIN=... MPIEXEC=... test_resume.sh RANKS
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
set -e
n_ranks=$1
configure '[1, 12, 12]' 'conv8 pool dropout0.25 flatten dense16:relu dropout0.5 dense10' '
  "data": { "format": "synthetic", "train_samples": 6000, "test_samples": 64, "sharding": "shard" },
  "train": { "epochs": 3, "seed": 5, "batch": { "per_rank": 16 }, "accumulate": 2, "optimizer": { "type": "adam", "lr": 0.002 } },
  "distributed": { "check_every": 1 }, "checkpoint": { "every_steps": 3, "keep": 3 }, "log": { "every_steps": 1 }'
dtrain() {
  "$MPIEXEC" -n "$n_ranks" "$DTRAIN" --config config.json "$@" 2>> log
}
dtrain --run whole > whole.txt
steps=$(wc -l < <(grep '"type":"step"' whole/metrics.jsonl))
[ "$steps" -gt 40 ] || { echo "only $steps steps"; exit 1; }

# resumed_at: the steps at which runs were resumed, from the log, one a line
resumed_at() {
  sed -n 's/^  resumed at step \([0-9]*\) (.*/\1/p' log
}

# Stopped three times in the middle of an epoch, at chosen steps.
for stop in 10 35 "$((steps - 7))"; do
  dtrain --run parts --resume --set train.max_steps="$stop" > parts.txt
done
dtrain --run parts --resume > parts.txt
[ "$(resumed_at | tr '\n' ' ')" = "10 35 $((steps - 7)) " ] || { echo "not resumed where it stopped: $(resumed_at)"; exit 1; }
grep -qx '  changed since then: train.max_steps was 10, now it is 35' log || { echo "a changed key is not named"; cat log; exit 1; }

# Killed three times at unforeseeable moments.
: > log
for try in 1 2 3; do
  "$MPIEXEC" -n "$n_ranks" "$DTRAIN" --config config.json --run cut --resume > cut.txt 2>> log &
  pid=$! # of mpirun, whose ranks die with it
  enough=$(printf 'cut/checkpoints/step-%012d' "$((try * 15))")
  while kill -0 "$pid" 2> /dev/null; do # until it has made some progress
    saved=(cut/checkpoints/step-*.safetensors)
    [[ ${saved[-1]} > $enough && ${saved[-1]} != *'*'* ]] && break
    sleep 0.01
  done
  kill -9 "$pid" 2> /dev/null || true
  wait "$pid" 2> /dev/null || true
  for _ in $(seq 200); do # until its ranks have let go of the folder
    flock -n cut/run.lock true 2> /dev/null && break
    sleep 0.05
  done
done
dtrain --run cut --resume > cut.txt
resumed=$(resumed_at | awk -v steps="$steps" '$1 < steps' | wc -l)
[ "$resumed" -ge 1 ] || { echo "never interrupted"; cat log; exit 1; }
! grep 'changed since then' log || { echo "the configuration is the same"; exit 1; }

losses() {
  grep '"type":"step"' "$1/metrics.jsonl" | sed 's/,"images_per_s.*//'
}
epochs() { # all columns but images_per_s
  cut -d , -f 1-6,8- "$1/metrics.csv"
}
for run in parts cut; do
  cmp whole.txt "$run.txt"
  cmp "$(newest_checkpoint whole)" "$(newest_checkpoint "$run")"
  diff <(losses whole) <(losses "$run") > /dev/null || { echo "$run: step records differ"; exit 1; }
  diff <(epochs whole) <(epochs "$run") || { echo "$run: epoch records differ"; exit 1; }
done
echo "stopped 3 times, killed and resumed $resumed times, to the same bits after $steps steps"

# How many ranks there are does not matter to what follows.
[ "$n_ranks" = 2 ] || exit 0

# Begun by a dtrain with another order: not inside an epoch, where samples would be seen twice, but from an epoch's end.
cat > older.py << 'PYTHON'
import sys
from checkpoint import join, json, read, split, write
header, data = split(read(sys.argv[1]))
del header["__metadata__"]["shuffle_rounds"]
config = json.loads(header["__metadata__"]["config"])
config["comm"] = "mpi" # a key that has gone since
header["__metadata__"]["config"] = json.dumps(config)
write("older.safetensors", join(header, data))
PYTHON
command -v python3 > /dev/null || { echo "skipped: python3, which makes an old checkpoint, is not installed"; exit 77; }
dtrain --run older --set train.epochs=1 > older.txt
python3 older.py "$(newest_checkpoint older)"
dtrain --resume=older.safetensors --run other --set train.max_steps="$((steps / 3 + 1))" > older.txt || { cat log; exit 1; }
dtrain --run inside --set train.max_steps=10 > older.txt
python3 older.py "$(newest_checkpoint inside)"
code=0
dtrain --resume=older.safetensors --run another > older.txt || code=$?
[ "$code" = 78 ] && grep -q "number of rounds of the shuffle was 4, now it is 6" log || { echo "an old order: exit code $code"; cat log; exit 1; }
