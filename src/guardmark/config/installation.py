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
    """One thing that was looked at.

    Attributes:
        subject: What was looked at.
        detail: What was found, or what to do.
        is_fine: Whether it is as it should be; None where that cannot be told.
        is_needed: Whether nothing works without it.
    """

    subject: str
    detail: str
    _: KW_ONLY
    is_fine: bool | None = None
    is_needed: bool = False


def examine_installation() -> list[Check]:
    """Look at everything a measurement may need."""
    free = shutil.disk_usage(".").free
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    space = f"{free / 1e9:.1f} GB free in the current folder"
    checks = [
        Check("guardmark", installed_version("guardmark") or "", is_fine=True),
        Check("Python", python, is_fine=sys.version_info >= (3, 11)),
        Check("SQLite", sqlite3.sqlite_version, is_fine=True),
        Check("disk", space, is_fine=free > _LEAST_FREE_BYTES),
    ]
    extras = tomllib.loads(Path(__file__).with_name("extras.toml").read_text(encoding="utf-8"))
    for name, extra in extras.items():
        checks.append(_check_extra(name, **extra))
    return checks


def _check_extra(name: str, packages: list[str], purpose: str) -> Check:
    """Look for the packages of an extra."""
    subject = f"extra [{name}]"
    versions = []
    for package in packages:
        installed = installed_version(package)
        if installed is None:
            what_to_do = f"for {purpose}: pip install 'guardmark[{name}]'"
            return Check(subject, what_to_do, is_fine=False)
        versions.append(f"{package} {installed}")
    return Check(subject, ", ".join(versions), is_fine=True)


_OPTIONAL = ("onnxruntime", "pyarrow", "torch", "transformers", "uvloop")


def installed_version(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        # The version stands near the top; parsing many kilobytes of metadata takes its time.
        head = (distribution(name).read_text("METADATA") or "").partition("\n\n")[0]
    except PackageNotFoundError:
        return None
    stated = re.search(r"^Version: (\S+)", head, re.MULTILINE)
    if stated is None:
        return version(name)
    return stated.group(1)


def describe_environment() -> dict[str, object]:
    """Return what may move a figure beside configuration and data."""
    names = set(_OPTIONAL)
    for requirement in requires("guardmark") or ():
        name = re.match(r"[A-Za-z0-9_.-]+", requirement)
        if name is not None:
            names.add(name.group().lower())
    libraries = {}
    for library in sorted(names):
        stated = installed_version(library)
        if stated:
            libraries[library] = stated
    return {
        "guardmark": installed_version("guardmark"),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "libraries": libraries,
    }
