"""Stored runs of agents in logs of Inspect: the messages of each sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.sample import Label
from guardmark.interchange.imported import Object, inner, label_of, word
from guardmark.interchange.inspect_log.reading import (
    FORMAT_VERSION,
    content_of,
    doubled_ids,
    ending_of,
    epoch_of,
    has_more_than_text,
    is_attached,
    missing_samples,
    read_log,
    resolve_text,
    sample_id,
)
from guardmark.interchange.stored_runs.turns import LoggedMessage, Unusable, read_dialog, sound_text
from guardmark.suites.stored import StoredCase
from guardmark.suites.suite import CaseId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_TASK = ("user_task_id", "task")
_INJECTION = ("injection_task_id", "injection")
_WORDING = ("attack_type", "attack", "technique")
_PLANTED = ("injections", "injected")


def is_inspect(document: Object) -> bool:
    """Tell whether a JSON document is a log of Inspect."""
    return document.get("version") == FORMAT_VERSION and isinstance(document.get("eval"), dict)


def read_inspect_runs(
    data: bytes, path: Path, leave_out: Callable[[Unusable], None], note: Callable[[str], None]
) -> Iterator[StoredCase]:
    """Yield the samples of a log whose messages hold calls of tools."""
    header, listed = read_log(data, path)
    if header.get("status") != "success":
        note(f"{path.name}: {ending_of(header)}")
    for line in missing_samples(header, listed):
        note(f"{path.name}: {line}")
    task = word(inner(header, "eval"), "task").rpartition("/")[2] or "inspect"
    doubled = doubled_ids(listed)
    for logged in sorted(listed, key=epoch_of):
        try:
            yield _read_case(logged, task, sample_id(logged, doubled))
        except Unusable as why:
            leave_out(why)


def _read_case(logged: Object, evaluation: str, own: str) -> StoredCase:
    metadata = inner(logged, "metadata")
    injection = _first(metadata, _INJECTION)
    label = label_of(metadata.get("label"), None)
    if label is None and any(name in metadata for name in _INJECTION):
        label = Label.ATTACK if injection else Label.BENIGN
    if label is None:
        raise Unusable("whose metadata state neither a label nor an injection")
    is_attack = label is Label.ATTACK
    dialog = read_dialog(_turns(logged))
    return StoredCase(
        id=CaseId(
            suite=evaluation,
            task=_first(metadata, _TASK) or word(metadata, "group") or own,
            injection=(injection or f"of-{own}") if is_attack else "",
            wording=_first(metadata, _WORDING) if is_attack else "",
        ),
        prompt=dialog.prompt,
        moves=dialog.moves,
        later_words=dialog.later_words,
        answer=dialog.answer,
        orders=tuple(_planted(metadata)) if is_attack else (),
        names_injection=bool(injection),
    )


def _first(metadata: Object, names: tuple[str, ...]) -> str:
    return next(filter(None, (word(metadata, name) for name in names)), "")


def _planted(metadata: Object) -> Iterator[str]:
    """Yield the planted texts that metadata state: a text, a list, or an object of texts."""
    for name in _PLANTED:
        stated = metadata.get(name)
        texts = [stated]
        if isinstance(stated, dict):
            texts = list(stated.values())
        elif isinstance(stated, list):
            texts = stated
        for text in texts:
            if isinstance(text, str) and text.strip():
                yield sound_text(text)


def _turns(logged: Object) -> Iterator[LoggedMessage]:
    messages = logged.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict):
            raise Unusable("with a message that is no object")
        if has_more_than_text(message):
            raise Unusable("that shows more than text")
        text = resolve_text(logged, content_of(message))
        if is_attached(text):
            raise Unusable("with a text that lies in an attachment which is not there")
        calls = message.get("tool_calls")
        yield LoggedMessage(
            role=word(message, "role"),
            text=text,
            calls=tuple(_calls(logged, calls if isinstance(calls, list) else [])),
            answers=word(message, "tool_call_id"),
            is_error=bool(message.get("error")),
        )


def _calls(logged: Object, stated: list[object]) -> Iterator[tuple[str, str, object]]:
    for call in stated:
        if not isinstance(call, dict):
            raise Unusable("with a call that is no object")
        arguments = call.get("arguments", {})
        if isinstance(arguments, dict):
            arguments = {
                name: resolve_text(logged, value) if isinstance(value, str) else value
                for name, value in arguments.items()
            }
        yield word(call, "id"), word(call, "function"), arguments
