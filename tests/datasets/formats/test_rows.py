"""One row into one sample: names, labels, categories, conversations, spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from guardmark.core.sample import Label, Role, Severity
from guardmark.datasets.formats.fields import USUAL_NAMES, BadRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.datasets.loading import LoadedData

    Read = Callable[..., LoadedData]


def fault_of(read: Read, row: dict[str, Any], **settings: Any) -> tuple[str, str]:
    """Field and message of the only fault of a row."""
    with pytest.raises(BadRows) as caught:
        read("data.jsonl", [row], **settings)
    (fault,) = caught.value.faults
    return fault.field, str(fault)


@pytest.mark.parametrize("name", USUAL_NAMES["text"])
def test_the_usual_names_of_a_text_are_recognised(read: Read, name: str) -> None:
    """Nobody should have to write a map for a file everybody writes."""
    data = read("data.jsonl", [{name: "hello", "label": 0}])
    assert next(data.samples()).prompt.text == "hello"
    assert data.manifests[0].mapping == {"label": "label", "text": name}


@pytest.mark.parametrize(
    ("name", "value", "label"),
    [
        ("is_attack", True, Label.ATTACK),
        ("is_attack", False, Label.BENIGN),
        ("is_harmful", 1, Label.ATTACK),
        ("is_harmful", 0.0, Label.BENIGN),
        ("label", "Attack", Label.ATTACK),
        ("label", " benign ", Label.BENIGN),
        ("label", "unsafe", Label.ATTACK),
        ("label", "SAFE", Label.BENIGN),
        ("label", "jailbreak", Label.ATTACK),
        ("label", "1", Label.ATTACK),
    ],
)
def test_labels_are_read_in_the_usual_words(
    read: Read, name: str, value: object, label: Label
) -> None:
    """Booleans, numbers and words all occur in the wild."""
    assert next(read("data.jsonl", [{"text": "t", name: value}]).samples()).label is label


def test_the_words_of_a_file_can_be_translated(read: Read) -> None:
    """Own words come first, even where a usual word says otherwise."""
    rows = [{"text": "a", "kind": "odd"}, {"text": "b", "kind": "attack"}]
    data = read(
        "data.jsonl", rows, label_field="kind", labels={"odd": "attack", "attack": "benign"}
    )
    assert [s.label for s in data.samples()] == [Label.ATTACK, Label.BENIGN]


def test_a_stated_label_holds_for_every_row(read: Read) -> None:
    """A file of attacks alone needs no label column."""
    assert next(read("data.jsonl", [{"text": "t"}], label=Label.ATTACK).samples()).is_attack


def test_dotted_paths_lead_into_rows(read: Read) -> None:
    """Nested fields are reached by their path; a name that holds dots is tried whole first."""
    row = {"in": {"q": "nested", "deep": {"er": True}}, "a.b": "de"}
    data = read(
        "data.jsonl",
        [row],
        map={"text": "in.q", "label": "in.deep.er", "language": "a.b", "severity": "in.q.no"},
    )
    (only,) = data.samples()
    assert (only.prompt.text, only.is_attack, only.language) == ("nested", True, "de")
    assert only.severity is None


def test_names_inside_metadata_are_recognised(read: Read) -> None:
    """Where tutor benchmarks keep everything but the text."""
    inner = {"is_harmful": True, "original_category": "jailbreak", "variant": "typo"}
    (only,) = read(
        "data.jsonl", [{"id": "7-typo", "prompt_text": "t", "metadata": inner}]
    ).samples()
    assert (only.is_attack, only.category, only.variant) == (True, "jailbreak", "typo")
    assert only.group == "7"
    assert only.metadata == inner


def test_what_no_field_takes_becomes_metadata(read: Read) -> None:
    """Nothing a file says is lost."""
    (only,) = read("data.jsonl", [{"text": "t", "label": 0, "url": "u", "n": 3}]).samples()
    assert only.metadata == {"url": "u", "n": 3}


def test_defaults_fill_what_rows_leave_open(read: Read) -> None:
    """Empty counts as not stated."""
    rows = [{"text": "a", "language": ""}, {"text": "b", "language": "fr"}]
    data = read("data.jsonl", rows, defaults={"language": "en", "label": "benign"})
    assert [s.language for s in data.samples()] == ["en", "fr"]


def test_rows_without_an_id_go_by_file_and_number(read: Read) -> None:
    """Stable as long as the file is."""
    assert [s.id for s in read("data.jsonl", [{"text": "t", "label": 0}]).samples()] == ["data:1"]


@pytest.mark.parametrize(
    ("row", "field", "said"),
    [
        ({"label": 1}, "text", "is missing (the row has: label)"),
        ({"text": None, "label": 1}, "text", "is missing"),
        ({"text": 5, "label": 1}, "text", "is of type int, expected text"),
        ({"text": " \n", "label": 1}, "text", "is empty"),
        ({"text": "t"}, "label", "is missing; name its column (label_field: COLUMN)"),
        ({"text": "t", "label": "bad"}, "label", "translate it under labels: {WORD: attack}"),
        ({"text": "t", "label": 1, "severity": "grave"}, "severity", "expected one of low"),
        ({"text": "t", "label": 1, "must_keep": ["x"]}, "must_keep", "names 1 span that the"),
        ({"text": "t", "label": 1, "must_keep": [1]}, "must_keep", "is not a list of texts"),
        ({"messages": [], "label": 1}, "messages", "is not a list of messages"),
        ({"messages": "hi", "label": 1}, "messages", "is not a list of messages"),
        ({"messages": [{"role": "x", "content": ""}], "label": 1}, "messages", "message 1 needs"),
        ({"messages": [{"role": "user"}], "label": 1}, "messages", "content that is text"),
        ({"messages": ["hi"], "label": 1}, "messages", "message 1 needs a role"),
        (
            {"messages": [{"role": "user", "content": " "}], "label": 1},
            "messages",
            "message 1, the one under test, is empty",
        ),
        (
            {
                "messages": [{"role": "user", "content": "a", "under_test": True}] * 2,
                "label": 1,
            },
            "messages",
            "marks more than one message",
        ),
    ],
)
def test_a_mistake_is_named_with_its_field(
    read: Read, row: dict[str, Any], field: str, said: str
) -> None:
    """What came, what was expected, and what to do."""
    where, message = fault_of(read, row)
    assert where == field
    assert said in message


def test_all_mistakes_of_a_row_are_named(read: Read) -> None:
    """One round of mending is enough."""
    with pytest.raises(BadRows) as caught:
        read("data.jsonl", [{"text": "", "label": "?", "severity": "?"}])
    assert [fault.field for fault in caught.value.faults] == ["text", "label", "severity"]


def test_an_undeclared_category_is_met_with_the_nearest(read: Read) -> None:
    """A typo must not open a category of its own."""
    field, message = fault_of(read, {"text": "t", "label": 1, "category": "jailbraek"})
    assert field == "category"
    assert "Did you mean 'jailbreak'?" in message
    assert "taxonomy: {extend: ...}" in message


def test_a_category_like_no_other_is_met_with_all(read: Read) -> None:
    """When nothing is near, the known ones are listed."""
    _, message = fault_of(read, {"text": "t", "label": 1, "category": "zzz"})
    assert "Known: direct_injection, extraction," in message


def test_own_categories_are_taken_when_the_file_may_bring_them(read: Read) -> None:
    """They join the taxonomy of the run."""
    rows = [{"text": "t", "label": 1, "category": "scams", "subcategory": "prize"}]
    data = read("data.jsonl", rows, open_categories=True)
    assert data.taxonomy["scams"] == ("prize",)


def test_an_undeclared_subcategory_is_kept_and_told(read: Read) -> None:
    """Refinement is welcome; the reader hears of it once."""
    rows = [
        {"text": str(n), "label": 1, "category": "jailbreak", "subcategory": "by_song"}
        for n in range(3)
    ]
    data = read("data.jsonl", rows)
    assert {s.subcategory for s in data.samples()} == {"by_song"}
    (warning,) = data.warnings
    assert "jailbreak/by_song" in warning


def test_benign_topics_are_free(read: Read) -> None:
    """The taxonomy is one of attacks."""
    rows = [{"text": "t", "label": 0, "category": "beekeeping", "subcategory": "hives"}]
    data = read("data.jsonl", rows)
    assert data.warnings == ()
    assert next(data.samples()).category == "beekeeping"


@pytest.mark.parametrize(
    ("roles", "marked", "expected"),
    [
        (["system", "user"], None, 1),
        (["user", "document"], None, 1),
        (["user", "assistant"], None, 0),
        (["system", "assistant"], None, 1),
        (["user", "tool", "user"], None, 2),
        (["user", "tool", "user"], 1, 1),
        (["human", "ai", "function"], None, 2),
    ],
)
def test_the_message_under_test_is_marked_or_the_usual_one(
    read: Read, roles: list[str], marked: int | None, expected: int
) -> None:
    """Material at the end, else the last words of the user."""
    messages = [
        {"role": role, "content": f"{index}"} | ({"under_test": True} if index == marked else {})
        for index, role in enumerate(roles)
    ]
    (only,) = read("data.jsonl", [{"messages": messages, "label": 1}]).samples()
    assert only.prompt.under_test == expected
    assert all(isinstance(message.role, Role) for message in only.prompt.messages)


def test_a_single_span_may_stand_without_a_list(read: Read) -> None:
    """As CSV writes it."""
    (only,) = read("data.jsonl", [{"text": "say X", "label": 1, "must_keep": "X"}]).samples()
    assert only.must_keep == ("X",)


def test_severity_is_read_whatever_its_case(read: Read) -> None:
    """`High` is high."""
    (only,) = read("data.jsonl", [{"text": "t", "label": 1, "severity": " High "}]).samples()
    assert only.severity is Severity.HIGH


def test_rows_that_differ_in_what_they_say_share_a_line(read: Read) -> None:
    """Every row is named, and forty undeclared categories are no forty lines."""
    content = [{"id": f"{n}", "text": "a", "label": 1, "category": f"zz{n}"} for n in range(1, 41)]
    with pytest.raises(BadRows) as caught:
        read("data.jsonl", content)
    _, line, _ = str(caught.value).splitlines()
    assert "rows 1-40, field category: says 'zz1', 'zz2'" in line
    assert "'zz8' and 32 more, which is not declared" in line
    assert len(caught.value.faults) == 40
