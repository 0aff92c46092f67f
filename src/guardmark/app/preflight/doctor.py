"""What this installation can do: extras, browser, disk."""

from __future__ import annotations

import platform
import shutil
import sqlite3
import sys
from dataclasses import asdict, dataclass

from guardmark.app.run.description import installed_version

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
