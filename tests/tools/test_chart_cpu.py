#!/usr/bin/env python3
"""scripts/chart-cpu on a tiny model: the page has the tables and keeps what is not its own; charts, where matplotlib is, have the figures.

usage: DTRAIN=... MPIEXEC=... test_chart_cpu.py"""
import argparse
import os
import re
import sys
import xml.etree.ElementTree

from checks import DTRAIN, MPIEXEC, SOURCE, finish, new_folder, read, run, script, write

chart_cpu = script("chart-cpu")
SVG = "{http://www.w3.org/2000/svg}"


def test_numbers():
    for value, text in {0: "0", 0.01234: "0.0123", 0.5: "0.500", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 12345.6: "12,346"}.items():
        assert chart_cpu.number(value) == text, (value, chart_cpu.number(value))


def test_one_learning_rate():
    """With a learning rate that grows with the ranks, 2 of them once had sparser gradients than 1, and looked 2.3 times as fast."""
    write("dtrain", '#!/bin/sh\necho "$@" >>arguments\nfor path; do :; done\necho "{}" >"$path"\n')
    os.chmod("dtrain", 0o755)
    bench = chart_cpu.Bench(argparse.Namespace(dtrain=os.path.abspath("dtrain"), mpirun=MPIEXEC, config=f"{SOURCE}/configs/mnist.json",
                                               batch=8, data=os.getcwd()))
    bench.round = 0
    for n_ranks in (1, 2):
        bench.blocks(n_ranks=n_ranks)
    calls = read("arguments").splitlines()
    assert len(calls) == 3 and all("--set train.lr_scaling=none" in call for call in calls), calls


def chart(*extra, code=0):
    """The pages are in the folder `out`."""
    os.makedirs("out", exist_ok=True)
    return run(sys.executable, f"{SOURCE}/scripts/chart-cpu", "--dtrain", DTRAIN, "--mpirun", MPIEXEC, "--config",
               f"{SOURCE}/configs/synthetic.json", "--batch", "8", "--quick", "--rounds", "1", "--out", "out", *extra, code=code).stderr


def texts(path):
    return [element.text for element in xml.etree.ElementTree.parse(path).getroot().iter(SVG + "text")]


def test_page():
    before, after = "# Mine\n\nkept\n\n<!-- chart-cpu begins -->", "<!-- chart-cpu ends -->\n\nkept, too\n"
    write("out/cpu.md", before + "\nold figures\n" + after)
    chart()
    text = read("out/cpu.md")
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
        ["data", ""], ["loss", ""], ["update", ""], ["rest", ""]], sections["block"]
    assert {row[0] for row in sections["way"]} == {"shared_memory", "mpi"} and len(sections["way"]) == 36, sections["way"]
    if not chart_cpu.matplotlib:
        print("no matplotlib: no charts")
        return
    for name, head in (("batch", "images in a batch"), ("channels", "filters of the convolutions"), ("ranks", "ranks")):
        shown = texts(f"out/cpu-{name}.svg")
        assert all(row[0] in shown and row[1] in shown for row in sections[head]), (shown, sections[head])
    shown = texts("out/cpu-blocks.svg")
    assert all(any(t.startswith(row[2] + " ms") for t in shown) for row in sections["block"]), (shown, sections["block"])
    assert {"shared_memory", "mpi", "1 KiB", "1 MiB"} <= set(texts("out/cpu-sums.svg"))
    assert {"shared_memory", "mpi", "8 B", "32 KiB", "µs"} <= set(texts("out/cpu-latency.svg"))
    assert all(chart_cpu.RANGE in texts(f"out/cpu-{name}.svg") for name in names), "the bars are not explained"


def test_failures():
    write("out/cpu.md", "no marks\n")
    assert "has lost its marks" in chart(code=1)
    assert read("out/cpu.md") == "no marks\n"
    os.remove("out/cpu.md")
    assert "ended with 78" in chart("--batch", "1000000", code=1)


new_folder()
test_numbers()
test_one_learning_rate()
test_page()
test_failures()
finish()
