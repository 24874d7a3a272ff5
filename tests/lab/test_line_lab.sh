#!/usr/bin/env bash
# The manual's four cases of averaging and broadcasting: its own commands, with the numbers of its own table.
# usage: DTRAIN=... MPIEXEC=... test_line_lab.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
manual=$configs/../docs/strategies.md
ln -s "$configs" configs

learned() { # of a table on stdout: "slope, intercept" of rank $1
  awk -v rank="$1" '$1 == rank && NF == 3 { print $2 ", " $3 }' out
}

run_case() { # run_case COMMAND AVERAGE BROADCAST: as the row of the table says
  local row words got=0
  row=$(grep -E "^\| $2 \| $3 \|" "$manual")
  IFS='|' read -ra cells <<<"$row"
  read -ra words <<<"$1"
  words[0]=$MPIEXEC words[3]=$DTRAIN
  rm -rf line
  timeout -k 5 60 "${words[@]}" --run line >out 2>err </dev/null || got=$?
  check "average $2, broadcast $3: exit code $got" test "$got" -eq 0
  for rank in 0 1; do
    check "average $2, broadcast $3: rank $rank learned '$(learned $rank)', the manual has ${cells[rank + 3]}" \
      test "$(learned $rank)" = "$(xargs <<<"${cells[rank + 3]}")"
    check "average $2, broadcast $3: another slope in summary.json" grep -Eq "\"slope\":[[:space:]]*$(learned $rank | cut -c 1-5)" line/summary.json
  done
  check "average $2, broadcast $3: $(tail -n 1 out), the manual has ${cells[5]}" \
    test "$(sed -n 's/^test loss \([0-9.]*\) .*/\1/p' out | xargs printf %.3f)" = "$(xargs <<<"${cells[5]}")"
}

mapfile -t commands < <(grep '^mpirun .*configs/linear.json' "$manual")
check "the manual has ${#commands[@]} commands, not four" test "${#commands[@]}" -eq 4
run_case "${commands[0]}" on on
check 'average and broadcast: the replicas differ' test "$(learned 0)" = "$(learned 1)"
both=$(learned 0)
run_case "${commands[1]}" on off
check 'no broadcast: the replicas are equal' grep -q '^as expected, ' err
run_case "${commands[2]}" off on
check 'no average: the replicas are equal' grep -q '^as expected, ' err
run_case "${commands[3]}" off off

"$DTRAIN" --config configs/linear.json --run alone >out 2>err </dev/null
check "one process learns '$(learned 0)', two learn '$both'" test "$(learned 0)" = "$both"

# Three ranks of a model that is no line have nothing to show.
timeout -k 5 60 "$MPIEXEC" -n 3 "$DTRAIN" --config configs/linear.json --run tanh \
  --set 'model.layers=[{"type":"dense","units":1,"activation":"tanh"}]' >out 2>err </dev/null
check 'a tanh is shown as a line' test "$(wc -l <out)" -eq 1
finish
