"""Each lesson's page in a browser, as on a telephone and on a screen: no script fails, nothing is wider than the window, and the verdict is
there. test_lessons.py has the numbers. Without Chromium it is skipped.

usage: DTRAIN=... MPIEXEC=... test_lesson_pages.py"""
import re

from browser import windows
from checks import SOURCE, check, dtrain, finish, new_folder, read

LESSONS = (  # ranks, or 0 for no launcher; arguments
    (2, "gradtape"), (2, "linear"), (0, "lr"), (0, "shards"), (0, "batch"), (0, "bits"), (0, f"model-parallel --config {SOURCE}/configs/mnist.json"),
    (4, "server"), (4, "compression"), (4, "stragglers"), (0, "pipeline"), (0, "reduce"), (0, "allreduce"), (0, "allreduce --ranks 16"))


def ends(page):
    """Where the last box of each picture of lanes ends."""
    boxes = [re.findall(r'<rect class="box[^>]* x="([\d.]+)"[^>]* width="([\d.]+)"', picture) for picture in page.split('<svg class="lanes"')[1:]]
    return [max(float(x) + float(width) for x, width in picture) for picture in boxes]


new_folder()
for lesson_ranks, lesson in LESSONS:
    dtrain("lab", *lesson.split(), "--html", "page.html", ranks=lesson_ranks)
    for width, text in windows(read("page.html"), lesson):
        check(re.search(r"PASS: all \d+ reference values reproduced", text), f"{lesson}, {width} pixels: no verdict")
    if lesson == "pipeline":  # a step as wide as it is long
        naive, gpipe, one_f_one_b = ends(read("page.html"))
        check(abs((gpipe - 20) / (naive - 20) - 33 / 96) < 0.01 and one_f_one_b == gpipe, f"pipeline: steps end at {ends(read('page.html'))}")
finish()
