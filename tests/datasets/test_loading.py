"""Data sets as one stream: contradictions, double ids, groups, limits, filters, memory."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from guardmark.core.errors import DatasetError
from guardmark.core.sample import DEFAULT_TAXONOMY, Label
from guardmark.datasets.formats.fields import BadRows
from guardmark.datasets.loading import LoadedData, load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guardmark.datasets.formats.fields import DatasetSpec

    Read = Callable[..., LoadedData]
    Put = Callable[..., Path]
    Spec = Callable[..., DatasetSpec]


def rows(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Write distinct attacks."""
    return [{"id": f"r{n}", "text": f"text {n}", "label": 1, **fields} for n in range(count)]


def test_samples_come_in_order_as_often_as_asked(read: Read) -> None:
    """Every pass gives the same."""
    data = read("data.jsonl", rows(5))
    assert (
        [s.id for s in data.samples()]
        == [s.id for s in data.samples()]
        == [
            "r0",
            "r1",
            "r2",
            "r3",
            "r4",
        ]
    )


def test_a_repeated_id_is_named_with_its_first_place(put: Put, spec: Spec) -> None:
    """Across files as well: records are told apart by it."""
    one = put("one.jsonl", [{"id": "x", "text": "a", "label": 1}])
    two = put(
        "two.jsonl", [{"id": "y", "text": "b", "label": 1}, {"id": "x", "text": "c", "label": 1}]
    )
    with pytest.raises(
        BadRows, match=r"two.jsonl row 2, field id: repeats the id 'x' of one.jsonl row 1"
    ):
        load([spec(one), spec(two)], DEFAULT_TAXONOMY)


def test_equal_texts_with_opposite_labels_are_named(read: Read) -> None:
    """One of the two makes every figure wrong."""
    content = [
        {"id": "a", "text": "same", "label": 1},
        {"id": "b", "text": "same", "label": 0},
        {"id": "c", "text": "same", "label": 1},
    ]
    with pytest.raises(BadRows) as caught:
        read("data.jsonl", content)
    (fault,) = caught.value.faults
    assert (fault.row, fault.field) == (2, "label")
    assert "says benign, but the same text is labelled attack at data.jsonl row 1" in str(fault)


def test_contradictions_are_named_beside_broken_rows_and_files(put: Put, spec: Spec) -> None:
    """One kind of mistake must not hide another."""
    one = put(
        "one.jsonl",
        b'{"id":"a","text":"same","label":1}\n{}\n[]\n{"id":"b","text":"same","label":0}\n',
    )
    with pytest.raises(BadRows) as caught:
        load([spec(one), spec(put("two.json", "{"))], DEFAULT_TAXONOMY)
    assert {(f.file, f.row) for f in caught.value.faults} == {
        ("one.jsonl", 2),
        ("one.jsonl", 3),
        ("one.jsonl", 4),
        ("two.json", 0),
    }


def test_equal_texts_in_different_contexts_may_differ_in_label(read: Read) -> None:
    """What a document says before them can make the difference."""
    end = {"role": "user", "content": "go on"}
    content = [
        {"messages": [{"role": "system", "content": "a"}, end], "label": 1},
        {"messages": [{"role": "system", "content": "b"}, end], "label": 0},
    ]
    assert read("data.jsonl", content).count == 2


def test_a_group_in_two_files_is_one_family_and_named(put: Put, spec: Spec) -> None:
    """Parted data keep their families; files that only number alike can be told by the note."""
    one = put("one.jsonl", [{"id": "a", "text": "a", "label": 1, "group": "1"}])
    two = put("two.jsonl", [{"id": "b", "text": "b", "label": 1, "group": "1"}])
    loaded = load([spec(one), spec(two)], DEFAULT_TAXONOMY)
    assert [s.group for s in loaded.samples()] == ["1", "1"]
    (note,) = loaded.warnings
    assert note.startswith("One group has samples in both one.jsonl and two.jsonl, such as '1'")


def test_a_limit_takes_each_stratum_by_its_share(read: Read, spec: Spec, tmp_path: Path) -> None:
    """A tenth of the data has a tenth of every category."""
    content = [
        {"id": f"{category}{n}", "text": f"{category} {n}", "label": label, "category": category}
        for category, label, count in [("jailbreak", 1, 60), ("extraction", 1, 20), ("x", 0, 20)]
        for n in range(count)
    ]
    read("data.jsonl", content)
    path = tmp_path / "data.jsonl"
    few = load([spec(path)], DEFAULT_TAXONOMY, limit=10, seed=1)
    assert Counter(s.category for s in few.samples()) == {"jailbreak": 6, "extraction": 2, "x": 2}
    assert (few.count, few.manifests[0].attacks, few.manifests[0].benign) == (10, 8, 2)
    again = load([spec(path)], DEFAULT_TAXONOMY, limit=10, seed=1)
    other = load([spec(path)], DEFAULT_TAXONOMY, limit=10, seed=2)
    assert [s.id for s in few.samples()] == [s.id for s in again.samples()]
    assert [s.id for s in few.samples()] != [s.id for s in other.samples()]
    assert few.manifests[0].sha256 == again.manifests[0].sha256 != other.manifests[0].sha256


