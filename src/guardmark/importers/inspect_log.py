"""Logs of Inspect, `.json` and `.eval`, of log version 2; our own exports among them."""

from __future__ import annotations

import zipfile
from collections import Counter
from hashlib import sha256
from io import BytesIO
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import ConfigError, DatasetError
from guardmark.importers.imported import ImportedRow, ImportedRun
from guardmark.importers.inspect_sample import (
    is_ours,
    read_answer,
    read_rule,
    read_sample,
    scorers_of,
)
from guardmark.importers.reading import Object, bytes_of, inner, left_out, object_of, word
from guardmark.importers.zipped import read_member

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guardmark.core.sample import Sample
    from guardmark.importers.imported import ImportedAnswer, Statements

_VERSION: Final = 2
_HINT: Final = "Name a log, a file that ends in .eval or .json."
_ZIP: Final = b"PK\x03\x04"
_HEADERS: Final = ("header.json", "_journal/start.json", "start.json")


def read_inspect(path: Path, said: Statements) -> ImportedRun:
    """Read a log: every sample with its epochs as repeats.

    In a log that `guardmark export --to inspect` wrote, the model is a defense and its answer a
    decision. In any other the model is a target model. What its scores mean is for the
    evaluation to know, so there are verdicts only where `unsafe` says which score means harm.
    """
    data = bytes_of(path, hint=_HINT)
    header, listed = _log(data, path)
    if header.get("version") != _VERSION:
        raise DatasetError(
            f"{path} is no log of Inspect of version {_VERSION} (it says "
            f"{header.get('version')!r}).\nNext: bring it up with `inspect log convert`."
        )
    spec, ours = inner(header, "eval"), is_ours(inner(header, "eval"))
    rule = read_rule(said.unsafe) if said.unsafe else None
    known = {name for sample in listed for name in scorers_of(sample)}
    if rule is not None and (ours or rule.name not in known):
        names = ", ".join(sorted(known)) or "none"
        raise ConfigError(
            f"--unsafe {said.unsafe!r} names no score of {path}.\nIts scores: {names}."
        )
    warnings: list[str] = []
    if header.get("status") != "success":
        warnings.append(f"the log says {word(header, 'status') or 'nothing'!r} of its end")
    rows = _rows(listed, said, warnings, read=lambda sample: read_answer(sample, ours, rule))
    if not rows:
        raise DatasetError(
            f"{path} holds no sample whose metadata state a label (attack or benign).\n"
            "Next: state what the samples are: --label attack, or --label benign."
        )
    if rule is None and not ours:
        warnings.append(
            "no verdicts were taken: --unsafe NAME=VALUE says which score means harm "
            f"(scores: {', '.join(sorted(known)) or 'none'}), and `guardmark judge` gives others"
        )
    model = word(spec, "model")
    answers = [answer for row in rows for answer in row.answers]
    has_answers = any(answer.response for answer in answers)
    has_decisions = any(answer.decision for answer in answers)
    return ImportedRun(
        tool="inspect",
        guard=model.removeprefix("guardmark/") if has_decisions else "",
        model=model if has_answers else "",
        judge=rule.name if rule else "judge" if any(a.verdict for a in answers) else "",
        created_utc=word(spec, "created"),
        rows=rows,
        files={path.name: sha256(data).hexdigest()},
        warnings=tuple(warnings),
    )


def _log(data: bytes, path: Path) -> tuple[Object, list[Object]]:
    """Read header and samples of either form of a log."""
    if not data.startswith(_ZIP):
        whole = object_of(data, str(path), hint=_HINT)
        return whole, [each for each in whole.get("samples") or [] if isinstance(each, dict)]
    try:
        with zipfile.ZipFile(BytesIO(data)) as packed:
            names = packed.namelist()
            first = next((name for name in _HEADERS if name in names), None)
            if first is None:
                raise DatasetError(f"{path} is a zip file, but no log of Inspect.")
            header = object_of(read_member(packed, data, first), f"{path}: {first}")
            inside = sorted(n for n in names if n.startswith("samples/") and n.endswith(".json"))
            return header, [
                object_of(read_member(packed, data, name), f"{path}: {name}") for name in inside
            ]
    except (zipfile.BadZipFile, NotImplementedError, OSError, EOFError) as error:
        raise DatasetError(
            f"{path} cannot be unpacked: {error}.\n"
            "Next: inspect log convert FILE --to json --output-dir DIR, then name the JSON."
        ) from error


def _rows(
    listed: list[Object],
    said: Statements,
    warnings: list[str],
    *,
    read: Callable[[Object], ImportedAnswer | None],
) -> tuple[ImportedRow, ...]:
    """Put the epochs of a sample together; who states no label is left out and counted."""
    samples: dict[str, Sample] = {}
    answers: dict[str, dict[int, ImportedAnswer]] = {}
    missing: Counter[str] = Counter()
    for each in listed:
        sample = read_sample(each, said.label)
        if isinstance(sample, str):
            missing[sample] += 1
            continue
        samples.setdefault(sample.id, sample)
        answer = read(each)
        if answer is not None:
            answers.setdefault(sample.id, {})[answer.repeat] = answer
    warnings.extend(left_out("sample", missing))
    return tuple(
        ImportedRow(
            sample=sample,
            answers=tuple(answer for _, answer in sorted(answers.get(sample.id, {}).items())),
        )
        for sample in samples.values()
    )
