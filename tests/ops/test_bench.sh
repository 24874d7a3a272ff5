#!/usr/bin/env bash
# `dtrain bench` as people run it: the tables, their sums, the JSON beside them, and what is refused.
# usage: DTRAIN=... MPIEXEC=... test_bench.sh WRONG_CLUSTER MODULE [DOUBLE]: fake_module.c, and fake CUDA if it is built
# shellcheck disable=SC2317 # functions that wait_for calls
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
command -v python3 >/dev/null || { echo 'skipped: python3 reads the tables, and is not installed'; exit 77; }
wrong_cluster=$1 module=$2 double=${3:-}
export FAKE_GPUS='aaaaaaaa bbbbbbbb' FAKE_DEVICES=2 WRONG=sums

bench() { run "$1" "$2" bench "${@:3}"; } # bench CODE RANKS ARGUMENT...
refused() { refuses 64 "$2" "=$1" bench "${@:3}"; } # refused TEXT RANKS ARGUMENT...

cat >sums.py <<'PY'
"""usage: sums.py RANKS WRONG WAY... [on HOSTS]: what sums.json has of `bench allreduce` is what it should be."""
import json, sys
ranks, wrong, ways = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
hosts = int(ways.pop()) if "on" in ways else 1
ways = [way for way in ways if way != "on"]
doc = json.load(open("sums.json"))
parts = {part["title"]: part for part in doc["parts"]}
setup = {name: figure["value"] for name, figure in parts["Setup"]["figures"].items()}
assert doc["command"] == "bench allreduce" and (setup["ranks"], setup["hosts"]) == (ranks, hosts), setup
assert setup["allreduces of a size"] == 3 and setup["checks of a size"] == 2 and setup["peak of a core"] > 0 and setup["dtrain"], setup
on_gpus = lambda way: way in ("nccl", "staged")
rows = parts["Allreduces"]["rows"]
assert [(row["size"], row["algorithm"]) for row in rows] == [(size, way) for size in (8, 80, 800, 8000) for way in ways], rows
for row in rows:
    assert (row["type"], row["redop"], row["count"] * 4, row["#wrong"]) == ("float", "sum", row["size"], wrong), row
    assert row.get("verdict") == ("FAIL" if wrong else None), row
    assert 0 < row["shortest"] <= row["median"] <= row["longest"], row
    assert row["shortest"] <= 1.001 * row["time"] and row["time"] <= 1.001 * row["longest"], row
    assert abs(row["algbw"] - row["size"] / row["time"] / 1e3) <= 1e-9 * row["algbw"], row
    assert abs(row["busbw"] - row["algbw"] * 2 * (ranks - 1) / ranks) <= 1e-9 * row["algbw"], row
    assert row["algorithm"] != "ring" or (row["messages"], row["sent"]) == (2 * (ranks - 1), 2 * (ranks - 1) * row["size"] // ranks), row
    same = [other["time"] for other in rows if other["size"] == row["size"] and on_gpus(other["algorithm"]) == on_gpus(row["algorithm"])]
    assert row.get("chosen", False) == (row["time"] == min(same)), row  # the fastest on the same memory
fits = [row for row in parts["Algorithms"]["rows"] if "verdict" not in row]
assert {row["algorithm"] for row in fits} == set(ways), fits
for fit in fits:
    mean = sum(row["busbw"] for row in rows if row["algorithm"] == fit["algorithm"]) / 4
    assert abs(fit["avg bus bandwidth"] - mean) <= 1e-9 * mean, fit
    assert (fit["latency"] is None) == (fit["bandwidth"] is None) == (fit["largest error"] is None), fit
    assert fit["bandwidth"] is None or ranks > 1 and fit["bandwidth"] > 0, fit
assert setup["auto takes"] in (("nccl", "staged") if any(map(on_gpus, ways)) else ("shared_memory",) if ranks > 1 else ("mpi",)), setup
PY
skips() { # skips ALGORITHM WHY: the document says so
  python3 -c 'import json, sys
rows = [p for p in json.load(open("sums.json"))["parts"] if p["title"] == "Algorithms"][0]["rows"]
assert [row["hint"] for row in rows if row["algorithm"] == sys.argv[1] and row["verdict"] == "SKIPPED"] == [sys.argv[2]], rows' "$@"
}
sizes=(-b 8 -e 8000 -f 10 -n 3 -w 1 -c 2 --json sums.json --algorithms shared_memory,mpi,nccl,staged)
unset DTRAIN_CUDA_MODULE

# ---- sums ----
bench 0 0 allreduce "${sizes[@]}" --set device=cpu
check 'sums of one rank' python3 sums.py 1 0 mpi
for n in 1 2 4; do
  rm -f sums.json
  bench 0 "$n" allreduce "${sizes[@]}" --set device=cpu
  ways=(mpi)
  ((n == 1)) || ways=(shared_memory mpi)
  check "sums of $n ranks" python3 sums.py "$n" 0 "${ways[@]}"
done
is 'sums: stderr' 'wrote sums.json' "$(cat err)"
bench 0 2 allreduce "${sizes[@]}" --set device=cpu --set distributed.allreduce=mpi
check 'sums with allreduce mpi' python3 sums.py 2 0 mpi
MPIR_CVAR_NUM_CLIQUES=2 bench 0 4 allreduce "${sizes[@]}" --set device=cpu # ranks 0 and 2 as if on another host
check 'sums over two hosts' python3 sums.py 4 0 shared_memory mpi on 2
bench 0 4 allreduce -b 8 -e 8000 -f 10 -n 3 -w 1 -c 2 --json sums.json --set device=cpu
check 'all implementations' python3 sums.py 4 0 shared_memory mpi hierarchical ring tree recursive_doubling \
  halving_doubling all_to_all master_worker
bench 0 2 allreduce -b 1K -e 1K -n 1 -w 0 -c 0 --set device=cpu --algorithms mpi,ring --csv sums.csv
check 'a sum that is not checked' test "$(grep -Ec '^1024,(mpi|ring),([0-9.e-]+,){3},' sums.csv)" -eq 2

# As if the network were slow: never faster than that. A ring of two makes two rounds; between two hosts, a hierarchical one's leaders do.
slow() { # slow MICROSECONDS WAY: this way's only size took at least so long, on its slowest rank
  python3 -c 'import json, sys
rows = [p for p in json.load(open("sums.json"))["parts"] if p["title"] == "Allreduces"][0]["rows"]
assert [row["time"] >= float(sys.argv[1]) for row in rows if row["algorithm"] == sys.argv[2]] == [True], rows' "$@"
}
few=(-n 2 -w 0 --json sums.json --set device=cpu)
bench 0 2 allreduce -b 8 -e 8 "${few[@]}" --latency 20000 --algorithms mpi,ring
check 'a slow ring' slow 40000 ring
check 'mpi cannot be slowed down, and is measured' skips mpi 'dtrain can slow down its own messages alone'
check 'no line says how slow' grep -Eq '^ *simulated latency +20,000 us$' out
bench 0 2 allreduce -b 8000 -e 8000 "${few[@]}" --latency 1 --bandwidth 0.0004 --algorithms ring,tree
check 'a narrow ring' slow 20000 ring
check 'a narrow tree' slow 40000 tree
check 'the delay is not in the file' grep -Eq '"simulated bandwidth":[^0-9]*0.0004' sums.json
MPIR_CVAR_NUM_CLIQUES=2 bench 0 4 allreduce -b 8 -e 8 "${few[@]}" --latency 20000 --algorithms hierarchical
check 'a slow network between hosts' slow 40000 hierarchical
check 'what goes between hosts' grep -Eq '"messages between hosts": *4, *"sent between hosts": *16[,}]' sums.json
bench 0 2 allreduce -b 8 -e 8 -n 1 -w 0 -c 0 --set device=cpu --latency 1e6 --algorithms hierarchical # nothing leaves the host

# A sum that is wrong in one element, on each rank, in each of two checks.
program=$wrong_cluster
rm -f sums.json
bench 70 2 allreduce "${sizes[@]}" --set device=cpu
check 'wrong sums' python3 sums.py 2 4 shared_memory mpi
check 'wrong sums are not reported' test "$(tail -n 1 err)" = 'dtrain: 32 elements of sums were wrong (see #wrong in the table)'
mkfifo deaf # a file that cannot be written does not hide them
bench 70 2 allreduce -b 8 -e 8 -n 1 -w 0 -c 1 --set device=cpu --algorithms ring --json deaf
check 'wrong sums, and no file' test "$(sed 's/ elements .*//; s/ (.*//' err | paste -sd '|')" = 'dtrain: deaf: nobody reads from it|dtrain: 2'
program=$DTRAIN

# Other programs on the CPUs: a warning above the measurements.
program=$wrong_cluster
for command in 'allreduce -b 8 -e 8 -n 1' "model --config $configs/synthetic.json"; do
  # shellcheck disable=SC2086
  WRONG=busy bench 0 2 $command --set device=cpu
  check "$command: the load" grep -qE '^WARN +load +load 15\.2 on 4 CPUs of .*: others use them$' <(head -n 4 out)
done
program=$DTRAIN

# Between GPUs, of a module that has none.
export DTRAIN_CUDA_MODULE=$module
bench 0 2 allreduce "${sizes[@]}"
check 'sums of two GPUs' python3 sums.py 2 0 shared_memory mpi nccl staged
bench 0 2 allreduce "${sizes[@]}" --set distributed.allreduce=nccl
check 'sums with allreduce nccl' python3 sums.py 2 0 nccl
FAKE_GPUS='aaaaaaaa aaaaaaaa' bench 0 2 allreduce "${sizes[@]}"
check 'sums of one GPU for both' python3 sums.py 2 0 shared_memory mpi staged
check 'nccl is not skipped' skips nccl 'it needs a GPU for each rank'
program=$wrong_cluster
bench 70 2 allreduce "${sizes[@]}"
check 'wrong sums of GPUs' python3 sums.py 2 4 shared_memory mpi nccl staged
program=$DTRAIN
unset DTRAIN_CUDA_MODULE

# ---- what is refused; test_bench.c and test_args.c have all options ----
refused '--set: distributed.compression: bench allreduce adds numbers as they are (leave it out)' 2 allreduce --set distributed.compression.type=fp16
refused "--minbytes: expected bytes 4..1073741824, got '3'" 0 allreduce -b 3
refused "--set: comm: unknown key (did you mean 'distributed.allreduce'?)" 2 allreduce --set comm=mpi
refused "--algorithms: there is no 'rings' (did you mean 'ring'?)" 2 allreduce --algorithms tree,rings
bench 69 2 allreduce --set device=cpu --set distributed.allreduce=nccl
missing='(name others, or none, to measure what is)'
refuses 69 2 "=nccl is not available here: no GPU $missing" bench allreduce --algorithms nccl,staged
refuses 69 0 "=ring is not available here: one rank adds nothing $missing" bench allreduce --algorithms ring
bench 73 2 allreduce -b 8 -e 8 --set device=cpu --json nowhere/sums.json
check 'a file that cannot be written' grep -q '^dtrain: rank 0 .*: nowhere/: No such file' err
bench 66 2 model --config nowhere.json

# ---- a rank that stands still ----
has_worked() { # both ranks have, for 0.4 s: they add by then; leaves their numbers in ranks
  mapfile -t ranks < <(ranks_of "$1")
  ((${#ranks[@]} == 2)) && (($(cut -d ' ' -f 14 "/proc/${ranks[0]}/stat") > 40 && $(cut -d ' ' -f 14 "/proc/${ranks[1]}/stat") > 40))
}
forever=(-b 4M -e 4M -n 1000000 --set device=cpu --json "$work/stalled")
"$MPIEXEC" -n 2 env DTRAIN_TIMEOUT=2 "$DTRAIN" bench allreduce "${forever[@]}" >out 2>err </dev/null &
job=$!
check 'stall: begins no sums' wait_for 60 has_worked "$work/stalled"
kill -STOP "${ranks[1]}"
got=0
wait "$job" || got=$?
check "stall: exit code $got" test "$got" -eq 76
names='(allreduce of 4194304 bytes \(shared_memory\)|barrier before sums are timed)'
check "stall: not reported: $(cat err)" grep -Eqx "dtrain: $names stalled for 2 s: rank 1 .* \(raise DTRAIN_TIMEOUT .*" err

# ---- a signal: the size under way is finished, nothing is written ----
# All sizes together would take minutes, each as long as those before it.
"$MPIEXEC" -n 2 "$DTRAIN" bench allreduce -b 1K -e 16M -n 5000 --set device=cpu --json "$work/signalled" >out 2>err </dev/null &
job=$!
check 'signal: begins no sums' wait_for 60 has_worked "$work/signalled"
kill -TERM "$job"
got=0
wait "$job" || got=$?
check "signal: exit code $got" test "$got" -eq 75
check "signal: not reported: $(cat err)" grep -qx 'stopped by a signal; nothing is written' err
check 'signal: a file is left' test ! -e signalled

# ---- blocks ----
cat >config.json <<'JSON'
{
  "data": { "format": "synthetic", "train_samples": 200, "test_samples": 20 },
  "model": { "input": [1, 10, 10], "layers": [
    { "type": "conv2d", "filters": 4, "kernel": 3, "activation": "relu" }, { "type": "max_pool2d", "size": 2 },
    { "type": "conv2d", "filters": 8, "kernel": 3, "activation": "relu" }, { "type": "avg_pool2d", "size": 2 },
    { "type": "flatten" }, { "type": "dropout", "rate": 0.5 }, { "type": "dense", "units": 6, "activation": "relu" },
    { "type": "dense", "units": 4 }] },
  "train": { "batch": { "per_rank": 16 }, "optimizer": { "type": "adam", "clip_norm": 1 } },
  "threads": 1, "device": "cpu"
}
JSON
cat >blocks.py <<'PY'
"""usage: blocks.py RANKS DEVICE: what blocks.json has of `bench model` is what it should be."""
import json, sys
ranks, device = int(sys.argv[1]), sys.argv[2]
dense = {"conv1": 2 * 64 * 4 * 9, "conv2": 2 * 4 * 8 * 36, "block3": 0, "fc1": 2 * 8 * 6, "fc2": 2 * 6 * 4}  # flop of a sample
doc = json.load(open("blocks.json"))
parts = {part["title"]: part for part in doc["parts"] if "title" in part}
setup = {name: figure["value"] for name, figure in parts["Setup"]["figures"].items()}
assert doc["command"] == "bench model" and doc["title"].endswith("config") and setup["device"].split()[0] == device, setup
assert (setup["ranks"], setup["batch of a rank"], setup["steps"], setup["steps before them"]) == (ranks, 16, 15, 20), setup
rows = parts["Blocks"]["rows"]
assert [(row["block"], row["pass"]) for row in rows] == [(name, way) for way in ("forward", "backward") for name in dense], rows
for row in rows:
    backward, name = row["pass"] == "backward", row["block"]
    assert 0 <= row["shortest"] <= row["time"] <= row["longest"], row
    gflop = 1e-9 * dense[name] * 16 * (2 if backward and name != "conv1" else 1)
    ms = row["time"] if device == "cuda" else row["CPU"]
    assert (row["work"] is None) == (row["rate"] is None) == (gflop == 0), row
    assert gflop == 0 or abs(row["work"] - gflop) < 1e-15 and abs(row["rate"] - gflop / ms * 1e3) < 1e-6, row
    of_peak = None if gflop == 0 or device == "cuda" else row["rate"] / setup["peak of a core"]
    assert (row["of peak"] is None) == (of_peak is None) and (of_peak is None or abs(row["of peak"] - of_peak) < 1e-9), row
    assert 0 < row["nonzero"] <= 1, row
    assert (not backward or name in ("conv2", "block3")) == (row["passed"] is None), row  # behind an average pool it cannot be seen
by = {(row["block"], row["pass"]): row for row in rows}
back = by["conv1", "backward"]
assert 0 < back["passed"] <= 0.25 * back["nonzero"], back  # of four only the largest has one
assert 0 < by["fc1", "backward"]["passed"] <= by["fc1", "forward"]["nonzero"], rows  # relu's zeros let nothing through
alive, alive_back = ([by[name, way]["nonzero"] for name in dense] for way in ("forward", "backward"))
assert alive[3] < 0.9 and alive_back[3] == alive_back[4] == 1, (alive, alive_back)  # fc1 ends in relu
assert alive[2] < 0.75 * alive[1] and alive[4] > 0.9, alive  # dropout; logits
step = {row["part"]: row for row in parts["Step"]["rows"]}
names = ["data", "forward", "loss", "backward", "update", "rest"]
assert list(step) == names + ["total", "untimed"], step
for unit in ("time", "CPU"):
    assert abs(sum(step[name][unit] for name in names) - step["total"][unit]) < 1e-9
    for way in ("forward", "backward"):
        assert abs(sum(row[unit] for row in rows if row["pass"] == way) - step[way][unit]) < 1e-9
assert all(step[name]["CPU"] > 0 for name in names[:5]), step
assert all(abs(step[name]["share"] - step[name]["time"] / step["total"]["time"]) < 1e-9 for name in names), step
assert step["untimed"]["shortest"] <= step["untimed"]["time"] <= step["untimed"]["longest"], step
assert abs(setup["speed"] - 16 * ranks * 1e3 / step["untimed"]["time"]) < 1e-6 * setup["speed"]
PY
for n in 0 1 2 4; do
  rm -f blocks.json
  bench 0 "$n" model --config config.json --json blocks.json
  check "blocks of $n ranks" python3 blocks.py $((n > 0 ? n : 1)) cpu
done
bench 0 2 model --config config.json --json blocks.json --set device=ref
check 'blocks of the reference' python3 blocks.py 2 ref
check 'nothing is recomputed' test "$(grep -c 'recomputes' out)" -eq 0
bench 0 1 model --config config.json --set device=cpu --set model.layers.2.filters=512 --set data.train_samples=1200 \
  --set train.batch.per_rank=600 # more than the nearest cache holds
check 'no line says that a block is recomputed' grep -q '^The backward pass recomputes conv1' out
bench 0 2 model --config config.json --json blocks.json --set train.accumulate=3
check 'blocks of micro-batches' python3 blocks.py 2 cpu

# In this network a gradient takes the place of conv2's outputs.
bench 0 1 model --config "$configs/mnist.json" --json blocks.json --set device=cpu --set train.batch.per_rank=4 \
  --set 'data={"format":"synthetic","train_samples":200,"test_samples":20}'
check 'zeros of overwritten outputs' python3 -c 'import json; rows = [p for p in json.load(open("blocks.json"))["parts"] if p.get("title") == "Blocks"][0]["rows"]
forward, backward = (row for row in rows if row["block"] == "conv2")
assert 0 < forward["nonzero"] < 0.8 and 0 < backward["passed"] < 0.2, backward  # a quarter is dropped'

# Zeros are counted alike wherever they lie, and in 16 bits, too.
zeros() { python3 -c 'import json; print([[row["nonzero"], row["passed"]]
  for p in json.load(open("blocks.json"))["parts"] if p.get("title") == "Blocks" for row in p["rows"]])'; }
few=(--config config.json --json blocks.json --set train.optimizer.lr=1e-6)
bench 0 2 model "${few[@]}"
zeros >zeros.expected
DTRAIN_CUDA_MODULE=$module bench 0 2 model "${few[@]}" --set device=cuda
check 'blocks on a GPU' python3 blocks.py 2 cuda
check 'zeros on a GPU' cmp zeros.expected <(zeros)
for precision in f32 bf16; do
  [[ -n $double ]] || break
  DTRAIN_CUDA_MODULE=$double bench 0 2 model "${few[@]}" --set device=cuda --set "precision=$precision"
  check "blocks on fake CUDA, $precision" python3 blocks.py 2 cuda
  zeros >zeros.found
  check "zeros on fake CUDA, $precision" python3 -c 'import json
a, b = (json.loads(open(f).read().replace("None", "-1")) for f in ("zeros.expected", "zeros.found"))
assert all(abs(x - y) < 0.01 for p, q in zip(a, b) for x, y in zip(p, q)), (a, b)'
done
if [[ -n $double ]]; then # which engines of cuDNN, chosen by time or not
  engines() { # engines WHAT FORWARD FIRST OTHERS ARGUMENT...: of conv2, in bf16: [number, place, best of, bytes of workspace]
    FAKE_ENGINE_MS_4=3 FAKE_ENGINE_MS_5=7 FAKE_ENGINE_MS_6=2 DTRAIN_CUDA_MODULE=$double bench 0 1 model "${few[@]}" --set device=cuda \
      --set precision=bf16 "${@:5}"
    check "$1" python3 blocks.py 1 cuda
    check "$1: others" python3 -c 'import json, sys
rows = [p for p in json.load(open("blocks.json"))["parts"] if p.get("title") == "Engines"][0]["rows"]
first, others = map(json.loads, sys.argv[2:])
operations = {sys.argv[1]: first, "gradient of the input": others, "gradient of the filter": others}
found = {row["operation"]: [row[name] for name in ("number", "place", "best of", "workspace")] for row in rows}
assert found == operations and all(row["block"] == "conv2" and (row["time"] is None) == (row["best of"] == 0) for row in rows), rows' "$2" "$3" "$4"
  }
  engines 'engines by time' convolution '[6, 8, 5, 77]' '[6, 8, 5, 77]'
  engines 'engines that are fixed' 'convolution with bias and relu' '[5, 7, 0, 5000]' '[4, 4, 0, 1000]' --set cuda.deterministic=true
fi
left=$(find . -newer config.json -type f ! -name '*.py' ! -name '*.json' ! -name 'zeros.*' ! -name out ! -name err)
check "bench leaves other files: $left" test -z "$left"
check 'bench leaves a run folder' test ! -e runs
finish
