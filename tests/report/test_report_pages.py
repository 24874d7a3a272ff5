"""A run's page in a browser, as on a telephone and on a screen, light and dark: no script fails, nothing is asked for, nothing is wider than
the window, also of a run that failed, and a pointer over a chart shows its numbers. Without Chromium it is skipped.

usage: DTRAIN=... MPIEXEC=... test_report_pages.py"""
from browser import sends_nothing, windows
from checks import check, dtrain, finish, new_folder, read, records
from tiny import train

# A script at the page's end asks for the text below the first chart when a pointer is over it.
POINT = """<script>
for (const svg of document.querySelectorAll('.plot svg')) {
  const box = svg.getBoundingClientRect()
  svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + 0.99 * box.width, clientY: box.top + 9}))
}
</script>"""


def check_page(run):
    dtrain("report", run)
    page = read(f"{run}/report.html")
    check(sends_nothing(page), "a page may send something away")
    last, step = records(run, "epoch")[-1], records(run, "step")[-1]
    for width, text in windows(page.replace("</body>", POINT + "</body>"), run):
        check(f"test, after an epoch {last['test_loss']:.6g}" in text,
              f"{run}, {width} pixels: a pointer shows no number of the last epoch")
        check(f"step {step['step']}: steps {step['grad_norm']:.6g}" in text, f"{run}, {width} pixels: a pointer shows no gradient's norm")


new_folder()
train("run", 2, "trace.steps=10:12")
check_page("run")
train("alone", 1, "train.optimizer.lr=1e6", code=80)
check("Last events" in read("alone/report.html"), "the page of one rank that failed has no flight record")
train("failed", 2, "train.optimizer.lr=1e6", code=80)
for width, text in windows(read("failed/report.html"), "failed"):
    check("Last events" in text and "allreduce of gradient bucket" in text, f"failed, {width} pixels: no flight record")
finish()
