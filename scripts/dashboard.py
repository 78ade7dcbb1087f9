#!/usr/bin/env python3
"""What docs/use/monitoring/strata.dashboard.json shows of a Prometheus, without Grafana.

    dashboard.py check URL              each figure that dashboard and alerts name has a value, each query of the dashboard works and
                                        has one, each alert is loaded and evaluated without an error
    dashboard.py draw URL FROM TO FILE  the panels between two moments (seconds since 1970) as an SVG picture
    dashboard.py firing URL             names of alerts that fire, one a line
"""
import json
import pathlib
import re
import sys
import urllib.parse
import urllib.request
from xml.sax.saxutils import escape

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs" / "use" / "monitoring"
NAME = re.compile(r"mysql_global_status_strata_\w+")
COLOURS = ["#2a6f97", "#c9a227", "#a23b3b", "#4f8a4f", "#7a5195", "#8c8c8c", "#d4771e", "#3aa6a6"]
# Some looks of a test, which come each second.
RATE = "10s"


def ask(url, path, **arguments):
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}", timeout=30) as answer:
        return json.load(answer)["data"]


def board():
    panels = json.loads((FOLDER / "strata.dashboard.json").read_text())["panels"]
    return [panel for panel in panels if panel["type"] != "row"]


def query(expression):
    return expression.replace("$__rate_interval", RATE).replace("$instance", ".*")


def check(url):
    wrong = []
    texts = [path.read_text() for path in FOLDER.iterdir() if ".test." not in path.name]
    names = sorted(set(NAME.findall("".join(texts))))
    wrong += [f"{name} has no value" for name in names if not ask(url, "query", query=name)["result"]]
    queries = 0
    for panel in board():
        for target in panel["targets"]:
            queries += 1
            result = ask(url, "query", query=query(target["expr"]))["result"]
            if not result or result[0]["value"][1] in ("NaN", "+Inf"):
                wrong.append(f"{panel['title']}: {target['expr']} gives {result}")
    rules = [rule for group in ask(url, "rules")["groups"] for rule in group["rules"]]
    wrong += [f"{rule['name']}: {rule['health']} {rule.get('lastError', '')}" for rule in rules if rule["health"] != "ok"]
    if not rules:
        wrong.append("no alert is loaded")
    print(f"{len(names)} figures, {queries} queries, {len(rules)} alerts; {len(wrong)} wrong")
    print("".join(f"  {line}\n" for line in wrong), end="")
    return 1 if wrong else 0


def short(value, unit):
    if unit in ("bytes", "Bps"):
        for size, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= size:
                return f"{value / size:.3g} {name}" + ("/s" if unit == "Bps" else "")
        return f"{value:.0f} B" + ("/s" if unit == "Bps" else "")
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    if unit == "s" and 0 < value < 1:
        return f"{1000 * value:.3g} ms"
    if value >= 10_000:
        return f"{value / 1000:.4g} k"
    return (f"{value:.0f}" if value >= 100 else f"{value:.3g}") + {"percent": "%", "s": " s", "ops": "/s"}.get(unit, "")


def lines(url, panel, begin, end):
    """Of each line of a panel its label and its points."""
    out = []
    for target in panel["targets"]:
        result = ask(url, "query_range", query=query(target["expr"]), start=begin, end=end, step=max(1, round((end - begin) / 120)))["result"]
        points = [(time, float(text)) for series in result[:1] for time, text in series["values"]]
        out.append((target["legendFormat"] or panel["title"], [(t, v) for t, v in points if v == v and v != float("inf")]))
    return out


def draw_panel(panel, shown, begin, end, place):
    x, y, width, height = place
    unit = panel["fieldConfig"]["defaults"]["unit"]
    out = [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="white" stroke="#ddd"/>']
    out.append(f'<text x="{x + 8}" y="{y + 16}" font-weight="bold">{escape(panel["title"])}</text>')
    if panel["type"] == "stat":
        value = shown[0][1][-1][1] if shown[0][1] else 0
        peak = max((v for _, v in shown[0][1]), default=0)
        fill = "#4f8a4f" if peak < 1 else "#a23b3b"
        out.append(f'<text x="{x + width / 2}" y="{y + 52}" font-size="24" text-anchor="middle" fill="{fill}">{short(value, unit)}</text>')
        if peak != value:
            out.append(f'<text x="{x + width / 2}" y="{y + 70}" text-anchor="middle" fill="#666">at most {short(peak, unit)}</text>')
        return out
    stacked = "stacking" in panel["fieldConfig"]["defaults"]["custom"]
    below = {}
    drawn = []
    for label, points in shown:
        if stacked:
            points = [(t, v + below.get(t, 0)) for t, v in points]
            below.update(points)
        drawn.append((label, points))
    top = max((v for _, points in drawn for _, v in points), default=0) or 1
    left, right, high, low = x + 62, x + width - 10, y + 28, y + height - 44
    for part in (0, 0.5, 1):
        at = low - (low - high) * part
        out.append(f'<line x1="{left}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}" stroke="#eee"/>')
        out.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end" fill="#666">{short(top * part, unit)}</text>')
    out.append(f'<text x="{left}" y="{low + 13}" fill="#666">0 s</text>')
    out.append(f'<text x="{right}" y="{low + 13}" text-anchor="end" fill="#666">{end - begin:.0f} s</text>')
    at, row = left - 54, low + 27
    for i, (label, points) in enumerate(drawn):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(
            f"{left + (right - left) * (t - begin) / (end - begin):.1f},{low - (low - high) * v / top:.1f}" for t, v in points
        )
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if at + 20 + 6 * len(label) > x + width:
            at, row = left - 54, row + 12
        out.append(f'<rect x="{at}" y="{row - 8}" width="9" height="9" fill="{colour}"/>')
        out.append(f'<text x="{at + 13}" y="{row}">{escape(label)}</text>')
        at += 24 + 6 * len(label)
    return out


def draw(url, begin, end, file):
    panels = board()
    each_x, each_y = 50, 28
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * each_y
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{24 * each_x}" height="{height}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#f6f6f6"/>',
    ]
    for panel in panels:
        grid = panel["gridPos"]
        place = (grid["x"] * each_x + 3, grid["y"] * each_y + 3, grid["w"] * each_x - 6, grid["h"] * each_y - 6)
        out += draw_panel(panel, lines(url, panel, begin, end), begin, end, place)
    pathlib.Path(file).write_text("\n".join(out + ["</svg>", ""]))
    return 0


def firing(url):
    alerts = ask(url, "alerts")["alerts"]
    print("".join(f"{alert['labels']['alertname']}\n" for alert in alerts if alert["state"] == "firing"), end="")
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["check", url]:
            sys.exit(check(url))
        case ["draw", url, begin, end, file]:
            sys.exit(draw(url, float(begin), float(end), file))
        case ["firing", url]:
            sys.exit(firing(url))
        case _:
            sys.exit(__doc__)
