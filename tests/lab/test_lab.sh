#!/usr/bin/env bash
# `dtrain lab` as people run it: the textbook's ring word by word, every algorithm at seven numbers of ranks, Reduce and Allreduce of 1 to 5,
# the page, and what is refused. usage: DTRAIN=... MPIEXEC=... test_lab.sh WRONG_LAB
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
command -v python3 >/dev/null || { echo 'skipped: python3 reads the page, and is not installed'; exit 77; }
wrong_lab=$1

lab() { run "$1" 0 lab "${@:2}"; } # lab CODE ARGUMENT...
refused() { refuses 64 0 "=$1" lab "${@:2}"; } # refused TEXT ARGUMENT...

lab 0 allreduce
cat >expected <<'TEXT'
ring over 4 ranks, 4 floats each
pieces go round a ring, and their sums once more
A has the vector a, B has b, ...; a0 is piece 0 of a, and ab0 is a0 + b0

round 1 of 6
  A sends a0 to B, who adds it      A a0    a1    a2    ad3
  B sends b1 to C, who adds it      B ab0   b1    b2    b3
  C sends c2 to D, who adds it      C c0    bc1   c2    c3
  D sends d3 to A, who adds it      D d0    d1    cd2   d3

round 2 of 6
  A sends ad3 to B, who adds it     A a0    a1    acd2  ad3
  B sends ab0 to C, who adds it     B ab0   b1    b2    abd3
  C sends bc1 to D, who adds it     C abc0  bc1   c2    c3
  D sends cd2 to A, who adds it     D d0    bcd1  cd2   d3

round 3 of 6
  A sends acd2 to B, who adds it    A a0    abcd1 acd2  ad3
  B sends abd3 to C, who adds it    B ab0   b1    abcd2 abd3
  C sends abc0 to D, who adds it    C abc0  bc1   c2    abcd3
  D sends bcd1 to A, who adds it    D abcd0 bcd1  cd2   d3

round 4 of 6
  A sends abcd1 to B, who replaces  A abcd0 abcd1 acd2  ad3
  B sends abcd2 to C, who replaces  B ab0   abcd1 abcd2 abd3
  C sends abcd3 to D, who replaces  C abc0  bc1   abcd2 abcd3
  D sends abcd0 to A, who replaces  D abcd0 bcd1  cd2   abcd3

round 5 of 6
  A sends abcd0 to B, who replaces  A abcd0 abcd1 acd2  abcd3
  B sends abcd1 to C, who replaces  B abcd0 abcd1 abcd2 abd3
  C sends abcd2 to D, who replaces  C abc0  abcd1 abcd2 abcd3
  D sends abcd3 to A, who replaces  D abcd0 bcd1  abcd2 abcd3

round 6 of 6
  A sends abcd3 to B, who replaces  A abcd0 abcd1 abcd2 abcd3
  B sends abcd0 to C, who replaces  B abcd0 abcd1 abcd2 abcd3
  C sends abcd1 to D, who replaces  C abcd0 abcd1 abcd2 abcd3
  D sends abcd2 to A, who replaces  D abcd0 abcd1 abcd2 abcd3

proof, by whole numbers: 4 on each rank
  all ranks have the same     yes
  it is the exact sum         yes
  messages sent               24, by the formula 24: equal
  bytes sent                  96, by the formula 96: equal
TEXT
check 'the ring of four is not as the textbooks have it' diff expected <(sed '/^all algorithms/,$d' out | sed '$d')

# The golden numbers of four workers and the tutorial's model, which a tree sends in five segments.
lab 0 allreduce --elements 1199882
cat >expected <<'TEXT'
ring 6 24 28,797,168
tree 8 30 28,797,168
recursive_doubling 2 8 38,396,224
halving_doubling 4 16 28,797,168
all_to_all 1 12 57,594,336
master_worker 4 6 28,797,168
TEXT
sed -n '/^  algorithm/,/busiest rank:/p' out | sed '1d;$d' >rows
check 'the table is not what it should be' diff expected <(awk '{print $1, $2, $3, $4}' rows)
mapfile -t algorithms < <(awk '{print $1}' rows)

# test_algorithms.c has every number of ranks up to 17, and every number of elements around it. Halving and doubling over 7 is the widest text.
for algorithm in "${algorithms[@]}"; do
  for case in 1:1 2:1000 3:2 7:7 8:1 16:17 17:1000; do
    lab 0 allreduce --algorithm "$algorithm" --ranks "${case%:*}" --elements "${case#*:}"
    check "$algorithm, $case: no proof" test "$(grep -cE ' yes$|: equal$' out)" = 4
    check "$algorithm, $case: more than 80 columns" test -z "$(awk 'length > 80' out)"
  done
done
lab 0 allreduce --ranks 64
check '64 ranks are not abbreviated' test "$(wc -l <out)" -lt 60

lab 0 reduce
check 'lab reduce: no 15 on the root' grep -qx 'Reduce: the sum is on the root, 15 on A' out
check 'lab reduce: not 15 everywhere' grep -qx 'Allreduce: the sum is everywhere, 15 15 15 15 15' out
check 'lab reduce: no rounds' grep -q '^  E sends 5 to A, who adds it  *A 15$' out

