"""The machine and the versions a run was made with."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
from importlib.metadata import PackageNotFoundError, distribution, requires, version

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
