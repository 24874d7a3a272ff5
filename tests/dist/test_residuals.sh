#!/usr/bin/env bash
# Checkpoints hold the residual of each worker's gradients, and the position of stochastic rounding: a stopped run is resumed
# to the bits of one that was not (test_resume_ways.c: under every codec, by every way). What cannot be kept is dropped, and said.
# usage: DTRAIN=... MPIEXEC=... test_residuals.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
command -v python3 >/dev/null || { echo 'skipped: python3, which changes checkpoints, is not installed'; exit 77; }
configure '[1, 12, 12]' 'conv8 pool flatten dense16:relu dense10' '
  "data": { "format": "synthetic", "train_samples": 300, "test_samples": 40 },
  "train": { "epochs": 2, "seed": 5, "batch": { "per_rank": 16 }, "optimizer": { "type": "adam", "lr": 0.002 } }, "device": "cpu",
  "threads": 1'
# change.py FILE OUT strip|reshape: without the residuals, as an older dtrain wrote it; or with rows of another length
cat >change.py <<PY
import sys
from checkpoint import join, read, split, write
name = "compression.residuals"
header, data = split(read(sys.argv[1]))
begin, end = header[name]["data_offsets"]
assert end == len(data), "not the last tensor"
if sys.argv[3] == "strip":
    del header[name], header["__metadata__"]["crc32." + name]
    data = data[:begin]
else:
    header[name]["shape"] = [1, (end - begin) // 4]
write(sys.argv[2], join(header, data))
PY

kind() { echo --set "distributed.compression.type=$1"; }

# shellcheck disable=SC2046,SC2086 # arguments
{
  stochastic='--set distributed.compression.rounding=stochastic'
  train whole 2 $(kind int8) $stochastic
  train parts 2 $(kind int8) $stochastic --set train.max_steps=7
  train parts 2 $(kind int8) $stochastic --resume
  check 'other bits than without a stop' cmp "$(newest_checkpoint whole)" "$(newest_checkpoint parts)"
  check 'warns' test "$(grep -c residuals parts.err)" -eq 0
  check 'a file of a run without compression has more than ever' test -z "$(train none 2 && grep -ao 'compression[._][a-z]*' "$(newest_checkpoint none)")"

  # Under another codec, or with other workers, they are kept; without error feedback they are dropped.
  train first 2 $(kind topk) --set train.epochs=1
  saved=$(newest_checkpoint first)
  train codec 2 $(kind onebit) --resume="$saved"
  check 'another codec: warns' test "$(grep -c residuals codec.err)" -eq 0
  train more 3 $(kind topk) --resume="$saved"
  check 'more workers: warns' test "$(grep -c residuals more.err)" -eq 0
  train off 2 --resume="$saved"
  check 'no error feedback: not reported' grep -q "$saved: residuals of compression, now without error feedback (dropped; the run continues)" off.err
  check 'reported twice' test "$(grep -c residuals off.err)" -eq 1

  # A file from before, and one that cannot be.
  python3 change.py "$saved" older.safetensors strip
  train older 2 $(kind topk) --resume=older.safetensors
  check 'an older file: not reported' grep -q 'older.safetensors: has no residuals of compression (an older dtrain saved it; the run continues from 0)' older.err
  python3 change.py "$saved" hostile.safetensors reshape
  refused 65 2 "hostile.safetensors: tensor 'compression.residuals' has shape [1, " $(kind topk) --resume=hostile.safetensors
  check 'eval of a checkpoint with residuals' "$DTRAIN" eval "$saved" >/dev/null 2>&1
}
finish
