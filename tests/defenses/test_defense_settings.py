"""Settings of the local defenses, built as a configuration builds them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from guardmark.app.registry import settings_model
from guardmark.config.settings import BuildContext
from guardmark.core.errors import BadSettings, ConfigError, DatasetError, UnknownName
from guardmark.core.outcome import Outcome
from guardmark.core.protocols import Guard
from guardmark.core.sample import Prompt
from guardmark.defenses.guard import as_guard, inline_call


def _context(folder: Path, defenses: dict[str, object] | None = None) -> BuildContext:
    return BuildContext(folder=folder, seed=7, services=None, defenses=defenses or {})


def _build(
    folder: Path, part_type: str, defenses: dict[str, object] | None = None, **said: object
) -> Guard:
    settings = settings_model("defense", part_type).model_validate(said)
    built = settings.build("it", _context(folder, defenses))  # type: ignore[attr-defined]
    return as_guard(built)


def _blocks(guard: Guard, text: str) -> bool:
    return inline_call(guard)(Prompt.of_text(text)).outcome is Outcome.BLOCK


def test_every_local_type_is_built_with_its_name(tmp_path: Path) -> None:
    """The name of the configuration is the name in records."""
    for part_type in ("allow-all", "block-all", "coin", "ngram"):
        assert _build(tmp_path, part_type).name == "it"
    assert _build(tmp_path, "pattern", builtin=True).name == "it"


def test_patterns_come_from_a_list_a_mapping_or_a_file(tmp_path: Path) -> None:
    """All three name their rule, and a file is named for the fingerprint."""
    (tmp_path / "p.txt").write_text("# ours\nevil\\d\n")
    (tmp_path / "k.txt").write_text("sesame\n")
    for patterns in (["evil\\d"], {"evil": "evil\\d"}, "p.txt"):
        assert _blocks(_build(tmp_path, "pattern", patterns=patterns, flags=["I"]), "EVIL1")
    by_file = _build(tmp_path, "pattern", patterns="p.txt", keywords="k.txt")
    assert _blocks(by_file, "open Sesame!")
    assert [p.name for p in by_file.capabilities.files] == ["p.txt", "k.txt"]


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"patterns": []},
        {"patterns": [" "]},
        {"keywords": ""},
        {"patterns": ["x"], "flags": ["Q"]},
    ],
)
def test_a_pattern_defense_that_looks_for_nothing_is_refused(said: dict[str, object]) -> None:
    """An empty pattern would match everything."""
    with pytest.raises(ValidationError):
        settings_model("defense", "pattern").model_validate(said)


def test_a_broken_pattern_names_file_and_line(tmp_path: Path) -> None:
    """The user finds it at once."""
    (tmp_path / "p.txt").write_text("fine\n(\n")
    with pytest.raises(ConfigError, match=r"p\.txt:2:1: '\(' is not a regular"):
        _build(tmp_path, "pattern", patterns="p.txt")


def test_a_python_target_is_built_with_threshold_and_file(tmp_path: Path) -> None:
    """The file goes into the fingerprint."""
    (tmp_path / "guard.py").write_text("def risk(t):\n    return len(t) / 10\n")
    built = _build(tmp_path, "python", target="guard.py:risk", threshold=0.5)
    assert _blocks(built, "12345")
    assert not _blocks(built, "1234")
    assert [p.name for p in built.capabilities.files] == ["guard.py"]


def test_a_target_that_takes_two_arguments_is_a_configuration_error(tmp_path: Path) -> None:
    """Before anything is run."""
    (tmp_path / "two.py").write_text("def f(a, b):\n    return True\n")
    with pytest.raises(ConfigError, match="one argument"):
        _build(tmp_path, "python", target="two.py:f")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("guard", "names no function: write module:name or file.py:name"),
        ("guard.py:check", "guard.py does not exist"),
    ],
)
def test_a_target_for_another_interpreter_is_looked_at_before_it_is_started(
    tmp_path: Path, target: str, said: str
) -> None:
    """The mistake stands at the setting, and no process has to fail first."""
    with pytest.raises(BadSettings, match=said) as caught:
        _build(tmp_path, "python", target=target, interpreter=sys.executable)
    assert [where for where, _ in caught.value.mistakes] == [("target",)]


def test_a_chain_is_in_line_when_its_members_are(tmp_path: Path) -> None:
    """And waits when one of them must."""
    block, allow = _build(tmp_path, "block-all"), _build(tmp_path, "allow-all")
    members: dict[str, object] = {"b": block, "a": allow}
    assert _blocks(_build(tmp_path, "chain", members, of=["a", "b"]), "x")
    assert not _blocks(_build(tmp_path, "chain", members, of=["a", "b"], rule="all"), "x")
    (tmp_path / "slow.py").write_text("async def f(t):\n    return True\n")
    python = settings_model("defense", "python").model_validate({"target": "slow.py:f"})
    members["s"] = python.build("s", _context(tmp_path))  # type: ignore[attr-defined]
    chain = settings_model("defense", "chain").model_validate({"of": ["a", "s"]})
    assert isinstance(chain.build("it", _context(tmp_path, members)), Guard)  # type: ignore[attr-defined]


def test_a_chain_of_unknown_members_is_refused(tmp_path: Path) -> None:
    """With a hint."""
    members: dict[str, object] = {"words": _build(tmp_path, "allow-all")}
    with pytest.raises(UnknownName, match="Did you mean 'words'"):
        _build(tmp_path, "chain", members, of=["wrods"])


def test_decisions_are_read_when_built(tmp_path: Path) -> None:
    """A bad row stops before anything is run."""
    (tmp_path / "d.csv").write_text("case,said\na,perhaps\n")
    said = {"path": "d.csv", "map": {"id": "case", "decision": "said"}}
    assert _build(tmp_path, "decisions", values={"perhaps": "block"}, **said).name == "it"
    with pytest.raises(DatasetError, match=r"d\.csv:2: decision"):
        _build(tmp_path, "decisions", **said)


def test_other_rules_or_another_source_are_another_defense(tmp_path: Path) -> None:
    """The fingerprint of a run covers what a defense is made of, built in or not."""
    from guardmark.config.settings import BuildContext
    from guardmark.defenses.function import PythonSettings
    from guardmark.defenses.pattern import PatternSettings

    (tmp_path / "own_guard.py").write_text("def check(text):\n    return False\n")
    context = BuildContext(folder=tmp_path, seed=1, services=None, defenses={})
    builtin = PatternSettings(builtin=True).build("p", context)
    function = PythonSettings(target="own_guard:check").build("f", context)
    assert [path.name for path in builtin.capabilities.files] == ["rules.toml"]
    assert [path.name for path in function.capabilities.files] == ["own_guard.py"]
