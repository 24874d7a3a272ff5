"""Charts as SVG, written as text: lines over a few places, and bars. Each function returns the whole file.

A measurement is a tuple (median, lowest, highest); the range is drawn where it is visible, and each chart explains it.
"""
import math
from xml.sax.saxutils import escape

INK, FAINT, GRID, PAPER = "#1f2933", "#667585", "#e3e8ee", "#ffffff"
RANGE = "median, lowest and highest of the rounds"
COLOURS = ("#1f6fb2", "#d9622b", "#2f8f5b", "#8a56b5")
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"
WIDTH = 760


class Drawing:
    """SVG elements in drawing order. `subtitle`: two lines."""

    def __init__(self, height, title, subtitle):
        self.height, self.parts, self.title = height, [], title
        self.text(24, 34, title, 17, weight="600")
        for i, line in enumerate(subtitle):
            self.text(24, 55 + 17 * i, line, 12, FAINT)

    def text(self, x, y, text, size=12, colour=INK, anchor="start", weight="normal", turned=False):
        """Draws text with a paper-coloured edge, so that it stays readable across lines."""
        turn = ' transform="rotate(-90 %.1f %.1f)"' % (x, y) if turned else ""
        self.parts.append('<text x="%.1f" y="%.1f" font-size="%d" fill="%s" text-anchor="%s" font-weight="%s" paint-order="stroke" '
                          'stroke="%s" stroke-width="3"%s>%s</text>' % (
                              x, y, size, colour, anchor, weight, PAPER, turn, escape(text)))

    def line(self, x1, y1, x2, y2, colour=GRID, width=1.0, dashes=""):
        self.path([(x1, y1), (x2, y2)], colour, width, dashes)

    def path(self, points, colour, width, dashes=""):
        dash = ' stroke-dasharray="%s"' % dashes if dashes else ""
        self.parts.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="%g" stroke-linejoin="round"%s/>' % (
            " ".join("%.1f,%.1f" % p for p in points), colour, width, dash))

    def bar(self, x, y, width, height, colour):
        self.parts.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2" fill="%s"/>' % (
            x, y, max(width, 0.5), height, colour))

    def dot(self, x, y, colour):
        self.parts.append('<circle cx="%.1f" cy="%.1f" r="4" fill="%s" stroke="%s" stroke-width="1.5"/>' % (x, y, colour, PAPER))

    def whisker(self, x, low, high, colour):
        self.line(x, low, x, high, colour, 1.5)
        self.line(x - 4, low, x + 4, low, colour, 1.5)
        self.line(x - 4, high, x + 4, high, colour, 1.5)

    def __str__(self):
        return '\n'.join([
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="%s">' % (
                WIDTH, self.height, WIDTH, self.height, escape(FONT)),
            '<title>%s</title>' % escape(self.title),
            '<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="%s" stroke="%s"/>' % (
                WIDTH - 1, self.height - 1, PAPER, GRID),
            *self.parts, '</svg>', ''])


def ticks(highest, n=5):
    """Axis ticks from 0 in steps of 1, 2, 2.5 or 5 times a power of ten, to just above `highest`."""
    power = 10.0 ** math.floor(math.log10(highest / n))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power * n >= highest * 0.999)
    return [i * step for i in range(math.ceil(highest / step - 1e-9) + 1)]


def decades(lowest, highest):
    return [10.0 ** n for n in range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)]


def number(value):
    """12,345 or 12.3 or 0.123: three significant digits."""
    if value >= 100 or value == 0:
        return "{:,.0f}".format(value)
    return "%.*f" % (max(0, 2 - math.floor(math.log10(value))), value)


def tick_text(value):
    return "{:,.10g}".format(round(value, 9))


def labelled(index, n):
    """Chooses the places on the axis whose text has room."""
    return index % math.ceil(n / 9) == 0


