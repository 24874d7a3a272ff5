"""The page of `dtrain accept` in a browser, as on a telephone and on a screen, light and dark: nothing fails, nothing is asked for, nothing is
wider than the window, and what is slow is marked. Without Chromium it is skipped.

usage: test_accept_page.py WRONG_CLUSTER MPIEXEC, in the folder of the sources"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from test_lesson_pages import WIDTHS, faults, load
from test_report import check, read, wrong


def main():
    program, mpiexec = map(os.path.abspath, sys.argv[1:])
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("skipped: no chromium to load the page with")
        return 77
    with tempfile.TemporaryDirectory(prefix="dtrain-test-accept-") as folder:
        done = subprocess.run([mpiexec, "-n", "4", program, "accept", "--short", "--run", f"{folder}/run", "--html", f"{folder}/page.html"],
                              env={**os.environ, "ONE_EACH": "1", "WRONG": "bandwidth gradients"}, capture_output=True, timeout=200)
        check(f"accept ends with {done.returncode}", done.returncode == 1)
        page = read(f"{folder}/page.html")
        answers, log = load(chromium, folder, page)
    check(f"{len(answers)} of {len(WIDTHS)} windows: {log[-500:]}", len(answers) == len(WIDTHS))
    wrong.extend(faults(log))
    for answer in answers:
        width, content = map(int, re.findall(r"\d+", answer)[:2])
        check(f"{content} pixels in a window of {width}", content <= width)
        check(f"{width} pixels: not the verdict", "dtrain accept: FAIL" in answer and "9 of 11 passed, 2 failed" in answer)
    # The failures: rank 1's gradients and node2's links, and on the first map three pairs of six, both ways.
    cells = re.findall(r"<tr><td>node(\d)((?:<td class.*)+)", page)
    failed = {(int(host), i) for host, row in cells for i, cell in enumerate(row.split("<td ")[1:]) if "FAIL" in cell}
    check(f"{failed} fail", failed == {(1, 3), (2, 5)})
    maps = page.split("<figure")[1:]
    check("pairs that are marked", [m.count('class="cell odd"') for m in maps] == [6, 0])
    print("\n".join(wrong) or "the page is right")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
