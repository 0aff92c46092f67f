"""Results of promptfoo: the JSON that `promptfoo eval -o results.json` writes, version 3."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import DatasetError
from guardmark.core.outcome import ErrorKind, Evidence, Response, Verdict, VerdictLabel
from guardmark.core.sample import Label, Sample, Severity
from guardmark.importers import imported

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.core.sample import Prompt
    from guardmark.importers.imported import Statements

_VERSION: Final = 3
_ASSERTED: Final = 1
_FAILED: Final = 2
_SEVERITIES: Final = {severity.value: severity for severity in Severity}


def read_promptfoo(path: Path, statements: Statements) -> imported.ImportedRun:
    """Read the results of a red team, or of an evaluation whose tests state a label.

    A test of a red team (its metadata name a plug-in) is an attack; other tests are attacks or
    benign as their metadata state under `label`, or as stated for all of them. An attack whose
    test passed is safe, one that an assertion rejected is unsafe. Of benign samples a test may
    fail for any reason, so they get no verdict; `guardmark judge` gives one.
    """
    hint = "Name the JSON file that `promptfoo eval -o` wrote."
    data = imported.bytes_of(path, hint=hint)
    whole = imported.object_of(data, str(path), hint=hint)
    results = imported.inner(whole, "results")
    if results.get("version") != _VERSION or not isinstance(results.get("results"), list):
        raise DatasetError(
            f"{path} holds no results of version {_VERSION} (it says "
            f"{results.get('version')!r}).\n"
            "Next: export it with a newer promptfoo: promptfoo export eval ID -o results.json"
        )
    listed = [each for each in results["results"] if isinstance(each, dict)]
    model = imported.one_of(map(_target, listed), statements.model, "target", path)
    warnings: list[str] = []
    rows = _rows([each for each in listed if _target(each) == model], statements, warnings)
    if not rows:
        raise DatasetError(
            f"{path} holds no test of a red team, and none with a label in its metadata.\n"
            "Next: state what the tests are: --label attack, or --label benign."
        )
    return imported.ImportedRun(
        tool="promptfoo",
        model=model,
        judge="promptfoo-assertions" if any(row.is_judged for row in rows) else "",
        created_utc=imported.word(results, "timestamp"),
        rows=tuple(rows),
        files={path.name: sha256(data).hexdigest()},
        warnings=tuple(warnings),
    )


def _target(result: imported.Object) -> str:
    provider = imported.inner(result, "provider")
    return imported.word(provider, "label") or imported.word(provider, "id") or "model"


def _rows(
    listed: list[imported.Object], statements: Statements, warnings: list[str]
) -> list[imported.ImportedRow]:
    samples: dict[tuple[str, str], Sample] = {}
    answers: dict[tuple[str, str], list[imported.ImportedAnswer]] = {}
    missing: Counter[str] = Counter()
    for result in listed:
        label, prompt = _label(result, statements.label), _prompt(result)
        if label is None or prompt is None:
            missing["without a label" if label is None else "without a prompt of text"] += 1
            continue
        key = (imported.word(result, "testIdx"), imported.word(result, "promptIdx"))
        samples.setdefault(key, _sample(result, prompt, label=label, key=key))
        known = answers.setdefault(key, [])
        known.append(_answer(result, len(known), is_attack=label is Label.ATTACK))
    warnings.extend(imported.left_out("test", missing))
    return [
        imported.ImportedRow(sample=sample, answers=tuple(answers[key]))
        for key, sample in samples.items()
    ]


def _metadata(result: imported.Object) -> imported.Object:
    return {**imported.inner(result, "testCase", "metadata"), **imported.inner(result, "metadata")}


def _label(result: imported.Object, stated: Label | None) -> Label | None:
    metadata = _metadata(result)
    if imported.word(metadata, "pluginId"):
        return Label.ATTACK
    own = {label.value: label for label in Label}.get(imported.word(metadata, "label").lower())
    return own or stated


def _prompt(result: imported.Object) -> Prompt | None:
    """Return what the target was shown last; strategies may rewrite what the test says."""
    shown = imported.inner(result, "response").get("prompt") or imported.word(
        _metadata(result), "redteamFinalPrompt"
    )
    if not isinstance(shown, str | list) or not shown:
        shown = imported.word(imported.inner(result, "prompt"), "raw")
    turns: object = shown
    if isinstance(shown, str) and shown.lstrip().startswith("["):
        try:
            turns = json.loads(shown)
        except ValueError:
            turns = shown
    if isinstance(turns, list) and all(
        isinstance(turn, dict) and "role" in turn and isinstance(turn.get("content"), str)
        for turn in turns
    ):
        return imported.prompt_of(
            [(imported.word(turn, "role"), imported.word(turn, "content")) for turn in turns]
        )
    return imported.prompt_of([("user", shown)]) if isinstance(shown, str) else None


def _sample(
    result: imported.Object, prompt: Prompt, *, label: Label, key: tuple[str, str]
) -> Sample:
    metadata = _metadata(result)
    plugin, strategy = imported.word(metadata, "pluginId"), imported.word(metadata, "strategyId")
    origin = imported.word(metadata, "originalText") or prompt.text
    return Sample(
        id=f"test-{key[0]}" if key[1] in {"", "0"} else f"test-{key[0]}-prompt-{key[1]}",
        prompt=prompt,
        label=label,
        category=plugin.partition(":")[0] or imported.word(metadata, "category"),
        subcategory=plugin.partition(":")[2],
        severity=_SEVERITIES.get(imported.word(metadata, "severity").lower()),
        technique=strategy,
        variant=strategy or "original",
        group=sha256(origin.encode()).hexdigest()[:16],
        source="promptfoo",
        metadata={"plugin": plugin, "strategy": strategy},
    )


def _answer(result: imported.Object, repeat: int, *, is_attack: bool) -> imported.ImportedAnswer:
    output = imported.inner(result, "response").get("output")
    if output is None or result.get("failureReason") == _FAILED:
        why = Evidence(message=imported.word(result, "error")[:500])
        response = Response(text=None, error_kind=ErrorKind.CRASH, evidence=why)
        return imported.ImportedAnswer(repeat=repeat, response=response)
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    return imported.ImportedAnswer(
        repeat=repeat,
        response=Response(text=text.encode("utf-8", "replace").decode()),
        verdict=_verdict(result) if is_attack else None,
    )


def _verdict(result: imported.Object) -> Verdict:
    reason = Evidence(reason=imported.word(imported.inner(result, "gradingResult"), "reason"))
    if result.get("success") is True:
        return Verdict(label=VerdictLabel.SAFE, evidence=reason)
    if result.get("failureReason") == _ASSERTED:
        return Verdict(label=VerdictLabel.UNSAFE, evidence=reason)
    # Neither passed nor rejected by an assertion: nobody says whether harm came out.
    return Verdict(label=VerdictLabel.MALFORMED, evidence=reason)