def lines(title, subtitle, x_title, y_title, places, series, dashed=None, logarithmic=False):
    """series: name -> one measurement per place. dashed: (name, one number per place). A single line shows values at its points."""
    height, left, right, top, bottom = 440, 82, WIDTH - 30, 128, 372
    d = Drawing(height, title, subtitle)
    measured = [m for row in series.values() for m in row]
    highest = max([m[2] for m in measured] + list(dashed[1] if dashed else ()))
    marks = decades(min(m[1] for m in measured), highest) if logarithmic else ticks(highest * 1.04)
    scaled = (lambda v: math.log(v / marks[0]) / math.log(marks[-1] / marks[0])) if logarithmic else (lambda v: v / marks[-1])
    x_of = lambda i: left + 30 + (right - left - 60) * (i / (len(places) - 1) if len(places) > 1 else 0.5)
    y_of = lambda value: bottom - (bottom - top) * scaled(value)
    for mark in marks:
        d.line(left, y_of(mark), right, y_of(mark))
        d.text(left - 10, y_of(mark) + 4, tick_text(mark), 12, FAINT, "end")
    for i, place in enumerate(places):
        if labelled(i, len(places)):
            d.text(x_of(i), bottom + 22, str(place), 12, FAINT, "middle")
    d.text((left + right) / 2, bottom + 48, x_title, 13, INK, "middle")
    d.text(19, (top + bottom) / 2, y_title, 13, INK, "middle", turned=True)
    if dashed:
        d.path([(x_of(i), y_of(value)) for i, value in enumerate(dashed[1])], FAINT, 1.5, "5 4")
    for colour, row in zip(COLOURS, series.values()):
        draw_row(d, x_of, y_of, colour, row, len(series) == 1, dashed is not None)
    entries = [(name, colour, "") for colour, name in zip(COLOURS, series)]
    legend(d, left, 102, entries + ([(dashed[0], FAINT, "5 4")] if dashed else []))
    d.text(right, 102, RANGE, 12, FAINT, "end")
    d.whisker(right - 6.5 * len(RANGE), 91, 107, FAINT)
    d.dot(right - 6.5 * len(RANGE), 99, FAINT)
    return str(d)


def draw_row(d, x_of, y_of, colour, row, with_values, below):
    """`below`: puts the values below, because another line is above."""
    d.path([(x_of(i), y_of(m[0])) for i, m in enumerate(row)], colour, 2.5)
    for i, m in enumerate(row):
        if abs(y_of(m[1]) - y_of(m[2])) > 3:
            d.whisker(x_of(i), y_of(m[1]), y_of(m[2]), colour)
        d.dot(x_of(i), y_of(m[0]), colour)
        if with_values:
            d.text(x_of(i), y_of(m[1]) + 26 if below else y_of(m[2]) - 10, number(m[0]), 12, INK, "middle")


def legend(d, x, y, entries):
    for name, colour, dashes in entries if len(entries) > 1 else ():
        d.path([(x, y - 4), (x + 22, y - 4)], colour, 2.5 if not dashes else 1.5, dashes)
        d.text(x + 29, y, name, 12, INK)
        x += 29 + 7.2 * len(name) + 22


def bars(title, subtitle, x_title, groups):
    """groups: (label, [(series, measurement, note)]): horizontal bars, one colour per series, those of a group side by side."""
    names = list(dict.fromkeys(name for _, row in groups for name, _, _ in row if name))
    thick, gap, left, right, top = 17, 15, 96, WIDTH - 210, 128
    bottom = top + sum(len(row) * thick + gap for _, row in groups)
    d = Drawing(bottom + 66, title, subtitle)
    marks = ticks(max(m[2] for _, row in groups for _, m, _ in row))
    x_of = lambda value: left + (right - left) * value / marks[-1]
    for mark in marks:
        d.line(x_of(mark), top - 8, x_of(mark), bottom)
        d.text(x_of(mark), bottom + 20, tick_text(mark), 12, FAINT, "middle")
    y = top
    for label, row in groups:
        d.text(left - 12, y + len(row) * thick / 2 + 4, label, 13, INK, "end")
        for name, m, note in row:
            colour = COLOURS[names.index(name)] if name else FAINT
            d.bar(left, y + 1, x_of(m[0]) - left, thick - 3, colour)
            d.line(x_of(m[1]), y + thick / 2 - 0.5, x_of(m[2]), y + thick / 2 - 0.5, INK, 1)
            d.text(x_of(m[2]) + 8, y + thick / 2 + 4, number(m[0]) + note, 12, INK)
            y += thick
        y += gap
    d.text((left + right) / 2, bottom + 46, x_title, 13, INK, "middle")
    x = left
    for name in names:
        d.bar(x, 92, 14, 12, COLOURS[names.index(name)])
        d.text(x + 21, 102, name, 12, INK)
        x += 21 + 7.2 * len(name) + 22
    d.text(WIDTH - 30, 102, RANGE, 12, FAINT, "end")
    d.bar(WIDTH - 30 - 6.5 * len(RANGE) - 14, 92, 14, 12, GRID)
    d.line(WIDTH - 30 - 6.5 * len(RANGE) - 8, 98, WIDTH - 30 - 6.5 * len(RANGE) + 4, 98, INK, 1)
    return str(d)
