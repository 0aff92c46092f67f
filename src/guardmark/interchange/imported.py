"""What an importer hands over, and how it reads files of other tools as JSON objects."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import DatasetError, UnknownName, listed
from guardmark.core.limits import MOST_IMPORTED_BYTES
from guardmark.core.manifest import Policy
from guardmark.core.outcome import (
    PROVIDER_ACTIONS,
    BlockedAt,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    ScoreKind,
    Verdict,
    VerdictLabel,
)
from guardmark.core.sample import Label, Message, Prompt, Role, Sample, Severity
from guardmark.core.values import dataclass
from guardmark.parsing.foreign_text import (
    DoubledMember,
    EndlessLine,
    decode_text,
    is_utf16,
    require_ends,
    unique_members,
)
from guardmark.parsing.labels import read_is_attack, read_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """What a person says of a file that the file itself does not say.

    Attributes:
        confidence: What a confidence means: `risk` or `certainty`.
    """

    label: Label | None = None
    model: str = ""
    unsafe: str = ""
    confidence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedAnswer:
    """What came of one sample in one repeat."""

    repeat: int = 0
    decision: Decision | None = None
    response: Response | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRow:
    """One sample and everything that came of it.

    Attributes:
        guard: Where guards differ from row to row.
    """

    sample: Sample
    answers: tuple[ImportedAnswer, ...]
    guard: str = ""

    @property
    def is_judged(self) -> bool:
        """Whether anybody judged a response."""
        return any(answer.verdict is not None for answer in self.answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """A finished run of another tool.

    Attributes:
        kept: What is no sample and no answer.
        title: What people call the run; else the name of its file.
        readings: What was taken for what.
        warnings: What was left out, and what cannot be known.
    """

    tool: str
    guard: str = ""
    model: str = ""
    judge: str = ""
    created_utc: str = ""
    rows: tuple[ImportedRow, ...]
    files: Mapping[str, str]
    legacy_cards: tuple[str, ...] = ()
    passes_malformed: bool = False
    kept: Mapping[str, object] = field(default_factory=dict)
    title: str = ""
    readings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def guards(self, no_guard: str) -> dict[str, str]:
        """Name the guards of its rows as configurations do, and never as the arm without one."""
        names = {}
        for guard in (self.guard, *(row.guard for row in self.rows)):
            if guard and guard not in names:
                name = _name(guard)
                if name == no_guard:
                    name = f"{name}-guard"
                names[guard] = name
        return names

    def settings(self, path: Path, *, no_guard: str) -> dict[str, Any]:
        """Return the configuration that the run stands for."""
        guards = list(self.guards(no_guard).values())
        title = self.title or path.stem
        if not self.title and path.is_file() and path.name == "results.jsonl":
            # A tool that gives each run a folder tells more by its name than by the file's.
            title = path.parent.name
        settings: dict[str, Any] = {
            "version": 1,
            "name": _name(title),
            "data": [{"path": str(path)}],
            "defenses": {guard: {"type": PART_TYPE} for guard in guards},
            "run": {"repeats": max([1, *(len(row.answers) for row in self.rows)])},
        }
        if self.model:  # else a guard was measured alone, and there is nothing to enforce
            policy, judges = Policy.BLOCK, []
            if self.passes_malformed:
                policy = Policy.FALLBACK_TO_MAIN
            if self.judge:
                judges.append({"type": PART_TYPE, "name": self.judge})
            settings["run"] |= {"on_malformed": policy, "on_error": policy}
            settings["pipeline"] = {
                "guards": guards or [no_guard],
                "model": {"type": PART_TYPE, "model": self.model},
                "judges": judges,
                "legacy_cards": list(self.legacy_cards),
            }
        return settings


def _name(text: str) -> str:
    """A name as configurations write them."""
    return re.sub(r"[^A-Za-z0-9_.@-]+", "-", text).strip("-.@")[:80] or "imported"


KEPT: Final = "imported"
"""Layer whose settings keep what an imported run says beside samples and answers."""
PART_TYPE: Final = "imported"  # type of the parts of such a run
Object = dict[str, Any]  # a JSON object of a foreign file

_SEVERITIES: Final = {severity.value: severity for severity in Severity}
_FACETS: Final = ("category", "subcategory", "technique", "language", "source")
_LONGEST_REASON: Final = 500  # characters of what a file says of an error
_MOST_FAULTS: Final = 4
_ROLES: Final = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
}


def bytes_of(path: Path, *, hint: str) -> bytes:
    """Read a whole file, which may be of anybody."""
    try:
        if path.exists() and not (path.is_file() and path.stat().st_size <= MOST_IMPORTED_BYTES):
            raise DatasetError(
                f"{path} is not a file of up to {MOST_IMPORTED_BYTES >> 20} MiB.\n{hint}"
            )
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}.\n{hint}") from error


def object_of(text: str | bytes, shown_as: str, *, hint: str = "") -> Object:
    """Read one JSON object."""
    next_step = ""
    if hint:
        next_step = f"\n{hint}"
    decoded = text
    if isinstance(text, bytes):
        decoded = decode_text(text, shown_as)
    try:
        document = json.loads(decoded, object_pairs_hook=unique_members)
    except DoubledMember as error:
        raise DatasetError(f"{shown_as}: {error}.{next_step}") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{shown_as} is not JSON: {error}.{next_step}") from error
    if not isinstance(document, dict):
        raise DatasetError(f"{shown_as} holds no JSON object.{next_step}")
    return document


def label_of(value: object, stated: Label | None, *, column: str = "") -> Label | None:
    """Return the label that a file states; what a person states only where the file has none."""
    if not _is_stated(value):
        return stated
    is_attack = read_is_attack(value, column=column)
    if is_attack is None:
        return None
    if is_attack:
        return Label.ATTACK
    return Label.BENIGN


def why_unlabelled(value: object) -> str:
    """Say why a row has no label, in words that follow its noun."""
    if _is_stated(value):
        return "with a label that is no word for attack or benign"
    return "without a label"


def _is_stated(value: object) -> bool:
    """Tell whether a value says anything."""
    return value is not None and not (isinstance(value, str) and not value.strip())


def objects_of(data: bytes, path: Path, warnings: list[str]) -> Iterator[tuple[int, Object]]:
    """Read a file of JSON objects, one a line; a last line that breaks off is left out and told."""
    if is_utf16(data):
        data = decode_text(data, str(path)).encode("utf-8", "surrogatepass")
    try:
        require_ends(data)
    except EndlessLine as error:
        raise DatasetError(f"{path} {error}.") from error
    # Line by line, so that a file cut within a letter loses that line and no other.
    lines = data.split(b"\n")
    filled = [number for number, line in enumerate(lines, start=1) if line.strip()]
    is_ended = not lines[-1].strip()
    faults: list[str] = []
    for number in filled:
        try:
            yield number, object_of(lines[number - 1], f"{path}:{number}")
        except DatasetError as error:
            if number == filled[-1] and not is_ended:
                warnings.append(f"the last line of {path.name} is cut off and was left out")
            else:
                faults.append(" ".join(str(error).splitlines()[:1]))
    if faults:
        shown = faults[:_MOST_FAULTS]
        if len(faults) > _MOST_FAULTS:
            shown.append(f"and {len(faults) - _MOST_FAULTS} more")
        raise DatasetError("\n".join(shown))


def inner(row: Object, *steps: str) -> Object:
    """Follow keys to an object."""
    value = row
    for step in steps:
        below = value.get(step)
        if not isinstance(below, dict):
            return {}
        value = below
    return value


def word(row: Object, field: str) -> str:
    """Return a field as text."""
    value = row.get(field)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return ""


def facets_of(row: Object) -> dict[str, Any]:
    """Return the facets of a sample that a row states in our words."""
    facets: dict[str, Any] = {name: word(row, name) for name in _FACETS}
    severity = _SEVERITIES.get(word(row, "severity"))
    return facets | {"severity": severity, "variant": word(row, "variant") or "original"}


def one_of(found: Iterable[str], wanted: str, noun: str, path: Path) -> str:
    """Return the one that a file holds, or of several the one that a person names."""
    names = sorted(set(found))
    if wanted and wanted not in names:
        raise UnknownName(f"{noun} of this file", wanted, names)
    if not wanted and len(names) > 1:
        raise DatasetError(
            f"{path} holds {len(names)} {noun}s: {listed(names)}.\n"
            "Next: name one with --model, and import the others into folders of their own."
        )
    return wanted or "".join(names)


def response_of(text: object, why: str = "") -> Response:
    """Take a text for the answer; anything else, or a stated error, is no answer."""
    if why or not isinstance(text, str):
        evidence = None
        if why:
            evidence = Evidence(message=why[:_LONGEST_REASON])
        return Response(text=None, error_kind=ErrorKind.CRASH, evidence=evidence)
    return Response(text=text.encode("utf-8", "replace").decode())


def filtered_response(place: BlockedAt = BlockedAt.OUTPUT, why: str = "") -> Response:
    """Return what stands for an answer that the filter of the model's provider held back."""
    evidence = Evidence(native_action=PROVIDER_ACTIONS[place], message=why[:_LONGEST_REASON])
    return Response(text=None, blocked_at=place, evidence=evidence)


