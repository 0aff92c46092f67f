"""The machine and the versions a run was made with."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import requires
from re import match

from guardmark.app.doctor import installed_version

_OPTIONAL = ("onnxruntime", "pyarrow", "torch", "transformers", "uvloop")


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
    stated = [match(r"[A-Za-z0-9_.-]+", line) for line in requires("guardmark") or ()]
    return sorted({*(found.group().lower() for found in stated if found), *_OPTIONAL})
