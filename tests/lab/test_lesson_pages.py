"""Each lesson's page in a browser, as on a telephone and on a screen: no script fails, nothing is wider than the window, and the golden
numbers are in its text. Without Chromium it is skipped.

usage: DTRAIN=... MPIEXEC=... test_lesson_pages.py"""
import os
import re

from browser import windows
from checks import SOURCE, check, dtrain, finish, new_folder, read

PASS = r"PASS: all \d+ reference values reproduced"
LESSONS = (  # ranks, or 0 for no launcher; arguments; what the page's text must have
    (2, "gradtape", (PASS, "26.431675", "2.0128188", "2.7977395", "1.3814857", "-0.3814857")),
    (2, "linear", (PASS, "1.963652, 2.529543", "1.414214|1.41421")),
    (2, "linear --batch 1", (PASS,)),
    (0, "lr", (PASS, "9.88", "0.0025", "0.395203")),
    (0, "shards", (PASS,)),
    (0, "batch", (PASS, "A larger batch is not faster")),
    (0, "bits", (PASS, "1.00000012", "as a float")),
    (0, "model-parallel --config configs/mnist.json", (PASS, "126,877,696", "380,694,528", "28,797,168")),
    (4, "server", (PASS, "47.1 kB", "94.2 kB")),
    (4, "compression", (PASS, "94,272", "1,896")),
    (4, "stragglers", (PASS, "Stale gradients", "32.3", "39.7")),
    (0, "pipeline", (PASS, "33 units, 27.3 %", "4 3 2 1")),
    (0, "reduce", (PASS, "Reduce is done: rank A")),
    (0, "allreduce", (PASS, "Round 6 of 6", "abcd3")),
    (0, "allreduce --ranks 16", (PASS, "Round 30 of 30")),
)


def ends(page):
    """Where the last box of each picture of lanes ends."""
    boxes = [re.findall(r'<rect class="box[^>]* x="([\d.]+)"[^>]* width="([\d.]+)"', picture) for picture in page.split('<svg class="lanes"')[1:]]
    return [max(float(x) + float(width) for x, width in picture) for picture in boxes]


def check_page(arguments, texts):
    page = read("page.html")
    if arguments == "pipeline":  # a step as wide as it is long
        naive, gpipe, one_f_one_b = ends(page)
        check(abs((gpipe - 20) / (naive - 20) - 33 / 96) < 0.01 and one_f_one_b == gpipe, f"pipeline: steps end at {ends(page)}")
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
