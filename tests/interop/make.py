"""Run the tools that importers read, each in an environment of its own, and keep their files.

    python -m tests.interop.make ENVIRONMENTS [TOOL ...]

ENVIRONMENTS is a folder with one virtual environment a tool, `TOOL/bin/python`, or for promptfoo
`TOOL/node_modules`; `make interop` builds them. Files land in `tests/interop/files/TOOL`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.interop.endpoint import start

HERE = Path(__file__).resolve().parent
TOOLS = sorted(path.stem for path in (HERE / "tools").glob("*.py"))


def make(tool: str, environments: Path, url: str) -> None:
    """Run one tool and replace its files by what it wrote."""
    python = environments / tool / "bin" / "python"
    with TemporaryDirectory() as home:
        made = Path(home) / "made"
        made.mkdir()
        said = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "sk-loopback", "HOME": home}
        subprocess.run(
            [
                python if python.exists() else sys.executable,
                "-P",  # or a script named as its library would be found in its place
                HERE / "tools" / f"{tool}.py",
                HERE / "texts.json",
                made,
                environments / tool,
            ],
            check=True,
            env=os.environ | said,
            cwd=home,
        )
        target = HERE / "files" / tool
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)


def main() -> None:
    """Make the files of the tools named, or of all."""
    environments, *named = sys.argv[1:]
    server = start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    for tool in named or TOOLS:
        make(tool, Path(environments).resolve(), url)
        names = sorted(path.name for path in (HERE / "files" / tool).iterdir())
        sys.stdout.write(f"{tool}: {', '.join(names)}\n")
    server.shutdown()


if __name__ == "__main__":
    main()
