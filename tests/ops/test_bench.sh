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
"""usage: sums.py RANKS WRONG WAY... [on HOSTS]: the tables of `bench allreduce` in out and sums.json are alike, and what they should be."""
import json, sys
ranks, wrong, ways = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
hosts = int(ways.pop()) if "on" in ways else 1
ways = [way for way in ways if way != "on"]
tables, fits, fastest, name = {}, {}, [], None
for line in open("out"):
    words = line.split()
    if line.startswith("# fit"):
        assert words[2:] == ["latency(us)", "bandwidth(GB/s)", "max", "error(%)"], words
        name = "fit"
    elif "fastest" in line:
        name = "fastest"
    elif line.startswith("#") and line[1] == " " and ":" in words[1]:
        name = words[1].rstrip(":")
        tables.setdefault(name, [])
    elif "size(B)" in line:
        header = line[1:].split()
        assert header == ["size(B)", "count", "type", "redop", "time(us)", "algbw", "busbw", "#wrong", "msgs", "sent(B)"], header
    elif words and line[0] != "#" and name == "fit":
        fits[words[0]] = None if words[1] == "-" else (float(words[1]), float(words[2]))
    elif words and line[0] != "#" and name == "fastest":
        fastest.append(words)
    elif words and line[0] != "#":
        tables[name].append(words)
