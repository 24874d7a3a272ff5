"""The pictures of docs/lessons.md: those of the lessons' own pages (`dtrain lab NAME --html FILE`), side by side in one SVG each.

usage: lessons_figures.py DTRAIN MPIEXEC [--check]     in the folder of the sources; --check compares instead of writing those that a
                                                       training of images cannot change"""
import os
import re
import subprocess
import sys
import tempfile

FOLDER = "docs/lessons"
LESSONS = (  # name, ranks or 0 for no launcher, arguments, which pictures of the page, whether they are the same on every machine
    ("gradtape", 2, "gradtape", (0,), True),
    ("linear", 2, "linear --batch 16", (0, 1, 2, 3), True),
    ("lr", 0, "lr", (0, 1), True),
    ("shards", 0, "shards", (0, 1, 2, 3), False),
    ("batch", 0, "batch", (0, 1), False),
    ("bits", 0, "bits", (0,), False),
    ("server", 4, "server", (0, 1), False),
    ("compression", 4, "compression", (0,), False),
    ("stragglers", 4, "stragglers", (0, 2, 3, 4), False),
    ("model-parallel", 0, "model-parallel --config configs/mnist.json", (0, 1, 2, 3), True),
    ("pipeline", 0, "pipeline", (0, 1, 2), True),
    ("allreduce", 0, "allreduce", (4,), True),
)
GAP, TITLE = 24, 48


def figure(page, chosen):
    style = "".join(re.findall(r"<style>(.*?)</style>", page, re.S))
    style = re.sub(r"/\* (Figures|A run|An acceptance|After all others)\b.*?(?=\n/\* |$)", "", style, flags=re.S)
    defs = "".join(re.findall(r"<defs>.*?</defs>", page, re.S)[:1])
    cards = re.findall(r"<h[23]>([^<]*)</h[23]>((?:(?!<h[23]).)*?)<svg (?:class=\"[\w ]+\" )?(viewBox=\"0 0 ([\d.]+) ([\d.]+)\".*?</svg>)", page, re.S)
    cards = [cards[i] for i in chosen]
    width = max(float(card[3]) for card in cards)
    columns = 1 if len(cards) == 1 or width > 600 else 2
    parts, y = [], 0
    for i in range(0, len(cards), columns):
        row = cards[i:i + columns]
        for column, (title, above, svg, w, h) in enumerate(row):
            x = column * (width + GAP)
            legend = "".join(f'<tspan dx="14" style="fill:var(--k{color})">{name}</tspan>'
                             for color, name in re.findall(r'<span class="key k(\d)[^>]*>([^<]*)</span>', above))
            parts.append(f'<text class="start title" x="{x + 4:g}" y="{y + 20:g}">{title}</text>\n')
            parts.append(f'<text class="start" x="{x + 4:g}" y="{y + 40:g}">{legend}</text>\n')
            parts.append(f'<svg x="{x:g}" y="{y + TITLE:g}" width="{w}" height="{h}" {svg}\n')
        y += TITLE + GAP + max(float(card[4]) for card in row)
    across = columns * width + (columns - 1) * GAP
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-GAP} {-GAP // 2} {across + 2 * GAP:g} {y + GAP // 2:g}">\n'
            f"<style>\n{style}text{{font:13px system-ui,sans-serif}}.title{{font:700 15px system-ui,sans-serif;fill:var(--text)}}.arrow{{animation:none}}</style>\n"
            f'{defs}<rect x="{-GAP}" y="{-GAP // 2}" width="100%" height="100%" fill="var(--back)"/>\n{"".join(parts)}</svg>\n')


def drawn(picture):
    """Without the style, which all pages share: a rule more for one of them changes no picture."""
    return re.sub(r"<style>.*?</style>", "", picture, flags=re.S)


def main():
    dtrain, mpiexec = map(os.path.abspath, sys.argv[1:3])
    check, wrong = "--check" in sys.argv, []
    os.makedirs(FOLDER, exist_ok=True)
    for name, ranks, arguments, chosen, same in LESSONS:
        path = os.path.join(FOLDER, name + ".svg")
        with tempfile.NamedTemporaryFile("r", suffix=".html", encoding="utf-8") as page:
            launch = [mpiexec, "-n", str(ranks)] if ranks else []
            subprocess.run([*launch, dtrain, "lab", *arguments.split(), "--html", page.name], check=True, stdout=subprocess.DEVNULL)
            with open(page.name, encoding="utf-8") as written:
                text = figure(written.read(), chosen)
        if not check:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        elif same:
            with open(path, encoding="utf-8") as file:
                wrong += [path] if drawn(file.read()) != drawn(text) else []
    print("\n".join(f"{path} is not what the lesson draws (run docs/lessons_figures.py)" for path in wrong) or "all pictures are there")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
