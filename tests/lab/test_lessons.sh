#!/usr/bin/env bash
# The lessons of `dtrain lab` that end with golden numbers: text, page, and what happens where a number is another.
# usage: DTRAIN=... MPIEXEC=... test_lessons.sh WRONG_LAB
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
wrong_lab=$1

lesson() { run "$1" "$2" lab "${@:3}"; } # lesson CODE RANKS ARGUMENT...
right() { # right RANKS NAME ARGUMENT...: it passes, in 80 columns and two screens; the page is of one file
  local name=$2
  rm -f "$name.html"
  lesson 0 "$@" --html "$name.html"
  check "lab $name: no PASS at its end" grep -q '^PASS: all [1-9][0-9]* reference values reproduced$' <(tail -n 1 out)
  check "lab $name: more than 80 columns: $(awk 'length > 80' out)" test -z "$(awk 'length > 80' out)"
  check "lab $name: $(wc -l <out) lines" test "$(wc -l <out)" -le 60
  check "lab $name: the page has no verdict" grep -qF "$(tail -n 1 out)" "$name.html"
  check "lab $name: no picture" grep -q '<svg' "$name.html"
  check "lab $name: the page takes something from elsewhere" \
    test -z "$(grep -oE '(src|href)=|https?:|@import|url\([^#]|\b(nan|inf)\b' "$name.html")"
}
wrong() { # wrong RANKS NAME ARGUMENT...: where steps are too long, it says what differs
  program=$wrong_lab
  lesson 1 "$@"
  check "lab $2: the difference is reported as: $(cat err)" grep -qE '^dtrain: .*(: got .*, expected |: does not hold$)' err
  check "lab $2: $(wc -l <err) lines of errors" test "$(wc -l <err)" = 1
  check "lab $2: a wrong number passes" test -z "$(grep PASS out)"
  program=$DTRAIN
}
unread() { # unread RANKS NAME: what differs is the verdict, also where the page cannot be written
  program=$wrong_lab
  lesson 1 "$@" --html deaf
  check "lab $2: not the page, and then what differs: $(cat err)" test "$(grep -cE '^dtrain: (deaf: nobody reads|.*(: got .*, expected |: does not hold$))' err)" = 2
  program=$DTRAIN
}
refused() { refuses "$1" "$3" "=$2" lab "${@:4}"; } # refused CODE TEXT RANKS ARGUMENT...

mkfifo deaf # which nobody reads
right 2 linear
check 'linear: the two ranks, or one process, end at another line' test "$(grep -cE '^(on +on|one process) +1\.963652, 2\.529543 ' out)" = 2
check 'linear: averaging alone does not keep the distance' grep -qE '^on +off .* 1.4142[0-9]{2} ' out
wrong 2 linear
right 2 linear --batch 16
right 2 linear --batch 1
check 'linear: single samples never raise the loss' grep -qE '^Batch 1: [1-9][0-9]* of 64 steps raised' out
refused 64 "--batch: '2' is none of 1, 16, all" 2 linear --batch 2
refused 78 'lab linear: it takes 2 ranks, not 1 (mpirun -np 2 dtrain lab linear)' 0 linear

right 4 server
check 'server: not the bytes of the formulas' test "$(grep -oE '[0-9.]+ kB' out | xargs)" = '47.1 kB 94.3 kB 94.2 kB 94.2 kB 94.2 kB'
check 'server: no staleness' grep -q '^staleness of gradients, in steps: mean ' out
refused 78 'lab server: it takes 4 ranks, not 2 (mpirun -np 4 dtrain lab server)' 2 server

right 4 compression
check 'compression: not the bytes of the formulas' \
  test "$(awk '/^(none|fp16|bf16|int8|onebit|topk) / {sub(/ %.*/, ""); print $(NF - 3)}' out | xargs)" = '94,272 47,136 47,136 23,847 3,864 1,896'
wrong 4 compression
refused 78 'lab compression: it takes 4 ranks, not 2 (mpirun -np 4 dtrain lab compression)' 2 compression

right 4 stragglers
check 'stragglers: not all wait for the slow rank, and it for itself' test "$(grep -cE '^  rank [0-3] +(5[0-9]|[6-9][0-9]|[0-9]{3,})\.[0-9] +[#.]' out)" -ge 9
check 'stragglers: no staleness' grep -q '^staleness of gradients, in steps: mean ' out
check 'stragglers: not the latest of n ranks' \
  test "$(awk '/^ +[0-9]+ +[0-9.]+ +[0-9.]+( +[0-9.]+ +[0-9.]+)?$/ {print $1, $2}' out | xargs)" = '1 20.0 2 26.8 3 30.2 4 32.3 16 38.1 64 39.7'
wrong 4 stragglers
refused 78 'lab stragglers: it takes 4 ranks, not 1 (mpirun -np 4 dtrain lab stragglers)' 0 stragglers

# The course has every lesson, and what its last table names is there.
course=$(cd "$tests/.." && pwd)/docs/lessons.md
{ "$DTRAIN" help; "$DTRAIN" lab | sed -n 's/^.*dtrain lab/  lab/p'; } >help
"$DTRAIN" help config >keys
for name in $(sed -nE 's/^ +lab ([a-z-]+) .*/\1/p' help); do
  check "lessons.md: no lab $name" grep -qE "dtrain lab $name\b" "$course"
done
sed '1,/^| there | here |$/d' "$course" | cut -d'|' -f3 | grep -o '`[^`]*`' | tr -d '`' >named
check 'lessons.md: no table of what lectures name' test "$(wc -l <named)" -gt 30
while read -r name; do
  case $name in
  lab\ * | bench\ *) check "lessons.md: no command $name" grep -qE "^ +${name%% --*} " help ;;
  *.*_* | train.* | data.* | distributed.*) check "lessons.md: no key $name" grep -qE "^${name//./\\.}[. ]" keys ;;
  scripts/* | configs/*) check "lessons.md: no file $name" test -e "$(dirname "$course")/../$name" ;;
  esac
done <named
finish
