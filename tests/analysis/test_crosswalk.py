"""`report --crosswalk`: which figure is evidence for which item, and nothing about conformity."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark

from guardmark.analysis.frameworks.framework import (
    EVERY_ATTACK,
    FIGURES,
    code_of,
    codes_of_family,
    current_frameworks,
    framework_names,
    known_categories,
    read_framework,
)
from guardmark.attacks.tables import families
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.core.version import VERSION
from guardmark.datasets.catalogue.settings import entry_names, find_entry
from guardmark.reports.chapters.crosswalk import NO_CONFORMITY

ROOT = Path(__file__).parents[2]
CODES = {
    "ailuminate": (r"[a-z]{3}", 12),
    "atlas": r"AML\.T\d{4}(\.\d{3})?",
    "eu-ai-act": r"(Art\. \d+\(\d+\)(\([a-z]\))?|Annex [IVX]+\(\d+\)\([a-z]\))",
    "nist-ai-rmf": r"(GOVERN|MAP|MEASURE|MANAGE) \d\.\d+",
    "owasp-agentic": (r"ASI\d{2}", 10),
    "owasp-llm": (r"LLM\d{2}:2025", 10),
    "owasp-llm-2023": (r"LLM\d{2}", 10),
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
    for item in read_framework(name).items:
        assert set(item.categories) <= known_categories()
        assert set(item.samples) <= known_categories() | {EVERY_ATTACK}
        assert set(item.figures) <= set(FIGURES)
        assert set(item.relevant) <= set(FIGURES) | known_categories()
        assert set(item.operators) <= set(families())


def test_every_category_and_technique_of_ours_has_a_code_in_a_framework() -> None:
    """Each finer category in OWASP's list and in ATLAS or NIST; each family of operators in ATLAS."""
    owasp, atlas, nist = map(read_framework, ("owasp-llm", "atlas", "nist-ai-rmf"))
    for category, finer in DEFAULT_TAXONOMY.items():
        for name in finer:
            assert code_of(owasp, category, name), f"{category}/{name}"
            assert code_of(nist, category, name) == "MEASURE 2.7"
    assert code_of(atlas, "direct_injection") == "AML.T0051.000"
    assert code_of(owasp, "extraction", "prompt_extraction") == "LLM07:2025"
    assert code_of(owasp, "extraction", "pii_extraction") == "LLM02:2025"
    assert code_of(owasp, "cooking") == ""
    assert code_of(read_framework("ailuminate"), "", "spc_hlt") == "spc"
    for family in families():
        assert len(codes_of_family(atlas, family)) == 1, family


def test_every_public_data_set_has_codes_that_exist_in_frameworks_that_hold() -> None:
    """A code that its framework does not have fails here, and so does a withdrawn version."""
    current = {each.key: each for each in current_frameworks()}
    for name in entry_names():
        codes = find_entry(name).codes
        assert codes, f"{name} has no codes"
        for key, known in codes.items():
            assert key in current, f"{name} names the framework {key}"
            for code in known:
                assert current[key].item(code).code == code


def test_a_code_that_does_not_exist_is_told_with_those_that_do() -> None:
    """The check above can fail."""
    with pytest.raises(UnknownName, match=r"LLM11:2025.*Known: LLM01:2025"):
        read_framework("owasp-llm").item("LLM11:2025")


OWN = """\
name = "House rules"
version = "3"
date = "2026-01-01"
source = "https://example.org/rules"

[[items]]
code = "R1"
title = "Nobody is talked out of the rules"
categories = ["{category}"]
"""


