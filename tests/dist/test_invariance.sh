#!/usr/bin/env bash
# With sharding "global" neither the number of ranks, nor that of hosts (which MPICH pretends), nor the allreduce implementation changes the
# training: with 1 to 5 ranks the loss of each of 50 steps agrees to 1e-4 relative, with dropout on, while the replicas are compared bit for
# bit after every step. What algorithms send is what they predicted.
# usage: DTRAIN=... MPIEXEC=... test_invariance.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
set -e
configure '[1, 14, 14]' 'conv8 conv16 pool dropout0.25 flatten dense32:relu dropout0.5 dense10' '
  "data": { "format": "synthetic", "train_samples": 2000, "test_samples": 64, "sharding": "global" },
  "train": { "epochs": 3, "max_steps": 50, "seed": 3, "batch": { "global": 96 }, "optimizer": { "type": "adam", "lr": 0.001 } },
  "distributed": { "check_every": 1 }, "log": { "every_steps": 1 }'
ways=(ring tree recursive_doubling halving_doubling all_to_all master_worker hierarchical)
layouts=(1:1:auto 2:1:auto 3:1:auto 4:1:auto 3:2:auto 4:2:auto 5:2:auto 5:3:auto 4:2:hierarchical 5:3:hierarchical 2:1:mpi 5:2:mpi)
for way in "${ways[@]}"; do # of two ranks, all of them send the same: test_grad_sync.c has those
  layouts+=("3:1:$way" "5:1:$way")
done
for layout in "${layouts[@]}"; do # ranks:hosts:way
  IFS=: read -r ranks hosts way <<<"$layout"
  run=ranks$ranks-hosts$hosts-$way
  MPIR_CVAR_NUM_CLIQUES=$hosts "$MPIEXEC" -n "$ranks" "$DTRAIN" --config config.json --run "$run" --set distributed.allreduce="$way" \
    > "$run.txt" 2> "$run.log" || { cat "$run.log"; exit 1; }
  case $way:$hosts in
    auto:* | mpi:* | hierarchical:1) ;;
    *) grep -Eq '^allreduce of a step: [0-9]+ messages? and [0-9.]+ [kM]?B sent by .*, as predicted$' "$run.log" || { cat "$run.log"; exit 1; }
      sent=$(sed -n "s/.*,\"allreduce\":\"$way\",\(\"messages\":[1-9][0-9]*,\"bytes_sent\":[1-9][0-9]*,\"messages_between_hosts\":[0-9]*,\"bytes_between_hosts\":[0-9]*\)[,}].*/\1/p" "$run/metrics.jsonl")
      [ "$(wc -l <<<"$sent") $(sort -u <<<"$sent" | wc -l)" = '4 1' ] || { echo "$run: a run's record, three epochs': $sent"; exit 1; } ;;
  esac
  sed -n 's/.*"type":"step","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$run/metrics.jsonl" > "$run.loss"
  [ "$(wc -l < "$run.loss")" = 50 ] || { echo "$run: not 50 steps"; exit 1; }
  paste -d ' ' ranks1-hosts1-auto.loss "$run.loss" | awk -v run="$run" '
    { d = $2 - $4; if (d < 0) d = -d; r = d / $2; if (!(r <= 1e-4)) { print run ", step " $1 ": " $2 " and " $4; bad = 1 } if (r > worst) worst = r }
    END { printf "%s: worst relative difference %.2g over %d steps\n", run, worst, NR; exit bad }'
done
awk 'NR == 1 { first = $2 } { last = $2 } END { if (!(last < 0.8 * first)) { print "the loss does not fall: " first " to " last; exit 1 } }' \
  ranks1-hosts1-auto.loss
