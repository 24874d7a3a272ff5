#!/usr/bin/env python3
"""scripts/chart-cpu on a tiny model: the charts are SVG and hold the figures of the table, and the page keeps what is not its own.

Usage: test_chart_cpu.py SOURCE_DIR DTRAIN MPIRUN
"""
import argparse
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

SOURCE, DTRAIN, MPIRUN = sys.argv[1:]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "scripts"))
import charts  # noqa: E402

loader = importlib.machinery.SourceFileLoader("chart_cpu", os.path.join(SOURCE, "scripts", "chart-cpu"))
chart_cpu = importlib.util.module_from_spec(importlib.util.spec_from_loader("chart_cpu", loader))
loader.exec_module(chart_cpu)

SVG = "{http://www.w3.org/2000/svg}"


def test_arithmetic():
    assert charts.ticks(10) == [0, 2, 4, 6, 8, 10], charts.ticks(10)
    assert charts.ticks(8300) == [0, 2000, 4000, 6000, 8000, 10000], charts.ticks(8300)
    for highest in (0.003, 0.999, 1, 1.01, 24, 51, 77, 12345):
        marks = charts.ticks(highest)
        assert marks[0] == 0 and marks[-2] < highest <= marks[-1] * 1.001 and 3 <= len(marks) <= 7, (highest, marks)
    assert charts.decades(0.02, 5) == [0.01, 0.1, 1, 10] and charts.decades(1, 100) == [1, 10, 100]
    numbers = {0: "0", 0.01234: "0.0123", 0.5: "0.500", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 12345.6: "12,346"}
    for value, text in numbers.items():
        assert charts.number(value) == text, (value, charts.number(value))


def test_drawing():
    """Where things are: higher values higher, longer bars longer, and nothing outside the picture."""
    row = [(1, 0.9, 1.1), (10, 9, 11), (4, 4, 4)]
    for logarithmic in (False, True):
        picture = charts.lines("a < b", ("c & d", "e"), "x", "y", [1, 2, 4], {"one": row}, None, logarithmic)
        root = xml.etree.ElementTree.fromstring(picture)
        dots = [(float(e.get("cx")), float(e.get("cy"))) for e in root.iter(SVG + "circle") if e.get("fill") == charts.COLOURS[0]]
        assert len(dots) == 3 and dots[0][0] < dots[1][0] < dots[2][0] and dots[1][1] < dots[2][1] < dots[0][1], dots
        width, height = float(root.get("width")), float(root.get("height"))
        assert all(0 < x < width and 0 < y < height for x, y in dots)
        assert root.find(SVG + "title").text == "a < b"
    picture = charts.lines("t", ("", ""), "x", "y", [1, 2, 4], {"one": row}, ("ideal", [1, 12, 12]))
    root = xml.etree.ElementTree.fromstring(picture)
    dots = {float(e.get("cx")): float(e.get("cy")) for e in root.iter(SVG + "circle") if e.get("fill") == charts.COLOURS[0]}
    labels = [(float(e.get("x")), float(e.get("y"))) for e in root.iter(SVG + "text") if e.text in ("1.00", "10.0", "4.00")]
    assert len(labels) == 3 and all(y > dots[x] + 20 for x, y in labels), "a value on the line above"
    picture = charts.bars("t", ("", ""), "ms", [("a", [("f", (2, 2, 2), " ms"), ("b", (1, 1, 1), "")])])
    root = xml.etree.ElementTree.fromstring(picture)
    a, b = [float(e.get("width")) for e in root.iter(SVG + "rect") if e.get("rx") == "2" and float(e.get("height")) == 14]
    assert abs(a - 2 * b) < 0.2, (a, b)


