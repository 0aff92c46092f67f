"""What is installed here: Python, packages and extras, as far as a measurement may need them."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import sys
import tomllib
from dataclasses import KW_ONLY, dataclass
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path

_LEAST_FREE_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; neither fine nor wrong where nobody can tell."""

    subject: str
    detail: str
    _: KW_ONLY
    is_fine: bool | None = None
    is_needed: bool = False  # Nothing works without it.


def examine_installation() -> list[Check]:
    """Look at everything a measurement may need."""
    written = Path(__file__).with_name("extras.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(written)
    free = shutil.disk_usage(".").free
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    rows = [
        ("guardmark", True, installed_version("guardmark") or ""),
        ("Python", sys.version_info >= (3, 11), python),
        ("SQLite", True, sqlite3.sqlite_version),
        ("disk", free > _LEAST_FREE_BYTES, f"{free / 1e9:.1f} GB free in the current folder"),
        *(_extra(name, **each) for name, each in extras.items()),
    ]
    return [Check(subject, detail, is_fine=fine) for subject, fine, detail in rows]


def _extra(name: str, packages: list[str], purpose: str) -> tuple[str, bool, str]:
    versions = {package: installed_version(package) for package in packages}
    detail = ", ".join(f"{package} {version}" for package, version in versions.items())
    if None in versions.values():
        return f"extra [{name}]", False, f"for {purpose}: pip install 'guardmark[{name}]'"
    return f"extra [{name}]", True, detail


_OPTIONAL = ("onnxruntime", "pyarrow", "torch", "transformers", "uvloop")


def installed_version(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        # The version stands near the top; parsing many kilobytes of metadata takes its time.
        head = (distribution(name).read_text("METADATA") or "").partition("\n\n")[0]
    except PackageNotFoundError:
        return None
    stated = re.search(r"^Version: (\S+)", head, re.MULTILINE)
    return stated.group(1) if stated else version(name)


def describe_environment() -> dict[str, object]:
    """Return what may move a figure beside configuration and data."""
    # The distributions guardmark depends on, and the optional ones it knows.
    stated = [re.match(r"[A-Za-z0-9_.-]+", line) for line in requires("guardmark") or ()]
    libraries = sorted({*(name.group().lower() for name in stated if name), *_OPTIONAL})
    return {
        "guardmark": installed_version("guardmark"),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "libraries": {name: version for name in libraries if (version := installed_version(name))},
    }
