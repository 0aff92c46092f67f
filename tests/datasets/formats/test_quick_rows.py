"""The short way gives exactly what the long way gives."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.sample import DEFAULT_TAXONOMY, Sample
from guardmark.datasets.formats.fields import DatasetSpec, Fault
from guardmark.datasets.formats.rows import RowReader
from guardmark.store.samples import PlainSample, kind_of, rest_of

words = st.sampled_from(["", "original", "attack", "benign", "jailbreak", "low", "1", "a", "b-a"])
values = st.one_of(
    words, st.none(), st.booleans(), st.integers(0, 1), st.just(1.0), st.just(["a"]), st.just({})
)
rows = st.lists(
    st.fixed_dictionaries(
        {"id": values, "text": values, "label": values},
        optional={
            "category": values,
            "severity": values,
            "group": values,
            "variant": values,
            "note": values,
        },
    ),
    max_size=30,
)


@given(rows)
def test_what_was_seen_before_is_read_as_if_for_the_first_time(data: list[dict]) -> None:
    """A reader that has seen every row once must not read any of them differently."""
    spec = DatasetSpec(name="d", path=Path("d.jsonl"), shown_as="d.jsonl")
    practised = RowReader(spec, DEFAULT_TAXONOMY)
    for number, row in enumerate(data, start=1):
        practised.read(number, row)
    for number, row in enumerate(data, start=1):
        fresh = RowReader(spec, DEFAULT_TAXONOMY).read(number, row)
        again = practised.read(number, row)
        assert again == fresh
        if isinstance(fresh, list):
            assert all(isinstance(fault, Fault) for fault in fresh)


@given(rows)
def test_a_plain_sample_says_what_the_sample_in_full_says(data: list[dict]) -> None:
    """What is stored must not depend on the way a row was read."""
    spec = DatasetSpec(name="d", path=Path("d.jsonl"), shown_as="d.jsonl")
    practised = RowReader(spec, DEFAULT_TAXONOMY)
    for number, row in enumerate([*data, *data], start=1):
        read = practised.plain(number, row)
        fresh = RowReader(spec, DEFAULT_TAXONOMY).read(number, row)
        if not isinstance(read, PlainSample):
            assert read == fresh
            continue
        assert isinstance(fresh, Sample)
        assert read == PlainSample(
            fresh.id,
            kind_of(fresh),
            fresh.group or None,
            fresh.prompt.text,
            fresh.prompt.digest(),
            rest_of(expected=fresh.expected, metadata=fresh.metadata, must_keep=fresh.must_keep),
        )


def test_rows_seen_before_are_read_as_plain_samples() -> None:
    """Attacks and benign samples of different shape in turn, and fields of their own."""
    spec = DatasetSpec(name="d", path=Path("d.jsonl"), shown_as="d.jsonl")
    reader = RowReader(spec, DEFAULT_TAXONOMY)
    shapes = [
        {"text": "a", "label": "attack", "category": "jailbreak", "severity": "high"},
        {"text": "b", "label": "benign", "note": "kept"},
    ]
    read = [reader.plain(n, {"id": str(n), **shapes[n % 2]}) for n in range(6)]
    assert [isinstance(sample, PlainSample) for sample in read] == [False] * 2 + [True] * 4
    (last,) = read[-1:]
    assert isinstance(last, PlainSample)
    assert (last.id, last.rest) == ("5", '{"metadata":{"note":"kept"}}')


def test_a_million_rows_of_one_kind_are_checked_once() -> None:
    """The short way is taken: the label is read the long way only for the first row."""
    spec = DatasetSpec(name="d", path=Path("d.jsonl"), shown_as="d.jsonl")
    reader = RowReader(spec, DEFAULT_TAXONOMY)
    row = {"id": "1", "text": "words", "label": "attack", "category": "jailbreak"}
    first = reader.read(1, row)
    second = reader.read(2, {**row, "id": "2", "text": "others"})
    assert not isinstance(first, list)
    assert not isinstance(second, list)
    assert (second.id, second.prompt.text, second.category) == ("2", "others", "jailbreak")
