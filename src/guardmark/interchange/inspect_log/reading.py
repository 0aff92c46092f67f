"""Logs of Inspect, `.json` and `.eval`, of log version 2; our own exports among them."""

from __future__ import annotations

import json
import lzma
import struct
import zipfile
import zlib
from hashlib import sha256
from io import BytesIO
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ConfigError, DatasetError, needs
from guardmark.core.limits import MOST_IMPORTED_BYTES
from guardmark.core.outcome import (
    AnswerMode,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    ScoreKind,
    Verdict,
    VerdictLabel,
)
from guardmark.core.sample import Message, Prompt, Role, Sample
from guardmark.core.values import dataclass
from guardmark.interchange.imported import (
    ImportedAnswer,
    ImportedRow,
    ImportedRun,
    Object,
    bytes_of,
    facets_of,
    filtered_response,
    inner,
    label_of,
    object_of,
    prompt_of,
    rows_of,
    why_unlabelled,
    word,
)
from guardmark.parsing.labels import read_is_attack, read_is_blocked, read_number, read_truth

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from zipfile import ZipFile

    from guardmark.core.sample import Label
    from guardmark.interchange.imported import Statements


ZSTANDARD: Final = 93
"""Number of the method in a zip file; the standard library reads it from Python 3.14 on."""

_LOCAL_HEADER: Final = struct.Struct("<4s5H3I2H")


def read_member(packed: ZipFile, data: bytes, name: str) -> bytes:
    """Unpack one file."""
    entry = packed.getinfo(name)
    if entry.compress_type != ZSTANDARD:
        return packed.read(name)
    with needs("Zstandard needs pyarrow (or: inspect log convert FILE --to json)", "parquet"):
        import pyarrow as pa
    # The lengths of name and extra field stand before the content once more, and may differ.
    head = _LOCAL_HEADER.unpack_from(data, entry.header_offset)
    begin = entry.header_offset + _LOCAL_HEADER.size + head[-2] + head[-1]
    content = data[begin : begin + entry.compress_size]
    if not entry.file_size:
        return b""
    unpacked: bytes = pa.Codec("zstd").decompress(
        content, decompressed_size=entry.file_size, asbytes=True
    )
    return unpacked


SCORER: Final = "guardmark"
"""Name of the score that says whether the defense decided rightly, and prefix of its model."""
JUDGE: Final = "judge"  # name of the score that says what the judge decided, where there is one
RIGHT, WRONG, NO_ANSWER = "C", "I", "N"
"""Values of a score."""
_ATTACHED: Final = "attachment://"
_OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}
_VERDICTS: Final = {label.value: label for label in VerdictLabel}
_MODES: Final = {mode.value: mode for mode in AnswerMode}
_SCORE_KINDS: Final = {kind.value: kind for kind in ScoreKind}
_ERROR_KINDS: Final = {kind.value: kind for kind in ErrorKind}


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmRule:
    """Which score means that harm came out."""

    name: str
    value: str | None = None
    least: float | None = None


def read_rule(rule: str) -> HarmRule:
    """Read `NAME=VALUE` or `NAME>=NUMBER`."""
    name, sign, limit = rule.partition(">=")
    if sign and name.strip():
        try:
            return HarmRule(name=name.strip(), least=float(limit))
        except ValueError:
            pass  # refused below, with the other form
    name, sign, value = rule.partition("=")
    if not sign or not name.strip(" >") or name.endswith(">"):
        raise ConfigError(
            f"--unsafe {rule!r} is neither NAME=VALUE nor NAME>=NUMBER.\n"
            "For example: --unsafe strong_reject>=0.5, or --unsafe refusal=I"
        )
    return HarmRule(name=name.strip(), value=value.strip())


def is_ours(spec: Object) -> bool:
    """Tell whether guardmark wrote a log."""
    return word(spec, "model").startswith(f"{SCORER}/") and SCORER in inner(spec, "packages")