# The page: well-formed, whole in itself, a section and a picture a round, an arrow a message, the same without the script.
cat >page.py <<'PY'
"""usage: page.py FILE ROUNDS ARROWS"""
import re, sys, html.parser, xml.etree.ElementTree as xml
text, rounds, arrows = open(sys.argv[1], encoding="utf-8").read(), int(sys.argv[2]), int(sys.argv[3])
class Parser(html.parser.HTMLParser):
    open_tags = []
    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)) and not {"src", "href", "style", "onclick"} & set(names), attributes
        assert tag not in ("link", "iframe", "img", "object", "embed", "base"), tag
        if tag not in ("meta", "input"):
            self.open_tags.append(tag)
    def handle_startendtag(self, tag, attributes):
        pass
    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag, (tag, self.getpos())
parser = Parser()
parser.feed(text)
parser.close()
assert not parser.open_tags and text.startswith("<!DOCTYPE html>")
assert not re.search(r"https?:|//\w|@import|url\((?!#)|fetch|XMLHttp|\bnan\b|\binf\b", text)
sections = re.findall(r'<section class="round">(.*?)</section>', text, re.S)
assert len(sections) == rounds + 1 and "hidden" not in "".join(sections), len(sections)
assert "<nav hidden>" in text
n_arrows, n_items = [0, 0], 0 # of the ellipse, and of the column in its place where the window is narrow
for i, section in enumerate(sections):
    assert ("<h2>Round %d of %d</h2>" % (i, rounds) if i else "<h2>At first</h2>") in section
    n_items += section.count("<li ")
    pictures = [xml.fromstring(picture) for picture in re.findall(r"<svg.*?</svg>", section, re.S)]
    assert [svg.get("class") for svg in pictures] == ["ellipse", "column"]
    for k, svg in enumerate(pictures):
        width, height = map(float, svg.get("viewBox").split()[2:])
        n_arrows[k] += sum(path.get("class") == "arrow" for path in svg.iter("path"))
        for group in svg.findall("g[@transform]"):
            x, y = map(float, re.findall(r"[\d.]+", group.get("transform")))
            card = float(group.find("rect").get("width"))
            assert 0 <= x and x + card <= width and 24 <= y and y + 54 <= height, (x, y)
        for path in svg.findall("g/path[@class='arrow']"):
            numbers = [float(number) for number in re.findall(r"[\d.]+", path.get("d"))]
            assert k == 0 or max((numbers[0] + 2 * numbers[2] + numbers[4]) / 4, numbers[0]) + 40 <= width, "an arrow that leaves the column"
assert n_arrows == [arrows, arrows] and n_items >= arrows, (n_arrows, n_items)
assert "show(1)" in text, "it does not begin with the first round"
PY
page() { # page ALGORITHM RANKS ROUNDS ARROWS
  lab 0 allreduce --algorithm "$1" --ranks "$2" --html page.html
  check "the page of $1 over $2 ranks is wrong" python3 page.py page.html "$3" "$4"
}
lab 0 reduce --html page.html
check 'the page of reduce is wrong' python3 page.py page.html 6 8
check 'the page of reduce has no sum' grep -q 'Reduce is done: the sum is on the root, 15 on A\.' page.html
page ring 4 6 24
page ring 16 30 480
page tree 5 6 8
page recursive_doubling 6 4 12
page halving_doubling 8 6 48
page all_to_all 7 1 42
page master_worker 3 3 4
page ring 1 0 0
cp page.html first.html
lab 0 allreduce --ranks 1 --html ./page.html
check 'the page is not the same again' cmp page.html first.html

refused "--algorithm: unknown algorithm 'rong' (did you mean 'ring'?)" allreduce --algorithm rong
refused "--algorithm: unknown algorithm 'x' (one of ring, tree, recursive_doubling, halving_doubling, all_to_all, master_worker)" \
  allreduce --algorithm x
refused "--ranks: expected a whole number 1..64, got '0'" allreduce --ranks 0
refused "--ranks: expected a whole number 1..64, got '65'" allreduce --ranks 65
refused "--ranks: expected a whole number 1..64, got '4x'" allreduce --ranks 4x
refused "--elements: expected a whole number 1..33554432, got '-1'" allreduce --elements -1
refused '--elements 16777217 is too many for 2 ranks in one process (at most 16777216)' allreduce --ranks 2 --elements 16777217
refused '--html draws 16 ranks at most, not 17' allreduce --ranks 17 --html page.html
refused '--ranks does not belong to lab reduce (see dtrain lab reduce --help)' reduce --ranks 4
refused "unknown command 'lab rduce' (did you mean 'lab reduce'?)" rduce
refused 'folder/: no name of a file (add one)' allreduce --html folder/
lab 73 allreduce --html missing/page.html
check 'a missing folder has no line of its own' test "$(wc -l <err)" = 1

# Under a launcher it is told once. Its input stays open: MPICH's mpirun may die of SIGPIPE (141) where it passes on the end of its
# input to a helper that has left with the program, as with "mpirun -n 2 echo </dev/null".
sleep 2 | timeout -k 5 120 "$MPIEXEC" -n 2 "$DTRAIN" lab reduce >out 2>err || fail 'lab reduce under mpirun' err
check 'two copies both tell' test "$(grep -c '^Reduce:' out)" = 1

# A wrong algorithm is found out, and ends with 1.
program=$wrong_lab
lab 1 allreduce --html page.html
check "a wrong sum is told as: $(cat err)" test "$(cat err)" = 'dtrain: ring over 4 ranks: the sum is wrong'
check 'a wrong sum is proven' grep -q 'it is the exact sum  *NO$' out
check 'the page of a wrong sum says that it is right' grep -q 'it is the exact sum: <b>NO</b>' page.html
finish