tables = {name: rows for name, rows in tables.items() if rows}
assert list(tables) == ways, list(tables)
result = json.load(open("sums.json"))
assert max(len(line.rstrip("\n")) for line in open("out")) <= 80
assert result["kind"] == "allreduce" and result["ranks"] == ranks and result["hosts"] == hosts, result
assert set(result["machine"]) == {"host", "cpu", "cores", "isa", "peak_gflops"} and result["machine"]["peak_gflops"] > 0
assert result["iters"] == 3 and result["checks"] == 2 and result["version"]
assert [way["name"] for way in result["ways"]] == ways
for way in result["ways"]:
    rows = tables[way["name"]]
    assert [int(row[0]) for row in rows] == [8, 80, 800, 8000], rows
    for row, point in zip(rows, way["points"]):
        size, count, kind, op, us, algbw, busbw, n_wrong, messages, sent = row
        assert set(point) == {"bytes", "count", "us", "us_min", "us_median", "us_max", "algbw_gbs", "busbw_gbs", "wrong"} | ({"messages", "bytes_sent", "messages_between_hosts", "bytes_between_hosts"} if messages != "-" else set()), point
        assert (kind, op, int(count) * 4, int(n_wrong)) == ("float", "sum", int(size), wrong), row
        assert point["bytes"] == int(size) and point["count"] == int(count) and point["wrong"] == wrong
        assert 0 < point["us_min"] <= point["us_median"] <= point["us_max"], point
        assert point["us_min"] <= 1.001 * point["us"] and point["us"] <= 1.001 * point["us_max"], point
        assert abs(point["us"] - float(us)) <= 0.06 and point["us"] > 0, row
        assert abs(point["algbw_gbs"] - point["bytes"] / point["us"] / 1e3) <= 1e-9 * point["algbw_gbs"], point
        assert abs(point["busbw_gbs"] - point["algbw_gbs"] * 2 * (ranks - 1) / ranks) <= 1e-9 * point["algbw_gbs"], point
        assert messages == "-" or (point["messages"], point["bytes_sent"]) == (int(messages), int(sent)), row
        assert way["name"] != "ring" or (int(messages), int(sent)) == (2 * (ranks - 1), 2 * (ranks - 1) * int(size) // ranks), row
        assert abs(point["algbw_gbs"] - float(algbw)) <= 6e-4 and abs(point["busbw_gbs"] - float(busbw)) <= 6e-4, row
    fit = way["fit"]
    assert (fit is None) == (fits[way["name"]] is None) and (fit is None or set(fit) == {"latency_us", "bandwidth_gbs", "worst"})
    assert fit is None or abs(fit["latency_us"] - fits[way["name"]][0]) <= 0.006 and fit["bandwidth_gbs"] > 0, fit
    assert fit is None or ranks > 1
# Among ranks that share memory: the fastest of each size beside the choice of auto, which is the choice without a bench.
for kind, chosen in ((("nccl", "staged"), result["auto"]), (None, "shared_memory" if ranks > 1 else "mpi")):
    those = [way for way in result["ways"] if (way["name"] in ("nccl", "staged")) == (kind is not None)]
    rows = fastest[-4:] if kind else fastest[:4]
    for i, row in enumerate(rows if len(those) > 1 else []):
        best = min(those, key=lambda way: way["points"][i]["us"])
        taken = [way["points"][i]["us"] for way in those if way["name"] == chosen]
        assert row[:2] == [str(best["points"][i]["bytes"]), best["name"]] and row[3] == chosen, (row, best["name"], chosen)
        assert abs(float(row[2]) - best["points"][i]["us"]) <= 0.06, row
        assert row[4] == "-" if not taken else abs(float(row[4]) - taken[0]) <= 0.06, row
groups = [sum((way in ("nccl", "staged")) == gpu for way in ways) for gpu in (False, True)]
assert len(fastest) == 4 * sum(n > 1 for n in groups), fastest
assert result["auto"] in (("nccl", "staged") if groups[1] else ("shared_memory",) if ranks > 1 else ("mpi",)), result["auto"]
PY
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
check 'sums: something on stderr' test ! -s err
bench 0 2 allreduce "${sizes[@]}" --set device=cpu --set distributed.allreduce=mpi
check 'sums with allreduce mpi' python3 sums.py 2 0 mpi
MPIR_CVAR_NUM_CLIQUES=2 bench 0 4 allreduce "${sizes[@]}" --set device=cpu # ranks 0 and 2 as if on another host
check 'sums over two hosts' python3 sums.py 4 0 shared_memory mpi on 2
check 'no line says that there are two hosts' test "$(grep -c '^# 4 ranks on 2 hosts; ' out)" -eq 2
bench 0 4 allreduce -b 8 -e 8000 -f 10 -n 3 -w 1 -c 2 --json sums.json --set device=cpu
check 'all implementations' python3 sums.py 4 0 shared_memory mpi hierarchical ring tree recursive_doubling \
  halving_doubling all_to_all master_worker
bench 0 2 allreduce -b 1K -e 1K -n 1 -w 0 -c 0 --set device=cpu --algorithms mpi,ring
check 'a sum that is not checked' test "$(grep -Ec '^ +1024 +256 .* N/A +[-0-9]+ +[-0-9]+$' out)" -eq 2

# As if the network were slow: never faster than that. A ring of two makes two rounds; between two hosts, a hierarchical one's leaders do.
slow() { # slow MICROSECONDS WAY: this way's only size took at least so long, on its slowest rank
  python3 -c 'import json, sys
ways = {way["name"]: way for way in json.load(open("sums.json"))["ways"]}
assert ways[sys.argv[2]]["points"][0]["us"] >= float(sys.argv[1]), ways' "$@"
}
few=(-n 2 -w 0 --json sums.json --set device=cpu)
bench 0 2 allreduce -b 8 -e 8 "${few[@]}" --latency 20000 --algorithms mpi,ring
check 'a slow ring' slow 40000 ring
check 'mpi cannot be slowed down, and is measured' grep -q '^# mpi: not here, because dtrain can slow down' out
check 'no line says how slow' test "$(grep -cx '# as if a message took 20000 us' out)" = 1
bench 0 2 allreduce -b 8000 -e 8000 "${few[@]}" --latency 1 --bandwidth 0.0004 --algorithms ring,tree
check 'a narrow ring' slow 20000 ring
check 'a narrow tree' slow 40000 tree
check 'the delay is not in the file' grep -q '"bandwidth_gbs":[^0-9]*0.0004' sums.json
MPIR_CVAR_NUM_CLIQUES=2 bench 0 4 allreduce -b 8 -e 8 "${few[@]}" --latency 20000 --algorithms hierarchical
check 'a slow network between hosts' slow 40000 hierarchical
check 'what goes between hosts is not told' \
  grep -qx '# of the last size go between hosts: 4 messages, 16 bytes, all ranks together' out
check 'what goes between hosts is not in the file' grep -Eq '"bytes_between_hosts":[[:space:]]*16,?$' sums.json
bench 0 2 allreduce -b 8 -e 8 -n 1 -w 0 -c 0 --set device=cpu --latency 1e6 --algorithms hierarchical # nothing leaves the host

# A sum that is wrong in one element, on each rank, in each of two checks.
program=$wrong_cluster
rm -f sums.json
bench 70 2 allreduce "${sizes[@]}" --set device=cpu
check 'wrong sums' python3 sums.py 2 4 shared_memory mpi
check 'wrong sums are not reported' test "$(cat err)" = 'dtrain: 32 elements of sums were wrong (see #wrong in the table)'
mkfifo deaf # a file that cannot be written does not hide them
bench 70 2 allreduce -b 8 -e 8 -n 1 -w 0 -c 1 --set device=cpu --algorithms ring --json deaf
check 'wrong sums, and no file' test "$(sed 's/ elements .*//; s/ (.*//' err | paste -sd '|')" = 'dtrain: deaf: nobody reads from it|dtrain: 2'
program=$DTRAIN

# Between GPUs, of a module that has none.
export DTRAIN_CUDA_MODULE=$module
bench 0 2 allreduce "${sizes[@]}"
check 'sums of two GPUs' python3 sums.py 2 0 shared_memory mpi nccl staged
bench 0 2 allreduce "${sizes[@]}" --set distributed.allreduce=nccl
check 'sums with allreduce nccl' python3 sums.py 2 0 nccl
FAKE_GPUS='aaaaaaaa aaaaaaaa' bench 0 2 allreduce "${sizes[@]}"
check 'sums of one GPU for both' python3 sums.py 2 0 shared_memory mpi staged
program=$wrong_cluster
bench 70 2 allreduce "${sizes[@]}"
check 'wrong sums of GPUs' python3 sums.py 2 4 shared_memory mpi nccl staged
program=$DTRAIN
unset DTRAIN_CUDA_MODULE

# ---- what is refused; test_bench.c and test_args.c have all options ----
refused '--set: distributed.compression: bench allreduce adds numbers as they are (leave it out)' 2 allreduce --set distributed.compression.type=fp16
refused "--minbytes: expected bytes 4..1073741824, got '3'" 0 allreduce -b 3
refused "--set: comm: the key is called distributed.allreduce now (rename it)" 2 allreduce --set comm=mpi
refused "--algorithms: there is no 'rings' (did you mean 'ring'?)" 2 allreduce --algorithms tree,rings
bench 69 2 allreduce --set device=cpu --set distributed.allreduce=nccl
bench 73 2 allreduce -b 8 -e 8 --set device=cpu --json nowhere/sums.json
check 'a file that cannot be written' grep -q '^dtrain: rank 0 .*: nowhere/: No such file' err
bench 66 2 blocks --config nowhere.json

# ---- a rank that stands still ----
forever=(-b 4M -e 4M -n 1000000 --set device=cpu --json "$work/stalled")
"$MPIEXEC" -n 2 env DTRAIN_TIMEOUT=2 "$DTRAIN" bench allreduce "${forever[@]}" >out 2>err </dev/null &
job=$!
check 'stall: begins no sums' wait_for 60 grep -q '#wrong' out
mapfile -t ranks < <(ranks_of "$work/stalled")
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
check 'signal: begins no sums' wait_for 60 grep -q '#wrong' out
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
"""usage: blocks.py RANKS DEVICE: the tables of `bench model` in out and blocks.json are alike, and what they should be."""
import json, re, sys
ranks, device = int(sys.argv[1]), sys.argv[2]
dense = {"conv1": 2 * 64 * 4 * 9, "conv2": 2 * 4 * 8 * 36, "block3": 0, "fc1": 2 * 8 * 6, "fc2": 2 * 6 * 4}  # flop of a sample
lines = open("out").read().split("\n")
result = json.load(open("blocks.json"))
assert result["kind"] == "blocks" and result["config"] == "config" and result["ranks"] == ranks and result["batch"] == 16
assert result["device"].split()[0] == device and result["steps"] == 15 and result["warmup_steps"] == 20
assert [block["name"] for block in result["blocks"]] == list(dense), result["blocks"]
near = lambda text, value, width: (text == "-") == (value is None) and (value is None or abs(float(text) - value) <= width)
rows = {line.split()[0]: line.split() for line in lines if line.strip()}
columns = ["ms", "cpu", "GFLOP", "GFLOP/s", "%peak", "%nonzero"]
heads = [line.split() for line in lines if "GFLOP/s" in line.split()[:5]]
assert heads == [["forward", *columns], ["backward", *columns, "%passed"]], heads
assert max(map(len, lines)) <= 80, max(lines, key=len)
peak = result["machine"]["peak_gflops"]
for i, block in enumerate(result["blocks"]):
    both = [line.split()[1:] for line in lines if line.startswith(block["name"] + " ") and "recomputed" not in line]
    assert list(map(len, both)) == [6, 7], both
    for p, (name, words) in enumerate(zip(("forward", "backward"), both)):
        b = block[name]
        keys = {"ms", "cpu_ms", "ms_min", "ms_max", "gflop", "gflops", "of_peak", "alive"}
        assert set(b) == keys | ({"reach"} if p else set()), b
        assert 0 <= b["ms_min"] <= b["ms"] <= b["ms_max"], b
        assert near(words[0], b["ms"], 6e-4) and near(words[1], b["cpu_ms"], 6e-4), words
        products = 2 if p and i else 1
        ms = b["ms"] if device == "cuda" else b["cpu_ms"]
        flop = dense[block["name"]] * 16 * products
        assert (b["gflop"] is None) == (b["gflops"] is None) == (flop == 0), b
        assert flop == 0 or abs(b["gflop"] - 1e-9 * flop) < 1e-15 and abs(b["gflops"] - b["gflop"] / ms * 1e3) < 1e-6, b
        of_peak = None if flop == 0 or device == "cuda" else b["gflops"] / peak
        assert (b["of_peak"] is None) == (of_peak is None) and (of_peak is None or abs(b["of_peak"] - of_peak) < 1e-9), b
        assert near(words[2], b["gflop"], 6e-6) and near(words[3], b["gflops"], 0.06), b
        assert near(words[4], None if of_peak is None else 100 * of_peak, 0.06), b
        assert 0 < b["alive"] <= 1 and near(words[5], 100 * b["alive"], 0.06), b
    back = block["backward"]
    assert near(words[6], None if back["reach"] is None else 100 * back["reach"], 0.06), words
    assert (block["name"] in ("conv2", "block3")) == (back["reach"] is None)  # behind an average pool it cannot be seen
    assert block["name"] != "conv1" or 0 < back["reach"] <= 0.25 * back["alive"]  # of four only the largest has one
    assert block["name"] != "fc1" or 0 < back["reach"] <= block["forward"]["alive"]  # relu's zeros let nothing through
engines = [(block["name"], engine) for block in result["blocks"] for engine in block.get("engines", [])]
told = [re.fullmatch(r"engine (\d+)/(\d+): (\w+), ([a-z ]+): (?:([\d.]+) us, best of (\d)|the first, not timed), [\d.]+ [kMG]?B", line)
        for line in lines if line.startswith("engine ")]
assert len(told) == len(engines) and all(told), told
for text, (block, engine) in zip(told, engines):
    number, place, *names, us, timed = text.groups()
    assert names == [block, engine["operation"]] and (int(number), int(place)) == (engine["number"], engine["place"]), (names, engine)
    assert int(timed or 0) == engine["timed"] and abs(float(us or 0) - engine["us"]) <= 0.06, engine
alive, alive_back = ([block[way]["alive"] for block in result["blocks"]] for way in ("forward", "backward"))
assert alive[3] < 0.9 and alive_back[3] == alive_back[4] == 1, (alive, alive_back)  # fc1 ends in relu
assert alive[2] < 0.75 * alive[1] and alive[4] > 0.9, alive  # dropout; logits
parts = result["parts"]
names = ["gather", "forward", "loss", "backward", "optimizer", "rest", "total"]
assert list(parts) == names
for unit, column in (("ms", 1), ("cpu_ms", 2)):
    for name in names:
        assert near(rows[name][column], parts[name][unit], 6e-4), rows[name]
    assert abs(sum(parts[name][unit] for name in names[:-1]) - parts["total"][unit]) < 1e-9
    for name in ("forward", "backward"):
        assert abs(sum(block[name][unit] for block in result["blocks"]) - parts[name][unit]) < 1e-9
assert all(parts[name]["cpu_ms"] > 0 for name in names[:5]), parts
step = result["step"]
assert set(step) == {"ms", "cpu_ms", "ms_min", "ms_max", "images_per_s"} and near(rows["untimed"][1], step["ms"], 6e-4)
assert abs(step["images_per_s"] - 16 * ranks * 1e3 / step["ms"]) < 1e-6 * step["images_per_s"]
PY
for n in 0 1 2 4; do
  rm -f blocks.json
  bench 0 "$n" blocks --config config.json --json blocks.json
  check "blocks of $n ranks" python3 blocks.py $((n > 0 ? n : 1)) cpu
done
bench 0 2 blocks --config config.json --json blocks.json --set device=ref
check 'blocks of the reference' python3 blocks.py 2 ref
check 'nothing is recomputed' test "$(grep -c 'recomputed' out)" -eq 0
bench 0 1 blocks --config config.json --set device=cpu --set model.layers.2.filters=512 --set data.train_samples=1200 \
  --set train.batch.per_rank=600 # more than the nearest cache holds
check 'no line says that a block is recomputed' grep -q '^conv1 is recomputed in the backward pass' out
bench 0 2 blocks --config config.json --json blocks.json --set train.accumulate=3
check 'blocks of micro-batches' python3 blocks.py 2 cpu

# In this network a gradient takes the place of conv2's outputs.
bench 0 1 blocks --config "$configs/mnist.json" --json blocks.json --set device=cpu --set train.batch.per_rank=4 \
  --set 'data={"format":"synthetic","train_samples":200,"test_samples":20}'
check 'zeros of overwritten outputs' python3 -c 'import json; conv2 = json.load(open("blocks.json"))["blocks"][1]
assert 0 < conv2["forward"]["alive"] < 0.8 and 0 < conv2["backward"]["reach"] < 0.2, conv2  # a quarter is dropped'

# Zeros are counted alike wherever they lie, and in 16 bits, too.
zeros() { python3 -c 'import json; print([[b[p][k] for p, k in (("forward", "alive"), ("backward", "alive"), ("backward", "reach"))]
  for b in json.load(open("blocks.json"))["blocks"]])'; }
