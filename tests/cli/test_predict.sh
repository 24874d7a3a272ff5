#!/usr/bin/env bash
# dtrain predict, from a model after one epoch: the picture, class and probabilities of ten test images, also when they are dark on
# light or drawn in ink or chalk on nothing, and what it says of files that are no images; that a model of dark on light, or of both,
# sees what eval sees. The images are those of $DTRAIN_DATA, else
# of Debian's package dataset-fashion-mnist. usage: DTRAIN=... MPIEXEC=... test_predict.sh
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
set -e
data=$(cd "${DTRAIN_DATA:-/usr/share/datasets/fashion-mnist}" 2> /dev/null && pwd) ||
  { echo "skipped: no data (set DTRAIN_DATA, or install the package dataset-fashion-mnist)"; exit 77; }
command -v python3 > /dev/null || { echo "skipped: python3, which makes the images, is not installed"; exit 77; }

run 0 2 --config "$configs/mnist-mlp.json" --data "$data" --set train.epochs=1 --run run
checkpoint=$(newest_checkpoint run)
is 'as many classes as the labels have' 0 "$(grep -c 'no training sample' err)"
run 0 2 --config "$configs/mnist-mlp.json" --data "$data" --set train.epochs=1 --set data.train_samples=600 \
  --set model.layers.2.units=30 --run many
check 'more classes than the labels have' grep -Fq 'the model has 30 classes, but no training sample has a label from 15 on' err

# light-0.png ... light-9.png are test images whose border is dark, dark-0.png ... their negatives; ink-0.png ... and chalk-0.png ...
# are black and white, transparent where the image is dark; `pictures` has label and pixels.
cat > images.py << 'PYTHON'
import gzip, os, sys
from samples import png

def read(name):
    path = os.path.join(sys.argv[1], name)
    content = open(path if os.path.exists(path) else path + ".gz", "rb").read()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content

def write(name, pixels, colour=None):  # a colour: the pixels say where it is
    if colour is not None:
        pixels = [v for pixel in pixels for v in (colour, pixel)]
    n = len(pixels) // 28
    open(name, "wb").write(png(28, 28, 0 if colour is None else 4, (pixels[n * y : n * y + n] for y in range(28))))

labels, images = read("t10k-labels-idx1-ubyte")[8:], read("t10k-images-idx3-ubyte")[16:]
n = 0
with open("pictures", "w") as pictures:
    for i, label in enumerate(labels):
        pixels = images[784 * i : 784 * i + 784]
        border = [pixels[28 * y + x] for y in range(28) for x in range(28) if 0 in (x, y) or 27 in (x, y)]
        if sum(border) < 100 * len(border):
            write(f"light-{n}.png", pixels)
            write(f"dark-{n}.png", [255 - v for v in pixels])
            write(f"ink-{n}.png", pixels, 0)
            write(f"chalk-{n}.png", pixels, 255)
            print(label, *pixels, file=pictures)
            n += 1
        if n == 10:
            break
PYTHON
python3 images.py "$data"

# Each image: 28 lines of picture, the class, and ten probabilities, of which the largest is the class's.
cat > judge.py << 'PYTHON'
import json, re, sys

