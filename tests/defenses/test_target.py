"""Targets: where a function is looked for, and what is said when it is not there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from guardmark.core.errors import ConfigError
from guardmark.defenses.function import load_target


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of a configuration; the import state is put back afterwards."""
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_a_file_beside_the_configuration_is_found(folder: Path) -> None:
    """By file, and by module name."""
    (folder / "my_guard_one.py").write_text("def check(t):\n    return 'x' in t\n")
    by_file = load_target("my_guard_one.py:check", folder=folder)
    by_name = load_target("my_guard_one:check", folder=folder)
    assert by_file("x") is by_name("x") is True
    assert load_target("my_guard_one.py:check", folder=folder) is by_file


def test_a_dotted_name_reaches_into_a_class(folder: Path) -> None:
    """Static methods serve too."""
    (folder / "g.py").write_text(
        "class Guard:\n    @staticmethod\n    def check(t):\n        return True\n"
    )
    assert load_target("g.py:Guard.check", folder=folder)("x") is True


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("no_such_module_at_all:f", "No module is called"),
        ("nofile.py:f", "does not exist"),
        ("broken.py:f", "raised ZeroDivisionError"),
        ("halved.py:f", "raised SyntaxError"),
        ("needs.py:f", "raised ModuleNotFoundError"),
        ("divides_by_zero:f", "divides_by_zero raised ZeroDivisionError while it was imported"),
        ("fine.py:chek", "Did you mean 'check'"),
        ("fine.py:number", "not a function"),
        ("fine.py", "names no function"),
        (":check", "names no function"),
    ],
)
def test_what_cannot_be_loaded_is_named(folder: Path, target: str, said: str) -> None:
    """With the next step, and in at most five lines."""
    for name in ("broken", "divides_by_zero"):
        (folder / f"{name}.py").write_text("1 / 0\n")
    (folder / "halved.py").write_text("def f(:\n")
    (folder / "needs.py").write_text("import no_such_module_at_all\n")
    (folder / "fine.py").write_text("number = 4\ndef check(t):\n    return True\n")
    with pytest.raises(ConfigError, match=said) as raised:
        load_target(target, folder=folder)
    assert len(str(raised.value).splitlines()) <= 5


def test_a_missing_import_inside_a_module_is_not_the_module_missing(folder: Path) -> None:
    """The message names what is really absent."""
    (folder / "outer_mod_x.py").write_text("import inner_mod_absent\n")
    with pytest.raises(ConfigError, match="inner_mod_absent"):
        load_target("outer_mod_x:f", folder=folder)
