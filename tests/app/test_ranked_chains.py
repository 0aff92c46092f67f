"""Which chains of a run are worth choosing is told on samples they were not chosen on."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from guardmark.analysis.compare.chains import Chain, ChainRanking, read_bench
from guardmark.analysis.compare.matching import OpenRun, match_runs
from guardmark.analysis.compare.runs_compared import Wanted
from guardmark.analysis.defense.frame import ALLOW
from guardmark.analysis.settings import AnalysisSettings
from guardmark.app.parts.loading import load_config
from guardmark.app.results.reading import compare_runs
from guardmark.app.run.running import RunOptions, Session, run
from guardmark.core.errors import ConfigError, IncomparableRuns
from guardmark.reports.chapters.chains import chains_document
from guardmark.reports.render.json.documents import document_schema, figures_json
from guardmark.reports.render.markdown import render_markdown
from guardmark.store.reader import RecordReader
from guardmark.store.run_dir import RunDir

WORDS = ("red", "green", "blue", "grey")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which two defenses see half of the attacks each, and two others nothing new."""
    home = tmp_path_factory.mktemp("chains")
    rows = [
        {
            "id": f"a{n}",
            "text": f"{WORDS[n % 2]} attack {n}",
            "label": "attack",
            "group": f"g{n // 2}",
        }
        for n in range(80)
    ] + [{"id": f"b{n}", "text": f"plain {n}", "label": "benign"} for n in range(40)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    defenses = {word: {"type": "pattern", "keywords": [word]} for word in WORDS}
    config = {
        "version": 1,
        "name": "chains",
        "data": [{"path": "rows.jsonl"}],
        "defenses": defenses,
        "report": [],
    }
    (home / "run.yaml").write_text(json.dumps(config))
    return run(load_config(home / "run.yaml"), RunOptions(out=home / "run"), Session()).folder.path


def ranked(path: Path, *only: str) -> ChainRanking:
    """All pairs of the named defenses of a run."""
    ranking = compare_runs([path], Wanted(only=only, chains=2)).chains
    assert ranking is not None
    return ranking


def test_the_pair_that_completes_each_other_stands_first(folder: Path) -> None:
    """It lets nothing through on the half it was not chosen on."""
    ranking = ranked(folder)
    assert ranking.tried == 4 + 2 * 6
    assert ranking.chosen_on + ranking.measured_on == 120
    assert {*ranking.cards[0].name.removeprefix("any(")[:-1].split(", ")} == {"red", "green"}
    assert ranking.cards[0].rates.attack_success_rate.successes == 0
    assert ranking.alone in {"red", "green"}


def test_groups_are_never_split_between_choosing_and_measuring(folder: Path) -> None:
    """Two attacks of one group are both measured, or neither."""
    rates = ranked(folder, "red").cards[0].rates
    assert rates.attack_success_rate.successes * 2 == rates.attack_success_rate.trials


def test_a_half_without_a_label_is_refused(folder: Path, tmp_path: Path) -> None:
    """One sample cannot stand on both sides."""
    rows = [{"text": "red", "label": "attack"}, {"text": "plain", "label": "benign"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = (folder.parent / "run.yaml").read_text()
    (tmp_path / "run.yaml").write_text(text)
    made = run(load_config(tmp_path / "run.yaml"), RunOptions(out=tmp_path / "run"), Session())
    with pytest.raises(IncomparableRuns, match="Next: measure on more data of both labels"):
        ranked(made.folder.path)


def test_what_chains_do_not_answer_is_refused(folder: Path) -> None:
    """A baseline or a margin beside all chains is not dropped without a word."""
    for against, margin in (("red", None), ("", 0.05)):
        with pytest.raises(ConfigError, match="leave out --against, --margin"):
            compare_runs([folder], Wanted(chains=2, against=against), margin=margin)


def test_what_each_member_adds_sums_to_what_the_chain_does(folder: Path) -> None:
    """Red and green block different attacks: each alone, and by half of them; benign ones nobody."""
    ranking = ranked(folder)
    pair = ranking.cards[0]
    shares = {(each.member, each.is_attack): each for each in ranking.shares[:4]}
    assert {each.chain for each in shares.values()} == {pair.name}
    of_attacks = [shares[word, True] for word in ("red", "green")]
    assert [(each.alone.value, each.shapley.value) for each in of_attacks] == [(0.5, 0.5)] * 2
    for each in shares.values():
        low, high = each.shapley.low, each.shapley.high
        assert low is not None
        assert high is not None
        assert low <= (each.shapley.value or 0.0) <= high
        assert each.alone.trials == each.shapley.trials > 0
    blocked = 1 - (pair.rates.attack_success_rate.value or 0.0)
    assert sum(each.shapley.value or 0.0 for each in of_attacks) == pytest.approx(blocked)


def test_a_sample_that_both_settle_counts_for_each_in_half(folder: Path) -> None:
    """Blue and grey block nothing: a chain of all allows everything, and neither does so alone."""
    with RecordReader(RunDir(path=folder).records) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        bench = read_bench(match_runs([OpenRun(label="r", reader=reader)], settings), WORDS[2:])
        shares = list(bench.shares(Chain((0, 1), ALLOW)))
    assert [each.alone.value for each in shares] == [0.0] * 4
    assert [each.shapley.value for each in shares] == [0.5] * 4
    assert all(each.shapley.low is not None for each in shares)


def test_the_json_of_chains_follows_its_schema(folder: Path) -> None:
    """With what each member adds."""
    document = json.loads(figures_json(ranked(folder)))
    jsonschema.validate(document, document_schema("chains"))
    assert document["shares"][0]["shapley"]["trials"] > 0
    text = render_markdown(chains_document(ranked(folder)))
    assert "What each member adds" in text