def test_one_learning_rate():
    """With a learning rate that grows with the ranks, 2 of them once had sparser gradients than 1, and looked 2.3 times as fast."""
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "arguments")
        program = os.path.join(folder, "dtrain")
        with open(program, "w") as file:
            file.write('#!/bin/sh\necho "$@" >>%s\nfor path; do :; done\necho "{}" >"$path"\n' % record)
        os.chmod(program, 0o755)
        config = os.path.join(SOURCE, "configs", "mnist.json")
        bench = chart_cpu.Bench(argparse.Namespace(dtrain=program, mpirun=MPIRUN, config=config, batch=8, data=folder))
        bench.round = 0
        for n_ranks in (1, 2):
            bench.blocks(n_ranks=n_ranks)
        with open(record) as file:
            calls = file.read().splitlines()
    assert len(calls) == 3 and all("--set train.lr_scaling=none" in call for call in calls), calls


def chart(folder, *extra, code=0):
    config = os.path.join(SOURCE, "configs", "synthetic.json")
    command = [sys.executable, os.path.join(SOURCE, "scripts", "chart-cpu"), "--dtrain", DTRAIN, "--mpirun", MPIRUN,
               "--config", config, "--batch", "8", "--quick", "--rounds", "1", "--out", folder, *extra]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stderr


def texts(path):
    return [element.text for element in xml.etree.ElementTree.parse(path).getroot().iter(SVG + "text")]


def test_page(folder):
    page = os.path.join(folder, "cpu.md")
    before, after = "# Mine\n\nkept\n\n<!-- chart-cpu begins -->", "<!-- chart-cpu ends -->\n\nkept, too\n"
    with open(page, "w") as file:
        file.write(before + "\nold figures\n" + after)
    chart(folder)
    with open(page) as file:
        text = file.read()
    assert text.startswith(before) and text.endswith(after) and "old figures" not in text, text
    assert "A quick run" in text and "GFLOP/s of multiply-adds a core" in text
    names = ("batch", "channels", "ranks", "blocks", "latency", "sums")
    assert re.findall(r"!\[[\w ]+\]\((.*)\)", text) == ["cpu-%s.svg" % name for name in names], text
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    sections = {}
    for row in rows:
        if row[-1] in ("highest", "% passed"):
            sections[row[0]] = current = []
        else:
            current.append(row)
    assert [row[0] for row in sections["images in a batch"]] == ["4", "8"], sections
    assert [row[0] for row in sections["filters of the convolutions"]] == ["4", "8"], sections
    assert [row[0] for row in sections["ranks"]] == ["1", "2"], sections
    assert [row[:2] for row in sections["block"]] == [
        ["conv1", "forward"], ["conv1", "backward"], ["fc1", "forward"], ["fc1", "backward"],
        ["gather", ""], ["loss", ""], ["optimizer", ""], ["rest", ""]], sections["block"]
    assert {row[0] for row in sections["way"]} == {"shared_memory", "mpi"} and len(sections["way"]) == 36, sections["way"]
    for name, head in (("batch", "images in a batch"), ("channels", "filters of the convolutions"), ("ranks", "ranks")):
        shown = texts(os.path.join(folder, "cpu-%s.svg" % name))
        assert all(row[0] in shown and row[1] in shown for row in sections[head]), (shown, sections[head])
    shown = texts(os.path.join(folder, "cpu-blocks.svg"))
    assert all(any(t.startswith(row[2] + " ms") for t in shown) for row in sections["block"]), (shown, sections["block"])
    assert {"shared_memory", "mpi", "1 KiB", "1 MiB"} <= set(texts(os.path.join(folder, "cpu-sums.svg")))
    assert {"shared_memory", "mpi", "8 B", "32 KiB", "µs"} <= set(texts(os.path.join(folder, "cpu-latency.svg")))
    assert all(charts.RANGE in texts(os.path.join(folder, "cpu-%s.svg" % name)) for name in names), "the bars are not explained"


def test_failures(folder):
    with open(os.path.join(folder, "cpu.md"), "w") as file:
        file.write("no marks\n")
    assert "has lost its marks" in chart(folder, code=1)
    with open(os.path.join(folder, "cpu.md")) as file:
        assert file.read() == "no marks\n"
    os.remove(os.path.join(folder, "cpu.md"))
    assert "ended with 78" in chart(folder, "--batch", "1000000", code=1)


test_arithmetic()
test_drawing()
test_one_learning_rate()
with tempfile.TemporaryDirectory() as out:
    test_page(out)
    test_failures(out)
print("chart-cpu: ok")
