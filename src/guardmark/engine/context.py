"""Documents that come with a sample, on their way past the guards at `context` of an arm."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.core.place import AFTER, ALL_DOCUMENTS
from guardmark.core.sample import Message, Prompt, Role
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_BETWEEN: Final = "\n\n"


class ContextGuard(NamedTuple):
    """A guard of documents: the name its calls are stored under, and how it is shown them."""

    part: str
    each: bool

    @property
    def after(self) -> str:
        """What stands behind the names of calls about what it made of a sample."""
        return f"{AFTER}{self.part}" if self.each else f"{AFTER}{self.part}{ALL_DOCUMENTS}"


class KeptDocument(NamedTuple):
    """A document that no guard has left out so far.

    Attributes:
        at: Where it stands among the messages of the sample.
        name: Which document it is, and what guards made of it: ` 2`, ` 2 after mask@context`.
        message: What it says now.
    """

    at: int
    name: str
    message: Message


@dataclass(slots=True, kw_only=True)
class Documents:
    """The documents of a sample, as the guards of an arm have left them.

    Attributes:
        request: The sample as it came to them.
        after: What guards made of the request, as `Call.after` says.
        own: What guards made of its documents alone.
        kept: Those that go on.
    """

    request: Prompt
    after: str
    own: str
    kept: list[KeptDocument]

    def shown(self, guard: ContextGuard) -> list[tuple[str, Message]]:
        """Return what a guard is shown: each document by name, or all as one text."""
        if guard.each:
            return [(each.name, each.message) for each in self.kept]
        if not self.kept:
            return []
        texts = [each.message.content for each in self.kept if each.message.content.strip()]
        images = tuple(image for each in self.kept for image in each.message.images)
        whole = Message(role=Role.DOCUMENT, content=_BETWEEN.join(texts), images=images)
        return [(f"{ALL_DOCUMENTS}{self.own}", whole)]

    def stands_for_one(self, guard: ContextGuard) -> bool:
        """Tell whether what a guard writes stands for one document."""
        return guard.each or len(self.kept) == 1

    def go_on(
        self, guard: ContextGuard, left_out: Sequence[str], written: Mapping[str, str]
    ) -> None:
        """Carry out what a guard decided about what it was shown, by name."""
        kept = []
        is_changed = False
        for each in self.kept:
            name = each.name if guard.each else f"{ALL_DOCUMENTS}{self.own}"
            if name in left_out:
                is_changed = True
            elif name in written:
                message = replace(each.message, content=written[name])
                kept.append(KeptDocument(each.at, f"{each.name}{guard.after}", message))
                is_changed = True
            else:
                kept.append(each)
        if is_changed:
            self.kept = kept
            self.after += guard.after
            self.own += guard.after

    def as_request(self) -> Prompt:
        """Return the request with the documents that go on; one without a word does not."""
        messages: dict[int, Message | None] = dict.fromkeys(self.request.documents)
        for each in self.kept:
            if each.message.content.strip() or each.message.images:
                messages[each.at] = each.message
        return self.request.with_messages(messages)


def documents_of(sample: Prompt, request: Prompt, after: str) -> Documents:
    """Return the documents of a request that guards may have written anew before."""
    tested = request.under_test % len(request.messages)
    kept = []
    for number, index in enumerate(sample.documents, start=1):
        history = after if index == tested else ""
        kept.append(KeptDocument(index, f" {number}{history}", request.messages[index]))
    is_tested = any(each.at == tested for each in kept)
    return Documents(request=request, after=after, own=after if is_tested else "", kept=kept)


class Passed(NamedTuple):
    """How far a sample came past the guards of its documents.

    Attributes:
        documents: What goes on.
        lacking: What is to be asked first: part, and what of the sample it is shown.
        is_over: Whether a guard gave no decision and nothing may go on.
    """

    documents: Documents
    lacking: tuple[tuple[str, str], ...] = ()
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAnswers:
    """What guards said of documents, by stored name, and how the policies read it."""

    codes: Mapping[str, int]
    written: Mapping[str, str | None]
    shown: dict[str, Message]
    passes: Callable[[int], bool]
    leaves_out: frozenset[int]


def pass_guards(
    guards: Sequence[ContextGuard], documents: Documents, answers: ContextAnswers
) -> Passed:
    """Lead documents past guards as far as the answers go."""
    for guard in guards:
        shown = documents.shown(guard)
        answers.shown.update(shown)
        lacking = tuple(
            (guard.part, name) for name, _ in shown if guard.part + name not in answers.codes
        )
        if lacking:
            return Passed(documents, lacking)
        left_out, written = [], dict[str, str]()
        for name, _ in shown:
            stored = guard.part + name
            code = answers.codes[stored]
            if code in answers.leaves_out:
                left_out.append(name)
            elif not answers.passes(code):
                return Passed(documents, is_over=True)
            elif stored in answers.written:
                text = answers.written[stored]
                if text is None or not documents.stands_for_one(guard):
                    return Passed(documents, is_over=True)
                written[name] = text
        documents.go_on(guard, left_out, written)
    return Passed(documents)
