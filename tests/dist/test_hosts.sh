#!/usr/bin/env bash
# Ranks on several hosts, as MPICH pretends (rank r is on host r modulo the number of hosts): the roster's line, the same bits in every
# run, and a rank that dies or stands still ends the job as on one host and is named. usage: DTRAIN=... MPIEXEC=... test_hosts.sh
# shellcheck disable=SC2317 # functions that wait_for calls
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
# Buckets of one block each: a large one, which crosses in slices, and a small one.
configure '[1, 16, 16]' 'flatten dense300:relu dense4' '
  "data": { "format": "synthetic", "train_samples": 640, "test_samples": 64 },
  "train": { "epochs": 1000000, "batch": { "per_rank": 8 } }, "checkpoint": { "every_epochs": 0 },
  "distributed": { "bucket_mb": 0.001, "check_every": 1 }, "log": { "every_steps": 1 }, "threads": 1'

# ---- the line, and the same bits run after run ----
for comm in auto mpi ring hierarchical hierarchical-tree; do
  sets=(--set distributed.allreduce="${comm%-*}")
  [[ $comm != *-* ]] || sets+=(--set distributed.across="${comm#*-}")
  for again in 1 2; do
    run=$comm$again
    MPIR_CVAR_NUM_CLIQUES=2 timeout 60 "$MPIEXEC" -n 5 "$DTRAIN" --config config.json --run "$work/$run" \
      "${sets[@]}" --set train.max_steps=40 >"$run.out" 2>"$run.err" </dev/null
    check "$run: exit code $?" test $? -eq 0
  done
  check "comm $comm: other bits when run again" cmp "$(newest_checkpoint "${comm}1")" "$(newest_checkpoint "${comm}2")"
done
check 'auto takes another way' \
  grep -q '^  allreduce of gradients: 2 buckets, shared_memory in each of 2 hosts, mpi between them$' auto1.err
check 'a tree does not join the hosts' \
  grep -q '^  allreduce of gradients: 2 buckets, hierarchical in each of 2 hosts, tree between them$' hierarchical-tree1.err
# Messages between the hosts: predicted before the run and at its beginning, counted at its end and in the records. Of two slices of the
# first bucket and one of the second, one sum each between two ranks; a ring of all five sends far more of what it sends.
between() { sed -n 's/^  between hosts: \(.*\), all ranks together$/\1/p' "$1"; }
MPIR_CVAR_NUM_CLIQUES=2 "$MPIEXEC" -n 5 "$DTRAIN" plan --config config.json --set distributed.allreduce=hierarchical \
  --set distributed.across=tree --json plan.json >plan.out 2>&1
check "a tree between hosts: $(between hierarchical-tree1.err)" test "$(between hierarchical-tree1.err | sort | uniq -c | tr -s ' ')" = \
  ' 2 6 messages and 627 kB'
check 'the plan predicts another' python3 -c 'import json
figures = next(p for p in json.load(open("plan.json"))["parts"] if p["title"] == "Averaging")["figures"]
assert figures["messages between hosts"]["value"] == 6 and round(figures["sent between hosts"]["value"] / 1e3) == 627, figures'
for run in hierarchical-tree1 ring1; do
  check "$run: not as predicted" grep -q '^allreduce of a step: .*, as predicted$' $run.err
done
check 'the records do not have it' python3 -c 'import json
def between(run):
    return [(r["messages_between_hosts"], r["bytes_between_hosts"]) for r in map(json.loads, open(run + "/metrics.jsonl"))
            if r["type"] in ("run", "epoch")]
tree, ring = between("hierarchical-tree1"), between("ring1")
assert len(set(tree)) == len(set(ring)) == 1 and len(tree) > 1 and tree[0][1] < ring[0][1] / 2, (tree, ring)
assert set(between("auto1")) == {(None, None)}'
check 'mpi takes another way' grep -q '^  allreduce of gradients: 2 buckets, mpi$' mpi1.err

# ---- ranks that fail ----
# With 5 ranks on 2 hosts, ranks 0 to 3 sum between the hosts and 4 does not.
for rank in 0 3 4; do
  run=killed$rank
  MPIR_CVAR_NUM_CLIQUES=2 start_steps "$run" 5
  kill -KILL "${ranks[rank]}"
  ended "$run"
  check "$run: exit code 0" test "$got" -ne 0
done

stalled() { # stalled HOSTS RANKS RANK TEXT: this one stands still; the one line of error has TEXT
  local run=stalled-$1-$2-$3
  MPIR_CVAR_NUM_CLIQUES=$1 start_steps "$run" "$2"
  kill -STOP "${ranks[$3]}"
  ended "$run"
  check "$run: exit code $got, expected 76" test "$got" -eq 76
  check "$run: not one line of error, with '$4': $(grep '^dtrain: ' "$run.err")" \
    test "$(grep '^dtrain: ' "$run.err" | sed -E "s/^dtrain: [a-z0-9' ]* $4.*/found/")" = found
}
export DTRAIN_TIMEOUT=2
for rank in 0 3 4; do
  stalled 2 5 "$rank" "stalled for 2 s: rank $rank (and 1 more of this host have not arrived|has not arrived|arrived but has not moved)"
done
stalled 2 3 1 'stalled for 4 s: all ranks of this host wait; one on another host' # nobody is there to name it
finish