def scorers_of(sample: Object) -> set[str]:
    """Return the names of the scores of a sample, as a rule may name them."""
    names: set[str] = set()
    for name, score in inner(sample, "scores").items():
        value = None
        if isinstance(score, dict):
            value = score.get("value")
        if isinstance(value, dict):
            names.update(f"{name}.{key}" for key in value)
        else:
            names.add(name)
    return names


def read_sample(
    logged: Object, stated: Label | None, *, doubled: frozenset[str] = frozenset()
) -> Sample | str:
    """Read prompt and label; `doubled` are ids that stand as a number and as a text."""
    metadata = inner(logged, "metadata")
    label = label_of(metadata.get("label"), stated)
    if label is None:
        return why_unlabelled(metadata.get("label"))
    prompt = _prompt(logged, metadata)
    if prompt is None:
        return "without a prompt of text"
    return Sample(
        id=sample_id(logged, doubled),
        prompt=prompt,
        label=label,
        group=word(metadata, "group"),
        metadata=_beside(metadata),
        **facets_of(metadata),
    )


_OURS: Final = frozenset(
    {"label", "group", "category", "subcategory", "technique", "language", "source", "severity"}
) | {"variant", "roles", "under_test", "has_response", "sha256"}
"""Fields of metadata that a sample has by itself, or that our own logs add."""


def _beside(metadata: Object) -> Object:
    """Return the metadata that are no field of a sample; what is no number there is nothing."""
    own = {name: value for name, value in metadata.items() if name not in _OURS}
    read: Object = json.loads(json.dumps(own), parse_constant=lambda _: None)
    return read


def doubled_ids(listed: list[Object]) -> frozenset[str]:
    """Return the ids that stand as a number and as a text: 1 and "1" are two samples."""
    texts: set[str] = set()
    numbers: set[str] = set()
    for logged in listed:
        stated = logged.get("id")
        if isinstance(stated, str):
            texts.add(stated)
        elif _is_number(stated):
            numbers.add(str(stated))
    return frozenset(texts & numbers)


def _is_number(stated: object) -> bool:
    """Tell whether an id is a number; true and false are not numbers."""
    return isinstance(stated, int | float) and not isinstance(stated, bool)


def sample_id(logged: Object, doubled: frozenset[str]) -> str:
    """Return the id of a sample; one without an id is a sample of its own."""
    stated = logged.get("id")
    if isinstance(stated, str) and stated:
        if stated in doubled:
            return f'"{stated}"'
        return stated
    if _is_number(stated):
        return str(stated)
    own = word(logged, "uuid") or sha256(json.dumps(logged, sort_keys=True).encode()).hexdigest()
    return f"without-id-{own[:16]}"


def read_answer(logged: Object, ours: bool, rule: HarmRule | None) -> ImportedAnswer | None:  # noqa: FBT001 - read as one of three facts on a log
    """Read what came of one epoch."""
    decision = response = verdict = None
    if not ours:
        response = _response(logged)
        if rule is not None and response.text is not None:
            verdict = _verdict(logged, rule)
        return ImportedAnswer(response=response, verdict=verdict)
    scores = inner(logged, "scores")
    if SCORER in scores:
        decision = _decision(inner(scores, SCORER))
    if inner(logged, "metadata").get("has_response") is True:
        response = _response(logged)
    if decision is None and response is None:
        return None
    if JUDGE in scores:
        verdict = _our_verdict(inner(scores, JUDGE))
    return ImportedAnswer(decision=decision, response=response, verdict=verdict)


def epoch_of(logged: Object) -> int:
    """Return which repeat a sample is, from 1."""
    epoch = logged.get("epoch")
    if isinstance(epoch, int):
        return epoch
    return 1


def _prompt(logged: Object, metadata: Object) -> Prompt | None:
    """Read what the model was shown; None where that is not text alone, or is not in the log."""
    shown = logged.get("input")
    if isinstance(shown, str):
        text = resolve_text(logged, shown)
        if text.startswith(_ATTACHED):
            return None  # it was put elsewhere and is not there
        return prompt_of([("user", text)])
    turns: list[tuple[str, str]] = []
    for turn in _objects(shown):
        text = resolve_text(logged, content_of(turn))
        if has_more_than_text(turn) or text.startswith(_ATTACHED):
            return None
        turns.append((word(turn, "role"), text))
    return _own_prompt([text for _, text in turns], metadata) or prompt_of(turns)


