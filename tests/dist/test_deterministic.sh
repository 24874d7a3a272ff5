#!/usr/bin/env bash
# distributed.deterministic: the same bits of weights and optimizer state at any number of ranks and threads, also resumed at another
# number of ranks in the middle of an epoch. Its refusals, and the end of a training whose gradients no integer holds.
# usage: DTRAIN=... MPIEXEC=... test_deterministic.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
command -v python3 >/dev/null || { echo 'skipped: python3, which reads checkpoints, is not installed'; exit 77; }
# Leaves of 8 of batches of 100, and a last batch of 30: short leaves, and ranks without any.
configure '[1, 12, 12]' 'conv8 conv16 pool dropout0.25 flatten dense32:relu dense10' '
  "data": { "format": "synthetic", "train_samples": 330, "test_samples": 40, "sharding": "global" },
  "train": { "epochs": 2, "seed": 5, "batch": { "global": 100 }, "optimizer": { "type": "adam", "lr": 0.002, "clip_norm": 1 } },
  "distributed": { "deterministic": true, "leaf": 8 }, "device": "cpu", "threads": 1'

alike() { python3 "$tests/lib/python/checkpoint.py" alike "$@"; } # alike RUN...

for n in 1 2 3 5; do train "ranks$n" "$n"; done
train threads 2 --set threads=2
check 'another number of ranks or threads: other bits' alike ranks1 ranks2 ranks3 ranks5 threads
check 'banner' grep -q '^  allreduce of gradients: 1 bucket, shared_memory, as integers$' ranks2.err

# Every way to add gradients, in buckets of one block each and with hosts that MPICH simulates, too.
n=2
for way in shared_memory mpi ring tree recursive_doubling halving_doubling all_to_all master_worker hierarchical; do
  train "by_$way" "$n" --set distributed.allreduce="$way" --set distributed.bucket_mb=0
  n=$((n % 4 + 2))
done
MPIR_CVAR_NUM_CLIQUES=2 train by_hosts 4 --set distributed.allreduce=hierarchical --set distributed.across=tree
MPIR_CVAR_NUM_CLIQUES=2 train by_default 3 --set distributed.overlap=false
check 'another allreduce: other bits' alike ranks1 by_*/
check 'ring: other messages than predicted' grep -q '^allreduce of a step: .* as predicted$' by_ring.err

check 'another hash in summary.json' test "$(grep -ho '"weights_xxh3":\s*"[0-9a-f]\{32\}"' ranks?/summary.json | sort | uniq -c | awk '{ print $1 }')" = 4
check 'summary.json names another sum' grep -q '"allreduce":\s*"shared_memory"' ranks2/summary.json
check 'no hash at the end, or another' test "$(grep -h '^hash of the weights [0-9a-f]*$' ranks?.err | sort -u | wc -l)" -eq 1

dtrain 3 plan --config config.json # three more gradients of leaves, integers of 8 bytes, and digits of 12
check 'plan: other memory' grep -q '^CPU .* kB ' out
check 'plan: a GPU, which this cannot use' test "$(grep -c GPU out)" = 0

train parts 3 --set train.max_steps=6
train parts 2 --resume
check 'resumed at another number of ranks: other bits' alike parts ranks1

# Killed in the middle of an epoch, and resumed at another number of ranks, with another allreduce.
dtrain 3 --config config.json --run killed --set checkpoint.every_steps=1 --set distributed.allreduce=ring --inject kill:rank=1,step=7
check "killed: no checkpoint of its last step" test -e killed/checkpoints/step-000000000006.safetensors
train killed 5 --resume --set distributed.allreduce=tree
check 'killed and resumed at another number of ranks: other bits' alike killed ranks1

