#!/usr/bin/env bash
# A command's result in files: --html, --json, --csv and - in place of a name; a file that is no earlier result of the
# same form stays as it is. usage: DTRAIN=... MPIEXEC=... test_results.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
command -v python3 >/dev/null || { echo 'skipped: python3 reads the files, and is not installed'; exit 77; }
configure '[1, 8, 8]' 'flatten dense4' '"data": { "format": "synthetic", "train_samples": 64, "test_samples": 32 }, "train": { "batch": { "per_rank": 32 }, "epochs": 1 }, "threads": 1'
run 0 1 --config config.json --run runs/a

run 0 1 runs runs --html first.html --json first.json --csv first.csv
for form in html json csv; do
  run 0 1 runs runs --$form first.$form # its own earlier result
  check "no line says that first.$form was written" grep -qx "wrote first.$form" err
  check "--$form: no text on stdout" grep -q 'runs/a' out
  run 0 1 runs runs --$form - # in place of the text
  check "--$form -: not the file's content" cmp out first.$form
  # Results of other forms, a configuration, a file of one's own.
  for other in first.html first.json first.csv config.json; do
    [[ $other == first.$form ]] && continue
    cp "$other" "kept.$form"
    run 73 1 runs runs --$form "kept.$form"
    check "--$form: $other was replaced" cmp "$other" "kept.$form"
    check "--$form: the line does not name the cure" grep -q -- '--force' err
    run 0 1 runs runs --$form "kept.$form" --force
    check "--$form --force: $other stays" cmp "first.$form" "kept.$form"
  done
  : >empty
  run 0 1 runs runs --$form empty
  check "--$form: an empty file was not filled" cmp empty first.$form
done
sed '1s/state/status/' first.csv >other.csv
sed '1s/\r/,more\r/' first.csv >wider.csv
sed '1s/^/more,/' first.csv >before.csv
for other in other wider before; do
  run 73 1 runs runs --csv $other.csv # other columns
done
run 64 1 runs runs --json - --csv -
check 'two results on stdout: no such line' grep -q 'only one result can go to standard output' err
run 73 1 runs runs --json none/x.json

check 'the results are not as documented' python3 - <<'PY'
import csv, json
doc = json.load(open("first.json"))
assert doc["dtrain_document"] == 1 and doc["command"] == "runs", doc
table = next(part for part in doc["parts"] if part["type"] == "table")
rows = list(csv.reader(open("kept.csv")))
assert [c["name"] for c in table["columns"]] == [head.split(",")[0] for head in rows[0]], rows[0]
assert table["rows"][0]["run"] == rows[1][0] == "runs/a", (table["rows"], rows)
assert '<meta name="generator" content="dtrain">' in open("first.html").read()
PY

# Whatever command offers one form offers all.
run 0 1 help --json
check 'a command has some of the forms alone' python3 - <<'PY'
import json
commands = json.load(open("out"))["commands"]
wrong = [c["name"] for c in commands if 0 < len({"html", "json", "csv", "force"} & {o["name"] for o in c["options"]}) < 4]
assert not wrong, wrong
PY
finish