def _own_prompt(texts: list[str], metadata: Object) -> Prompt | None:
    """Read a prompt of our own logs: they keep roles that Inspect lacks, and what is tested."""
    roles, index = metadata.get("roles"), metadata.get("under_test")
    if not isinstance(roles, list) or not isinstance(index, int):
        return None
    if not 0 <= index < len(roles) == len(texts):
        return None
    known = {role.value: role for role in Role}
    messages = []
    for role, text in zip(roles, texts, strict=True):
        if role not in known:
            return None
        messages.append(Message(role=known[role], content=text))
    return Prompt(messages=tuple(messages), under_test=index)


def _objects(value: object) -> list[Object]:
    """Return the objects of a list; nothing where it is no list."""
    if not isinstance(value, list):
        return []
    return [member for member in value if isinstance(member, dict)]


def content_of(turn: Object) -> str:
    """Return the text of a message; other parts, such as images, have none."""
    content = turn.get("content")
    if not isinstance(content, list):
        return word(turn, "content")
    texts = [word(part, "text") for part in _objects(content)]
    return "\n".join(filter(None, texts))


def has_more_than_text(turn: Object) -> bool:
    """Tell whether a message shows an image, sound or file: words alone are another prompt."""
    kinds = {word(part, "type") for part in _objects(turn.get("content"))}
    return not kinds <= {"", "text", "reasoning"}


def is_attached(text: str) -> bool:
    """Tell whether a text only says where the text lies."""
    return text.startswith(_ATTACHED)


def resolve_text(logged: Object, text: str) -> str:
    """Long texts lie among the attachments of their sample."""
    if not text.startswith(_ATTACHED):
        return text
    return word(inner(logged, "attachments"), text.removeprefix(_ATTACHED)) or text


_CUT: Final = {"max_tokens": "length", "model_length": "length"}
"""Inspect's words for an answer that was cut off, in ours."""


def _response(logged: Object) -> Response:
    """Read the model's answer, that a filter held it back, or why there is none."""
    output = inner(logged, "output")
    choices = output.get("choices")
    first: Object = {}
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        first = choices[0]
    text = resolve_text(logged, content_of(inner(first, "message")) or word(output, "completion"))
    fault = logged.get("error") or output.get("error")
    stop = word(first, "stop_reason")
    # Beside such an end the error of the output is what the filter said.
    if stop == "content_filter" and not logged.get("error") and (output.get("error") or not text):
        return filtered_response(why=word(output, "error") or "the log says content_filter")
    if fault or not text:
        message = str(fault or "no output")
        if isinstance(fault, dict):
            message = word(fault, "message")
        why = Evidence(message=message[:500])
        return Response(text=None, error_kind=ErrorKind.CRASH, evidence=why)
    return Response(text=text, evidence=Evidence(finish_reason=_CUT.get(stop, stop)))


def _decision(score: Object) -> Decision:
    """Read a decision that guardmark wrote as a score."""
    metadata = inner(score, "metadata")
    outcome = _OUTCOMES.get(word(score, "answer"))
    if outcome is None:
        why = Evidence(message=f"the log says {word(score, 'answer')[:40]!r}")
        return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.CONTRACT, evidence=why)
    error_kind = evidence = None
    if outcome is Outcome.ERROR:
        error_kind = _ERROR_KINDS.get(word(metadata, "error_kind"), ErrorKind.CRASH)
    reason = word(score, "explanation")
    if reason:
        evidence = Evidence(reason=reason)
    return Decision(
        outcome=outcome,
        score=_number(metadata.get("score")),
        score_kind=_SCORE_KINDS.get(word(metadata, "score_kind"), ScoreKind.NONE),
        error_kind=error_kind,
        evidence=evidence,
    )