document = json.load(open(sys.argv[1]))
pictures = [[int(v) for v in line.split()] for line in open("pictures")]
drawings = [part["text"] for part in document["parts"] if part["type"] == "code"]
tables = {part["title"]: part for part in document["parts"] if part["type"] == "table"}
assert len(drawings) == len(tables["Images"]["rows"]) == 40, len(drawings)
answers, n_correct = {}, 0
for i, (drawing, row) in enumerate(zip(drawings, tables["Images"]["rows"])):
    kind = ("light", "dark", "ink", "chalk")[i // 10]
    name = f"{kind}-{i % 10}.png"
    label, *pixels = pictures[i % 10]
    expected = ["  " + "".join(2 * " .:-=+*#%@"[v * 9 // 255] for v in pixels[28 * y : 28 * y + 28]) for y in range(28)]
    assert drawing.rstrip("\n").split("\n") == expected, f"{name}: drawn as\n{drawing}"
    assert row["image"] == name and row["background"] == {"ink": "(transparent: on white)", "chalk": "(transparent: on black)"}.get(kind, ""), row
    assert row["inverted"] == ("(dark on light: inverted)" if kind in ("dark", "ink") else ""), row
    table = tables[f"{name}, probabilities"]["rows"]
    shares = [one["probability"] for one in table]
    assert {one["class"] for one in table} == {str(k) for k in range(10)} and abs(sum(shares) - 1) <= 1e-6, table
    assert shares == sorted(shares, reverse=True) and (row["class"], row["probability"]) == (table[0]["class"], shares[0]), (row, table)
    n_correct += int(row["class"]) == label
    answers[name] = (row["class"], table)
for i in range(10):
    for kind in ("dark", "ink", "chalk"):
        assert answers[f"light-{i}.png"] == answers[f"{kind}-{i}.png"], f"light-{i}.png and {kind}-{i}.png differ"
print(f"{n_correct} of 40 right, {len(set(a[0] for a in answers.values()))} classes")
assert n_correct >= 20 and len(set(a[0] for a in answers.values())) > 2
PYTHON
images=({light,dark,ink,chalk}-{0..9}.png)
run 0 0 predict "$checkpoint" "${images[@]}" --top 10 --json -
python3 judge.py out
is 'text on stderr' '' "$(cat err)"
mv out alone
run 0 2 predict "$checkpoint" "${images[@]}" --top 10 --json -
cmp alone out # said once, however many ranks there are

refused() { refuses "$1" 2 "$3: $2" predict "$checkpoint" "$3"; } # refused CODE TEXT IMAGE
refused 66 'No such file' missing.png
refused 66 'is a directory' run
refused 65 'no PNG, JPEG, PPM or PGM file (convert the image to PNG first)' pictures

# A name that would steer the terminal is shown, not obeyed.
hostile=$'a\033[2J\302\233ü.png'
cp light-0.png "$hostile"
run 0 0 predict "$checkpoint" "$hostile" --csv -
is 'a hostile name in CSV is as it is' "$hostile" "$(sed -n '2s/,.*//p' out)"
run 0 0 predict "$checkpoint" "$hostile"
check "a hostile name is not escaped: $(cat -v out)" grep -Fq 'a\x1b[2J\u009bü.png' out
check 'one image: a table beside its own' test "$(grep -c '^Images$' out)" -eq 0
# Models trained on dark on light, and on both: predict sees the test images as eval does, and turns round only what lies on the other
# ground than all that was trained on. 60 test images, 2000 to train with.
cat > grounds.py << 'PYTHON'
import os, sys
from samples import write_idx

kind = sys.argv[2]
exec(open("images.py").read().split("labels, images =")[0])

def on_ground(images):  # "bright": all are turned round; "both": every second one
    turned = lambda i: kind == "bright" or i % 2 == 1
    return [255 - v if turned(i) else v for i in range(len(images) // 784) for v in images[784 * i : 784 * i + 784]]

os.mkdir(kind)
for split, n in (("train", 2000), ("t10k", 60)):
    images = on_ground(read(f"{split}-images-idx3-ubyte")[16 : 16 + 784 * n])
    write_idx(kind, split, (28, 28), images, read(f"{split}-labels-idx1-ubyte")[8 : 8 + n])
for i in range(60):
    write(f"{kind}/{i:02}.png", images[784 * i : 784 * i + 784])
PYTHON
agrees() { # agrees KIND: predict has as many right as eval
  local kind=$1 i=0 n_right=0 saved
  python3 grounds.py "$data" "$kind"
  run 0 2 --config "$configs/mnist-mlp.json" --data "$kind" --set train.epochs=2 --run "run-$kind"
  saved=$(newest_checkpoint "run-$kind")
  run 0 0 eval "$saved" --data "$kind"
  mv out eval.txt
  run 0 0 predict "$saved" "$kind"/*.png --csv -
  is "$kind: images as those of the training that were inverted" 0 "$(tail -n +2 out | grep -c inverted)"
  mapfile -t labels < <(tail -c 60 "$kind/t10k-labels-idx1-ubyte" | od -An -v -tu1 -w1 | tr -d ' ')
  while read -r class; do
    [ "$class" != "${labels[i]}" ] || n_right=$((n_right + 1))
    i=$((i + 1))
  done < <(tail -n +2 out | tr -d '\r' | cut -d , -f 2)
  is "$kind: images" 60 "$i"
  check "$kind: predict has $n_right of 60 right, eval: $(cat eval.txt)" grep -q "($n_right/60)\|$n_right of 60" eval.txt
}
said() { # said CHECKPOINT IMAGE OPTION... TEXT: what was inverted
  run 0 0 predict "$1" "${@:3:$#-3}" "$2" --csv -
  is "predict of $2 with $1" "${*: -1}" "$(tail -n 1 out | tr -d '\r' | sed 's/.*,//')"
}
agrees bright
bright=$(newest_checkpoint run-bright)
said "$bright" light-0.png "(light on dark: inverted)"
said "$bright" light-0.png --invert no ""
said "$bright" bright/00.png --invert yes "(inverted)"
said "$bright" bright/00.png --invert auto ""
agrees both
both=$(newest_checkpoint run-both)
said "$both" light-0.png ""
said "$both" dark-0.png ""
said "$checkpoint" dark-0.png --invert no ""

# A checkpoint of before the border was kept: nothing is inverted unasked.
python3 "$tests/lib/python/checkpoint.py" without "$bright" older.safetensors bright_borders
said older.safetensors bright/00.png "(dark on light: --invert yes if the training images were light on dark)"
said older.safetensors light-0.png ""
said older.safetensors bright/00.png --invert no ""
run 0 0 predict "$checkpoint" light-0.png --json -
is 'the likeliest classes' 5 "$(python3 -c 'import json; print(max(len(p.get("rows", [])) for p in json.load(open("out"))["parts"]))')"
refuses 64 0 "^--top: " predict "$checkpoint" --top 0 light-0.png
refuses 64 0 "^--invert: expected auto, yes or no, got 'maybe'" predict "$bright" --invert maybe light-0.png
finish
