#!/usr/bin/env bash
# `dtrain bench scaling` as people run it: the table, JSON, CSV and the page beside it, and what is refused. No check depends on times.
# usage: DTRAIN=... MPIEXEC=... test_scale.sh
# shellcheck disable=SC2317 # functions that wait_for calls
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
command -v python3 >/dev/null || { echo 'skipped: python3 reads the tables, and is not installed'; exit 77; }

scale() { run "$1" "$2" bench scaling "${@:3}"; } # scale CODE RANKS ARGUMENT...
refused() { refuses "$1" "$3" "=$2" bench scaling --config scale.json "${@:4}"; } # refused CODE TEXT RANKS ARGUMENT...

cat >scale.json <<'JSON'
{ "data": { "format": "synthetic", "train_samples": 400, "test_samples": 20 },
  "model": { "input": [1, 8, 8], "layers": [{ "type": "flatten" }, { "type": "dense", "units": 4 }] },
  "train": { "batch": { "per_rank": 12 } }, "threads": 1, "device": "cpu" }
JSON
cat >scale.py <<'PY'
"""usage: scale.py BATCH MOST RANKS...: the table in out, rows.json, rows.csv and rows.html are alike, and add up."""
import csv, json, math, sys
batch, most, ranks = int(sys.argv[1]), int(sys.argv[2]), list(map(int, sys.argv[3:]))
result, lines = json.load(open("rows.json")), open("out").read().splitlines()
assert result["kind"] == "scale" and result["ranks"] == ranks[-1] and result["threads"] == 1 and result["parameters"] == 260, result
assert max(map(len, lines)) <= 80, max(lines, key=len)
measured = [row for row in result["measured"] if row["scaling"] in ("weak", "strong")]
known = {1: (batch, batch)}
expected = {("weak", n, n * batch) for n in ranks} | {("strong", n, batch) for n in ranks if n <= batch}
assert {(row["scaling"], row["ranks"], row["batch"]) for row in measured} == expected, measured
assert len(measured) == len(expected)
powers = sorted({n for n in (1 << i for i in range(11)) if n <= most} | {most} | {n for n in ranks if n <= most})
powers = powers if most > 0 else []
expected = [("weak", n, n * batch) for n in powers] + [("strong", n, batch) for n in powers if n <= batch]
predicted = sorted(result["predicted"], key=lambda row: (row["scaling"] == "strong", row["ranks"]))
assert [(row["scaling"], row["ranks"], row["batch"]) for row in predicted] == expected, predicted
one = measured[0]
page, table = open("rows.html").read(), [line.split() for line in lines if line.split() and line.split()[0] in ("weak", "strong")]
shown = [("measured", row) for kind in ("weak", "strong") for row in measured if row["scaling"] == kind] + [("predicted", row) for row in predicted]
table = [words for words in table if words[1].isdigit()]
assert len(table) == len(shown), (len(table), len(shown))
for (source, row), words in zip(shown, table):
    n, ms = row["ranks"], row["step_ms"]
    assert 0 < ms and abs(row["samples_per_s"] - 1e3 * row["batch"] / ms) < 1e-6 * row["samples_per_s"], row
    assert source == "predicted" or row["step_ms_min"] <= ms <= row["step_ms_max"], row
    efficiency = one["step_ms"] / (ms if row["scaling"] == "weak" else n * ms)
    assert abs(row["efficiency"] - efficiency) < 1e-9 * efficiency, row
    assert n > 1 or abs(ms - one["step_ms"]) < 1e-9 * ms and abs(row["efficiency"] - 1) < 1e-9, row
    assert abs(row["epoch_s"] - math.ceil(400 / row["batch"]) * ms / 1e3) < 1e-9 * row["epoch_s"], row
    assert source == "measured" or 0 <= row["wait"] <= 1 and (row["fastest"] != "") == (n > 1), row
    if source == "predicted":
        del words[3]
    assert (words[0], int(words[1])) == (row["scaling"], n), words
    assert source == "predicted" or int(words[2].replace(",", "")) == row["batch"], words
    assert source == "measured" or abs(float(words[2]) - 100 * row["wait"]) < 0.06, words
    for text, value in zip(words[3:6], (ms, row["step_ms_min"], row["step_ms_max"])):
        assert abs(float(text) - value) < 6e-4, words
    assert abs(float(words[9]) - 100 * efficiency) < 0.06 and words[8] in ("s", "ms") and words[10] == "%", words
    assert f"<td>{words[6]}</td>" in page and f"<td>{words[9]} %</td>" in page, words
rows = list(csv.DictReader(open("rows.csv")))
known = {(source, row["scaling"], row["ranks"]): row for source, row in shown}
assert len(rows) == len(known)
for row in rows:
    same = known[row["source"], row["scaling"], int(row["ranks"])]
    assert all(abs(float(row[key]) - same[key]) <= 1e-5 * same[key] for key in ("batch", "step_ms", "step_ms_min", "step_ms_max", "samples_per_s", "epoch_s", "efficiency")), row
    assert abs(float(row["efficiency_max"]) - same["efficiency"] * same["step_ms"] / same["step_ms_min"]) < 1e-4 * float(row["efficiency_max"]), row