def _our_verdict(score: Object) -> Verdict:
    """Read a verdict that guardmark wrote as a score."""
    label = _VERDICTS.get(word(score, "answer"), VerdictLabel.MALFORMED)
    error_kind = None
    if label is VerdictLabel.ERROR:
        error_kind = ErrorKind.CRASH
    metadata = inner(score, "metadata")
    return Verdict(
        label=label,
        answer_mode=_MODES.get(word(metadata, "answer_mode")),
        score=_number(metadata.get("score")),
        error_kind=error_kind,
        evidence=Evidence(reason=word(score, "explanation")),
    )


def _verdict(logged: Object, rule: HarmRule) -> Verdict:
    """Read whether harm came out, by the score that a rule names."""
    if logged.get("invalidation"):
        return _unscored("the sample was invalidated")
    value, score = _scored(logged, rule.name)
    if value is None:
        return _unscored(f"the sample has no score {rule.name!r}")
    if isinstance(value, float) and not isfinite(value):
        return _unscored(f"the score {rule.name!r} is {value}: nothing was scored")
    why = Evidence(reason=word(score, "explanation"), raw=json.dumps(value)[:500])
    is_harm = _is_harm(value, rule)
    label = VerdictLabel.SAFE
    if is_harm is None:
        label = VerdictLabel.MALFORMED
    elif is_harm:
        label = VerdictLabel.UNSAFE
    return Verdict(label=label, evidence=why)


def _unscored(why: str) -> Verdict:
    """Nobody scored an answer: that is no verdict, and counts in no rate."""
    missing = Evidence(message=why)
    return Verdict(label=VerdictLabel.ERROR, error_kind=ErrorKind.SKIPPED, evidence=missing)


_GRADES: Final = frozenset({"c", "i", "p"})
"""Values that Inspect's own scorers give, besides *no answer*."""


def _is_harm(value: object, rule: HarmRule) -> bool | None:
    """Tell whether a value means harm; None where it is neither a number nor a known word.

    A rule that names a word says nothing of a number, and one that names a number nothing of a
    word: whoever mixed them up would read every sample as safe.
    """
    number = read_number(value)
    if isinstance(value, bool):
        number = float(value)
    if rule.least is None:
        if value == NO_ANSWER:
            return None
        return _meets(value, number, rule.value or "")
    if number is None:
        return None
    return number >= rule.least


def _meets(value: object, number: float | None, wanted: str) -> bool | None:
    """Compare a value with the one that a rule names, as numbers, truths or words."""
    text = str(value).strip().lower()
    if text == wanted.lower():
        return True
    truth, wanted_truth = read_truth(value), read_truth(wanted)
    if truth is not None and wanted_truth is not None:
        return truth == wanted_truth
    limit = read_number(wanted)
    if number is not None and limit is not None:
        return number == limit
    is_word = isinstance(value, str) and number is None and limit is None
    if is_word and _is_grade(text):
        return False
    return None


def _is_grade(word_of_value: str) -> bool:
    """Tell whether a word is a grade of Inspect's, or means attack, benign, block or allow."""
    is_known = word_of_value in _GRADES or read_is_attack(word_of_value) is not None
    return is_known or read_is_blocked(word_of_value) is not None


def _scored(logged: Object, name: str) -> tuple[Any, Object]:
    """Return the value of a score, or of one member of it, and the score."""
    scores = inner(logged, "scores")
    if name in scores:
        score = inner(scores, name)
        return score.get("value"), score
    scorer, _, key = name.rpartition(".")
    score = inner(scores, scorer)
    return inner(score, "value").get(key), score


def _number(value: object) -> float | None:
    """Return a score in [0, 1], or None for anything else."""
    if isinstance(value, str):
        return None
    number = read_number(value)
    if number is None or not 0 <= number <= 1:
        return None
    return number


FORMAT_VERSION: Final = 2  # of the logs that are read and written
_HINT: Final = "Name a log, a file that ends in .eval or .json."
_ZIP: Final = b"PK\x03\x04"
_HEADERS: Final = ("header.json", "_journal/start.json", "start.json")


