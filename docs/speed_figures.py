#!/usr/bin/env python3
"""Draws the pictures of docs/speed.md: python3 docs/speed_figures.py. They follow the reader's light or dark colours."""
import os
from xml.sax.saxutils import escape

WIDTH = 760
STYLE = """
text { font-family: system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif; font-size: 13px; fill: #1f2933 }
.title { font-size: 17px; font-weight: 600 } .head { font-weight: 600 } .faint { fill: #5b6977; font-size: 12px }
.paper { fill: #ffffff; stroke: #e3e8ee } .cell { fill: #f1f4f7; stroke: #b8c2cc } .alive { fill: #f4a470; stroke: #b04a17 }
.once { fill: #d7eadf; stroke: #2f8f5b } .dense { fill: #b8c7d6 } .done { fill: #d9622b } .on { fill: #1f2933 }
.arrow { fill: none; stroke: #5b6977; stroke-width: 1.5 } .tip { fill: #5b6977 }
.window { fill: none; stroke: #5b6977; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .faint { fill: #a3b1bf } .paper { fill: #10161d; stroke: #303a45 } .cell { fill: #1c252f; stroke: #475563 }
.alive { fill: #c25a22; stroke: #f4a470 } .once { fill: #1d4a31; stroke: #5fbf8b } .dense { fill: #4c6076 } .done { fill: #ee8350 }
.on { fill: #ffffff } .arrow, .window { stroke: #a3b1bf } .tip { fill: #a3b1bf } }
"""


class Drawing:
    def __init__(self, height, title, description):
        self.height, self.title, self.description, self.parts = height, title, description, []
        self.text(24, 34, title, "title")

    def text(self, x, y, text, kind="", anchor="start"):
        self.parts.append('<text class="%s" x="%g" y="%g" text-anchor="%s">%s</text>' % (kind, x, y, anchor, escape(text)))

    def box(self, x, y, width, height, kind, round_by=0):
        self.parts.append('<rect class="%s" x="%g" y="%g" width="%g" height="%g" rx="%g"/>' % (kind, x, y, width, height, round_by))

    def arrow(self, x, y, to_x, to_y):
        """Along one axis."""
        dx, dy = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
        self.parts.append('<path class="arrow" d="M%g %gL%g %g"/>' % (x, y, to_x - 6 * dx, to_y - 6 * dy))
        self.parts.append('<path class="tip" d="M%g %gl%g %gl%g %gz"/>' % (
            to_x, to_y, -8 * dx + 4 * dy, -8 * dy + 4 * dx, -8 * dy, -8 * dx))

    def grid(self, x, y, side, rows, alive, window=0):
        """Numbers in cells; `alive`: whether one is coloured. `window`: cells that a frame joins."""
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                self.box(x + j * side, y + i * side, side, side, "alive" if alive(value) else "cell")
                if side > 20:
                    kind = "on" if alive(value) else "faint"
                    self.text(x + (j + 0.5) * side, y + (i + 0.5) * side + 4.5, show(value), kind, "middle")
        for i in range(0, len(rows) if window else 0, window or 1):
            for j in range(0, len(rows[0]), window):
                self.box(x + j * side, y + i * side, window * side, window * side, "window")

    def save(self, name):
        text = "\n".join(['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">' % (
            WIDTH, self.height, WIDTH, self.height), "<title>%s</title>" % escape(self.title),
            "<desc>%s</desc>" % escape(self.description), "<style>%s</style>" % STYLE,
            '<rect class="paper" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>' % (WIDTH - 1, self.height - 1),
            *self.parts, "</svg>", ""])
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), "w", encoding="utf-8") as file:
            file.write(text)


def show(value):
    return "0" if value == 0 else ("%g" % round(value, 2)).replace("-", "−")


# ---- a gradient on its way back

Z = [[0.7, -0.2, -0.5, -1.1], [1.2, 0.4, -0.3, -0.8], [-0.6, 0.9, 0.2, 1.5], [0.1, -1.2, -0.4, 0.6]]
KEEP = [[1, 1], [0, 1]]
ARRIVES = [[0.3, -0.5], [0.2, -0.6]]
SCALE = 1 / 0.75


