"""Draw the pictures of the README from real runs: a terminal and the first screen of a report.

    python scripts/draw_readme.py

The terminal shows what `guardmark demo` prints, line by line, without the hash of that one run. The
screenshot needs Chromium and playwright; without them the picture there is stays.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
COLUMNS = 100
FIRST_SCREEN = {"width": 1280, "height": 800}
DAY = re.compile(r"; \d{1,2} \w+ \d{4}, [\d:]+ UTC")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# As rich's own form, but without fonts from elsewhere: a picture must not call anybody.
FORM = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" role="img" \
aria-label="What guardmark demo prints" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def recorded(folder: Path) -> list[str]:
    """Return what the demonstration prints, in lines."""
    done = subprocess.run(
        [sys.executable, "-m", "guardmark", "demo", "-o", "runs/demo"],
        cwd=folder,
        env={**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith("head ")]
    return [DAY.sub("", line).replace(f"{folder}/", "") for line in lines]


def terminal(lines: list[str]) -> str:
    """Draw lines as a terminal."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), highlight=False)
    console.print(Text("$ guardmark demo", style="bold green"))
    for line in lines:
        console.print(Text(line, style="bold" if line and not line.startswith(" ") else ""))
    return console.export_svg(title="guardmark demo", code_format=FORM, unique_id="demo")


def first_screen(report: Path, picture: Path) -> bool:
    """Take a picture of what a reader sees first, if there is a browser."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return False
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # A container's root may not use Chromium's sandbox; the page is our own.
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page(viewport=FIRST_SCREEN)
        page.goto(report.as_uri())
        page.screenshot(path=picture)
        opened.close()
    return True


def main() -> None:
    """Run the demonstration and draw both pictures."""
    with TemporaryDirectory() as folder:
        lines = recorded(Path(folder))
        (IMAGES / "demo.svg").write_text(terminal(lines), encoding="utf-8")
        drawn = first_screen(Path(folder) / "runs" / "demo" / "report.html", IMAGES / "report.png")
    print("drawn: demo.svg" + (", report.png" if drawn else "; no browser for report.png"))


if __name__ == "__main__":
    main()