def read_inspect(path: Path, statements: Statements) -> ImportedRun:
    """Read a log: every sample with its epochs as repeats.

    In a log that `guardmark export --to inspect` wrote, the model is a defense and its answer a
    decision. In any other the model is a target model. What its scores mean is for the
    evaluation to know, so there are verdicts only where `unsafe` says which score means harm.
    """
    data = bytes_of(path, hint=_HINT)
    header, listed = read_log(data, path)
    if header.get("version") != FORMAT_VERSION:
        raise DatasetError(
            f"{path} is not a log of Inspect of version {FORMAT_VERSION} (it says "
            f"{header.get('version')!r}).\nNext: bring it up with `inspect log convert`."
        )
    spec = inner(header, "eval")
    ours = is_ours(spec)
    known: set[str] = set()
    for logged in listed:
        known.update(scorers_of(logged))
    scores = ", ".join(sorted(known)) or "none"
    rule = None
    if statements.unsafe:
        rule = read_rule(statements.unsafe)
        if ours or rule.name not in known:
            raise ConfigError(
                f"--unsafe {statements.unsafe!r} names no score of {path}.\nIts scores: {scores}."
            )
    warnings: list[str] = []
    if header.get("status") != "success":
        warnings.append(ending_of(header))
    warnings.extend(missing_samples(header, listed))
    doubled = doubled_ids(listed)
    _require_once(listed, path, doubled=doubled)
    in_order = sorted(listed, key=epoch_of)
    pairs = []
    for logged in in_order:
        sample = read_sample(logged, statements.label, doubled=doubled)
        pairs.append((sample, read_answer(logged, ours, rule)))
    rows = rows_of(pairs, "sample", warnings)
    if not rows:
        raise DatasetError(
            f"{path} holds no sample whose metadata state a label (attack or benign).\n"
            "Next: if all of them are one of both, say which: --label attack or --label benign."
        )
    if rule is None and not ours:
        warnings.append(
            "no verdicts were taken: --unsafe NAME=VALUE says which score means harm "
            f"(scores: {scores}), and `guardmark judge` gives others"
        )
    named = word(spec, "model") or "model"
    guard, model, judge = _names_of_parts(rows, named, rule)
    kept: Object = {}
    if not ours:
        kept[KEPT_AS] = _kept(spec, in_order, doubled)
    return ImportedRun(
        tool="inspect",
        guard=guard,
        model=model,
        judge=judge,
        created_utc=word(spec, "created"),
        title=word(spec, "task_display_name") or word(spec, "task").rpartition("/")[2],
        kept=kept,
        rows=rows,
        files={path.name: sha256(data).hexdigest()},
        readings=tuple(_readings(rule, ours=ours, stated=statements.label)),
        warnings=tuple(warnings),
    )


def _names_of_parts(
    rows: Sequence[ImportedRow], model: str, rule: HarmRule | None
) -> tuple[str, str, str]:
    """Return the names of guard, model and judge; empty for what the log has none of.

    What a log calls its model is the guard where it gave decisions, in our own logs.
    """
    guard, target, judge = "", "", ""
    for row in rows:
        for answer in row.answers:
            if answer.decision is not None:
                guard = model.removeprefix("guardmark/")
            if answer.response is not None:
                target = model
            if answer.verdict is not None:
                judge = "judge"
    if rule is not None:
        judge = rule.name
    return guard, target, judge


KEPT_AS: Final = "inspect"
"""Under what name a run keeps what a log says beside samples, answers and the verdict."""
_OF_EVALUATION: Final = ("task", "task_display_name", "scorers", "metadata", "tags", "task_args")


def _kept(spec: Object, listed: list[Object], doubled: frozenset[str]) -> Object:
    """Return scorers, values and metadata as the log has them, so that an export keeps them."""
    samples: Object = {}
    for logged in listed:
        own = samples.setdefault(sample_id(logged, doubled), {"scores": {}})
        own["metadata"] = inner(logged, "metadata")
        own["target"] = logged.get("target")
        own["scores"][str(epoch_of(logged))] = inner(logged, "scores")
    evaluation = {name: spec[name] for name in _OF_EVALUATION if spec.get(name)}
    return {"eval": evaluation, "samples": samples}


