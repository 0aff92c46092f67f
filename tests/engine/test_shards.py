"""Shards: whole groups of the data, the same ones on every machine, and nothing lost between them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.sample import Label, Prompt, Sample
from guardmark.engine.shards import PLACE, ShardSet, in_ranges, number_of, without_place
from guardmark.store.samples import PlainSample, kind_of


def sample(name: str, *, group: str = "", **more: object) -> Sample:
    """A benign sample."""
    prompt = Prompt.of_text(f"text of {name}")
    return Sample(id=name, prompt=prompt, label=Label.BENIGN, group=group, metadata=more)


SAMPLES = [sample(f"s-{n}", group=f"g-{n % 40}" if n % 3 else "", line=n) for n in range(300)]


def test_where_a_group_goes_never_changes() -> None:
    """Machines of other years and makes agree, so these numbers are part of the format."""
    assert [number_of(group, 16) for group in ("a", "b", "jb-001", "é")] == [16, 15, 4, 11]


@pytest.mark.parametrize("text", ["3/16", "1-4,7/16", "1/1", "2,4-5/100000"])
def test_shards_are_written_as_they_are_read(text: str) -> None:
    """One form for the command line, the configuration and the manifest."""
    assert str(ShardSet.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "0/4", "5/4", "3-2/4", "1/0", "1/100001", "a/4", "1/4/2", "1-9999999/9999999"]
)
def test_what_is_no_shard_is_refused(text: str) -> None:
    """A slip in a job script must not measure the wrong part, nor ask for endless memory."""
    with pytest.raises(ValueError, match=r"shard"):
        ShardSet.parse(text)


@pytest.mark.parametrize("of", [1, 2, 7, 16])
def test_every_sample_lies_in_one_shard_with_its_group(of: int) -> None:
    """Whole groups stay together, since intervals count groups."""
    shards = [ShardSet.parse(f"{n}/{of}") for n in range(1, of + 1)]
    taken = [list(shard.take(SAMPLES)) for shard in shards]
    assert Counter(each.id for part in taken for each in part) == Counter(s.id for s in SAMPLES)
    homes = {(each.group or each.id, n) for n, part in enumerate(taken) for each in part}
    assert len(homes) == len({group for group, _ in homes})


def test_places_lead_back_to_the_order_of_the_data() -> None:
    """And what was noted beside a sample is taken away again, without a trace."""
    parts = [list(ShardSet.parse(f"{n}/5").take(SAMPLES)) for n in range(1, 6)]
    whole = [each for part in parts for each in part if isinstance(each, Sample)]
    whole.sort(key=lambda each: int(str(each.metadata[PLACE])))
    assert [without_place(each) for each in whole] == SAMPLES


def test_a_plain_sample_keeps_what_else_is_known_of_it() -> None:
    """Samples that are stored without being built have their place in the same words."""
    plain = PlainSample("a", kind_of(SAMPLES[0]), None, "text", b"", '{"expected":"block"}')
    (taken,) = ShardSet.parse("1/1").take([plain])
    assert isinstance(taken, PlainSample)
    assert taken.rest == '{"expected":"block","metadata":{"guardmark_place":0}}'


@given(st.sets(st.integers(1, 60), min_size=1))
def test_ranges_name_exactly_these_shards(numbers: set[int]) -> None:
    """What is missing is said in few words, and all of it."""
    shards = ShardSet.parse(f"{in_ranges(numbers)}/60")
    assert shards.numbers == numbers
    assert shards.missing == set(range(1, 61)) - numbers


def test_a_run_is_named_after_its_part_of_the_data() -> None:
    """The name stands in every report, so no figure passes for that of the whole."""
    names = [ShardSet.parse(text).name_run("mine") for text in ("3/16", "1-14,16/16", "1-16/16")]
    assert names == ["mine (shard 3 of 16)", "mine (15 of 16 shards; missing: 15)", "mine"]