def example():
    """The patch forward and back: y, the gradient behind the pool, the gradient at the convolution."""
    y, behind, back = [[0, 0], [0, 0]], [[0, 0], [0, 0]], [[0] * 4 for _ in range(4)]
    for i in range(2):
        for j in range(2):
            best, r, s = max((Z[r][s], r, s) for r in (2 * i, 2 * i + 1) for s in (2 * j, 2 * j + 1))
            if best > 0 and KEEP[i][j]:
                y[i][j], behind[i][j] = best * SCALE, ARRIVES[i][j] * SCALE
                back[r][s] = behind[i][j]
    return y, behind, back


def draw_gradient():
    y, behind, back = example()
    d = Drawing(524, "What is left of a gradient after dropout, ReLU and max pool",
                "A patch of 4 x 4 outputs goes through ReLU, max pool and dropout; of its gradient 2 of 16 numbers are not zero.")
    positive, alive = lambda value: value > 0, lambda value: value != 0
    for name, top, panels, arrows in (
            ("forward", 66, (("convolution's outputs", "8 of 16 are positive", Z, positive),
                             ("ReLU, max pool", "one of four is 0", [[1.2, 0], [0.9, 1.5]], positive),
                             ("dropout", "0.9 is gone, × 4/3", y, positive)), ((176, 230), (336, 394))),
            ("backward", 302, (("at the convolution", "2 of 16 survive", back, alive),
                               ("dropout, ReLU", "two become 0, × 4/3", behind, alive),
                               ("what arrives", "all are alive", ARRIVES, alive)), ((230, 176), (394, 336)))):
        d.text(24, top, name, "head")
        for x, (title, under, rows, coloured) in zip((24, 240, 404), panels):
            side, at = (36, top + 36) if len(rows) == 4 else (44, top + 64)
            d.text(x, at - 9, title)
            d.grid(x, at, side, rows, coloured, 2 if len(rows) == 4 else 0)
            d.text(x, at + len(rows) * side + 19, under, "faint")
        for x, to_x in arrows:
            d.arrow(x, top + 108, to_x, top + 108)
    draw_map(d, 560, 102, 168)
    d.save("speed-gradient.svg")


