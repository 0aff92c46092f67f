"""One row of a file into one sample, or into all that is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guardmark.core.errors import counted, did_you_mean, listed
from guardmark.core.limits import LONGEST_SAMPLE_NAME
from guardmark.core.sample import Label, MarkedSpan, Prompt, Role, Sample, Severity
from guardmark.datasets.formats.chat_forms import is_conversation
from guardmark.datasets.formats.fields import (
    INFERRED,
    LABEL_SOURCE,
    PACK_MARK,
    STATED,
    Fault,
    FieldPlan,
    getter,
    near_column,
    plan_fields,
    read_label,
    resolve_label,
)
from guardmark.datasets.formats.filters import SampleFilter
from guardmark.datasets.formats.messages import UnreadMessage, read_prompt
from guardmark.datasets.formats.tools import defines_tools, read_tools
from guardmark.parsing.labels import BENIGN_WORDS
from guardmark.store.samples import Kind, PlainSample, kind_of, rest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guardmark.core.sample import Taxonomy
    from guardmark.datasets.formats.fields import DatasetSpec

    Row = Mapping[str, object]
    Getter = Callable[[Row], object]
    Report = Callable[..., None]  # takes the field, the message, and what the row says there


_FACETS: Final = (
    "label",
    "category",
    "subcategory",
    "severity",
    "expected",
    "technique",
    "language",
    "variant",
    "source",
)
"""Fields whose values recur from row to row; each combination is read the long way once."""

_UNUSUAL: Final = frozenset(
    {"messages", "must_keep", "spans", "secrets", "harm_turn", "images", "crossing", "tools"}
)
"""Fields that only the long way reads."""

_new: Final = tuple.__new__
_OWN: Final = 3  # id, text and group stand before the facets
_NOTHING: Final[dict[str, object]] = {}
_SIMPLE: Final = (str, bool)
"""Kinds of facet values that are learned. Words never equal a value of another kind; True equals
1, but as a label, the one facet that may be a boolean, both mean the same."""


class _Known(NamedTuple):
    """What a combination of facets means."""

    facets: Mapping[str, Any]
    kind: Kind
    suffix: str


_Match = tuple[_Known, str, str, str]


class QuickRows:
    """Reads rows of one shape whose facets have been seen before.

    A million rows have a few hundred combinations of label, category, language and so on. The
    long way (`RowReader.read`) reads and checks each combination once and hands the sample
    over by `learn`; afterwards only id, group and text are looked at. Whatever is unusual in a
    row sends it the long way.
    """

    __slots__ = ("_has_group", "_known", "_rest", "_values", "is_usable", "width")

    def __init__(self, plan: FieldPlan, spec: DatasetSpec, names: Sequence[str]) -> None:
        paths = plan.paths
        self.is_usable = (
            "text" in paths
            and "id" in paths
            and not _UNUSUAL.intersection(paths)
            and not spec.defaults
            and "metadata" not in names
            and all(path in names for path in paths.values())
        )
        self.width = len(names)
        self._has_group = "group" in paths
        own = (paths.get("id", ""), paths.get("text", ""), paths.get("group", ""))
        facets = [paths[field] for field in _FACETS if field in paths]
        self._values = itemgetter(*own[:2], own[2] or own[0], *facets)
        self._rest = tuple(name for name in names if name not in plan.taken)
        self._known: dict[tuple[object, ...], _Known] = {}

    def learn(self, row: Mapping[str, object], sample: Sample) -> None:
        """Remember what the facets of a row mean."""
        facets = self._values(row)[_OWN:]
        if all(value is None or type(value) in _SIMPLE for value in facets):
            read = {field: getattr(sample, field) for field in _FACETS}
            known = _Known(facets=read, kind=kind_of(sample), suffix=f"-{sample.variant}")
            self._known.setdefault(facets, known)

    def read(self, row: Mapping[str, object]) -> Sample | None:
        """Read a row the short way."""
        match = self._match(row)
        if match is None:
            return None
        known, sample_id, text, group = match
        metadata = self._metadata(row) if self._rest else _NOTHING
        prompt = Prompt.of_text(text)
        return Sample(id=sample_id, prompt=prompt, group=group, metadata=metadata, **known.facets)

    def plain(self, row: Mapping[str, object]) -> PlainSample | None:
        """Read a row the short way, into no more than is stored of it."""
        try:
            match = self._match(row)
            metadata = self._metadata(row) if self._rest else _NOTHING
        except KeyError:
            return None  # as many fields, but others
        if match is None:
            return None
        known, sample_id, text, group = match
        rest = None
        expected = known.facets["expected"]
        if metadata or expected:
            rest = rest_of(expected=expected, metadata=metadata)
        digest = sha256(text.encode()).digest()
        # By the tuple's own constructor: that of a named one is a call more a sample.
        return _new(PlainSample, (sample_id, known.kind, group or None, text, digest, rest))

    def _match(self, row: Mapping[str, object]) -> _Match | None:
        """Find what the facets of a row mean; None where the row is unusual."""
        values = self._values(row)
        sample_id, text = values[0], values[1]
        if type(text) is not str or type(sample_id) is not str:
            return None
        if not sample_id or sample_id[LONGEST_SAMPLE_NAME:] or not text or text.isspace():
            return None  # the long way says what is wrong
        try:
            known = self._known.get(values[_OWN:])
        except TypeError:
            known = None  # a list or an object where a word was expected
        if known is None:
            return None
        group = ""
        if self._has_group:
            group = values[2] or ""
        if not group and sample_id.endswith(known.suffix):
            return None  # the id tells the group
        if type(group) is not str or group[LONGEST_SAMPLE_NAME:]:
            return None
        return known, sample_id, text, group

    def _metadata(self, row: Mapping[str, object]) -> Mapping[str, object]:
        """Return what the row says beside the fields of a sample."""
        return {name: row[name] for name in self._rest}


_SEVERITIES = {severity.value: severity for severity in Severity}
_PLAIN_FIELDS = ("expected", "technique", "language", "source")
_NAME_TEXT = "; say which column holds it: map: {text: COLUMN}"
_CONTEXT = "ContextString"  # column of HarmBench: what a contextual behavior is asked about
_NOT_EVERYWHERE = (
    "; fill it in, or say what rows without one are: defaults: {label: benign}, "
    "unlabelled: keep (answered and judged, in no rate) or unlabelled: leave_out"
)
_NO_LABEL = (
    "; name its column (label_field: COLUMN), or if all rows are one of both say so (label: attack)"
)


class RowReader:
    """Turns the rows of one data set into samples."""

    def __init__(self, spec: DatasetSpec, taxonomy: Taxonomy) -> None:
        self.spec = spec
        self.mapping: dict[str, str] = {}
        self.unused: dict[str, None] = {}  # columns of no field, kept as metadata
        self.undeclared: set[str] = set()
        self.own_categories: dict[str, set[str]] = {}
        self.inferred: set[int] = set()
        self._taxonomy = taxonomy
        self._known = taxonomy
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
        self.unused_context = 0
        self._quick: dict[int, QuickRows] = {}
        self._stem = spec.path.name.split(".")[0]

    def wanted(self, row: Row) -> bool:
        """Tell whether the row passes the filter of the data set."""
        if not all(rule.passes(row) for rule in self.filters):
            return False
        exclude = self.spec.exclude_variants
        return not exclude or self._variant(row, self._plan(row)[1]) not in exclude

    def read(self, number: int, row: Row) -> Sample | list[Fault]:
        """Read one row, or say all that is wrong with it.

        A row without a label that is left out has nothing wrong with it, and gives no sample.
        """
        plan, gets, quick = self._plan(row)
        if quick.is_usable:
            sample = quick.read(row)
            if sample is not None:
                return sample
        read = self._read_long(number, row, plan, gets)
        if quick.is_usable and not isinstance(read, list):
            quick.learn(row, read)
        return read

    def plain(self, number: int, row: Row) -> PlainSample | Sample | list[Fault]:
        """Read one row, into no more than is stored of it where it is plain."""
        quick = self._quick.get(len(row))
        if quick is not None:
            plain = quick.plain(row)
            if plain is not None:
                return plain
        return self.read(number, row)

    def _read_long(
        self, number: int, row: Row, plan: FieldPlan, gets: Mapping[str, Getter]
    ) -> Sample | list[Fault]:
        """Read a row with every check."""
        faults: list[Fault] = []

        def fault(field: str, message: str, value: str = "") -> None:
            """Note what is wrong with a field of the row."""
            path = plan.paths.get(field, field)
            file = self.spec.shown_as
            faults.append(Fault(file=file, row=number, field=path, message=message, value=value))

        prompt = self._prompt(row, gets, fault)
        metadata = _leftover(row, plan.taken)
        if prompt is not None and "tools" in gets:
            prompt = self._with_tools(prompt, row, gets, metadata=metadata, fault=fault)
        label = self._label(row, gets, metadata, fault)
        if metadata.get(LABEL_SOURCE) == INFERRED:
            self.inferred.add(number)
        category, subcategory = self._category(row, gets, label, fault)
        severity = self._severity(row, gets, fault)
        must_keep = _kept_texts(self._value(row, gets, "must_keep"), prompt, fault)
        spans = _spans(self._value(row, gets, "spans"), prompt, fault)
        secrets = _secrets(self._value(row, gets, "secrets"), fault)
        harm_turn = _harm_turn(self._value(row, gets, "harm_turn"), prompt, fault)
        if self.spec.turns != "last" and prompt is not None:
            _require_user(prompt, fault)
        if faults or prompt is None or label is None:
            return faults
        sample_id = self._text(row, gets, "id") or f"{self._stem}:{number}"
        variant = self._variant(row, gets)
        plain = {field: self._text(row, gets, field) for field in _PLAIN_FIELDS}
        plain["source"] = plain["source"] or self.spec.name
        names = {
            "id": sample_id,
            "category": category,
            "subcategory": subcategory,
            "variant": variant,
            "group": self._text(row, gets, "group") or _origin(sample_id, variant),
            "crossing": self._text(row, gets, "crossing"),
        }
        for field, value in (names | plain).items():
            if len(value) > LONGEST_SAMPLE_NAME:
                fault(field, f"has more than {LONGEST_SAMPLE_NAME:,} characters")
        if faults:
            return faults
        return Sample(
            prompt=prompt,
            label=label,
            severity=severity,
            must_keep=must_keep,
            spans=spans,
            secrets=secrets,
            harm_turn=harm_turn,
            metadata=metadata,
            **names,
            **plain,
        )

    def _plan(self, row: Row) -> tuple[FieldPlan, dict[str, Getter], QuickRows]:
        """Return where rows of this shape hold each field, and how they are read."""
        inner = row.get("metadata")
        shape = (*row, "|", *inner) if isinstance(inner, dict) else tuple(row)
        known = self._plans.get(shape)
        if known is None:
            plan = plan_fields(row, self.spec)
            quick = QuickRows(plan, self.spec, tuple(row))
            quick.is_usable &= PACK_MARK not in row
            gets = {field: getter(path) for field, path in plan.paths.items()}
            known = (plan, gets, quick)
            self._plans[shape] = known
            for field, path in plan.paths.items():
                if field != "images":  # noted where a row has one
                    self.mapping.setdefault(field, path)
            for name in row:
                if name not in plan.taken and name != "metadata":
                    self.unused[str(name)] = None
        if known[2].is_usable:
            self._quick[known[2].width] = known[2]
        return known

    def _value(self, row: Row, gets: Mapping[str, Getter], field: str) -> object:
        """Return what a row says of a field, or the default."""
        get = gets.get(field)
        if get is not None:
            value = get(row)
            if value is not None and value != "":
                return value
        return self.spec.defaults.get(field)

    def _text(self, row: Row, gets: Mapping[str, Getter], field: str) -> str:
        """Return what a row says of a field, as text."""
        value = self._value(row, gets, field)
        if value is None:
            return ""
        return str(value)

    def _variant(self, row: Row, gets: Mapping[str, Getter]) -> str:
        """Return the variant of a row."""
        return self._text(row, gets, "variant") or "original"

    def _prompt(self, row: Row, gets: Mapping[str, Getter], fault: Report) -> Prompt | None:
        """Read the text or the conversation of a row."""
        messages = None
        if "messages" in gets:
            messages = gets["messages"](row)
        if messages is None and "text" in gets and is_conversation(gets["text"](row)):
            messages = gets["text"](row)
        images = self._value(row, gets, "images")
        if messages is not None or images not in (None, "", []):
            folder = self.spec.images or self.spec.path.parent
            if messages is None:
                messages = [{"role": "user", "content": self._text(row, gets, "text")}]
            try:
                prompt = read_prompt(messages, images, folder)
            except UnreadMessage as error:
                fault("images" if images else "messages", str(error))
                return None
            if any(message.images for message in prompt.messages):
                self.mapping["images"] = self._plan(row)[0].paths.get("images", "messages")
            return prompt
        return self._text_prompt(row, gets, fault)

    def _text_prompt(self, row: Row, gets: Mapping[str, Getter], fault: Report) -> Prompt | None:
        """Read the text of a row that holds no conversation."""
        context = row.get(_CONTEXT)
        if isinstance(context, str) and context.strip():
            self.unused_context += 1
        if "text" not in gets:
            near = near_column("text", row)
            hint = _NAME_TEXT
            if near:
                hint = f". Did you mean {near!r}? State map: {{text: {near!r}}}"
            fault("text", f"is missing (the row has: {_column_names(row)}){hint}")
            return None
        text = gets["text"](row)
        if isinstance(text, str) and text.strip():
            return Prompt.of_text(text)
        if text is None:
            fault("text", "is missing")
        elif isinstance(text, str):
            fault("text", "is empty")
        else:
            fault("text", f"is of type {type(text).__name__}, expected text")
        return None

    def _with_tools(
        self,
        prompt: Prompt,
        row: Row,
        gets: Mapping[str, Getter],
        *,
        metadata: dict[str, object],
        fault: Report,
    ) -> Prompt:
        """Add the tools that a row defines; what is no definition stays beside, as metadata."""
        stated = self._value(row, gets, "tools")
        if stated in (None, "", []):
            return prompt
        path = self._plan(row)[0].paths["tools"]
        if "tools" not in self.spec.map and not defines_tools(stated):
            metadata[path.rpartition(".")[2]] = stated
            return prompt
        try:
            tools = read_tools(stated)
        except UnreadMessage as error:
            fault("tools", str(error))
            return prompt
        self.mapping["tools"] = path
        return replace(prompt, tools=tools)

    def _label(
        self, row: Row, gets: Mapping[str, Getter], metadata: dict[str, object], fault: Report
    ) -> Label | None:
        """Read the label; for items of a pack, note in the metadata where it came from."""
        in_pack = PACK_MARK in row
        if self.spec.label is not None:
            if in_pack:
                metadata[LABEL_SOURCE] = STATED
            return self._stated_label(row, gets, self.spec.label, fault)
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
            return self._missing_label(row, field, is_column=field in gets, fault=fault)
        column = field
        if not in_pack:
            column = self.mapping.get("label", "")
        label = read_label(value, self.spec.labels, column=column)
        if label is None:
            fault(
                field,
                "says {value}, not a known label; translate it under labels: {WORD: attack}",
                repr(str(value)[:40]),
            )
        if label is Label.UNLABELLED and self.spec.unlabelled == "leave_out":
            return None
        return label

    def _missing_label(
        self, row: Row, field: str, *, is_column: bool, fault: Report
    ) -> Label | None:
        """Do with a row that states no label what the settings of the data say."""
        if self.spec.unlabelled == "keep":
            return Label.UNLABELLED
        if self.spec.unlabelled == "leave_out":
            return None
        hint = _NO_LABEL
        if is_column:
            hint = _NOT_EVERYWHERE
        else:
            near = near_column("label", row)
            if near:
                hint = f". Did you mean {near!r}? State label_field: {near!r}"
        fault(field, f"is missing{hint}")
        return None

    def _stated_label(
        self, row: Row, gets: Mapping[str, Getter], stated: Label, fault: Report
    ) -> Label | None:
        """Take the label that is stated for a file, unless the row itself says another."""
        column = self.mapping.get("label", "")
        if "label" not in gets or column in self.spec.map.values():
            return stated
        value = gets["label"](row)
        if value in (None, ""):
            return stated
        own = read_label(value, self.spec.labels, column=column)
        if own is stated:
            return stated
        contradiction = f"says {{value}}, but label: {stated} is stated for the whole file"
        hint = f"if the column holds something else, name what: map: {{category: {column}}}"
        if own is not None:
            hint = "leave label: out, or take the rows apart"
        fault("label", f"{contradiction}; {hint}", repr(str(value)[:40]))
        return None

    def _category(
        self, row: Row, gets: Mapping[str, Getter], label: Label | None, fault: Report
    ) -> tuple[str, str]:
        """Read category and subcategory; those of an attack have to be declared."""
        category = self._text(row, gets, "category")
        subcategory = self._text(row, gets, "subcategory")
        if label is Label.BENIGN:
            return _topic(category, subcategory)
        if label is not Label.ATTACK or not category:
            return category, subcategory
        known = self._known.get(category)
        if known is None and (self.spec.open_categories or PACK_MARK in row):
            self.own_categories.setdefault(category, set()).add(subcategory)
        elif known is None:
            hint = did_you_mean(category, self._known) or " Known: " + listed(self._known) + "."
            fault(
                "category",
                f"says {{value}}, which is not declared.{hint} "
                "Declare your own at the top level, taxonomy: {extend: ...}; or, beside path:, "
                "open_categories: true (--open-categories) takes any and filter: takes some rows "
                "only",
                repr(category[:60]),
            )
        elif subcategory and subcategory not in known:
            self.undeclared.add(f"{category}/{subcategory}")
        return category, subcategory

    def _severity(self, row: Row, gets: Mapping[str, Getter], fault: Report) -> Severity | None:
        """Read the severity of a row."""
        word = self._text(row, gets, "severity").strip().lower()
        if not word:
            return None
        severity = _SEVERITIES.get(word)
        if severity is None:
            wanted = f"says {{value}}, expected one of {', '.join(_SEVERITIES)}"
            fault("severity", wanted, repr(word[:40]))
        return severity


def _column_names(row: Row) -> str:
    """List the columns of a row; those with blanks around are shown in quotes."""
    names = []
    for column in row:
        name = str(column)
        names.append(name if name == name.strip() else repr(name))
    return listed(names)


def _topic(category: str, subcategory: str) -> tuple[str, str]:
    """Return the topic of a benign row, and a finer one; the category `benign` is no topic."""
    says_nothing = not category or category.strip().lower() in BENIGN_WORDS
    if says_nothing and subcategory:
        return subcategory, ""
    return category, subcategory


def _origin(sample_id: str, variant: str) -> str:
    """Return the group that an id like `<base>-<variant>` tells, as prompt packs write them."""
    suffix = f"-{variant}"
    if not sample_id.endswith(suffix):
        return ""
    return sample_id.removesuffix(suffix)


def _kept_texts(value: object, prompt: Prompt | None, fault: Report) -> tuple[str, ...]:
    if value is None or prompt is None:
        return ()
    kept = _texts(value)
    if kept is None:
        fault("must_keep", "is not a list of texts")
        return ()
    text = prompt.text
    lost = [span for span in kept if span not in text]
    if lost:
        spans = counted(len(lost), "span")
        fault("must_keep", f"names {spans} that the text under test does not hold")
    return kept


def _texts(value: object) -> tuple[str, ...] | None:
    """Read a text or a list of texts, none of them empty; None for anything else."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        return None
    if not all(isinstance(text, str) and text for text in texts):
        return None
    return tuple(texts)


