"""Answers kept for later runs, when `run.cache` asks for it."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.core.version import VERSION
from guardmark.engine.plan import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.app.parts.building import Parts
    from guardmark.app.parts.loading import LoadedConfig

ANSWERS: Final = Path("runs", "answers.sqlite")
"""Where answers are kept: beside the runs, so that runs of one place share them."""

_KEPT: Final = frozenset({"chat", "guard-model", "http"})
"""Types whose settings name all that an answer depends on: address, model, body, prompts. A
function may depend on anything, so it is always asked."""


@contextmanager
def kept_answers(loaded: LoadedConfig, parts: Parts) -> Iterator[Memory | None]:
    """Open the kept answers for the time of a run."""
    if not loaded.config.run.cache:
        yield None
        return
    from guardmark.store.cache import AnswerCache
    from guardmark.store.run_dir import RunDir

    RunDir(path=ANSWERS.parent).create()
    with AnswerCache(ANSWERS) as cache:
        yield Memory(cache=cache, identities=identities(parts))


def identities(parts: Parts) -> dict[str, str]:
    """Return what identifies each part whose answers may be kept."""
    names = [each.name for each in parts.manifests]
    return {
        each.name: f"{each.kind} {each.type} {each.fingerprint} {each.version} guardmark {VERSION}"
        for each in parts.manifests
        if each.type in _KEPT and names.count(each.name) == 1
    }
