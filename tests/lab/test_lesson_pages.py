"""Each lesson's page in a browser, as on a telephone and on a screen: no script fails, nothing is wider than the window, and the golden
numbers are in its text. Without Chromium it is skipped.

usage: test_lesson_pages.py DTRAIN MPIEXEC, in the folder of the sources"""
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile

DTRAIN, MPIEXEC = map(os.path.abspath, sys.argv[1:])
PASS = r"PASS: all \d+ golden numbers came out"
LESSONS = (  # ranks, or 0 for no launcher; arguments; what the page's text must have
    (2, "gradtape", (PASS, "26.431675", "2.0128188, 2.7977395; 4", "1.3814857, 2.129148; 4", "-0.3814857, -1.129148; -3")),
    (2, "linear", (PASS, "1.963652, 2.529543", "1.414214|1.41421")),
    (2, "linear --batch 1", (PASS,)),
    (0, "lr", (PASS, "9.88", "0.0025", "0.395203")),
    (0, "shards", (PASS, "replicate5014 ×")),
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
WIDTHS = (390, 1440)
ASK = """<script>
onload = () => document.querySelectorAll("iframe").forEach(frame => {
  const page = frame.contentDocument, answer = document.createElement("pre")
  answer.textContent = JSON.stringify([frame.width, page.documentElement.scrollWidth]) + page.body.textContent
  document.body.append(answer)
})
</script>"""


def load(chromium, folder, page):
    """What the browser says of the page in windows of these widths, and its log."""
    frames = "".join(f'<iframe width="{width}" height="900" srcdoc="{html.escape(page)}"></iframe>' for width in WIDTHS)
    path = os.path.join(folder, "frames.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"<!DOCTYPE html><meta charset='utf-8'><body>{frames}{ASK}")
    done = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile", "--enable-logging=stderr",
                           "--virtual-time-budget=5000", "--window-size=1500,1000", "--dump-dom", "file://" + path],
                          capture_output=True, text=True, timeout=120)
    return re.findall(r"<pre>(.*?)</pre>", done.stdout, re.S), done.stderr


def faults(log):
    """What went wrong in a page, and what it asked for that it may not have."""
    return [line for line in log.splitlines() if "CONSOLE" in line and re.search("Uncaught|Error|Refused|Content Security Policy", line)]


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


def sends_nothing(chromium, folder, page):
    """Whether its policy stops what asks for something of elsewhere, and says so."""
    pieces = ('<img src="https://example.org/a.png">', '<link rel="stylesheet" href="https://example.org/a.css">',
              '<script src="https://example.org/a.js"></script>', '<script>fetch("https://example.org/a")</script>')
    return all(faults(load(chromium, folder, page.replace("</body>", piece + "</body>"))[1]) for piece in pieces)


def main():
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("skipped: no chromium to load the pages with")
        return 77
    wrong = []
    with tempfile.TemporaryDirectory(prefix="dtrain-test-pages-") as folder:
        for ranks, arguments, texts in LESSONS:
            path = os.path.join(folder, "page.html")
            launch = [MPIEXEC, "-n", str(ranks)] if ranks else []
            subprocess.run([*launch, DTRAIN, "lab", *arguments.split(), "--html", path], stdout=subprocess.DEVNULL, check=True, timeout=120)
            with open(path, encoding="utf-8") as file:
                page = file.read()
            wrong += drawn(arguments, page)
            answers, log = load(chromium, folder, page)
            if len(answers) != len(WIDTHS):
                wrong.append(f"{arguments}: the browser shows {len(answers)} of {len(WIDTHS)} windows: {log[-500:]}")
            wrong += [f"{arguments}: {line}" for line in faults(log)]
            wrong += [f"{arguments}: no policy"] if '<meta http-equiv="Content-Security-Policy"' not in page else []
            for answer in map(html.unescape, answers):
                width, content = map(int, re.findall(r"\d+", answer)[:2])
                text = answer.split("]", 1)[1]
                wrong += [f"{arguments}: {content} pixels in a window of {width}"] if content > width else []
                wrong += [f"{arguments}, {width} pixels: no {pattern}" for pattern in texts
                          if pattern not in text and not re.search(pattern, text)]
            print(f"lab {arguments}: {len(answers)} windows", flush=True)
    print("\n".join(wrong) or "all pages are right")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
