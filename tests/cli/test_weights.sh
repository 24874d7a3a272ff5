#!/usr/bin/env bash
# --weights FILE: train, eval and predict begin with what others saved, PyTorch for example, and refuse what does not fit.
# usage: DTRAIN=... MPIEXEC=... test_weights.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
command -v python3 >/dev/null || { echo 'skipped: python3 makes the files, and is not installed'; exit 77; }
configure '[1, 8, 8]' 'conv4 flatten dense4' '
  "data": { "format": "synthetic", "train_samples": 200, "test_samples": 100 }, "train": { "epochs": 2, "batch": { "global": 20 } },
  "threads": 1'
works() { run 0 "$@"; } # works RANKS ARGUMENT...
refused() { refuses "$1" 1 "$2" "${@:3}"; } # refused CODE TEXT ARGUMENT...

works 1 --config config.json --run first
saved=$(newest_checkpoint first)
"$tests/lib/python/make_weights.py" "$saved" files
torch=(--config config.json --weights files/torch.safetensors)

# Used as they are: the same results as with the checkpoint that they are from.
works 1 eval "$saved"
mv out expected
for file in files/torch.safetensors files/bare.safetensors "$saved"; do
  works 2 eval --config config.json --weights "$file"
  check "eval of $file differs" cmp -s out expected
done
works 1 predict "$saved" "$tests/corpus/png/grey"
mv out expected
works 1 predict "${torch[@]}" "$tests/corpus/png/grey"
check 'predict differs' cmp -s out expected
works 1 eval "${torch[@]}" --set data.test_samples=50
check '--set has no effect on eval' grep -q '/50)' out

# A state of PyTorch's BatchNorm2d has the number of its batches, too, as integers.
sed 's/, {"type": "flatten"}/, {"type": "batch_norm", "name": "norm"}&/' config.json >norm.json
works 1 --config norm.json --run norm
works 1 export norm norm.safetensors --json export.json
check 'export: no result as JSON' grep -q '"command":"export".*"file":"norm.safetensors"' <(tr -d '\n' <export.json)
python3 - <<'PY'
import struct
from checkpoint import write
from make_weights import changed, read
from samples import safetensors
tensors = read("norm.safetensors")
write("counted.safetensors", safetensors({**tensors, "norm.num_batches_tracked": ("I64", [], struct.pack("<q", 20))}))
write("negative.safetensors", safetensors(changed(tensors, "norm.running_var", first=-1)))
PY
works 1 eval norm
mv out normed
works 1 eval --config norm.json --weights counted.safetensors
check 'eval with a counter differs' cmp -s out normed
refused 65 "negative.safetensors: tensor 'norm.running_var' has -1, a variance below 0" eval --config norm.json --weights negative.safetensors

# Trained from there: with a learning rate too small to change a weight, they are what is saved.
standing=(--set train.optimizer.lr=1e-30 --set train.max_steps=1)
for n in 1 2; do
  works $n "${torch[@]}" "${standing[@]}" --run "still$n" --set distributed.broadcast=false --set distributed.init_per_rank=true
  check "-np $n: the weights are not those of the file" "$tests/lib/python/make_weights.py" --same "$(newest_checkpoint "still$n")" files/torch.safetensors
  check "-np $n: no line says where weights are from" grep -q '^  weights from files/torch.safetensors$' err
  check "-np $n: replicas differ" bash -c "! grep -q 'as expected' err"
done

# A job that is queued again with the same command resumes from its checkpoint.
works 2 "${torch[@]}" --run again --resume --set train.max_steps=3
check 'a fresh start ignores the weights' grep -q 'weights from' err
works 2 "${torch[@]}" --run again --resume
check 'not resumed' grep -q 'resumed at step 3 .* from again/checkpoints/step-000000000003' err
check 'weights taken although the run had a checkpoint' bash -c "! grep -q 'weights from' err"

# A tensor that does not fit is named; a training takes the others.
with() { # with NAME CODE TEXT
  refused "$2" "$3" eval --config config.json --weights "files/$1.safetensors"
  if [[ $1 =~ ^(missing|extra|flat)$ ]]; then
    works 2 --config config.json --run "$1" --weights "files/$1.safetensors"
    check "$1: $(cat err)" grep -q "warning: files/$1.safetensors: $4" err
  else
    refused "$2" "$3" --config config.json --run refused --weights "files/$1.safetensors"
    rm -rf refused
  fi
}
with renamed 65 "tensors missing: 'conv1.weight', 'conv1.bias', 'fc1.weight', 'fc1.bias'; unknown: 'classifier.bias', 'classifier.weight', 'features.0."
with missing 65 "missing.safetensors: tensors missing: 'fc1.bias' (" "3 of 4 tensors taken; drawn: 'fc1.bias'$"
with extra 65 "extra.safetensors: tensors unknown: 'fc2.bias' (" "4 of 4 tensors taken; not used: 'fc2.bias'$"
with flat 65 "tensor 'conv1.weight' has shape [36], the model has [4, 1, 3, 3]" "3 of 4 tensors taken; drawn: 'conv1.weight'$"
with half 65 "has dtype 'F16', only F32 is supported (in PyTorch: .float())"
with counted 65 "tensor 'bn.number' has dtype 'I64'"
with nan 65 "tensor 'fc1.weight' contains 1 non-finite values"
with nowhere 66 'nowhere.safetensors: No such file or directory'
refused 65 'config.json: ' eval --config config.json --weights config.json
python3 -c 'import sys
content = bytearray(open(sys.argv[1], "rb").read())
content[-3] ^= 1
open("flipped.safetensors", "wb").write(content)' "$saved"
refused 65 'flipped.safetensors: damaged (tensor ' eval --config config.json --weights flipped.safetensors
finish