def draw_map(d, x, y, width):
    """One filter's gradients, as speed_gradient.py wrote them."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "speed-gradient.txt"), encoding="utf-8") as file:
        about, *rows = file.read().split("\n")[:-1]
    n_rows, n_alive = len(rows), sum(row.count("#") for row in rows)
    name, steps, share = about.split(", ")
    d.text(x, y - 9, name + " of conv2")
    d.grid(x, y, width / n_rows, rows, lambda cell: cell == "#")
    for i, line in enumerate(("%d × %d gradients, %d alive:" % (n_rows, n_rows, n_alive), "%.1f %% (%s)" % (
            100 * n_alive / n_rows**2, share), "MNIST's first image,", "after %s of training" % steps)):
        d.text(x, y + width + 20 + 17 * i, line, "faint")


# ---- Winograd's three steps

def draw_winograd():
    d = Drawing(398, "Winograd's way through conv2, for one tile",
                "Input 6 x 6 x 32, 36 frequencies, 36 products with transformed weights, output 4 x 4 x 64, pooled to 2 x 2 x 64.")
    for x, lines in ((24, ("input tile", "6 × 6", "32 channels")), (206, ("transformed", "36 frequencies", "32 channels")),
                     (388, ("products", "36 frequencies", "64 filters")), (618, ("output", "4 × 4 → 2 × 2", "64 filters"))):
        d.box(x, 100, 118, 84, "cell", 6)
        for i, line in enumerate(lines):
            d.text(x + 59, 126 + 21 * i, line, "" if i else "head", "middle")
    for x, to_x, name in ((142, 206, "1"), (324, 388, "2"), (506, 618, "3")):
        d.arrow(x + 4, 142, to_x - 4, 142)
        d.text((x + to_x) / 2, 132, name, "head", "middle")
    for x, lines in ((24, ("1: Bᵀ d B", "additions, and", "products with 3/2, 1/2, 2")),
                     (206, ("2: 36 matrix products", "(tiles × 32) · (32 × 64)", "73,728 multiplications a tile", "direct: 294,912")),
                     (506, ("3: Aᵀ m A, then at once", "bias, ReLU, max pool, dropout:", "the 4 × 4 outputs never", "go to memory"))):
        for i, line in enumerate(lines):
            d.text(x, 214 + 19 * i, line, "faint" if i else "")
    d.text(24, 66, "for each tile of each image", "head")
    d.box(24, 308, 118, 66, "once", 6)
    d.box(206, 308, 118, 66, "once", 6)
    for x, lines in ((83, ("filters", "3 × 3 × 32 × 64")), (265, ("transformed", "36 × 32 × 64"))):
        for i, line in enumerate(lines):
            d.text(x, 337 + 21 * i, line, "faint" if i else "head", "middle")
    d.arrow(146, 341, 202, 341)
    d.text(174, 331, "G g Gᵀ", "faint", "middle")
    d.parts.append('<path class="arrow" d="M328 341H447V198"/>')
    d.parts.append('<path class="tip" d="M447 188l4 8h-8z"/>')
    d.text(466, 345, "once a step, for all its tiles", "faint")
    d.save("speed-winograd.svg")


# ---- arithmetic of configs/mnist.json, in MFLOP per image (2 for a multiply-add)

SPARED = 0.26  # of conv2's tiles in MNIST
ALIVE, REACH, FC1 = 0.328, 0.082, 0.132  # not zero, measured in steps 21 to 35: conv2's output; gradients at conv2 and at fc1
FC2 = 6e-6 * 128 * 10


def conv2_forward():
    """36 tiles an image, and one frequency of a blank one. Additions of the transforms: 20 for 6 inputs, 18 for 6 frequencies."""
    products, transforms = 36 * 32 * 64 * 2, 12 * 20 * 32 + 10 * 18 * 64
    return 36e-6 * (1 - SPARED) * (products + transforms) + 1e-6 * products / 36


def work():
    """(block, dense, executed). conv1 goes forward twice: it is made again on the way back."""
    conv1, conv2, fc1 = 2e-6 * 26 * 26 * 32 * 9, 2e-6 * 24 * 24 * 64 * 9 * 32, 2e-6 * 9216 * 128
    return (("conv1 forward", conv1, 2 * conv1), ("conv1 backward", conv1, conv1), ("conv2 forward", conv2, conv2_forward()),
            ("conv2 backward", 2 * conv2, 2 * conv2 * REACH), ("fc1 forward", fc1, fc1 * ALIVE),
            ("fc1 backward", 2 * fc1, 2 * fc1 * FC1))


def draw_flops():
    d = Drawing(368, "Arithmetic of a training step: dense, and what dtrain executes",
                "Bars of MFLOP per image for each block of configs/mnist.json.")
    d.text(24, 58, "MFLOP per image, configs/mnist.json, steps 21 to 35 of a training; fc2 is less than 0.01", "faint")
    for column, x, name in ((1, 400, "dense"), (2, 560, "executed")):
        d.box(x, 338, 12, 12, "dense" if column == 1 else "done")
        d.text(x + 18, 349, "%s: %.2f in all" % (name, sum(row[column] for row in work()) + FC2))
    for i, (name, dense, done) in enumerate(work()):
        y = 80 + 45 * i
        d.text(138, y + 20, name, "", "end")
        for value, kind, at in ((dense, "dense", y), (done, "done", y + 15)):
            width = max(value * 12, 1)
            d.box(150, at, width, 13, kind, 2)
            d.text(158 + width, at + 11, "%.2f" % value, "faint")
    d.save("speed-flops.svg")


draw_gradient()
draw_winograd()
draw_flops()