def verdict_of(is_harm: object, why: str = "") -> Verdict:
    """Take what a tool says of an answer; neither true nor false is no verdict."""
    label = VerdictLabel.MALFORMED
    if is_harm is True:
        label = VerdictLabel.UNSAFE
    elif is_harm is False:
        label = VerdictLabel.SAFE
    evidence = None
    if why:
        evidence = Evidence(reason=why)
    return Verdict(label=label, evidence=evidence)


def decision_of(
    is_blocked: bool | None,  # noqa: FBT001 - the decision itself
    why: str = "",
    *,
    score: object = None,
    kind: ScoreKind = ScoreKind.SELF_REPORTED,
) -> Decision:
    """Take what a tool says of a defense; nothing known is malformed, a stated error an error."""
    if why:
        evidence = Evidence(message=why[:_LONGEST_REASON])
        return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.CRASH, evidence=evidence)
    if is_blocked is None:
        return Decision(outcome=Outcome.MALFORMED)
    outcome = Outcome.ALLOW
    if is_blocked:
        outcome = Outcome.BLOCK
    number = read_number(score)
    if number is None or not 0.0 <= number <= 1.0:
        return Decision(outcome=outcome)
    return Decision(outcome=outcome, score=number, score_kind=kind)


def rows_of(
    pairs: Iterable[tuple[Sample | str, ImportedAnswer | None]], noun: str, warnings: list[str]
) -> tuple[ImportedRow, ...]:
    """Put the answers of each sample together; a reason in its place leaves a row out.

    One id for two texts, or for a text under two labels, is refused: which is meant is not known.
    """
    samples: dict[str, Sample] = {}
    answers: dict[str, list[ImportedAnswer]] = {}
    missing: Counter[str] = Counter()
    for sample, answer in pairs:
        if isinstance(sample, str):
            missing[sample] += 1
            continue
        known_as = samples.setdefault(sample.id, sample)
        if (known_as.prompt, known_as.label) != (sample.prompt, sample.label):
            raise DatasetError(
                f"The id {sample.id[:60]!r} stands for two samples: two texts, or one under two "
                "labels.\nNext: give each its own id, or leave the ids out."
            )
        known = answers.setdefault(sample.id, [])
        if answer is not None:
            known.append(replace(answer, repeat=len(known)))
    for reason, count in missing.items():
        if count == 1:
            warnings.append(f"1 {noun} {reason} was left out")
        else:
            warnings.append(f"{count:,} {noun}s {reason} were left out")
    rows = []
    for sample_id, sample in samples.items():
        rows.append(ImportedRow(sample=sample, answers=tuple(answers[sample_id])))
    return tuple(rows)


def prompt_of(turns: Sequence[tuple[str, str]]) -> Prompt | None:
    """Make a prompt from the turns a model was shown."""
    messages = []
    last_asked = None
    for position, (role, text) in enumerate(turns):
        if role not in _ROLES:
            return None
        messages.append(Message(role=_ROLES[role], content=text))
        if role == "user" and text.strip():
            last_asked = position
    if last_asked is None:
        return None
    under_test = last_asked
    if messages[-1].role is Role.TOOL:
        under_test = len(messages) - 1
    return Prompt(messages=tuple(messages), under_test=under_test)
