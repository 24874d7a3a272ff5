"""Pages of the program in Chromium. Importing this skips the test where there is none; files of the browser are in the working folder."""
import html
import os
import re
import shutil

from checks import check, run, skip, write

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    skip("no chromium to load the pages with")
WIDTHS = (390, 1440)
ASK = """<script>
onload = () => document.querySelectorAll("iframe").forEach(frame => {
  const page = frame.contentDocument, answer = document.createElement("pre")
  answer.textContent = JSON.stringify([frame.width, page.documentElement.scrollWidth]) + page.body.textContent
  document.body.append(answer)
})
</script>"""


def load(page):
    """What the browser says of the page in windows of these widths, and its log."""
    frames = "".join(f'<iframe width="{width}" height="900" srcdoc="{html.escape(page)}"></iframe>' for width in WIDTHS)
    write("frames.html", f"<!DOCTYPE html><meta charset='utf-8'><body>{frames}{ASK}")
    done = run(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={os.getcwd()}/profile", "--enable-logging=stderr",
               "--virtual-time-budget=5000", "--window-size=1500,1000", "--dump-dom", f"file://{os.getcwd()}/frames.html")
    return re.findall(r"<pre>(.*?)</pre>", done.stdout, re.S), done.stderr


def faults(log):
    """What went wrong in a page, and what it asked for that it may not have."""
    return [line for line in log.splitlines() if "CONSOLE" in line and re.search("Uncaught|Error|Refused|Content Security Policy", line)]


def windows(page, what):
    """Checks that all windows come, no script fails and nothing is wider than the window; yields the width and text of each."""
    answers, log = load(page)
    check(len(answers) == len(WIDTHS), f"{what}: {len(answers)} of {len(WIDTHS)} windows: {log[-500:]}")
    check(not faults(log), f"{what}: {faults(log)}")
    for answer in map(html.unescape, answers):
        width, content = map(int, re.findall(r"\d+", answer)[:2])
        check(content <= width, f"{what}: {content} pixels in a window of {width}")
        yield width, answer.split("]", 1)[1]


def sends_nothing(page):
    """Whether its policy stops what asks for something of elsewhere, and says so."""
    pieces = ('<img src="https://example.org/a.png">', '<link rel="stylesheet" href="https://example.org/a.css">',
              '<script src="https://example.org/a.js"></script>', '<script>fetch("https://example.org/a")</script>')
    return all(faults(load(page.replace("</body>", piece + "</body>"))[1]) for piece in pieces)
