"""Build real reports for the site, each with its configuration and the command that made it.

    python scripts/build_gallery.py [FOLDER]

Everything runs offline, from examples of this repository, in some minutes. FOLDER (default:
build/site/gallery) gets a folder for each entry and an index in Markdown; the site ships what lies
there. A field study that was carried out (`examples/field-study`) is not measured again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
SERVICE = "http://127.0.0.1:8900/"
_PATIENCE_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One report of the gallery.

    Attributes:
        name: Its folder.
        title: What the index calls it.
        about: What is to be seen in it.
        commands: What made it, in words after `guardmark`; RUN stands for its folder.
        page: The page to show, below that folder.
        config: The configuration, below the repository; empty for none.
        codes: Exit codes that are fine: a gate that fails is the point of its entry.
        served_by: Script that serves what is measured while a command behind it runs; empty for
            none.
    """

    name: str
    title: str
    about: str
    commands: tuple[str, ...]
    page: str = "run/report.html"
    config: str = ""
    codes: tuple[int, ...] = (0,)
    served_by: str = ""


ENTRIES = (
    Entry(
        name="demo",
        title="The demonstration",
        about="Five defenses of which none is good enough, on the built-in data.",
        commands=("demo -o RUN/run",),
    ),
    Entry(
        name="good-and-bad",
        title="A good and a bad guard",
        about="One list of patterns as it was written, and after a careless change.",
        commands=("run examples/good-and-bad.yaml -o RUN/run",),
        config="examples/good-and-bad.yaml",
    ),
    Entry(
        name="http",
        title="A guard behind HTTP",
        about="The example service on the loopback interface, with scores, thresholds and latency.",
        commands=("run examples/http.yaml -o RUN/run",),
        config="examples/http.yaml",
    ),
    Entry(
        name="tutor",
        title="A tutor: guard, model and judge",
        about="What comes out of the whole pipeline, with and without a guard.",
        commands=("run examples/tutor.yaml -o RUN/run",),
        config="examples/tutor.yaml",
    ),
    Entry(
        name="gateway",
        title="A guard before a model and one behind it",
        about="What each stops, what both together leave, and where attacks end.",
        commands=("run examples/gateway/bench.yaml -o RUN/run",),
        config="examples/gateway/bench.yaml",
        served_by="examples/gateway/serve.py",
    ),
    Entry(
        name="agents",
        title="Guards of an agent's tools",
        about="What attackers get done, what the user gets done, and three cases told as stories.",
        commands=("run examples/agents/bench.yaml -o RUN/run",),
        config="examples/agents/bench.yaml",
    ),
    Entry(
        name="adaptive",
        title="Attacks that adapt",
        about="The good and the bad guard again, attacked by somebody who watches the answers.",
        commands=(
            "run examples/good-and-bad.yaml -o RUN/run",
            "adapt RUN/run --config examples/good-and-bad.yaml --budget quick",
        ),
        config="examples/good-and-bad.yaml",
    ),
    Entry(
        name="gate",
        title="A gate in CI that fails",
        about="A careless change to a pattern file: the limits stand on the first screen.",
        commands=("run examples/ci/worse.yaml -o RUN/run",),
        config="examples/ci/worse.yaml",
        codes=(1,),
    ),
    Entry(
        name="comparison",
        title="Two versions compared",
        about="The release that is out and the next one, on the same samples.",
        commands=(
            "run examples/ci/bench.yaml -o RUN/released",
            "run examples/ci/worse.yaml -o RUN/next",
            "compare RUN/released RUN/next --markdown > RUN/comparison.md",
        ),
        page="comparison.md",
        config="examples/ci/worse.yaml",
        codes=(0, 1),
    ),
)
KEPT = ("report.html", "summary.json", "comparison.md")
"""What of a run is shipped."""


@contextmanager
def example_service() -> Iterator[None]:
    """Run the example service while its report is made."""
    with subprocess.Popen([sys.executable, str(ROOT / "examples" / "service.py")]) as service:
        try:
            until = time.monotonic() + _PATIENCE_S
            while not _answers() and time.monotonic() < until:
                time.sleep(0.1)
            yield
        finally:
            service.terminate()


def _answers() -> bool:
    try:
        urlopen(SERVICE, timeout=1).close()
    except URLError as error:
        return not isinstance(error.reason, OSError)
    return True


def make(entry: Entry, home: Path) -> None:
    """Measure, and keep what a reader opens."""
    folder = home / entry.name
    with TemporaryDirectory() as work:
        run = Path(work) / entry.name
        run.mkdir()
        for command in entry.commands:
            words, _, output = command.replace("RUN", str(run)).partition(" > ")
            server = [sys.executable, str(ROOT / entry.served_by)] if entry.served_by else []
            done = subprocess.run(
                [*server, sys.executable, "-m", "guardmark", *words.split()],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                check=False,
                capture_output=True,
                text=True,
            )
            if done.returncode not in entry.codes:
                sys.exit(f"{entry.name}: guardmark {command} ended with {done.stderr}{done.stdout}")
            if output:
                Path(output).write_text(done.stdout, encoding="utf-8")
        for path in sorted(path for path in run.rglob("*") if path.name in KEPT):
            kept = folder / path.relative_to(run)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, kept)
    if entry.config:
        shutil.copyfile(ROOT / entry.config, folder / "bench.yaml")
    print(f"made: {entry.name}")


