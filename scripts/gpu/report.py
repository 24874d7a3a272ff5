"""Turns summaries of gpu-check into what docs/benchmarks/gpu.md has below the line "## Measured"."""
import os
import re
import statistics
import sys

from gpu.kit import BAD
from gpu.parts import FUSIONS

MARK = "## Measured\n"
ROW = re.compile(r" *\d+ s \| (.*?) \| (.*?) \| (.*?) \| (.*)")
FLOP_PER_SAMPLE = 3 * 23984896 - 389376  # forward, and twice that backward, without the gradient of the first layer's input
PEAK_TFLOPS = {"H200": 989, "H100 NVL": 835, "H100 PCIe": 756, "H100": 989}  # bf16, of datasheets; the first name in the GPU's
STAYS = 5  # percent of a step: a fusion that gains less can go


def table(heads, rows):
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(lines) + "\n" if rows else "Not measured.\n"


def step(us, gpu):
    """Each case beside PyTorch's ways, and the goals."""
    rows, goals = [], []
    peak = next((rate for name, rate in PEAK_TFLOPS.items() if name in gpu), float("inf"))
    for case, own in ((case, own) for (part, case), own in us.items() if part == "speed"):
        batch, stem = int(re.search(r"\d+", case)[0]), case.removesuffix("graph")
        theirs = {name[len(stem):]: t for (of, name), t in us.items() if of in ("pytorch", "compile") and name.startswith(stem)}
        eager, best = theirs.get("eager", 0), min(theirs.values(), default=0)
        rows.append([case, "%.1f" % own, "%d" % (1e6 * batch / own), *("%.1f" % t if t else "–" for t in (eager, best)),
                     "%.2f" % (best / own) if best else "–"])
        if case == "batch 128, bf16, graph":
            goals += [("at 128, µs", own, 60, own <= 60), ("PyTorch eager by it", eager / own, 8, eager >= 8 * own),
                      ("PyTorch's best by it", best / own, 1.5, best >= 1.5 * own)]
        if case == "batch 4096, bf16, graph":
            share = 100 * batch * FLOP_PER_SAMPLE / own / 1e6 / peak
            goals += [("at 4096, % of the peak", share, 25, share >= 25)]
    return (table(["case", "µs", "images/s", "PyTorch eager, µs", "PyTorch's best, µs", "times as fast"], rows) + "\n" +
            table(["a step in bf16", "found", "goal", ""], [[name, "%.2f" % found, str(goal), "held" if held else "missed"]
                                                             for name, found, goal, held in goals if found]))


def fusions(us):
    rows, spread = [], 0
    for name in FUSIONS:
        cells, gains = [], []
        for batch in (128, 4096):
            whole = [us[key] for key in (("without", "batch %d, %s" % (batch, how)) for how in ("all", "all again")) if key in us]
            found = us.get(("without", "batch %d, without %s" % (batch, name)))
            if found and whole:
                gains.append(100 * (found / statistics.mean(whole) - 1))
                spread = max(spread, 100 * (max(whole) / min(whole) - 1))
            cells += [" and ".join("%.1f" % t for t in whole), "%.1f" % found, "%.1f" % gains[-1]] if found and whole else ["–"] * 3
        how = "unclear" if spread >= STAYS else "stays" if max(gains, default=0) >= STAYS else "can go"
        rows += [[name, *cells, how]] if gains else []
    return table(["fusion", "128, µs: all", "without it", "gain, %", "4096, µs: all", "without it", "gain, %", ""], rows)


def write(page, folders):
    rows = {}
    for path in (os.path.join(folder, "summary.txt") for folder in folders):
        if not os.path.exists(path):
            sys.exit("gpu-check: no rows in %s (a folder of results has them)" % path)
        with open(path, encoding="utf-8") as file:
            rows.update({found.groups()[:2]: found.groups()[2:] for found in map(ROW.match, file) if found})
    us = {key: float(text.split()[0]) for key, (verdict, text) in rows.items() if verdict in ("ok", "fake") and " us (" in text}
    facts = {name: text for (part, name), (_, text) in rows.items() if part == "facts"}
    bad = ["- %s, %s: **%s** %s" % (*key, *row) for key, row in rows.items() if row[0] in BAD]
    fake = any(verdict == "fake" for verdict, _ in rows.values())
    text = [MARK, "**On fake CUDA: no figure means anything.**\n\n" * fake + "".join("- %s: %s\n" % item for item in facts.items()),
            "### What went wrong\n", "\n".join(bad or ["Nothing."]) + "\n", "### A step\n", step(us, facts.get("GPU", "")),
            "### What a fusion gains\n", fusions(us)]
    for part in dict.fromkeys(part for part, _ in rows if part not in ("facts", "speed", "without", "gpu-check")):
        own = [[name, *row] for (of, name), row in rows.items() if of == part]
        text += ["### %s\n" % part.replace("_", " ").capitalize(), table(["", "", "found"], own)]
    with open(page, encoding="utf-8") as file:
        above = file.read().split(MARK)[0]
    with open(page, "w", encoding="utf-8") as file:
        file.write(above + "\n".join(text))
    return 0
