#!/usr/bin/env bash
# `dtrain bench scaling` as people run it: JSON, CSV and page, and what is refused. No check depends on times.
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
"""usage: scale.py BATCH MOST RANKS...: rows.json, rows.csv and rows.html are alike, and add up."""
import csv, json, math, sys
batch, most, ranks = int(sys.argv[1]), int(sys.argv[2]), list(map(int, sys.argv[3:]))
doc = json.load(open("rows.json"))
parts = {part["title"]: part for part in doc["parts"] if "title" in part}
figures = lambda title: {name: figure["value"] for name, figure in parts[title]["figures"].items()}
setup, rows = figures("Setup"), parts["Steps"]["rows"]
assert doc["command"] == "bench scaling" and (setup["ranks"], setup["threads of a rank"], setup["parameters"]) == (ranks[-1], 1, 260), setup
shown = {(source, kind): [row for row in rows if (row["source"], row["scaling"]) == (source, kind)]
         for source in ("measured", "predicted") for kind in ("weak", "strong")}
assert sum(map(len, shown.values())) == len(rows)
powers = sorted({n for n in (1 << i for i in range(11)) if n <= most} | {most} | {n for n in ranks if n <= most}) if most > 0 else []
for (source, kind), some in shown.items():  # no further than an epoch has a whole step
    numbers = [n for n in powers if n * batch <= 400] if source == "predicted" and kind == "weak" else powers if source == "predicted" else ranks
    assert [(row["ranks"], row["batch"]) for row in some] == [
        (n, n * batch if kind == "weak" else batch) for n in numbers if kind == "weak" or n <= batch], (source, kind, some)
one = shown["measured", "weak"][0]
for row in rows:
    n, ms = row["ranks"], row["step"]
    assert 0 < row["shortest"] <= ms <= row["longest"] and abs(row["rate"] - 1e3 * row["batch"] / ms) < 1e-6 * row["rate"], row
    efficiency = one["step"] / (ms if row["scaling"] == "weak" else n * ms)
    assert abs(row["efficiency"] - efficiency) < 1e-9 * efficiency, row
    assert abs(row["epoch"] - math.ceil(400 / row["batch"]) * ms / 1e3) < 1e-9 * row["epoch"], row
    assert row["waits"] is None if row["source"] == "measured" else 0 <= row["waits"] <= 1 and (row["fastest"] != "") == (n > 1), row
for kind in ("weak", "strong"):  # a prediction agrees with the rows that it is made from
    same = [[[row[key] for key in ("step", "shortest", "longest")] for row in shown[source, kind] if row["ranks"] <= 2] for source in ("measured", "predicted")]
    assert not shown["predicted", kind] or all(abs(a - b) < 1e-9 * a for x, y in zip(*same) for a, b in zip(x, y)), same
table = list(csv.reader(open("rows.csv")))
assert [head.split(",")[0] for head in table[0]] == [column["name"] for column in parts["Steps"]["columns"]], table[0]
for line, row in zip(table[1:], rows, strict=True):
    assert all(text == value or abs(float(text or 0) - (value or 0)) <= 1e-9 * float(text or 0) for text, value in zip(line, row.values())), row
for title, kind in (("Weak scaling", "weak"), ("Strong scaling", "strong")):
    for line in parts[title]["lines"][1:]:
        some = shown[line["name"], kind]
        assert line["x"] == [row["ranks"] for row in some] and all(abs(y - 100 * row["efficiency"]) < 1e-6 * y for y, row in zip(line["y"], some)), line
page = open("rows.html").read()
assert "Weak scaling" in page and not any(word in page for word in ("src=", "href=", ">nan", ">inf", "nan ", "inf "))
differ, weak = setup["longest round over shortest"], shown["predicted", "weak"]
bad = [row for row in weak if row["efficiency"] < 0.8]
if not weak:
    assert doc["verdict"] == "MEASURED" and doc["summary"].startswith("One rank has no link: nothing is predicted ("), doc["summary"]
elif differ > 1.5:
    assert doc["verdict"] == "WARN" and doc["summary"].startswith("Rounds differ up to "), doc["summary"]
else:
    row = (bad or weak[-1:])[0]
    assert doc["summary"].startswith("Predicted efficiency of weak scaling: %.0f %% at %d ranks" % (100 * row["efficiency"], row["ranks"])), doc["summary"]
    assert doc["summary"].endswith("Add ranks, each with its batch.") == (not bad), doc["summary"]
if weak:
    assert 0 <= figures("Prediction")["overlappable communication that is hidden"] <= 1
    assert len(ranks) == 1 or figures("Prediction")["latency within a host"] > 0 and figures("Prediction")["bandwidth within a host"] > 0
    buckets = parts["Buckets"]["rows"]
    assert len(buckets) == 1 and buckets[0]["size"] >= 4 * 260 and 0 < buckets[0]["ready"] <= 1, buckets
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
rows 0 12 16 1 -- --network 25gbe --predict 16
rows 2 12 1024 1 2
rows 2 20 8 1 2 -- --set 'train.batch={"global":20}' --predict 8 --network 10,1.25
check 'the network that was given' test "$(grep -Ec '^(network between hosts +a network|latency between hosts +10 us|bandwidth between hosts +1.25 GB/s)$' out)" = 3
rows 3 12 6 1 2 3 -- --predict 6 --set distributed.allreduce=tree
rows 4 12 4 1 2 4 -- --ranks 4 --predict 4 --set distributed.allreduce=all_to_all

# ---- a live line, on a terminal alone, and none is left at the end ----
check 'a live line in a file' test "$(grep -c 'round' err)" -eq 0
cat >live.py <<'PY'
import subprocess, sys
from terminal import Terminal
terminal = Terminal(*sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
code = terminal.end()
drawn = {line for line in terminal.text.split("\r\x1b[K") if line}
words = sys.argv[1].split("|")  # the first begins a line, and no line begins with another; a line that follows within 0.1 s is left out
assert code == 0 and any(line.startswith(words[0]) for line in drawn), (code, terminal.text)
assert all(line.startswith(tuple(words)) for line in drawn), terminal.text
assert terminal.text.endswith("\r\x1b[K"), terminal.text[-200:]
PY
check 'bench scaling: no live line' \
  python3 live.py 'round |prediction ' "$MPIEXEC" -n 2 "$DTRAIN" bench scaling --config scale.json --predict 4
check 'bench model: no live line' python3 live.py 'round ' "$MPIEXEC" -n 2 "$DTRAIN" bench model --config scale.json
check 'bench allreduce: no live line' python3 live.py 'allreduce of ' "$DTRAIN" bench allreduce -e 1M --set device=cpu

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
refused 78 'bench scaling: one rank alone is no pipeline (set distributed.strategy to allreduce)' 2 --set distributed.strategy=pipeline
refused 78 'bench scaling: predictions know no compression (set distributed.compression.type to none)' 2 --set distributed.compression.type=fp16
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
