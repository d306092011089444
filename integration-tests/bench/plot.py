"""The table as a picture: a group of bars for each case, one SVG file, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.figures import Spread
from bench.report import Line, number

# Pixels.
WIDTH, NAMES, BARS, VALUES = 760, 120, 500, 140
BAR, GAP, TITLE, MARGIN = 16, 5, 26, 16

STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif; }
text { fill: #1c2530; } .small { fill: #55606d; font-size: 12px; } .end { text-anchor: end; }
.bar { fill: #9aa7b5; } .ours { fill: #1769c7; } .spread { stroke: #1c2530; stroke-width: 1.2; fill: none; }
.floor { stroke: #c2410c; stroke-width: 1.5; stroke-dasharray: 4 3; } .floor-name { fill: #c2410c; font-size: 12px; }
@media (prefers-color-scheme: dark) {
  svg { background: #12171d; }
  text { fill: #e6ebf0; } .small { fill: #9aa7b5; }
  .bar { fill: #5b6876; } .ours { fill: #58a6ff; } .spread { stroke: #e6ebf0; }
  .floor { stroke: #ff9466; } .floor-name { fill: #ff9466; }
}
"""


def draw(table: Sequence[Line], ours: str) -> str:
    """Each case has a scale of its own: its longest bar, or its floor, is as wide as there is room."""
    parts, y = [], MARGIN
    for line in table:
        if line.spreads:
            parts += _group(line, ours, y)
            y += TITLE + len(line.spreads) * (BAR + GAP) + 2 * GAP
    height = y + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'role="img">',
            "<title>Servers side by side: medians, spread and the floor of each case</title>",
            f"<style>{STYLE}</style>",
            *parts,
            "</svg>",
            "",
        ]
    )


def _group(line: Line, ours: str, top: float) -> list[str]:
    less = " (less is better)" if line.case.unit.less_is_better else ""
    longest = max([spread.high for spread in line.spreads.values()] + ([line.floor] if line.floor else []))
    scale = BARS / longest
    parts = [
        f'<text x="{MARGIN}" y="{top + 14}">{escape(line.case.title)}'
        f'<tspan class="small" dx="8">{escape(line.case.unit.value + less)}</tspan></text>'
    ]
    y = top + TITLE
    for name, spread in line.spreads.items():
        parts += _bar(name, spread, y, scale, "ours" if name == ours else "bar")
        y += BAR + GAP
    if line.floor is not None:
        x = NAMES + line.floor * scale
        parts += [
            f'<line class="floor" x1="{x:.1f}" x2="{x:.1f}" y1="{top + TITLE - 4}" y2="{y - 1}"/>',
            f'<text class="floor-name end" x="{NAMES + BARS}" y="{top + 14}">floor {number(line.floor)}</text>',
        ]
    return parts


def _bar(name: str, spread: Spread, y: float, scale: float, kind: str) -> list[str]:
    middle = y + BAR / 2
    low, high = NAMES + spread.low * scale, NAMES + spread.high * scale
    return [
        f'<text class="end" x="{NAMES - 8}" y="{y + 13}">{escape(name)}</text>',
        f'<rect class="{kind}" x="{NAMES}" y="{y}" width="{spread.median * scale:.1f}" height="{BAR}" rx="2"/>',
        f'<path class="spread" d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8"/>',
        f'<text class="small" x="{max(high, NAMES + spread.median * scale) + 8:.1f}" y="{y + 13}">'
        f"{number(spread.median)}</text>",
    ]
