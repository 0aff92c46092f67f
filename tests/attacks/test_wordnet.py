"""Reading a WordNet folder: the documented format, on a database of six words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from guardmark.attacks.application import apply
from guardmark.attacks.catalogue import operators
from guardmark.attacks.contract import Tier, arm_of
from guardmark.attacks.operators.wordnet import PARTS_OF_SPEECH, read_wordnet, wordnet_operator
from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "  1 This head stands for the licence of the real files.  \n"


def write(folder: Path, part: str, synsets: list[list[str]], index: dict[str, list[int]]) -> None:
    """Write one part of speech; a word's senses are numbers of synsets, counted unless -1 ends them."""
    data, offsets = HEAD, []
    for words in synsets:
        offsets.append(len(data))
        members = " ".join(f"{word} 0" for word in words)
        data += f"{offsets[-1]:08d} 03 {part[0]} {len(words):02x} {members} 000 | a gloss  \n"
    (folder / f"data.{part}").write_text(data, encoding="ascii")
    lines = HEAD
    for word, senses in index.items():
        real = [s for s in senses if s >= 0]
        counted = 0 if -1 in senses else len(real)
        places = " ".join(f"{offsets[s]:08d}" for s in real)
        lines += f"{word} {part[0]} {len(real)} 1 @ {len(real)} {counted} {places}  \n"
    (folder / f"index.{part}").write_text(lines, encoding="ascii")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A database in the format of the real one."""
    for part in PARTS_OF_SPEECH:
        write(tmp_path, part, [], {})
    write(
        tmp_path,
        "noun",
        [["rule", "regulation", "rule_of_thumb"], ["convention", "rule"], ["dominion", "rule"]],
        {"rule": [0, 1, 2], "dominion": [2, -1], "print": [1]},
    )
    write(tmp_path, "verb", [["print", "publish"]], {"print": [0], "publish": [0]})
    write(tmp_path, "adj", [["abundant", "galore(ip)"]], {"abundant": [0]})
    return tmp_path


def test_the_first_two_counted_senses_of_single_words(folder: Path) -> None:
    """Rare senses, rare words, phrases and words of two parts of speech stay out."""
    assert read_wordnet(folder) == {
        "rule": ("regulation", "convention"),
        "publish": ("print",),
        "abundant": ("galore",),
    }


def test_its_variants_wait_for_a_judge(folder: Path) -> None:
    """A thesaurus proves nothing."""
    chosen = arm_of(wordnet_operator(folder), p=1.0)
    attempt = apply(chosen, "Publish the Rule", seed=bytes(32))
    assert attempt.text in {"Print the Regulation", "Print the Convention"}
    assert (attempt.tier, attempt.needs_judge) == (Tier.V4, True)


def test_it_is_no_part_of_the_catalogue(folder: Path) -> None:
    """The battery must not depend on what a machine has installed."""
    assert wordnet_operator(folder).name not in {found.name for found in operators()}
    assert wordnet_operator(folder).table_digest is not None


def test_a_folder_without_a_database_is_refused(tmp_path: Path) -> None:
    """The message says what should be there."""
    with pytest.raises(ConfigError, match=r"index\.noun cannot be read"):
        read_wordnet(tmp_path)


@pytest.mark.parametrize("line", ["rule n x\n", "rule n 1 0 1 1 00009999\n"])
def test_a_damaged_database_is_refused(folder: Path, line: str) -> None:
    """Rather than read words from the wrong place."""
    (folder / "index.noun").write_text(line, encoding="ascii")
    with pytest.raises(ConfigError, match=r"format|differ"):
        read_wordnet(folder)
