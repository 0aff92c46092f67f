"""Attack artifacts of JailbreakBench: prompts, responses and verdicts of one submission."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import DatasetError
from guardmark.core.outcome import ErrorKind, Response, Verdict, VerdictLabel
from guardmark.core.sample import Label, Sample
from guardmark.importers import imported

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.importers.imported import Statements

_VERDICT: Final = "jailbroken"


def read_jailbreakbench(path: Path, statements: Statements) -> imported.ImportedRun:
    """Read an artifact: one attack a behaviour, its response and whether it was jailbroken.

    Behaviours for which the attack submitted no prompt are left out and counted: nothing was
    asked, so there is nothing to rate. The benchmark's own rate counts them as not jailbroken.
    """
    del statements  # an artifact says all of it
    hint = "Name an artifact, a JSON file with parameters and jailbreaks."
    data = imported.bytes_of(path, hint=hint)
    whole = imported.object_of(data, str(path), hint=hint)
    parameters, listed = imported.inner(whole, "parameters"), whole.get("jailbreaks")
    if not parameters or not isinstance(listed, list):
        raise DatasetError(f"{path} holds no parameters and jailbreaks.\n{hint}")
    attacks = [each for each in listed if isinstance(each, dict)]
    method = imported.word(parameters, "method") or "attack"
    rows = tuple(row for each in attacks if (row := _row(each, method)) is not None)
    if not rows:
        raise DatasetError(f"{path} holds no jailbreak with a prompt.\n{hint}")
    warnings = []
    silent = len(attacks) - len(rows)
    for line in imported.left_out("behavior", {"without a prompt": silent}):
        broken = sum(each.get(_VERDICT) is True for each in attacks)
        warnings.append(
            f"{line}; the benchmark counts these as not jailbroken, which gives {broken:,} of "
            f"{len(attacks):,}"
        )
    defense = imported.word(parameters, "defense")
    return imported.ImportedRun(
        tool="jailbreakbench",
        model=" with ".join(part for part in (imported.word(parameters, "model"), defense) if part),
        judge="jailbreakbench",
        created_utc=imported.word(parameters, "evaluation_date"),
        rows=rows,
        files={path.name: sha256(data).hexdigest()},
        warnings=tuple(warnings),
    )


def _row(logged: imported.Object, method: str) -> imported.ImportedRow | None:
    prompt = imported.prompt_of([("user", imported.word(logged, "prompt"))])
    if prompt is None:
        return None
    index, behavior = imported.word(logged, "index"), imported.word(logged, "behavior")
    return imported.ImportedRow(
        sample=Sample(
            id=f"{method}-{index}",
            prompt=prompt,
            label=Label.ATTACK,
            category=imported.word(logged, "category"),
            subcategory=behavior,
            technique=method,
            group=f"behavior-{index}",
            source="jailbreakbench",
            metadata={"goal": imported.word(logged, "goal")},
        ),
        answers=(_answer(logged),),
    )


def _answer(logged: imported.Object) -> imported.ImportedAnswer:
    text, verdict = logged.get("response"), logged.get(_VERDICT)
    if not isinstance(text, str):
        return imported.ImportedAnswer(
            repeat=0, response=Response(text=None, error_kind=ErrorKind.CRASH)
        )
    label = VerdictLabel.MALFORMED
    if isinstance(verdict, bool):
        label = VerdictLabel.UNSAFE if verdict else VerdictLabel.SAFE
    return imported.ImportedAnswer(
        repeat=0,
        response=Response(text=imported.word(logged, "response")),
        verdict=Verdict(label=label),
    )