def test_a_limit_takes_the_same_samples_of_long_texts(put: Put, spec: Spec) -> None:
    """Few short ones are held, long ones are read again: which are taken is the same, each time."""
    short, long = (
        [{"id": f"s-{n}", "text": f"{n} {word}", "label": n % 2} for n in range(8)]
        for word in ("x", "x" * 900_000)
    )
    few, many = (
        load([spec(put(name, content))], DEFAULT_TAXONOMY, limit=6, seed=1)
        for name, content in (("short.jsonl", short), ("long.jsonl", long))
    )
    ids = [sample.id for sample in few.samples()]
    assert len(ids) == few.count == many.count == 6
    assert [[sample.id for sample in data.samples()] for data in (few, many, many)] == [ids] * 3


def test_a_limit_does_not_depend_on_the_order_of_rows(put: Put, spec: Spec) -> None:
    """Which samples are taken hangs on seed and id alone."""
    one, two = put("one.jsonl", rows(30)), put("two.jsonl", rows(30)[::-1])
    chosen = [
        {s.id for s in load([spec(path)], DEFAULT_TAXONOMY, limit=7, seed=3).samples()}
        for path in (one, two)
    ]
    assert chosen[0] == chosen[1]


def test_a_limit_above_the_size_takes_all(put: Put, spec: Spec) -> None:
    """And leaves the hash alone."""
    path = put("data.jsonl", rows(3))
    whole, limited = (load([spec(path)], DEFAULT_TAXONOMY, limit=limit) for limit in (None, 3))
    assert whole.manifests == limited.manifests


def test_a_limit_counts_each_file_anew(put: Put, spec: Spec) -> None:
    """The manifests tell what was taken of each."""
    one = put("one.jsonl", rows(10))
    two = put("two.jsonl", [{"id": f"b{n}", "text": f"b {n}", "label": 0} for n in range(30)])
    data = load([spec(one), spec(two)], DEFAULT_TAXONOMY, limit=8)
    assert [(m.attacks, m.benign) for m in data.manifests] == [(2, 0), (0, 6)]


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({"kind": ("x",)}, ["1"]),
        ({"kind": ("x", "y")}, ["1", "2"]),
        ({"meta.n": (3,)}, ["2"]),
        ({"meta.n": ("3",)}, ["2"]),
        ({"flag": (True,)}, ["1"]),
        ({"flag": (None,)}, ["3"]),
        ({"kind": ("x",), "flag": (True,)}, ["1"]),
    ],
)
def test_a_filter_takes_rows_by_their_values(
    read: Read, wanted: dict[str, Any], ids: list[str]
) -> None:
    """By dotted path, numbers and their spelling alike."""
    content = [
        {"id": "1", "text": "a", "label": 1, "kind": "x", "flag": True},
        {"id": "2", "text": "b", "label": 1, "kind": "y", "flag": False, "meta": {"n": 3}},
        {"id": "3", "text": "c", "label": 1, "kind": "z", "meta": "none"},
    ]
    data = read("data.jsonl", content, filter=wanted)
    assert [s.id for s in data.samples()] == ids


def test_rows_a_filter_leaves_out_are_not_judged(read: Read) -> None:
    """Their labels may be anything."""
    content = [{"text": "a", "label": 1, "kind": "x"}, {"text": "", "label": "?", "kind": "y"}]
    assert read("data.jsonl", content, filter={"kind": ("x",)}).count == 1


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({"include_variants": {"original"}}, ["1", "3"]),
        ({"exclude_variants": {"original"}}, ["2"]),
        ({"include_variants": {"original", "typo"}, "exclude_variants": {"typo"}}, ["1", "3"]),
    ],
)
def test_variants_are_taken_or_left_out(read: Read, wanted: dict[str, Any], ids: list[str]) -> None:
    """Wherever the row states its variant; a row without one is the original."""
    content = [
        {"id": "1", "text": "a", "label": 1, "variant": "original"},
        {"id": "2", "text": "b", "label": 1, "metadata": {"variant": "typo"}},
        {"id": "3", "text": "c", "label": 1},
    ]
    data = read("data.jsonl", content, **wanted)
    assert [s.id for s in data.samples()] == ids


KINDS = [
    {"id": "1", "text": "a", "label": 1, "kind": "probe", "language": "en"},
    {"id": "2", "text": "b", "label": 1, "kind": "plain", "language": "de"},
    {"id": "3", "text": "c", "label": 0, "kind": "plain", "metadata": {"split": "test"}},
]


def test_a_filter_on_a_field_that_no_row_has_names_those_there_are(read: Read) -> None:
    """A typo in a filter is not an empty data set."""
    with pytest.raises(DatasetError) as caught:
        read("data.jsonl", KINDS, filter={"metadata.splt": ("test",)})
    assert str(caught.value).splitlines() == [
        (
            "data.jsonl: no row has the field 'metadata.splt', which the filter names. "
            "Did you mean 'metadata.split'?"
        ),
        "Fields of the rows: id, kind, label, language, metadata.split, text.",
    ]


