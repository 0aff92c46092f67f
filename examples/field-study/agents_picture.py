"""The picture of guards of agents: what each leaves of the work, and of the attacks."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

SIZE: Final = 380
EDGE: Final = 70
TITLES: Final = {"tool_result": "Guards of texts", "tool_call": "Guards of calls"}
SUITES: Final = {"places": "errands", "agentdojo": "AgentDojo"}
ACROSS: Final = 2
"""Frames in a row."""
WIDE: Final = 6.2
HIGH: Final = 12.0
"""Room for a letter and for a line."""
CLEAR: Final = 7.0
BELOW: Final = 4.0
"""Room to either side of a point, and from its middle down to the line of a label beside it."""
FEW: Final = 2
"""Names that are written at one point; of more the picture writes how many."""
STYLE: Final = (
    "text{font:12px sans-serif;fill:#222}.frame{fill:none;stroke:#999}"
    ".grid{stroke:#ddd}.lead{stroke:#888;stroke-width:.7}.guard{fill:#1f5fa8}.plain{fill:none;stroke:#b3541e;stroke-width:2}"
)


def agents_picture(results: Mapping[str, Any], *, plain: Collection[str]) -> str:
    """Draw each place; arms that are named in `plain` are no guards of anybody."""
    frames = [
        (f"{TITLES[name]}, {suite}", place)
        for part, suite in SUITES.items()
        for name, place in results.get(part, {}).items()
    ]
    if results.get("proxies"):
        frames.append(("Proxies, errands", results["proxies"]))
    side = SIZE + 2 * EDGE
    width, height = ACROSS * side, -(-len(frames) // ACROSS) * side
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Tasks done without an attack against orders carried out, by guard</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for number, (title, place) in enumerate(frames):
        down, across = divmod(number, ACROSS)
        lines.append(f'<g transform="translate({EDGE + across * side} {EDGE + down * side})">')
        lines += _frame(title)
        lines += _points(place, plain)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def _frame(title: str) -> Iterator[str]:
    for percent in (0, 25, 50, 75, 100):
        at = SIZE * percent / 100
        yield f'<line class="grid" x1="{at:g}" x2="{at:g}" y1="0" y2="{SIZE}"/>'
        yield f'<line class="grid" y1="{at:g}" y2="{at:g}" x1="0" x2="{SIZE}"/>'
        yield f'<text x="{at:g}" y="{SIZE + 16}" text-anchor="middle">{percent} %</text>'
        yield f'<text x="-6" y="{SIZE - at + 4:g}" text-anchor="end">{percent} %</text>'
    yield f'<rect class="frame" width="{SIZE}" height="{SIZE}"/>'
    yield f'<text x="0" y="-16" font-weight="bold">{title}: best is down on the right</text>'
    yield f'<text x="{SIZE}" y="{SIZE + 34}" text-anchor="end">tasks done without an attack</text>'
    yield f'<text transform="rotate(-90)" x="{-SIZE}" y="-48">orders carried out</text>'


def _points(place: Mapping[str, Any], plain: Collection[str]) -> Iterator[str]:
    """Draw a point for all arms of one kind that have the same two rates."""
    found = defaultdict(list)
    for arm in place["arms"]:
        rates = [
            arm[key]["successes"] / arm[key]["trials"] for key in ("utility", "attack_success")
        ]
        found[(-rates[1], rates[0], arm["name"] in plain)].append(arm["name"])
    # A label keeps clear of every point, as of the labels before it.
    taken = [
        (SIZE * utility - CLEAR, SIZE * utility + CLEAR, SIZE * (1 + success) + BELOW)
        for success, utility, _ in found
    ]
    for (success, utility, is_plain), names in sorted(found.items()):
        x, y, kind = SIZE * utility, SIZE * (1 + success), "plain" if is_plain else "guard"
        label = ", ".join(names) if len(names) <= FEW else f"{len(names)} guards"
        wide = WIDE * len(label)
        start = x - 9 - wide if utility > 0.5 else x + 9
        step = -1.0 if y > SIZE - HIGH else 1.0  # below the lowest stand the numbers of the frame
        line = _free(taken, start, start + wide, y + BELOW * step, step=step)
        taken.append((start, start + wide, line))
        yield f"<g><title>{escape(', '.join(names))}</title>"
        if abs(line - y) > HIGH:  # so far off that nobody sees whose label it is
            edge = start + wide + 2 if start < x else start - 2
            yield (
                f'<line class="lead" x1="{edge:.1f}" x2="{x:.1f}" '
                f'y1="{line - BELOW:.1f}" y2="{y:.1f}"/>'
            )
        yield f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
        at = f'x="{start:.1f}" y="{line:.1f}" textLength="{wide:g}"'
        yield f"<text {at}>{escape(label)}</text></g>"


def _free(
    taken: Collection[tuple[float, float, float]],
    start: float,
    end: float,
    line: float,
    *,
    step: float,
) -> float:
    """Return the next line down, or up, on which a label meets nothing that is taken."""
    while any(a < end and start < b and abs(at - line) < HIGH for a, b, at in taken):
        line += step
    return line
