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
    """

    name: str
    title: str
    about: str
    commands: tuple[str, ...]
    page: str = "run/report.html"
    config: str = ""
    codes: tuple[int, ...] = (0,)


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
            done = subprocess.run(
                [sys.executable, "-m", "guardmark", *words.split()],
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


_STUDY = """
## Guards that people use

Guards from package registries, measured on the same data:
[the field study](../field-study/README.md), and
[a board of their cards](guards/index.html).

```sh
guardmark board docs/field-study/cards -o board
```
"""


def index() -> str:
    """Return the page that leads to all of them."""
    head = (
        "# Gallery\n\nReal reports, made by `make gallery` from the examples of the repository, "
        "each with the commands that made it; `RUN` is a folder of your choice.\n"
    )
    parts = [head]
    for entry in ENTRIES:
        links = [f"[the report]({entry.name}/{entry.page})"]
        if entry.config:
            links.append(f"[its configuration]({entry.name}/bench.yaml)")
        shown = "\n".join(f"guardmark {command}" for command in entry.commands)
        parts.append(
            f"\n## {entry.title}\n\n{entry.about} See {', '.join(links)}.\n\n```sh\n{shown}\n```\n"
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
    (home / "index.md").write_text(index(), encoding="utf-8")


if __name__ == "__main__":
    main()
