"""Commands about this installation and its files, as programs and people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Type


def test_a_program_reads_which_types_of_parts_there_are(guardmark: Type) -> None:
    """By kind; a person gets the same names, each with a sentence."""
    table = guardmark("plugins", "--json").json
    assert {"pattern", "python", "http"} <= set(table["defense"])
    assert {"defense", "model", "judge"} <= set(table)
    printed = guardmark("plugins").out
    assert all(f"\n  {name} " in printed for types in table.values() for name in types)


def test_a_program_reads_which_profiles_there_are(guardmark: Type) -> None:
    """With the variables that each needs; a person gets them below the type that takes them."""
    listed = guardmark("plugins", "--profiles", "--json").json
    printed = guardmark("plugins", "--profiles").out
    assert [each for each in listed if each["variables"]]
    for each in listed:
        assert f"type: {each['type']}" in printed
        assert f"  {each['name']}" in printed
        assert all(name in printed for name in each["variables"])


def test_an_installation_is_examined_without_a_configuration(guardmark: Type) -> None:
    """A line a check, under no defense; as JSON a list, whose needed failures give the code."""
    read = guardmark("doctor", "--json")
    assert isinstance(read.json, list)
    missing = [check for check in read.json if check["is_fine"] is False and check["is_needed"]]
    assert read.code == int(bool(missing))
    told = guardmark("doctor")
    lines = told.out.splitlines()
    assert (told.code, len(lines)) == (read.code, len(read.json))
    assert not any(line.startswith("defense ") for line in lines)
    for line, check in zip(lines, read.json, strict=True):
        assert line.startswith({True: "ok", False: "--", None: "?"}[check["is_fine"]])
        assert check["subject"] in line


def test_defenses_of_a_configuration_are_examined_by_name(run: Path, guardmark: Type) -> None:
    """Each under a line of its own; as JSON below its name."""
    config = run.parent / "bench.yaml"
    told = guardmark("doctor", config)
    assert "defense words" in told.out.splitlines()
    assert "words" in guardmark("doctor", config, "--json").json


def test_a_signature_without_the_key_that_should_have_made_it_is_refused(guardmark: Type) -> None:
    """Nobody may take it for checked."""
    done = guardmark("verify", "out", "--signature", "seal.sig")
    assert done.code == 2
    assert "--signature needs --public-key FILE" in done.err
    assert "For help: guardmark verify --help" in done.err


@pytest.mark.parametrize("head", ["0123456789abcde", "g" * 16, "0" * 65])
def test_an_expected_head_that_is_none_is_refused(guardmark: Type, head: str) -> None:
    """Sixteen to 64 hexadecimal digits, or nothing is compared."""
    done = guardmark("verify", "out", "--expect", head)
    assert done.code == 2
    assert "is not a head" in done.err


def test_a_run_is_verified_in_words_and_as_a_document(run: Path, guardmark: Type) -> None:
    """Both name the head, which is told as expected where it was."""
    document = guardmark("verify", run, "--json").json
    head = document["head"]
    told = guardmark("verify", run, "--expect", head[:16].upper())
    assert told.code == 0
    assert f"Head of the records: {head} (as expected)" in told.out


@pytest.mark.parametrize("document", ["config", "summary", "comparison", "gate", "stability"])
def test_every_document_has_a_schema_to_print(guardmark: Type, document: str) -> None:
    """For an editor or a validator; without a choice, that of a configuration."""
    printed = guardmark("schema", "--of", document)
    assert printed.code == 0
    assert printed.json["$schema"].startswith("https://json-schema.org/")
    assert (guardmark("schema").out == printed.out) == (document == "config")
