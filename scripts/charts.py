#!/usr/bin/env python3
"""Draws docs/results/charts/*.svg from docs/results/data/*.csv.

A line of a data file is a label and one number per engine; lines that begin with '#' say build, date and command. With
--check nothing is written: the exit status is 1 if a chart is not what its data give.
"""
import csv
import pathlib
import sys
from xml.sax.saxutils import escape

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "results"
COLOURS = ["#8c8c8c", "#c9a227", "#2a6f97"]
LEFT, BAR, GAP, WIDE = 190, 14, 12, 430


def read(path):
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    rows = list(csv.reader(lines))
    return rows[0], [(row[0], [float(n) for n in row[1:]]) for row in rows[1:]]


def draw(head, rows):
    """Horizontal bars; each row has a scale of its own, as its units are its own."""
    title, engines = head[0], head[1:]
    each = BAR * len(engines) + GAP
    height = 62 + each * len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for i, engine in enumerate(engines):
        out.append(f'<rect x="{LEFT + 110 * i}" y="32" width="12" height="12" fill="{COLOURS[i]}"/>')
        out.append(f'<text x="{LEFT + 110 * i + 18}" y="42">{escape(engine)}</text>')
    for r, (label, numbers) in enumerate(rows):
        top = 56 + each * r
        out.append(f'<text x="{LEFT - 10}" y="{top + each // 2}" text-anchor="end">{escape(label)}</text>')
        for i, number in enumerate(numbers):
            y, width = top + BAR * i, max(1, round(WIDE * number / max(numbers)))
            out.append(f'<rect x="{LEFT}" y="{y}" width="{width}" height="{BAR - 2}" fill="{COLOURS[i]}"/>')
            out.append(f'<text x="{LEFT + width + 6}" y="{y + BAR - 4}">{number:g}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    stale = 0
    for path in sorted((RESULTS / "data").glob("*.csv")):
        chart = RESULTS / "charts" / (path.stem + ".svg")
        text = draw(*read(path))
        if "--check" not in sys.argv:
            chart.write_text(text)
        elif not chart.exists() or chart.read_text() != text:
            print(f"{chart} is not what {path.name} gives: run scripts/charts.py", file=sys.stderr)
            stale = 1
    return stale


sys.exit(main())
