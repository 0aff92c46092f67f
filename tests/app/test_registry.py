"""Every type of a part says what it is, where a person lists the types."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.journeys.command_line import Done, guardmark

from guardmark.app.registry import builtin_parts, settings_model

if TYPE_CHECKING:
    from pathlib import Path

TYPES = [(kind, name) for kind, types in builtin_parts().items() for name in types]


@pytest.mark.parametrize(("kind", "name"), TYPES)
def test_a_type_says_what_it_is_in_a_sentence(kind: str, name: str) -> None:
    """The first line of its settings is what `guardmark plugins` prints."""
    sentence = (settings_model(kind, name).__doc__ or "").partition("\n")[0]
    assert sentence.endswith(".")
    assert 10 < len(sentence) < 100


def plugins(folder: Path, *, package: str, defense: str) -> Done:
    """List the types where another package says that it brings one."""
    facts = folder / "site" / f"{package}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", "utf-8"
    )
    (facts / "entry_points.txt").write_text(f"[guardmark.defenses]\n{defense}\n", "utf-8")
    paths = os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])
    return guardmark("plugins", cwd=folder, env={"PYTHONPATH": paths})


def test_the_list_tells_types_of_other_packages_and_what_is_wrong_with_one(tmp_path: Path) -> None:
    """A package that cannot be imported does not hide the others."""
    done = plugins(tmp_path, package="broken", defense="bent = no_such:Thing")
    assert done.code == 0
    assert "  http         Asks a service over HTTP." in done.out
    assert (
        "  bent         The defense type 'bent' cannot be loaded from no_such:Thing: " in done.out
    )


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(3)", "it ends the process while it is imported (sys.exit)"),
        ("import time; time.sleep(60)", "no answer within 5 s"),
        ("raise MemoryError", "MemoryError"),
    ],
    ids=["exits", "sleeps", "memory"],
)
@pytest.mark.slow
def test_a_package_that_ends_or_holds_up_its_import_is_named(
    tmp_path: Path, code: str, reason: str
) -> None:
    """The others are listed, and the list is there within seconds."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "odd_part.py").write_text(code, "utf-8")
    done = plugins(tmp_path, package="odd", defense="odd = odd_part:Thing")
    assert done.code == 0
    assert f"The defense type 'odd' cannot be loaded from odd_part:Thing: {reason}" in done.out
    assert "repair or uninstall odd 1.0." in done.out
    assert "  http         Asks a service over HTTP." in done.out


def test_two_packages_that_provide_one_type_are_both_named(tmp_path: Path) -> None:
    """Which of them measures would depend on the order of folders, so neither does."""
    done = plugins(tmp_path, package="taker", defense="http = taker:Http")
    assert done.code == 0
    ours = builtin_parts()["defense"]["http"]
    owners = f"guardmark ({ours}) and taker 1.0 (taker:Http)"
    assert f"Two packages provide a defense type called 'http': {owners}." in done.out
    assert "  keyword" in done.out or "  pattern" in done.out
    config = "version: 1\ndata: [{builtin: tutor}]\ndefenses: {a: {type: http, url: 'http://x'}}\n"
    (tmp_path / "bench.yaml").write_text(config, "utf-8")
    paths = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    refused = guardmark("check", "bench.yaml", cwd=tmp_path, env={"PYTHONPATH": paths})
    assert refused.code == 2
    assert owners in refused.err
    assert "Next: uninstall one of them." in refused.err
