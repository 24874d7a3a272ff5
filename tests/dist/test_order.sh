#!/usr/bin/env bash
# distributed.order "priority": steps that begin before the last one's weights are there end with the same bits, whatever happens in
# between; they end as others do; and what cannot be is refused. usage: DTRAIN=... MPIEXEC=... test_order.sh
# shellcheck disable=SC2317 # functions that wait_for calls
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
# Four buckets; the first one's messages are larger than the credit.
configure '[1, 12, 12]' 'conv8 conv4 flatten dropout0.25 dense600:relu dense10' '
  "data": { "format": "synthetic", "train_samples": 256, "test_samples": 60 },
  "train": { "epochs": 2, "seed": 5, "batch": { "per_rank": 8 }, "accumulate": 2, "optimizer": { "type": "adam", "lr": 0.002 } },
  "checkpoint": { "every_steps": 5 }, "distributed": { "check_every": 3, "bucket_mb": 0 }, "log": { "every_steps": 1 },
  "device": "cpu", "threads": 1'
sed 's/"bucket_mb": 0/&, "order": "priority"/' config.json >priority.json
by_priority=(--set 'distributed.order=priority')

same_bits() { # same_bits RUN RUN: the tensors of their newest checkpoints, and the losses of all steps and epochs
  check "$1 and $2 differ" python3 "$tests/lib/python/checkpoint.py" same "$@"
  check "$1 and $2 have other losses" python3 "$tests/lib/python/checkpoint.py" losses 0 "$@"
}

# ---- the same bits: with evaluations, checkpoints and comparisons of the replicas in between
for case in auto,2 ring,2 tree,3 hierarchical,3 all_to_all,4 halving_doubling,4; do
  n=${case#*,} sets=(--set "distributed.allreduce=${case%,*}")
  train "$case" "$n" "${sets[@]}"
  train "$case-first" "$n" "${sets[@]}" "${by_priority[@]}"
  same_bits "$case" "$case-first"
done
check 'the banner does not tell' grep -q '^  allreduce of gradients: 4 buckets, ring, by priority$' ring,2-first.err
check 'messages' grep -q '^allreduce of a step: .*, as predicted$' ring,2-first.err
for compression in fp16 topk; do
  train "$compression" 2 --set distributed.compression.type=$compression
  train "$compression-first" 2 --set distributed.compression.type=$compression "${by_priority[@]}"
  same_bits $compression $compression-first
done
train one 1
train one-first 1 "${by_priority[@]}" --set distributed.allreduce=mpi
same_bits one one-first

# ---- two hosts
export MPIR_CVAR_NUM_CLIQUES=2
train hosts 4 --set distributed.allreduce=hierarchical
train hosts-first 4 "${by_priority[@]}"
same_bits hosts hosts-first
check 'auto takes another way' grep -q 'hierarchical in each of 2 hosts, ring between them, by priority, because MPI adds in one order$' hosts-first.err
unset MPIR_CVAR_NUM_CLIQUES

# ---- a run continues in the order in which it began, or in the other
ring=(--set distributed.allreduce=ring)
train half 2 "${ring[@]}" "${by_priority[@]}" --set train.max_steps=13
cp -r half half2
train half 2 "${ring[@]}" "${by_priority[@]}" --resume
train half2 2 "${ring[@]}" --resume
same_bits ring,2 half
same_bits ring,2 half2

# ---- how it ends
export DTRAIN_TIMEOUT=2
fails() { # fails RUN CODE WORDS ARGUMENT...: of two ranks, with this code and one line about it
  local run=$1 code=$2 words=$3 got=0
  shift 3
  timeout -k 5 60 "$MPIEXEC" -n 2 "$DTRAIN" --config priority.json --run "$work/$run" "$@" >"$run.out" 2>"$run.err" </dev/null || got=$?
  check "$run: exit code $got" test "$got" -eq "$code"
  check "$run: processes are left" wait_for 20 gone "$work/$run"
  grep -q "^dtrain: .*$words" "$run.err" || fail "$run: no '$words'" "$run.err"
  check "$run: lines of error" test "$(grep -c '^dtrain: ' "$run.err")" -eq 1
}
fails nan 80 'training diverged at step 8' "${ring[@]}" --inject nan:rank=1,step=7
fails drop 76 'allreduce of gradient bucket 3 stalled for' "${ring[@]}" --inject drop:rank=1,step=7
fails flip 70 "replicas differ: tensor 'fc1.weight' differs between rank 0 and rank 1" --inject flip:rank=1,step=5,tensor=fc1.weight
ends_well ring 1 "${ring[@]}" "${by_priority[@]}"

# ---- what cannot be
fails clip 78 'train.optimizer.clip_norm needs all gradients' --set train.optimizer.clip_norm=1
fails mpi 78 'MPI adds in one order here' --set distributed.allreduce=mpi
fails pipeline 78 'distributed.order: has a meaning only with distributed.strategy=allreduce' --set distributed.strategy=pipeline
fails central 78 'distributed.order: has a meaning only with distributed.strategy=allreduce' --set distributed.strategy=central
finish
