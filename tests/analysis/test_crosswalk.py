"""`report --crosswalk`: which figure is evidence for which item, and nothing about conformity."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark

from guardmark.analysis.crosswalk.crosswalk import (
    CATEGORIES,
    FIGURES,
    framework_names,
    read_framework,
)
from guardmark.core.manifest import VERSION
from guardmark.core.sample import CATEGORY_MINIMA
from guardmark.reports.chapters.crosswalk import NO_CONFORMITY

ROOT = Path(__file__).parents[2]
CODES = {
    "ailuminate": (r"[a-z]{3}", 12),
    "atlas": r"AML\.T\d{4}(\.\d{3})?",
    "eu-ai-act": r"(Art\. \d+\(\d+\)(\([a-z]\))?|Annex [IVX]+\(\d+\)\([a-z]\))",
    "nist-ai-rmf": r"(GOVERN|MAP|MEASURE|MANAGE) \d\.\d+",
    "owasp-agentic": (r"ASI\d{2}", 10),
    "owasp-llm": (r"LLM\d{2}:2025", 10),
}


def test_the_frameworks_are_those_that_help_and_the_page_name() -> None:
    """Each with its version, its day and where it stands."""
    assert framework_names() == tuple(sorted(CODES))
    page = (ROOT / "docs/reference/crosswalk.md").read_text(encoding="utf-8")
    for name in framework_names():
        framework = read_framework(name)
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", framework.date)
        assert framework.source.startswith("https://")
        assert f"`{name}`" in page
        assert f"{framework.name}, {framework.version}" in page
        for item in framework.items:
            assert item.code in page


@pytest.mark.parametrize("name", CODES)
def test_every_code_has_the_form_of_its_framework_and_stands_there_once(name: str) -> None:
    """A whole list has as many items as its source."""
    form = CODES[name]
    shape, count = form if isinstance(form, tuple) else (form, None)
    codes = [item.code for item in read_framework(name).items]
    assert [code for code in codes if not re.fullmatch(shape, code)] == []
    assert len(set(codes)) == len(codes)
    assert count is None or len(codes) == count


@pytest.mark.parametrize("name", CODES)
def test_what_is_evidence_is_a_figure_or_a_category_that_exists(name: str) -> None:
    """A name that means nothing would be no evidence."""
    assert set(CATEGORIES) == set(CATEGORY_MINIMA)
    for item in read_framework(name).items:
        assert set(item.categories) <= set(CATEGORIES)
        assert set(item.figures) <= set(FIGURES)
        assert set(item.relevant) <= set(FIGURES) | set(CATEGORIES)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run over the built-in data."""
    folder = tmp_path_factory.mktemp("home")
    assert guardmark("demo", "-o", "run", cwd=folder).code == 0
    return folder


def test_the_rates_of_a_category_are_evidence_for_its_item(home: Path) -> None:
    """The same counts as in the summary; baselines are no evidence; what is missing is said."""
    told = json.loads(
        guardmark("report", "run", "--crosswalk", "owasp-llm", "--json", cwd=home).out
    )
    items = {each["code"]: each for each in told["items"]}
    summary = json.loads((home / "run/summary.json").read_text("utf-8"))
    (ngram,) = (each for each in summary["defenses"] if each["name"] == "ngram")
    (table,) = (t for t in ngram["slices"] if t["facet"] == "category" and t["is_attack"])
    rates = {each["name"]: each["rate"] for each in table["rates"]}
    leaked = {each["defense"]: each for each in items["LLM07:2025"]["evidence"]}
    assert set(leaked) == {"ngram", "pattern"}
    assert leaked["ngram"]["successes"] == rates["extraction"]["successes"]
    assert leaked["ngram"]["trials"] == rates["extraction"]["trials"]
    assert items["LLM01:2025"]["left_open"] == ["attack success in an agent"]
    assert items["LLM03:2025"]["evidence"] == []
    assert items["LLM03:2025"]["left_open"] == [
        "nothing that guardmark measures is evidence for this"
    ]


@pytest.mark.parametrize("name", CODES)
def test_a_crosswalk_claims_no_conformity(home: Path, name: str) -> None:
    """And says so itself."""
    done = guardmark("report", "run", "--crosswalk", name, cwd=home)
    assert done.code == 0, done.err
    told = " ".join(done.out.split())
    assert NO_CONFORMITY in told
    rest = told.replace(NO_CONFORMITY, "").casefold()
    assert not re.search(r"\b(conforms|compliant|compliance|certified|fulfils)\b", rest)


def test_an_unknown_framework_is_told_with_those_there_are(home: Path) -> None:
    """Exit code 2."""
    done = guardmark("report", "run", "--crosswalk", "owasp", cwd=home)
    assert done.code == 2
    assert "owasp-llm" in done.err
    assert VERSION not in done.err