def _spans(value: object, prompt: Prompt | None, fault: Report) -> tuple[MarkedSpan, ...]:
    """Read `[{start, end, kind}]`: characters of the text under test, none of them twice."""
    if value is None or value == [] or prompt is None:
        return ()
    if not isinstance(value, list):
        fault(
            "spans",
            "is not a list of {start, end, kind}; rename the column if it means something else",
        )
        return ()
    spans = []
    for item in value:
        span = _span(item)
        if span is None:
            fault("spans", "holds what is not {start, end, kind} with numbers and a word")
            return ()
        spans.append(span)
    spans.sort()
    before = 0
    for span in spans:
        if not before <= span.start < span.end <= len(prompt.text):
            fault("spans", "holds a span that overlaps another, is empty or ends behind the text")
            return ()
        before = span.end
    return tuple(spans)


def _span(item: object) -> MarkedSpan | None:
    if not isinstance(item, dict):
        return None
    start, end, kind = item.get("start"), item.get("end"), item.get("kind", "")
    if type(start) is not int or type(end) is not int or not isinstance(kind, str):
        return None
    return MarkedSpan(start, end, kind)


def _secrets(value: object, fault: Report) -> tuple[str, ...]:
    if value is None:
        return ()
    secrets = _texts(value)
    if secrets is None:
        fault("secrets", "is not a list of texts")
        return ()
    return secrets