def test_the_next_framework_is_a_toml_file(tmp_path: Path) -> None:
    """Of the same form; a category that does not exist is refused, and so is a code twice."""
    path = tmp_path / "rules.toml"
    path.write_text(OWN.format(category="jailbreak"), encoding="utf-8")
    assert read_framework(str(path)).item("R1").categories == ("jailbreak",)
    for number, text in enumerate(
        (
            OWN.format(category="rudeness"),
            OWN.format(category="jailbreak").replace("version", "edition"),
            OWN.format(category="jailbreak") + '[[items]]\ncode = "R1"\ntitle = "Twice"\n',
            "name = ",
        )
    ):
        wrong = tmp_path / f"wrong-{number}.toml"
        wrong.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match="The framework"):
            read_framework(str(wrong))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run over the built-in data."""
    folder = tmp_path_factory.mktemp("home")
    assert guardmark("run", "--limit", "500", "-o", "run", cwd=folder).code == 0
    return folder


def test_the_rates_of_a_category_are_evidence_for_its_item(home: Path) -> None:
    """The same counts as in the summary; baselines are no evidence; what is missing is said."""
    told = json.loads(
        guardmark("report", "run", "--crosswalk", "owasp-llm", "--json", cwd=home).out
    )
    items = {each["code"]: each for each in told["items"]}
    summary = json.loads((home / "run/summary.json").read_text("utf-8"))
    (ngram,) = (each for each in summary["defenses"] if each["name"] == "ngram")
    (table,) = (t for t in ngram["slices"] if t["facet"] == "subcategory" and t["is_attack"])
    rates = {each["name"]: each["rate"] for each in table["rates"]}
    leaked = {each["defense"]: each for each in items["LLM07:2025"]["evidence"]}
    assert set(leaked) == {"ngram", "pattern"}
    asked = rates["extraction/prompt_extraction"]
    assert leaked["ngram"]["successes"] == asked["successes"]
    assert leaked["ngram"]["trials"] == asked["trials"]
    assert items["LLM01:2025"]["left_open"] == ["attack success in an agent"]
    assert items["LLM03:2025"]["evidence"] == []
    assert items["LLM03:2025"]["left_open"] == [
        "nothing that guardmark measures is evidence for this"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", CODES)
def test_a_crosswalk_claims_no_conformity(home: Path, name: str) -> None:
    """And says so itself."""
    done = guardmark("report", "run", "--crosswalk", name, cwd=home)
    assert done.code == 0, done.err
    told = " ".join(done.out.split())
    assert NO_CONFORMITY in told
    rest = told.replace(NO_CONFORMITY, "").casefold()
    assert not re.search(r"\b(conforms|compliant|compliance|certified|fulfils)\b", rest)


def test_a_withdrawn_version_says_so_and_what_took_its_place(home: Path) -> None:
    """It is still readable, stands on no card, and no data set is counted under it."""
    done = guardmark("report", "run", "--crosswalk", "owasp-llm-2023", cwd=home)
    told = " ".join(done.out.split())
    assert "OWASP Top 10 for LLM Applications 1.1 was withdrawn on 2024-11-18." in told
    assert "--crosswalk owasp-llm." in told
    done = guardmark("report", "run", "--crosswalk", "owasp-llm-2023", "--json", cwd=home)
    assert json.loads(done.out)["replaced_by"] == "owasp-llm"
    assert "owasp-llm-2023" not in {each.key for each in current_frameworks()}


SLICED = """\
version: 1
name: sliced
data: [{builtin: core}]
defenses: {pattern: {type: pattern, builtin: true}}
stats: {slices: [owasp, nist-ai-rmf]}
gate: {asr_upper: 1, fpr_upper: 1, per_metadata: {owasp: {"LLM07:2025": {asr_upper: 0.5}}}}
"""


@pytest.fixture(scope="module")
def sliced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that is sliced by OWASP's codes."""
    folder = tmp_path_factory.mktemp("sliced")
    (folder / "bench.yaml").write_text(SLICED, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "run", cwd=folder)
    assert done.code == 1, "a limit on a code is broken"
    assert re.search(r"LLM07:2025 +97\.8 % .* 50\.0 %", done.out)
    assert "stats.slices" not in done.err, "a framework is no field of the metadata"
    return folder


def test_samples_are_sliced_by_the_codes_of_a_framework(sliced: Path) -> None:
    """With counts and intervals: as many attacks as the categories of each code hold."""
    summary = json.loads((sliced / "run/summary.json").read_text("utf-8"))
    (pattern,) = summary["defenses"]
    tables = {(t["facet"], t["is_attack"]): t["rates"] for t in pattern["slices"]}
    codes = {each["name"]: each["rate"] for each in tables["owasp", True]}
    categories = {each["name"]: each["rate"] for each in tables["category", True]}
    finer = {each["name"]: each["rate"] for each in tables["subcategory", True]}
    expected = {
        "LLM01:2025": [
            categories[name] for name in ("direct_injection", "indirect_injection", "jailbreak")
        ],
        "LLM07:2025": [finer["extraction/prompt_extraction"]],
        "LLM02:2025": [
            finer[f"extraction/{name}"] for name in ("data_extraction", "pii_extraction")
        ],
    }
    for code, parts in expected.items():
        rate = codes[code]
        assert rate["trials"] == sum(each["trials"] for each in parts)
        assert rate["successes"] == sum(each["successes"] for each in parts)
        assert rate["low"] < rate["value"] < rate["high"]
    (every,) = tables["nist-ai-rmf", True]
    assert (every["name"], every["rate"]["trials"]) == ("MEASURE 2.7", 769)
    benign = {each["name"] for each in tables["owasp", False]}
    assert benign == {"(not stated)"}, "no benign sample is an item of a list of risks"


def test_samples_are_shown_by_a_code(sliced: Path) -> None:
    """Like by any other facet."""
    shown = guardmark("show", "run", "--where", "owasp=LLM05:2025", "--limit", "3", cwd=sliced)
    assert shown.code == 0, shown.err
    assert "output_manipulation" in shown.out


def test_a_field_of_the_data_that_is_called_like_a_framework_comes_first(tmp_path: Path) -> None:
    """It is what the owner of the data says."""
    rows = [
        {"id": f"{label}{n}", "text": f"{label} number {n}", "label": label, "owasp": "LLM99"}
        for label in ("attack", "benign")
        for n in range(6)
    ]
    lines = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "data.jsonl").write_text(lines, encoding="utf-8")
    config = SLICED.partition("gate:")[0].replace("{builtin: core}", "{path: data.jsonl}")
    (tmp_path / "bench.yaml").write_text(config, encoding="utf-8")
    assert guardmark("run", "bench.yaml", "-o", "run", cwd=tmp_path).code == 0
    summary = json.loads((tmp_path / "run/summary.json").read_text("utf-8"))
    tables = {(t["facet"], t["is_attack"]): t for t in summary["defenses"][0]["slices"]}
    assert [each["name"] for each in tables["owasp", True]["rates"]] == ["LLM99"]


def test_an_unknown_framework_is_told_with_those_there_are(home: Path) -> None:
    """Exit code 2."""
    done = guardmark("report", "run", "--crosswalk", "owasp", cwd=home)
    assert done.code == 2
    assert "owasp-llm" in done.err
    assert VERSION not in done.err
