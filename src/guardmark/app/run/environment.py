"""What this installation is and can do: versions, extras, disk."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distribution, requires, version

_EXTRAS = {
    "hf": (("torch", "transformers"), "local guard models and classifiers"),
    "parquet": (("pyarrow",), "Parquet files"),
    "uvloop": (("uvloop",), "a faster event loop"),
    "view": (("starlette", "uvicorn"), "pages over many runs"),
}
_LEAST_FREE_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationCheck:
    """One thing that was looked at."""

    subject: str
    is_fine: bool
    detail: str

    def as_json(self) -> dict[str, object]:
        """Return the finding as JSON values."""
        return asdict(self)


def examine() -> list[InstallationCheck]:
    """Look at everything a measurement may need."""
    free = shutil.disk_usage(".").free
    findings = [
        InstallationCheck(
            subject="guardmark", is_fine=True, detail=installed_version("guardmark") or ""
        ),
        InstallationCheck(
            subject="Python",
            is_fine=sys.version_info >= (3, 11),
            detail=f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        ),
        InstallationCheck(subject="SQLite", is_fine=True, detail=sqlite3.sqlite_version),
        InstallationCheck(
            subject="disk",
            is_fine=free > _LEAST_FREE_BYTES,
            detail=f"{free / 1e9:.1f} GB free in the current folder",
        ),
    ]
    findings.extend(_extra(name, *needs) for name, needs in _EXTRAS.items())
    return findings


def _extra(name: str, packages: tuple[str, ...], purpose: str) -> InstallationCheck:
    versions = {package: installed_version(package) for package in packages}
    missing = [package for package, found in versions.items() if found is None]
    if missing:
        detail = f"for {purpose}: pip install 'guardmark[{name}]'"
    else:
        detail = ", ".join(f"{package} {found}" for package, found in versions.items())
    return InstallationCheck(subject=f"extra [{name}]", is_fine=not missing, detail=detail)


_OPTIONAL = ("onnxruntime", "pyarrow", "torch", "transformers", "uvloop")


def installed_version(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        # The whole metadata is an e-mail of many kilobytes; the version stands near its top,
        # and parsing twenty of them whole would cost more than a small run.
        head = (distribution(name).read_text("METADATA") or "").partition("\n\n")[0]
    except PackageNotFoundError:
        return None
    found = re.search(r"^Version: (\S+)", head, re.MULTILINE)
    return found.group(1) if found else version(name)


def describe_environment() -> dict[str, object]:
    """Return what may move a figure beside configuration and data."""
    return {
        "guardmark": installed_version("guardmark"),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "libraries": {
            name: version for name in _libraries() if (version := installed_version(name))
        },
    }


def _libraries() -> list[str]:
    """Names of the distributions guardmark depends on, and of the optional ones it knows."""
    stated = [re.match(r"[A-Za-z0-9_.-]+", line) for line in requires("guardmark") or ()]
    return sorted({*(found.group().lower() for found in stated if found), *_OPTIONAL})