# Servers, one of them a worker too, and a network that is split; they take no clipping by norm.
free='--set train.optimizer.clip_norm=0' server='--set distributed.strategy=parameter_server' split='--set distributed.strategy=pipeline'
# shellcheck disable=SC2086 # arguments
{
  train free1 1 $free
  train free3 3 $free
  train free_server 4 $free $server
  train free_servers 5 $free $server --set distributed.parameter_server.servers=2
  train free_central1 1 $free --set distributed.strategy=central
  train free_central 3 $free --set distributed.strategy=central --set distributed.overlap=false
  train free_pipeline1 1 $free $split
  train free_pipeline 3 $free $split --set threads=2
  train free_gpipe 4 $free $split --set distributed.pipeline.schedule=gpipe
  check 'another strategy: other bits' alike free1 free3 free_*/
  check 'server: other messages than predicted' grep -q '^messages of a step: .* as predicted$' free_servers.err
  train free_parts 4 $free $server --set train.max_steps=3
  train free_parts 3 --resume $free $split --set train.max_steps=6
  train free_parts 2 --resume $free
  check 'resumed with another strategy: other bits' alike free_parts free1
}

# Gradients without zeros, which go by Winograd's method, several samples at a time.
conv='{"type":"conv2d","filters":16,"kernel":3,"padding":"same"},{"type":"layer_norm"}'
layers="[$conv,{\"type\":\"relu\"},$conv,{\"type\":\"flatten\"},{\"type\":\"dense\",\"units\":10}]"
for n in 1 2 5; do train "dense$n" "$n" --set "model.layers=$layers" --set threads=$((1 + n % 2)); done
check 'dense gradients: other bits' alike dense1 dense2 dense5

train ref1 1 --set device=ref
train ref3 3 --set device=ref
check 'ref: other bits' alike ref1 ref3

train float2 2 --set 'distributed={}'
train float3 3 --set 'distributed={}'
check 'the hash is blind' test "$(grep -h '^hash of the weights ' float?.err | sort -u | wc -l)" -eq 2
check 'this test sees no rounding: sums of floats are alike, too' test "$(alike float2 float3 2>&1 | tail -n 1)" = 'AssertionError: float3'

refused 64 2 'distributed.deterministic: ranks need the slices of one order (set data.sharding to global)' --set data.sharding=shard \
  --set distributed.deterministic=true
refused 78 2 'set train.batch.global instead' --set 'train.batch={"per_rank":50}'
refused 64 2 'more than 4095 leaves' --set 'train.batch={"global":4096}' --set distributed.leaf=1
refused 78 2 'codecs round what each rank sends (set distributed.compression.type to none)' --set distributed.compression.type=fp16
refused 78 3 'distributed.deterministic: servers that do not wait take gradients as they come' --set distributed.strategy=parameter_server \
  --set distributed.parameter_server.mode=async
refused 78 2 'a step ends with all its gradients (set distributed.order to backward)' --set distributed.order=priority
refused 78 2 'set train.accumulate to 1' --set train.accumulate=2
refused 78 2 'distributed.deterministic: replicas that step alone differ' --set distributed.average=false
dtrain 2 --config config.json --run diverged --set train.optimizer.type=sgd --set train.optimizer.clip_norm=0 --set train.optimizer.lr=1e6
is 'diverged: exit code, lines of error' '80 1' "$got $(grep -c '^dtrain: ' err)"
check 'diverged: the words' grep -q 'gradients are not below 2048, no checkpoint saved (lower train.optimizer.lr)' err

for strategy in central pipeline; do # a NaN in place of the sum, and so in the next loss
  dtrain 2 --config config.json --run "nan_$strategy" --set train.optimizer.type=sgd --set train.optimizer.clip_norm=0 --set train.optimizer.lr=100 \
    --set distributed.strategy=$strategy
  is "diverged, $strategy: exit code, lines of error" '80 1' "$got $(grep -c '^dtrain: ' err)"
  check "diverged, $strategy: the words" grep -q 'the loss is not a number, no checkpoint saved' err
done

# Replicas that differ by design have no one hash.
train apart 2 --set 'distributed={"broadcast":false,"init_per_rank":true}'
check 'one hash for replicas that differ' test "$(grep -c '^hash of the weights' apart.err)" -eq 0
finish
