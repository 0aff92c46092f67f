"""What is released: the same bytes each time, and a tool that runs where there is no checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from guardmark.core.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
EPOCH = "1767225600"
MOST_BYTES = 3_000_000
"""Of the wheel; what it needs besides numpy is nine more, and 20 in all is the limit."""


def _build(source: Path, folder: Path, *kinds: str) -> dict[str, Path]:
    """Build from a folder, and return the files by how their names end."""
    words = [word for kind in kinds for word in ("-t", kind)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *words],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        check=True,
        capture_output=True,
    )
    return {path.suffix: path for path in folder.iterdir()}


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheel and source distribution of this checkout."""
    return _build(ROOT, tmp_path_factory.mktemp("dist"), "sdist", "wheel")


@pytest.mark.slow
def test_the_same_source_gives_the_same_bytes(built: dict[str, Path], tmp_path: Path) -> None:
    """Built again, and the wheel once more from the source distribution alone."""
    again = _build(ROOT, tmp_path / "again", "sdist", "wheel")
    assert {kind: _digest(path) for kind, path in again.items()} == {
        kind: _digest(path) for kind, path in built.items()
    }
    with tarfile.open(built[".gz"]) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    assert _digest(_build(source, tmp_path / "third", "wheel")[".whl"]) == _digest(built[".whl"])


@pytest.mark.slow
def test_the_wheel_measures_outside_of_a_checkout(built: dict[str, Path], tmp_path: Path) -> None:
    """Unpacked elsewhere, with the data, profiles and weights that it carries."""
    assert built[".whl"].stat().st_size < MOST_BYTES
    with ZipFile(built[".whl"]) as wheel:
        wheel.extractall(tmp_path / "installed")  # noqa: S202 - built a moment ago
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run(
        [sys.executable, "-c", "import guardmark; print(guardmark.__file__)"],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(tmp_path / "installed")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert Path(told.stdout.strip()).is_relative_to(tmp_path / "installed")
    for words in (["doctor"], ["demo", "-o", "run"], ["verify", "run"], ["plugins", "--profiles"]):
        done = subprocess.run(
            [sys.executable, "-m", "guardmark", *words],
            cwd=tmp_path,
            env={**kept, "PYTHONPATH": str(tmp_path / "installed")},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (words, done.stderr)
    assert (tmp_path / "run" / "report.html").exists()


def test_the_citation_names_this_version() -> None:
    """Whoever cites it cites what was measured with."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == VERSION


def test_the_container_runs_as_nobody_and_says_whether_it_is_well() -> None:
    """No root, no writing beside its work, no shell in what is started."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["65532:65532"]
    assert lines.index("USER 65532:65532") > max(
        at for at, line in enumerate(lines) if line.startswith(("FROM", "COPY", "RUN"))
    )
    assert any('CMD ["guardmark", "doctor"]' in line for line in lines)
    assert 'ENTRYPOINT ["guardmark"]' in lines


def test_every_action_of_a_workflow_is_pinned() -> None:
    """A tag can be moved to other code; a hash cannot. Permissions are given by job."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        used = re.findall(r"uses: (\S+)", text)
        assert used
        assert [each for each in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each)] == []
        assert yaml.safe_load(text)["permissions"] == {}


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")))
def test_a_form_for_an_issue_has_what_the_forge_wants(path: Path) -> None:
    """A name, a description, and fields with identifiers of their own."""
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(form)
    names = [each["id"] for each in form["body"] if each["type"] != "markdown"]
    assert len(names) == len(set(names)) > 0


def test_the_action_installs_what_was_tested() -> None:
    """The version of this checkout, and what it needs as it was locked."""
    folder = ROOT / "examples" / "ci" / "github"
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert action["inputs"]["package"]["default"] == f"guardmark=={VERSION}"
    lock = (ROOT / "requirements" / "run.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([A-Za-z0-9_.-]+==[^ ;\\]+)", lock, re.MULTILINE))
    constraints = (folder / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert {line.partition(" ;")[0] for line in constraints} == locked


def test_the_image_is_built_on_one_version_of_python() -> None:
    """And from what was locked, with hashes."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    bases = {line.split()[1] for line in lines if line.startswith("FROM ")}
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", bases.pop())
    assert any("--require-hashes" in line for line in lines)