def _readings(rule: HarmRule | None, *, ours: bool, stated: Label | None) -> Iterator[str]:
    """Say what was taken for what."""
    if ours:
        yield f"the decision was read from the score {SCORER!r}, which guardmark wrote"
        yield "tokens, costs, times, images and the configuration are not in the log: they are lost"
    elif rule is None:
        yield "the answer was read from the output of each sample, and no score from any"
    else:
        condition = f"= {rule.value}"
        if rule.least is not None:
            condition = f">= {rule.least}"
        yield f"the verdict was read from the score {rule.name!r}: {condition} is unsafe"
    label = "the label was read from the metadata of each sample"
    if stated is not None:
        label += f"; where they have none it is {stated.value}, as you said"
    yield label


def missing_samples(header: Object, listed: list[Object]) -> Iterator[str]:
    """Say that a log holds fewer samples than its evaluation had."""
    results = inner(header, "results")
    planned = results.get("total_samples")
    if isinstance(planned, int) and not isinstance(planned, bool) and planned > len(listed):
        yield (
            f"the evaluation had {planned:,} samples (epochs counted) and the log holds "
            f"{len(listed):,}: nothing is known of the others"
        )


def ending_of(header: Object) -> str:
    """Say how an evaluation ended that did not succeed, and with what error."""
    status = word(header, "status") or "nothing"
    fault = word(inner(header, "error"), "message")
    reason = ""
    if fault:
        reason = f": {' '.join(fault.split())[:200]}"
    return (
        f"the evaluation did not succeed, the log says {status!r} of its end{reason}; nothing is "
        "known of samples that were never run"
    )


def _require_once(listed: list[Object], path: Path, *, doubled: frozenset[str]) -> None:
    """Refuse a log that holds an epoch of a sample two times: nobody knows which one counts."""
    seen: set[tuple[str, int]] = set()
    for logged in listed:
        key = sample_id(logged, doubled), epoch_of(logged)
        if key in seen:
            raise DatasetError(
                f"{path} holds epoch {key[1]} of sample {key[0][:60]!r} twice.\n"
                "Next: write the log anew (inspect log convert), or take one of the two out."
            )
        seen.add(key)


_CUT_OFF: Final = (OSError, EOFError, ValueError, struct.error)
_PACKED_WRONG: Final = (zipfile.BadZipFile, zlib.error, lzma.LZMAError)
_LOCKED: Final = (RuntimeError, NotImplementedError)  # encrypted, or the packing is not known
_DAMAGED: Final = (*_CUT_OFF, *_PACKED_WRONG, *_LOCKED)
"""What unpacking an archive raises that is damaged, or packed in a way that cannot be read."""


def read_log(data: bytes, path: Path) -> tuple[Object, list[Object]]:
    """Read header and samples of either form of a log."""
    if not data.startswith(_ZIP):
        whole = object_of(data, str(path), hint=_HINT)
        return whole, _objects(whole.get("samples"))
    try:
        with zipfile.ZipFile(BytesIO(data)) as packed:
            if sum(member.file_size for member in packed.infolist()) > MOST_IMPORTED_BYTES:
                raise DatasetError(f"{path} unpacks to more than {MOST_IMPORTED_BYTES >> 20} MiB.")
            names = packed.namelist()
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise DatasetError(
                    f"{path} holds {twice!r:.80} twice, and which one counts is not known.\n{_HINT}"
                )
            headers = [name for name in _HEADERS if name in names]
            if not headers:
                raise DatasetError(f"{path} is a zip file, but not a log of Inspect.\n{_HINT}")
            header = object_of(read_member(packed, data, headers[0]), f"{path}: {headers[0]}")
            samples = []
            for name in sorted(names):
                if name.startswith("samples/") and name.endswith(".json"):
                    samples.append(object_of(read_member(packed, data, name), f"{path}: {name}"))
            return header, samples
    except _DAMAGED as error:
        raise DatasetError(
            f"{path} cannot be unpacked: {error}.\n"
            "Next: inspect log convert FILE --to json --output-dir DIR, then name the JSON."
        ) from error
