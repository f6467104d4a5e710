"""A shadow's report as a picture: an SVG that stands alone, readable on white and on black."""

from collections.abc import Sequence
from datetime import UTC, datetime
from xml.sax.saxutils import escape

from moorage.scheduler.shadow_report import SegmentLeft, ShadowReport

WIDTH, PANEL, MARGIN, GAP = 900, 150, 70, 46
SEGMENTS_MAX = 24
TICKS = 4
BAR = 9
STYLE = """
text { font: 12px sans-serif; fill: #222 } .title { font-weight: bold } .axis { stroke: #999 } .grid { stroke: #ddd }
.then { stroke: #1f6feb; fill: none; stroke-width: 2 } .shadow { stroke: #d1571a; fill: none; stroke-width: 2; stroke-dasharray: 6 3 }
.bar-then { fill: #1f6feb } .bar-shadow { fill: #d1571a } .paper { fill: #fff }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .grid { stroke: #333 } .paper { fill: #111 } .then { stroke: #6ea8fe }
.bar-then { fill: #6ea8fe } .shadow { stroke: #ff9a5c } .bar-shadow { fill: #ff9a5c } }
"""


def svg_of(report: ShadowReport, weights: str) -> str:
    """Servers placed, spread and the fewest addresses over time, and what is left of each segment; `weights` names the others."""
    times = [each.at for each in report.samples]
    panels = (
        ("servers for which there was no host, so far", [each.refused for each in report.samples]),
        ("spread of memory: standard deviation of the part that is taken", [each.spread for each in report.samples]),
        ("addresses left on the segment with the fewest", [each.addresses for each in report.samples]),
    )
    parts: list[str] = []
    top = 80
    for title, values in panels:
        parts += _panel(title, times, values, top)
        top += PANEL + GAP
    fewest = sorted(report.segments, key=lambda each: min(each.left) / max(1, each.total))[:SEGMENTS_MAX]
    parts += _bars(fewest, len(report.segments), top)
    height = top + 30 + len(fewest) * (2 * BAR + 8)
    legend = (
        f'<text x="{MARGIN}" y="22" class="title">{report.placements} placements, {report.elsewhere} elsewhere</text>'
        f'<line x1="{MARGIN}" y1="38" x2="{MARGIN + 30}" y2="38" class="then"/><text x="{MARGIN + 36}" y="42">as decided</text>'
        f'<line x1="{MARGIN + 130}" y1="38" x2="{MARGIN + 160}" y2="38" class="shadow"/>'
        f'<text x="{MARGIN + 166}" y="42">with {escape(weights)}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
        f"<title>Decisions by other weights</title><style>{STYLE}</style>"
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>{legend}{"".join(parts)}</svg>\n'
    )


def _panel(title: str, times: Sequence[float], values: Sequence[tuple[float, float]], top: int) -> list[str]:
    """Two lines over time."""
    high = max((max(pair) for pair in values), default=0) or 1
    low = min((min(pair) for pair in values), default=0)
    low = 0 if low >= 0 and low < high / 2 else low
    span = (high - low) or 1
    first, last = (times[0], times[-1]) if times else (0.0, 1.0)
    width = WIDTH - 2 * MARGIN

    def x(at: float) -> float:
        return MARGIN + width * (at - first) / ((last - first) or 1)

    def y(value: float) -> float:
        return top + PANEL * (1 - (value - low) / span)

    parts = [f'<text x="{MARGIN}" y="{top - 8}" class="title">{escape(title)}</text>']
    for tick in range(TICKS + 1):
        value = low + span * tick / TICKS
        at = y(value)
        parts.append(f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{at + 4:.1f}" text-anchor="end">{value:,.4g}</text>')
    for at, anchor in ((first, "start"), (last, "end")):
        when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if times else ""
        parts.append(f'<text x="{x(at):.1f}" y="{top + PANEL + 16}" text-anchor="{anchor}">{when}</text>')
    for side, name in ((0, "then"), (1, "shadow")):
        points = " ".join(f"{x(at):.1f},{y(pair[side]):.1f}" for at, pair in zip(times, values, strict=True))
        parts.append(f'<polyline points="{points}" class="{name}"/>')
    return parts


def _bars(segments: Sequence[SegmentLeft], of: int, top: int) -> list[str]:
    """Two bars for each segment."""
    more = f" (the {len(segments)} with the fewest, of {of})" if of > len(segments) else ""
    parts = [
        f'<text x="{MARGIN}" y="{top}" class="title">part of each segment\'s addresses that is left at the end{more}</text>'
    ]
    start, width = MARGIN + 150, WIDTH - 2 * MARGIN - 260
    for place, each in enumerate(segments):
        y = top + 14 + place * (2 * BAR + 8)
        parts.append(f'<text x="{start - 8}" y="{y + BAR + 4}" text-anchor="end">{escape(each.name[:24])}</text>')
        for side, name in ((0, "then"), (1, "shadow")):
            length = width * max(0, each.left[side]) / max(1, each.total)
            parts.append(
                f'<rect x="{start}" y="{y + side * BAR}" width="{length:.1f}" height="{BAR - 1}" class="bar-{name}"/>'
            )
        parts.append(
            f'<text x="{start + width + 8}" y="{y + BAR + 4}">{each.left[0]} / {each.left[1]} of {each.total}</text>'
        )
    return parts