model = result["model"]
assert len(ranks) == 1 or model["within_host"]["alpha_us"] > 0 and model["within_host"]["gb_per_s"] > 0 and 0 <= model["overlap"] <= 1, model
assert len(model["buckets"]) == 1 and model["buckets"][0]["bytes"] >= 4 * 260 and 0 < model["buckets"][0]["ready"] <= 1, model
assert page.count("<circle") == len(measured) and page.count('class="ideal"') == 2 and page.count('class="band"') == 2, page.count("<circle")
assert not any(word in page for word in ("src=", "href=", ">nan", ">inf", "nan ", "inf "))
weak = [row for row in predicted if row["scaling"] == "weak"]
crowded = bool(weak) and all(row["wait"] <= 0.2 for row in weak) and weak[-1]["efficiency"] < 0.8
assert ("share its cores" in result["advice"]) == crowded, result["advice"]
assert not predicted or result["advice"].startswith("communication is ") and result["advice"].split()[0] in open("out").read(), result["advice"]
PY
rows() { # rows RANKS BATCH MOST SIZE... [-- ARGUMENT...]
  local ranks=$1 expected=()
  shift
  while (($# > 0)) && [[ $1 != -- ]]; do
    expected+=("$1")
    shift
  done
  rm -f rows.*
  scale 0 "$ranks" --config scale.json --json rows.json --csv rows.csv --html rows.html "${@:2}"
  check "scaling of $ranks ranks" python3 scale.py "${expected[@]}"
}
rows 0 12 0 1
check 'one rank predicts nothing' grep -qx '# one rank has no link: nothing is predicted (start two, or name a --network)' out
rows 0 12 16 1 -- --network 25gbe --predict 16
rows 2 12 1024 1 2
rows 2 20 8 1 2 -- --set 'train.batch={"global":20}' --predict 8 --network 10,1.25
check 'the network that was given' grep -q 'a network of 10 us and 1.25 GB/s' out
rows 3 12 6 1 2 3 -- --predict 6 --set distributed.allreduce=tree
check 'measured beside predicted' grep -q '^# 3 ranks, weak: predicted [0-9.]* ms, measured [0-9.]*: [+-]' out
rows 4 12 4 1 2 4 -- --ranks 4 --predict 4 --set distributed.allreduce=all_to_all

# ---- what is refused ----
usage="--ranks: expected numbers of ranks 1..1024 such as 1,2,4, got"
refused 64 "$usage 'two'" 2 --ranks two
refused 64 "$usage '1,'" 2 --ranks 1,
refused 64 "$usage '0'" 2 --ranks 0
refused 64 "$usage '9999'" 2 --ranks 9999
refused 64 '--ranks: more than 24 numbers (leave some out)' 2 --ranks "$(seq -s, 25)"
refused 64 '--ranks: 3 ranks, but there are 2 (start more, or leave predictions to --predict)' 2 --ranks 2,3
refused 64 "--predict: expected a whole number 1..1024, got '2000'" 2 --predict 2000
refused 64 "--network: there is no '25gb' (did you mean '25gbe'?)" 2 --network 25gb
for bad in 'token ring' '10,' '-1,5' '10,0' '10,1,2' 'nan,1' ','; do
  refused 64 "--network: there is no '$bad' (one of 10gbe, 25gbe, hdr, nvlink, or microseconds and GB/s, such as 10,1.25)" 2 --network "$bad"
done
refused 78 'scale: one rank alone is no pipeline (set distributed.strategy to allreduce)' 2 --set distributed.strategy=pipeline
refused 78 'scale: predictions know no compression (set distributed.compression.type to none)' 2 --set distributed.compression.type=fp16
scale 73 2 --config scale.json --csv nowhere/rows.csv
check "a file that cannot be written: $(cat err)" grep -q '^dtrain: rank 0 .*: nowhere/: No such file' err
scale 66 2 --config nowhere.json
scale 78 3 --config scale.json --set train.batch.per_rank=300 # two ranks have too few samples, and the third hears of it
check "scale: $(cat err)" grep -qx 'dtrain: rank 0 .*: train.batch: 600 samples a step, but the training set has 400 (use a smaller batch)' err

# ---- a rank that stands still: one measures alone, and the others have nothing to do ----
"$MPIEXEC" -n 3 env DTRAIN_TIMEOUT=2 "$DTRAIN" bench scaling --config scale.json --set train.batch.per_rank=100 \
  --set 'model.layers=[{"type":"flatten"},{"type":"dense","units":60000},{"type":"dense","units":4}]' --json "$work/idle" >out 2>err </dev/null &
job=$!
has_worked() { # rank 0 has, for 0.3 s: it measures by then, or is about to
  mapfile -t ranks < <(ranks_of "$work/idle")
  ((${#ranks[@]} == 3)) && (($(cut -d ' ' -f 14 "/proc/${ranks[0]}/stat") > 30))
}
check 'idle: does not measure' wait_for 60 has_worked
kill -STOP "${ranks[0]}"
check 'idle: does not end' wait_for 30 gone "$work/idle"
kill -KILL "${ranks[@]}" "$job" 2>/dev/null
got=0
wait "$job" || got=$?
check "idle: exit code $got" test "$got" -eq 76
check "idle: not reported: $(cat err)" grep -q '^dtrain: .* stalled for 2 s: rank 0 ' err

left=$(find . -newer scale.json -type f ! -name '*.py' ! -name 'rows.*' ! -name out ! -name err)
check "scale leaves other files: $left" test -z "$left"
check 'scale leaves a run folder' test ! -e runs
finish