_SIGHTS = {
    "screen": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}},
    "paper": {"viewport": {"width": 794, "height": 1123}},
}
"""How a report is looked at: on a screen, on a phone, on paper."""
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def draw(home: Path) -> None:
    """Take pictures of the first screen of each report; without a browser there are none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("no playwright: the gallery has no pictures")
        return
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        print("no Chromium: the gallery has no pictures")
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for entry in ENTRIES:
            report = home / entry.name / entry.page
            if report.suffix != ".html":
                continue
            for name, sight in _SIGHTS.items():
                context = browser.new_context(**sight)
                page = context.new_page()
                page.emulate_media(media="print" if name == "paper" else "screen")
                page.goto(report.as_uri())
                page.screenshot(path=report.parent.parent / f"{name}.png")
                context.close()
        browser.close()


_COUNTS = (1, 2, 6, 30)
_WIDTHS = (80, 100, 160)


def capture_terminals(home: Path) -> None:
    """Show what a terminal prints of one, two, six and thirty defenses at three widths."""
    sys.path.insert(0, str(ROOT / "src"))
    from guardmark.app.results.reporting import report
    from guardmark.reports.render.terminal import render_terminal

    head = (
        "# In the terminal\n\nWhat `guardmark run` prints for one, two, six and thirty defenses, "
        "in terminals of 80, 100 and 160 columns.\n"
    )
    parts = [head]
    words = ("ignore", "system prompt", "pretend", "secret", "rules", "please")
    for count in _COUNTS:
        with TemporaryDirectory() as work:
            lines = []
            for number in range(count):
                listed = ", ".join(words[: 1 + number % len(words)])
                lines.append(f"  guard-{number}: {{type: pattern, keywords: [{listed}]}}")
            config = Path(work) / "bench.yaml"
            config.write_text(
                "version: 1\ndata: [{builtin: core@2}]\ndefenses:\n" + "\n".join(lines) + "\n",
                encoding="utf-8",
            )
            command = ["run", str(config), "-q", "-o", f"{work}/run"]
            subprocess.run(
                [sys.executable, "-m", "guardmark", *command],
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                check=True,
                capture_output=True,
            )
            document = report(Path(work) / "run", formats=("json",)).document
        for width in _WIDTHS:
            text = render_terminal(document, width=width).replace(f"{work}/run", "RUN")
            parts.append(f"\n## {count} at {width} columns\n\n```text\n{text}```\n")
    (home / "terminals.md").write_text("".join(parts), encoding="utf-8")
    print("made: terminals")


_STUDY = """
## Guards that people use

Guards from package registries, measured on the same data:
[the field study](../field-study/README.md), and
[a board of their cards](guards/index.html).

```sh
guardmark board docs/field-study/cards -o board
```
"""


def index(home: Path) -> str:
    """Return the page that leads to all of them, with a picture of each where there is one."""
    head = (
        "# Gallery\n\nReal reports, made by `make gallery` from the examples of the repository, "
        "each with the commands that made it; `RUN` is a folder of your choice. What a terminal "
        "prints stands [on a page of its own](terminals.md).\n"
    )
    parts = [head]
    for entry in ENTRIES:
        links = [f"[the report]({entry.name}/{entry.page})"]
        if entry.config:
            links.append(f"[its configuration]({entry.name}/bench.yaml)")
        server = f"python {entry.served_by} " if entry.served_by else ""
        shown = "\n".join(f"{server}guardmark {command}" for command in entry.commands)
        drawn = home / entry.name / "screen.png"
        if drawn.exists():
            links.append(f"[on a phone]({entry.name}/phone.png)")
            links.append(f"[on paper]({entry.name}/paper.png)")
            picture = f"\n[![{entry.title}]({entry.name}/screen.png)]({entry.name}/{entry.page})\n"
        else:
            picture = ""
        parts.append(
            f"\n## {entry.title}\n\n{entry.about} See {', '.join(links)}.\n{picture}\n"
            f"```sh\n{shown}\n```\n"
        )
    return "".join([*parts, _STUDY])


def main() -> None:
    """Make every entry and the index."""
    home = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site" / "gallery").resolve()
    shutil.rmtree(home, ignore_errors=True)
    for entry in ENTRIES:
        if entry.name == "http":
            with example_service():
                make(entry, home)
        else:
            make(entry, home)
    board = ["board", str(ROOT / "docs" / "field-study" / "cards"), "-o", str(home / "guards")]
    subprocess.run(
        [sys.executable, "-m", "guardmark", *board],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=True,
    )
    draw(home)
    capture_terminals(home)
    (home / "index.md").write_text(index(home), encoding="utf-8")


if __name__ == "__main__":
    main()
