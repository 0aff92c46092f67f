"""What is said twice, what contradicts, what deduplication leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guardmark.datasets.checks.duplicates import (
    deduplicate,
    describe_method,
    families_of,
    find_duplicates,
    group_similar,
    note_copies,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.core.sample import Prompt, Sample

    Make = Callable[..., Sample]

LONG = "please tell me which train goes to the coast on sunday morning before nine"
NEAR = "please tell me which train goes to the coast on sunday morning before ten"
OTHER = "the quick summary of a long report about bees and their winter quarters"


def test_copies_and_rewordings_are_counted_apart(sample: Make) -> None:
    """Byte for byte, or word for word."""
    found = find_duplicates([sample(LONG), sample(LONG), sample(LONG.upper() + "!"), sample(OTHER)])
    assert (found.samples, found.copies, found.rewordings) == (4, 1, 1)


def test_near_duplicates_in_different_groups_form_a_family(sample: Make) -> None:
    """Intervals would take them for independent."""
    found = find_duplicates([sample(LONG), sample(NEAR), sample(OTHER)])
    (family,) = found.families
    assert (family.ids, family.groups) == (("s1", "s2"), 2)
    assert found.surplus_groups == 1


def test_near_duplicates_of_one_group_are_as_they_should_be(sample: Make) -> None:
    """Variants are near-duplicates on purpose."""
    found = find_duplicates([sample(LONG, group="g"), sample(NEAR, group="g")])
    assert found.families == ()


def test_opposite_labels_on_equal_words_are_a_contradiction(sample: Make) -> None:
    """The reader refuses equal bytes; equal words are found here."""
    found = find_duplicates([sample(LONG, attack=True), sample(LONG + ".")])
    (conflict,) = found.conflicts
    assert (conflict.attack, conflict.benign) == ("s1", "s2")
    assert (conflict.similarity, conflict.is_same) == (1.0, True)


def test_opposite_labels_on_nearly_equal_texts_are_told_apart_from_that(sample: Make) -> None:
    """They may be contrasts made on purpose."""
    found = find_duplicates([sample(LONG), sample(NEAR, attack=True), sample(NEAR + "!")])
    assert [(c.attack, c.benign, c.is_same) for c in found.conflicts] == [
        ("s2", "s3", True),
        ("s2", "s1", False),
    ]


def test_texts_of_one_template_with_both_labels_make_no_square_of_pairs(sample: Make) -> None:
    """Each text is told with the first that contradicts it, however many do."""
    made = [sample(f"{LONG} {number}", attack=number % 2 == 0) for number in range(200)]
    found = find_duplicates(made)
    (family,) = found.families
    assert len(family.ids) == 200
    assert len(found.conflicts) == 199
    assert len({c.attack for c in found.conflicts} | {c.benign for c in found.conflicts}) == 200


def test_the_same_last_words_after_other_words_are_no_contradiction(
    sample: Make, conversation: Callable[..., Prompt]
) -> None:
    """Context decides; the finding says that only the texts under test are alike."""
    one = conversation(("system", "a"), ("user", LONG))
    two = conversation(("system", "b"), ("user", LONG))
    found = find_duplicates([sample(prompt=one, attack=True), sample(prompt=two)])
    assert found.copies == found.rewordings == 0
    assert [c.is_same for c in found.conflicts] == [False]


def test_texts_without_words_are_compared_as_they_are(sample: Make) -> None:
    """Emoji and punctuation are texts too."""
    found = find_duplicates([sample("???"), sample("!!!"), sample("???")])
    assert (found.copies, found.rewordings, len(found.families)) == (1, 0, 1)


def test_the_method_names_its_threshold() -> None:
    """Printed with every result."""
    assert "Jaccard similarity >= 0.7" in describe_method(0.7)


def test_deduplication_keeps_the_first(sample: Make) -> None:
    """And says whom each of the others repeats."""
    dropped = deduplicate([sample(LONG), sample(OTHER), sample(NEAR), sample(OTHER)])
    assert [(d.id, d.kept) for d in dropped] == [("s3", "s1"), ("s4", "s2")]
    assert dropped[0].similarity < 1.0 == dropped[1].similarity


def test_deduplication_leaves_variants_of_a_group_unless_told(sample: Make) -> None:
    """Copies go in any case."""
    texts = [sample(t, group="g") for t in (LONG, NEAR, LONG)]
    assert [d.id for d in deduplicate(texts)] == ["s3"]
    assert [d.id for d in deduplicate(texts, within_groups=True)] == ["s2", "s3"]


def test_deduplication_never_decides_between_labels(sample: Make) -> None:
    """Which is right is for a person to say."""
    assert deduplicate([sample(LONG), sample(NEAR, attack=True)]) == ()


def test_what_is_dropped_is_like_something_that_stays(sample: Make) -> None:
    """A chain of likenesses does not drag the far end along."""
    words = list("abcdefghijklmnop")
    texts = [" ".join(words[n : n + 12]) for n in range(4)]
    dropped = deduplicate([sample(text) for text in texts], threshold=0.7)
    assert [(d.id, d.kept) for d in dropped] == [("s2", "s1"), ("s4", "s3")]


def test_families_join_groups_by_near_duplicates(sample: Make) -> None:
    """Named after the first of the groups they join."""
    samples = [
        sample(LONG, group="m"),
        sample(OTHER, group="z"),
        sample(NEAR, group="b"),
        sample("alone", group="m"),
        sample(LONG, group="q"),
    ]
    assert families_of(samples) == ["b", "z", "b", "b", "b"]
    assert families_of(samples, threshold=None) == ["m", "z", "b", "m", "q"]


def test_groups_are_given_to_families_and_to_nothing_else(sample: Make) -> None:
    """Each sample that was given one says so; the others stay as they were."""
    samples = [sample(LONG, group="m"), sample(OTHER), sample(NEAR), sample("alone", group="q")]
    grouped = group_similar(samples, threshold=0.5)
    assert [each.group for each in grouped] == ["m", "", "m", "q"]
    assert ["group_source" in each.metadata for each in grouped] == [True, False, True, False]
    assert "Jaccard similarity >= 0.5" in str(grouped[0].metadata["group_source"])
    assert find_duplicates(grouped).families == ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.sampled_from([LONG, NEAR, OTHER, LONG.upper()]), max_size=10))
def test_what_remains_after_deduplication_has_nothing_left_to_drop(
    sample: Make, texts: list[str]
) -> None:
    """Doing it twice does no more than doing it once."""
    samples = [sample(text) for text in texts]
    gone = {d.id for d in deduplicate(samples)}
    kept = [s for s in samples if s.id not in gone]
    assert deduplicate(kept) == ()
    assert find_duplicates(kept).families == ()


def test_copies_are_noted_with_the_way_out(sample: Make) -> None:
    """Copies within a group are what a group is for."""
    (note,) = note_copies([sample(LONG), sample(LONG), sample(NEAR), sample(OTHER)])
    assert note.startswith("3 groups hold copies or near-copies of texts in another group, such as")
    assert "guardmark data dedup" in note
    assert not [*note_copies([sample(LONG, group="g"), sample(NEAR, group="g"), sample(OTHER)])]


def test_the_note_before_a_run_costs_little_whatever_the_texts(sample: Make) -> None:
    """Where all texts meet all others it stops, and says so; the whole search is `data check`."""
    words = [f"{LONG} {number} {' '.join(LONG.split()[::-1])} {number}" for number in range(600)]
    (note,) = note_copies([sample(LONG), sample(LONG), *map(sample, words)])
    assert note.startswith("At least ")
    count = int(note.split()[2])  # of groups: each sample is one of its own
    assert 2 <= count < 602
    assert sum(len(f.ids) for f in find_duplicates([*map(sample, words)]).families) == 600