def _require_user(prompt: Prompt, fault: Report) -> None:
    """Refuse a text under test that no turn of the user brings."""
    role = prompt.messages[prompt.under_test].role
    if role is not Role.USER:
        fault(
            "messages",
            "has its text under test in a message of {value}, but turns: each asks about the "
            "user's messages; leave turns out",
            role.value,
        )


def _harm_turn(value: object, prompt: Prompt | None, fault: Report) -> int | None:
    """Read which of the user's turns asks for the harm."""
    if value in (None, "") or prompt is None:
        return None
    turns = sum(message.role is Role.USER for message in prompt.messages)
    turn = value
    if isinstance(value, str) and value.isdecimal():  # a column of text
        turn = int(value)
    if type(turn) is not int or not 1 <= turn <= turns:
        wanted = f"says {{value}}, expected a turn of the user from 1 to {turns}"
        fault("harm_turn", wanted, repr(value)[:40])
        return None
    return turn


def _leftover(row: Row, taken: frozenset[str]) -> dict[str, object]:
    """Return what the row says beside the fields of a sample; an inner `metadata` is laid flat."""
    left: dict[str, object] = {}
    for name, value in row.items():
        if name == "metadata" and isinstance(value, dict):
            left.update(value)
        elif name not in taken:
            left[name] = value
    return left
