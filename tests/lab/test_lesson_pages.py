"""Each lesson's page in a browser, as on a telephone and on a screen: no script fails, nothing is wider than the window, and the golden
numbers are in its text. Without Chromium it is skipped.

usage: DTRAIN=... MPIEXEC=... test_lesson_pages.py"""
import os
import re

from browser import windows
from checks import SOURCE, check, dtrain, finish, new_folder, read

PASS = r"PASS: all \d+ reference values reproduced"
LESSONS = (  # ranks, or 0 for no launcher; arguments; what the page's text must have
    (2, "gradtape", (PASS, "26.431675", "2.0128188, 2.7977395; 4", "1.3814857, 2.129148; 4", "-0.3814857, -1.129148; -3")),
    (2, "linear", (PASS, "1.963652, 2.529543", "1.414214|1.41421")),
    (2, "linear --batch 1", (PASS,)),
    (0, "lr", (PASS, "9.88", "0.0025", "0.395203")),
    (0, "shards", (PASS,)),
    (0, "batch", (PASS, "A larger batch is not faster")),
    (0, "bits", (PASS, "1.00000012", "as a float")),
    (0, "model-parallel --config configs/mnist.json", (PASS, "126,877,696 bytes", "380,694,528 bytes", "28,797,168 bytes")),
    (4, "server", (PASS, "47.1 kB", "94.2 kB")),
    (4, "compression", (PASS, "94,272", "1,896")),
    (4, "stragglers", (PASS, "Stale gradients", "32.3", "39.7")),
    (0, "pipeline", (PASS, "33 units of time, 27.3 %", "4 3 2 1")),
    (0, "reduce", ("15 on A", "15 15 15 15 15", "E sends 5 to A, who adds it")),
    (0, "allreduce", ("all ranks have the same: yes", "it is the exact sum: yes", "by the formula 24: equal")),
)


def drawn(arguments, page):
    """What pictures must have: a pipeline's all micro-batches of which its text speaks, steps as wide as they are long."""
    if arguments.startswith("model-parallel"):
        numbers = re.findall(r'<text class="on"[^>]*>(\d+)</text>', page)
        return [] if numbers.count("8") == numbers.count("1") == 8 else [f"{arguments}: micro-batches {sorted(set(numbers))}"]
    if arguments == "pipeline":
        units = [int(n) for n in re.findall(r"<p>(\d+) units of time", page)]
        widths = [float(picture.split('class="rest"', 1)[1].split('width="')[1].split('"')[0]) for picture in page.split("<svg ")[1:]]
        same = all(abs(width / units[0] - widths[0] * n / units[0] ** 2) < 0.05 for n, width in zip(units, widths))
        return [] if len(units) == len(widths) == 3 and same else [f"pipeline: {units} units are {widths} wide"]
    return []


def check_page(arguments, texts):
    page = read("page.html")
    check(not drawn(arguments, page), drawn(arguments, page))
    check('<meta http-equiv="Content-Security-Policy"' in page, f"{arguments}: no policy")
    for width, text in windows(page, arguments):
        for pattern in texts:
            check(pattern in text or re.search(pattern, text), f"{arguments}, {width} pixels: no {pattern}")


new_folder()
os.symlink(f"{SOURCE}/configs", "configs")
for lesson_ranks, lesson, must_have in LESSONS:
    if os.path.exists("page.html"):
        os.remove("page.html")
    dtrain("lab", *lesson.split(), "--html", "page.html", ranks=lesson_ranks)
    check_page(lesson, must_have)
finish()