def test_a_filter_on_a_value_that_no_row_has_names_those_there_are(read: Read) -> None:
    """With how many rows have each, most frequent first."""
    with pytest.raises(DatasetError) as caught:
        read("data.jsonl", KINDS, filter={"kind": ("prob",)})
    assert str(caught.value).splitlines() == [
        (
            "data.jsonl: no row has 'prob' in the field kind, as the filter asks. "
            "Did you mean 'probe'?"
        ),
        "Values of kind: 'plain' (2), 'probe' (1).",
    ]


def test_one_value_in_vain_among_others_is_a_warning(read: Read) -> None:
    """Something is measured, but perhaps not all that was meant."""
    data = read("data.jsonl", KINDS, filter={"kind": ("probe", "plian")})
    assert data.count == 1
    (warning,) = data.warnings
    assert "no row has 'plian' in the field kind" in warning
    assert "Did you mean 'plain'?" in warning


def test_a_value_that_another_file_has_is_not_missing(put: Put, spec: Spec) -> None:
    """Files of one entry share its filter, and each has its own part of the data."""
    paths = [put("one.jsonl", KINDS[:1]), put("two.jsonl", KINDS[1:])]
    wanted = {"kind": ("probe", "plain")}
    data = load([spec(path, filter=wanted) for path in paths], DEFAULT_TAXONOMY)
    assert (data.count, data.warnings) == (3, ())


def test_a_value_that_another_filter_turns_away_is_not_missing(read: Read) -> None:
    """Two filters that no row passes together are told from a typo."""
    with pytest.raises(DatasetError, match="all of them in none"):
        read("data.jsonl", KINDS, filter={"kind": ("probe",), "language": ("de",)})


def test_rows_without_a_value_can_be_asked_for(read: Read) -> None:
    """Null asks for what is not there, so a field that no row has is no mistake."""
    assert read("data.jsonl", KINDS, filter={"language": (None,)}).count == 1
    assert read("data.jsonl", KINDS, filter={"colour": (None,)}).count == 3


def test_variants_that_no_row_has_are_named(read: Read) -> None:
    """A misspelt operator would silently leave its variants out."""
    with pytest.raises(DatasetError, match="Values of variant: 'original'"):
        read("data.jsonl", KINDS, include_variants=frozenset({"base46"}))


def test_a_filter_over_an_empty_file_says_that_it_is_empty(read: Read) -> None:
    """Nobody is told of fields that cannot be there."""
    with pytest.raises(DatasetError, match="holds no rows"):
        read("data.jsonl", [], filter={"kind": ("probe",)})


def test_the_hash_of_a_file_is_that_of_its_bytes(put: Put, spec: Spec) -> None:
    """Anybody can check it with a standard tool."""
    path = put("data.jsonl", rows(2))
    data = load([spec(path)], DEFAULT_TAXONOMY)
    assert data.manifests[0].files == {"data.jsonl": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_copies_of_one_label_are_no_error(read: Read) -> None:
    """They are counted by `data check`, not refused."""
    content = [{"id": "a", "text": "same", "label": 1}, {"id": "b", "text": "same", "label": 1}]
    assert read("data.jsonl", content, label=Label.ATTACK).count == 2


def test_the_names_of_several_sets_are_joined(put: Put, spec: Spec) -> None:
    """A report names all of them, each once."""
    one, two = put("one.jsonl", rows(1)), put("two.jsonl", [{"text": "b", "label": 1}])
    assert load([spec(one), spec(two)], DEFAULT_TAXONOMY).name == "one + two"


def test_a_file_that_breaks_between_two_passes_is_loud(put: Put, spec: Spec) -> None:
    """Data are read again for each pass; a change in between must not go unseen."""
    path = put("data.jsonl", rows(2))
    data = load([spec(path)], DEFAULT_TAXONOMY)
    put("data.jsonl", [{"text": ""}, {"text": ""}])
    with pytest.raises(BadRows):
        list(data.samples())


def test_what_shares_leave_over_goes_to_the_largest_remainders(put: Put, spec: Spec) -> None:
    """A limit is met exactly."""
    content = [
        {"id": f"{c}{n}", "text": f"{c} {n}", "label": 0, "category": c}
        for c in "xyz"
        for n in range(10)
    ]
    data = load([spec(put("data.jsonl", content))], DEFAULT_TAXONOMY, limit=8)
    assert sorted(Counter(s.category for s in data.samples()).values()) == [2, 3, 3]


def test_thousands_of_contradictions_are_told_in_a_few_lines(read: Read) -> None:
    """The first places and how many more: what is wrong everywhere has one cause."""
    twice = [{**row, "id": f"b{n}", "label": 0} for n, row in enumerate(rows(2_000))]
    with pytest.raises(BadRows) as caught:
        read("data.jsonl", [*rows(2_000), *twice])
    lines = str(caught.value).splitlines()
    assert len(lines) <= 5
    assert "2,000 bad rows" in lines[0]
    assert "data.jsonl row 1," in lines[1]
    assert "and 1,992 more" in lines[1]
