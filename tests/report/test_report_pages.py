"""A run's page in a browser, as on a telephone and on a screen, light and dark: no script fails, nothing is asked for, nothing is wider than
the window, and a pointer over a chart shows its numbers. Without Chromium it is skipped.

usage: test_report_pages.py DTRAIN MPIEXEC, in the folder of the sources"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from test_lesson_pages import WIDTHS, faults, load, sends_nothing
from test_report import check, read, records, report, train, wrong

# A script at the page's end asks for the text below the first chart when a pointer is over it.
POINT = """<script>
for (const svg of document.querySelectorAll('figure.curves svg')) {
  const box = svg.getBoundingClientRect()
  svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + 0.99 * box.width, clientY: box.top + 9}))
}
</script>"""


def check_page(chromium, folder, run, dtrain):
    report(dtrain, run)
    page = read(f"{run}/report.html")
    answers, log = load(chromium, folder, page.replace("</body>", POINT + "</body>"))
    check(f"{run}: {len(answers)} of {len(WIDTHS)} windows: {log[-500:]}", len(answers) == len(WIDTHS))
    wrong.extend(f"{run}: {line}" for line in faults(log))
    check("a page may send something away", sends_nothing(chromium, folder, page))
    last, step = records(run, "epoch")[-1], records(run, "step")[-1]
    for answer in answers:
        width, content = map(int, re.findall(r"\d+", answer)[:2])
        text = answer.split("]", 1)[1]
        check(f"{run}: {content} pixels in a window of {width}", content <= width)
        check(f"{run}, {width} pixels: a pointer shows no number of the last epoch",
              f"test, after an epoch, step {last['step']} (epoch 3): {last['test_loss']:.6g}" in text)
        check(f"{run}, {width} pixels: a pointer shows no gradient's norm", f"a step, step {step['step']}: {step['grad_norm']:.6g}" in text)


def main():
    dtrain, mpiexec = map(os.path.abspath, sys.argv[1:])
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("skipped: no chromium to load the pages with")
        return 77
    with tempfile.TemporaryDirectory(prefix="dtrain-test-report-") as folder:
        run = f"{folder}/run"
        check("the run fails", train(dtrain, mpiexec, run, 2) == 0)
        check_page(chromium, folder, run, dtrain)
    print("\n".join(wrong) or "all pages are right")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