few=(--config config.json --json blocks.json --set train.optimizer.lr=1e-6)
bench 0 2 blocks "${few[@]}"
zeros >zeros.expected
DTRAIN_CUDA_MODULE=$module bench 0 2 blocks "${few[@]}" --set device=cuda
check 'blocks on a GPU' python3 blocks.py 2 cuda
check 'zeros on a GPU' cmp zeros.expected <(zeros)
for precision in f32 bf16; do
  [[ -n $double ]] || break
  DTRAIN_CUDA_MODULE=$double bench 0 2 blocks "${few[@]}" --set device=cuda --set "precision=$precision"
  check "blocks on fake CUDA, $precision" python3 blocks.py 2 cuda
  zeros >zeros.found
  check "zeros on fake CUDA, $precision" python3 -c 'import json
a, b = (json.loads(open(f).read().replace("None", "-1")) for f in ("zeros.expected", "zeros.found"))
assert all(abs(x - y) < 0.01 for p, q in zip(a, b) for x, y in zip(p, q)), (a, b)'
done
if [[ -n $double ]]; then # which engines of cuDNN, chosen by time or not
  operations=('convolution with bias and relu' 'gradient of the input' 'gradient of the filter')
  engines() { # engines WHAT WITH_RELU OTHERS ARGUMENT...: of conv2, in bf16: "NUMBER PLACE HOW"
    local what=$1 lines='' each i
    for i in 0 1 2; do
      read -r -a each <<<"${*:i == 0 ? 2 : 3:1}"
      lines+="engine ${each[0]}/${each[1]}: conv2, ${operations[i]}: ${each[*]:2}"$'\n'
    done
    shift 3
    FAKE_ENGINE_MS_4=3 FAKE_ENGINE_MS_5=7 FAKE_ENGINE_MS_6=2 DTRAIN_CUDA_MODULE=$double bench 0 1 blocks "${few[@]}" --set device=cuda \
      --set precision=bf16 "$@"
    check "$what" python3 blocks.py 1 cuda
    check "$what: other engines: $(grep "^engine " out)" test "$(grep "^engine " out | sed 's/: [0-9.]* us/: N us/')" == "${lines%?}"
  }
  engines 'engines by time' '6 8 N us, best of 6, 77 B' '6 8 N us, best of 6, 77 B'
  engines 'engines that are fixed' '5 7 the first, not timed, 5 kB' '4 4 the first, not timed, 1 kB' --set cuda.deterministic=true
fi
left=$(find . -newer config.json -type f ! -name '*.py' ! -name '*.json' ! -name 'zeros.*' ! -name out ! -name err)
check "bench leaves other files: $left" test -z "$left"
check 'bench leaves a run folder' test ! -e runs
finish
