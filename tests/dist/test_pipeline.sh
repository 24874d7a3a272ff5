#!/usr/bin/env bash
# A network split over the ranks: the losses of one rank, checkpoints that either strategy resumes, and an end of the whole job, with
# the name of the rank, when a stage dies or hangs. usage: DTRAIN=... MPIEXEC=... test_pipeline.sh
# shellcheck disable=SC2317 # functions that wait_for calls
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
configure '[1, 12, 12]' 'conv8 conv8 pool dropout0.25 flatten dense16:relu dropout0.5 dense10' '
  "data": { "format": "synthetic", "train_samples": 330, "test_samples": 60 },
  "train": { "epochs": 2, "seed": 5, "batch": { "per_rank": 32 }, "optimizer": { "type": "sgd", "lr": 0.02, "momentum": 0.9 } },
  "log": { "every_steps": 1 }, "distributed": { "check_every": 3 }, "device": "cpu", "threads": 1'

near() { python3 "$tests/lib/python/checkpoint.py" losses "$@"; } # near BOUND RUN...
pipeline() { # pipeline SCHEDULE MICRO_BATCHES
  echo --set distributed.strategy=pipeline --set "distributed.pipeline.schedule=$1" --set "distributed.pipeline.micro_batches=$2"
}

# The last batch of an epoch has 10 samples: fewer than the 12 micro-batches, or parts of unequal size.
# shellcheck disable=SC2046
{
  train one 1
  for stages in 1 2 3 4; do
    for schedule in gpipe 1f1b; do
      train "$schedule$stages" "$stages" $(pipeline "$schedule" $((16 - 4 * stages + 1)))
      check "$schedule, $stages stages: other losses than one rank" near 1e-6 one "$schedule$stages"
    done
  done
  train many 2 $(pipeline 1f1b 12)
  check 'more micro-batches than samples: other losses' near 1e-6 one many
  MPIR_CVAR_NUM_CLIQUES=2 train hosts 4 $(pipeline 1f1b 4)
  check 'two hosts: other losses' near 1e-6 one hosts
  train cut2 2 $(pipeline 1f1b 4) --set 'distributed.pipeline.cut=["fc2"]'
  train cut3 3 $(pipeline gpipe 4) --set 'distributed.pipeline.cut=["conv2","fc1"]'
  check 'cut by hand: other losses' near 1e-6 one cut2 cut3
  check 'the banner: the cut' grep -q '^  pipeline of 3 stages, 4 micro-batches, gpipe, cut at conv2, fc1$' cut3.err
  train plain 2 $(pipeline 1f1b 4) --set device=ref
  check 'device ref: other losses' near 1e-5 one plain
  check 'the bubble is not told' grep -qE '^bubble of the pipeline: [0-9.]+ % of the time waited; \(p - 1\) / \(m \+ p - 1\) = 7\.7 %, p = 2, m = 12$' many.err
  check 'the messages are not told' grep -q '^messages of a step: ' many.err
  check 'the banner' grep -q '^  pipeline of 2 stages, 12 micro-batches, 1f1b$' many.err

  # A run continues under the strategy that it began with, or another.
  for half in half gone; do
    train $half 3 $(pipeline 1f1b 8) --set train.max_steps=7
  done
  train half 3 $(pipeline 1f1b 8) --set 'distributed.pipeline.cut=["fc1","fc2"]' --resume
  train gone 1 --resume
  check 'resumed: other losses' near 1e-6 one half gone
  train come 1 --set train.max_steps=7
  train come 4 $(pipeline gpipe 8) --resume
  check 'resumed as a pipeline: other losses' near 1e-6 one come
  check 'not resumed' grep -q 'resumed at step 7 ' come.err
}

# Impossible pipelines.
unfit() { # unfit CODE RANKS TEXT ARGUMENT...
  # shellcheck disable=SC2046
  refused "$1" "$2" "$3" $(pipeline 1f1b 8) "${@:4}"
}
unfit 78 5 '5 ranks, but only 4 blocks with parameters'
unfit 78 2 'train.optimizer.clip_norm needs the norm of the whole gradient' --set train.optimizer.clip_norm=1
unfit 64 2 'train.accumulate: a pipeline has distributed.pipeline.micro_batches instead' --set train.accumulate=2
unfit 64 2 'distributed.average: a pipeline has nothing to average' --set distributed.average=false
unfit 64 2 'distributed.compression.type: a pipeline sends no gradients of weights' --set distributed.compression.type=fp16
unfit 78 3 'distributed.pipeline.cut names 1 block for the stages behind the first, but 3 ranks make 2 of these' \
  --set 'distributed.pipeline.cut=["fc1"]'
unfit 78 2 'distributed.pipeline.cut[0]: the model has no block "conv3" (its blocks are conv1, conv2, fc1, fc2)' \
  --set 'distributed.pipeline.cut=["conv3"]'
unfit 64 2 'distributed.pipeline.cut[0]: expected a name, each once, 8 kB in all, got 1' --set 'distributed.pipeline.cut=[1]'
# shellcheck disable=SC2046
"$MPIEXEC" -n 2 "$DTRAIN" plan --config config.json $(pipeline gpipe 4) >plan.out 2>&1 </dev/null
for line in 'schedule +gpipe' 'micro-batches +4' '  0 to 1 +330 +32' ' +1 +conv2 fc1 fc2 +[0-9,]+ +[0-9.]+ %'; do
  check "plan: no line '$line'" grep -qE "^$line *$" plan.out
done

got=0
# shellcheck disable=SC2046
"$MPIEXEC" -n 2 "$DTRAIN" bench model --config config.json $(pipeline gpipe 4) >bench.out 2>bench.err </dev/null || got=$?
check "bench model: exit code $got" test "$got" -eq 78
check 'bench model: the words' grep -q '^dtrain: bench model: no rank of a pipeline runs all blocks' bench.err

# A stage that dies, that hangs, and a job that is told to stop.
# shellcheck disable=SC2046
ends_well pipeline 1 $(pipeline 1f1b 4)
finish
