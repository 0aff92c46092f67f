"""One row of a file into one sample, or into all that is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from guardmark.core.errors import did_you_mean, listed
from guardmark.core.sample import Label, Message, Prompt, Role, Sample, Severity
from guardmark.datasets.faults import Fault
from guardmark.datasets.fields import FieldPlan, getter, plan_fields, read_label
from guardmark.datasets.filters import SampleFilter
from guardmark.datasets.packs import INFERRED, LABEL_SOURCE, PACK_MARK, STATED, resolve_label
from guardmark.datasets.quick import QuickRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from guardmark.core.taxonomy import Taxonomy
    from guardmark.datasets.spec import DatasetSpec
    from guardmark.store.samples import PlainSample

    Row = Mapping[str, object]
    Getter = Callable[[Row], object]

_ROLES = {role.value: role for role in Role} | {
    "human": Role.USER,
    "ai": Role.ASSISTANT,
    "model": Role.ASSISTANT,
    "developer": Role.SYSTEM,
    "function": Role.TOOL,
    "context": Role.DOCUMENT,
}
_SEVERITIES = {severity.value: severity for severity in Severity}
_PLAIN_FIELDS = ("expected", "technique", "language", "source")
_MATERIAL = (Role.TOOL, Role.DOCUMENT)
_NO_LABEL = (
    "is missing; state it for the whole file (label: attack) or name its field (label_field: ...)"
)


class _Report(Protocol):
    """Takes what is wrong with a row: field, message, and what the row says there."""

    def __call__(self, field: str, message: str, said: str = "") -> None: ...


class RowReader:
    """Turns the rows of one data set into samples."""

    def __init__(self, spec: DatasetSpec, taxonomy: Taxonomy) -> None:
        self.spec = spec
        self.mapping: dict[str, str] = {}
        self.undeclared: set[str] = set()
        self.own_categories: dict[str, set[str]] = {}
        self.inferred: set[int] = set()
        self._taxonomy = taxonomy
        self._known = {c.name: frozenset(c.subcategories) for c in taxonomy.categories}
        self._plans: dict[tuple[str, ...], tuple[FieldPlan, dict[str, Getter], QuickRows]] = {}
        self.filters = [
            SampleFilter(path, values, read=getter(path)) for path, values in spec.filter.items()
        ]
        if spec.include_variants:
            self.filters.append(
                SampleFilter(
                    "variant",
                    spec.include_variants,
                    read=lambda row: self._variant(row, self._plan(row)[1]),
                    setting="include_variants",
                )
            )
        self._quick: dict[int, QuickRows] = {}
        self._stem = spec.path.name.split(".")[0]

    def wanted(self, row: Row) -> bool:
        """Tell whether the row passes the filter of the data set."""
        if not all(each.passes(row) for each in self.filters):
            return False
        exclude = self.spec.exclude_variants
        return not exclude or self._variant(row, self._plan(row)[1]) not in exclude

    def read(self, number: int, row: Row) -> Sample | list[Fault]:
        """Read one row."""
        plan, gets, quick = self._plan(row)
        sample = quick.read(row) if quick.is_usable else None
        if sample is not None:
            return sample
        read = self._read_long(number, row, plan, gets)
        if quick.is_usable and not isinstance(read, list):
            quick.learn(row, read)
        return read

    def plain(self, number: int, row: Row) -> PlainSample | Sample | list[Fault]:
        """Read one row, into no more than is stored of it where it is plain."""
        quick = self._quick.get(len(row))
        plain = None if quick is None else quick.plain(row)
        return self.read(number, row) if plain is None else plain

    def _read_long(
        self, number: int, row: Row, plan: FieldPlan, gets: Mapping[str, Getter]
    ) -> Sample | list[Fault]:
        """Read a row with every check."""
        faults: list[Fault] = []

        def fault(field: str, message: str, said: str = "") -> None:
            place, file = plan.paths.get(field, field), self.spec.shown_as
            faults.append(Fault(file=file, row=number, field=place, message=message, said=said))

        prompt = self._prompt(row, gets, fault)
        metadata = _leftover(row, plan.taken)
        label = self._label(row, gets, metadata, fault)
        if metadata.get(LABEL_SOURCE) == INFERRED:
            self.inferred.add(number)
        category, subcategory = self._category(row, gets, label, fault)
        severity = self._severity(row, gets, fault)
        must_keep = _spans(self._value(row, gets, "must_keep"), prompt, fault)
        if faults or prompt is None or label is None:
            return faults
        given_id = self._value(row, gets, "id")
        sample_id = str(given_id) if given_id not in (None, "") else f"{self._stem}:{number}"
        variant = self._variant(row, gets)
        plain = {f: self._text(row, gets, f) for f in _PLAIN_FIELDS}
        return Sample(
            id=sample_id,
            prompt=prompt,
            label=label,
            category=category,
            subcategory=subcategory,
            severity=severity,
            variant=variant,
            group=self._text(row, gets, "group") or _origin(sample_id, variant),
            must_keep=must_keep,
            metadata=metadata,
            expected=plain["expected"],
            technique=plain["technique"],
            language=plain["language"],
            source=plain["source"] or self.spec.name,
        )

    def _plan(self, row: Row) -> tuple[FieldPlan, dict[str, Getter], QuickRows]:
        inner = row.get("metadata")
        shape = (*row, "|", *inner) if isinstance(inner, dict) else tuple(row)
        known = self._plans.get(shape)
        if known is None:
            plan = plan_fields(row, self.spec)
            quick = QuickRows(plan, self.spec, tuple(row))
            quick.is_usable &= PACK_MARK not in row
            known = plan, {field: getter(path) for field, path in plan.paths.items()}, quick
            self._plans[shape] = known
            for field, path in plan.paths.items():
                self.mapping.setdefault(field, path)
        if known[2].is_usable:
            self._quick[known[2].width] = known[2]
        return known

    def _value(self, row: Row, gets: Mapping[str, Getter], field: str) -> object:
        get = gets.get(field)
        value = get(row) if get else None
        return self.spec.defaults.get(field) if value is None or value == "" else value

    def _text(self, row: Row, gets: Mapping[str, Getter], field: str) -> str:
        value = self._value(row, gets, field)
        return "" if value is None else str(value)

    def _variant(self, row: Row, gets: Mapping[str, Getter]) -> str:
        return self._text(row, gets, "variant") or "original"

    def _prompt(self, row: Row, gets: Mapping[str, Getter], fault: _Report) -> Prompt | None:
        if gets.get("messages") and (messages := gets["messages"](row)) is not None:
            return _conversation(messages, fault)
        if "text" not in gets:
            names = listed(str(name) for name in row)
            fault("text", f"is missing (the row has: {names}); name it under map: {{text: ...}}")
            return None
        text = gets["text"](row)
        if not isinstance(text, str):
            came = (
                "is missing" if text is None else f"is of type {type(text).__name__}, expected text"
            )
            fault("text", came)
            return None
        if not text.strip():
            fault("text", "is empty")
            return None
        return Prompt.of_text(text)

    def _label(
        self,
        row: Row,
        gets: Mapping[str, Getter],
        metadata: dict[str, object],
        fault: _Report,
    ) -> Label | None:
        """Read the label; for items of a pack, note in the metadata where it came from."""
        in_pack = PACK_MARK in row
        if self.spec.label is not None:
            if in_pack:
                metadata[LABEL_SOURCE] = STATED
            return self.spec.label
        field = "label"
        if in_pack and not (self.spec.label_field or self.spec.map.get("label")):
            value, metadata[LABEL_SOURCE], path = resolve_label(row)
            field = path or field
            self.mapping["label"] = path or self.mapping.get("label", "pack_name")
            if value is None:
                value = self.spec.defaults.get("label")
        else:
            value = self._value(row, gets, "label")
        if value is None:
            fault(field, _NO_LABEL)
            return None
        label = read_label(value, self.spec.labels)
        if label is None:
            fault(
                field,
                "says {said}, which is no known label; translate it under labels: {WORD: attack}",
                repr(str(value)[:40]),
            )
        return label

    def _category(
        self,
        row: Row,
        gets: Mapping[str, Getter],
        label: Label | None,
        fault: _Report,
    ) -> tuple[str, str]:
        category, subcategory = (
            self._text(row, gets, "category"),
            self._text(row, gets, "subcategory"),
        )
        if label is not Label.ATTACK or not category:
            return category, subcategory
        known = self._known.get(category)
        if known is None and (self.spec.open_categories or PACK_MARK in row):
            self.own_categories.setdefault(category, set()).add(subcategory)
        elif known is None:
            hint = did_you_mean(category, self._known) or " Known: " + listed(self._known) + "."
            fault(
                "category",
                f"says {{said}}, which is not declared.{hint} "
                "Own categories go under taxonomy: {extend: ...}",
                repr(category[:60]),
            )
        elif subcategory and subcategory not in known:
            self.undeclared.add(f"{category}/{subcategory}")
        return category, subcategory

    def _severity(self, row: Row, gets: Mapping[str, Getter], fault: _Report) -> Severity | None:
        word = self._text(row, gets, "severity").strip().lower()
        if not word:
            return None
        severity = _SEVERITIES.get(word)
        if severity is None:
            wanted = f"says {{said}}, expected one of {', '.join(_SEVERITIES)}"
            fault("severity", wanted, repr(word[:40]))
        return severity


def _origin(sample_id: str, variant: str) -> str:
    """The group that an id like `<base>-<variant>` tells, as prompt packs write them."""
    suffix = f"-{variant}"
    return sample_id.removesuffix(suffix) if sample_id.endswith(suffix) else ""


def _conversation(messages: object, fault: _Report) -> Prompt | None:
    if not isinstance(messages, list) or not messages:
        fault("messages", "is not a list of messages")
        return None
    read: list[Message] = []
    marked: list[int] = []
    for index, message in enumerate(messages):
        role = _ROLES.get(str(message.get("role"))) if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if role is None or not isinstance(content, str):
            fault(
                "messages",
                f"message {index + 1} needs a role ({', '.join(Role)}) and a content that is text",
            )
            return None
        read.append(Message(role=role, content=content))
        if message.get("under_test"):
            marked.append(index)
    if len(marked) > 1:
        fault("messages", "marks more than one message as under_test")
        return None
    under_test = marked[0] if marked else _usual_target(read)
    if not read[under_test].content.strip():
        fault("messages", f"message {under_test + 1}, the one under test, is empty")
        return None
    return Prompt(messages=tuple(read), under_test=under_test)


def _usual_target(messages: list[Message]) -> int:
    """The message under test when none is marked: material at the end, or the last user turn."""
    last = len(messages) - 1
    if messages[last].role in _MATERIAL:
        return last
    users = [index for index, message in enumerate(messages) if message.role is Role.USER]
    return users[-1] if users else last


def _spans(value: object, prompt: Prompt | None, fault: _Report) -> tuple[str, ...]:
    if value is None or prompt is None:
        return ()
    spans = [value] if isinstance(value, str) else value
    if not isinstance(spans, list) or not all(isinstance(span, str) and span for span in spans):
        fault("must_keep", "is not a list of texts")
        return ()
    text = prompt.text
    lost = [span for span in spans if span not in text]
    if lost:
        fault(
            "must_keep",
            f"names {len(lost)} span{'s' * (len(lost) > 1)} that the text under test does not hold",
        )
    return tuple(spans)


def _leftover(row: Row, taken: frozenset[str]) -> dict[str, object]:
    """What the row says beside the fields of a sample; an inner `metadata` is laid flat."""
    left: dict[str, object] = {}
    for name, value in row.items():
        if name == "metadata" and isinstance(value, dict):
            left.update(value)
        elif name not in taken:
            left[name] = value
    return left
