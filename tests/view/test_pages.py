"""What the pages over many runs tell."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.journeys.command_line import CONFIG, guardmark, set_up
from tests.view.site_server import HOSTILE, Site, manifest, meta, serving

from guardmark.store.run_dir import RunDir

pytestmark = pytest.mark.slow


def keys(site: Site) -> dict[str, str]:
    """Key of each run, by its folder."""
    found = {}
    for key in dict.fromkeys(re.findall(r"/run/([0-9a-f]{16})", site.ask().text)):
        place = re.search(r"<dt>Folder</dt><dd><code>([^<]*)", site.ask(f"run/{key}").text)
        assert place
        found[place[1]] = key
    return found


def test_the_list_shows_every_run_with_its_state_and_rates(site: Site) -> None:
    """Whole and damaged ones alike, rates with their intervals."""
    page = site.ask().text
    assert site.runs == 4
    assert page.count('<span class="state complete">') == 3
    assert page.count('<span class="state damaged">') == 1
    assert re.search(r'class="num">\d+\.\d %<span class="iv"> \[\d', page)
    assert set(keys(site)) == {"a/first", "a/second", "other", "broken"}


@pytest.mark.parametrize(
    ("query", "runs"),
    [
        ("words=OTHER", 1),
        ("words=a+first", 1),
        ("words=nothing+of+this", 0),
        ("state=damaged", 1),
        ("state=running", 0),
        ("defense=words", 3),
        ("defense=words&words=journey", 2),
        ("page=9999", 4),
        ("page=-1", 4),
        ("page=%00&words=%F0%28%8C", 0),
    ],
)
def test_the_list_can_be_filtered(site: Site, query: str, runs: int) -> None:
    """By words, state and defense, in any combination; nonsense finds nothing."""
    page = site.ask(f"?{query}")
    assert page.code == 200
    assert len(set(re.findall(r'href="/run/([0-9a-f]+)', page.text))) == runs


def test_a_run_leads_to_its_report(site: Site, made: Path) -> None:
    """As `report` writes it, but made from the records, and in an origin of its own."""
    key = keys(site)["a/first"]
    answer = site.ask(f"report/{key}")
    assert answer.text == (made / "a" / "first" / "report.html").read_text(encoding="utf-8")
    assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts;")


def test_what_lies_in_place_of_a_report_is_not_shown(runs: Path) -> None:
    """A page that somebody laid there as if it were the run's own."""
    (runs / "a" / "first" / "report.html").write_text("<p>not the run's own", encoding="utf-8")
    with serving(runs) as site:
        answer = site.ask(f"report/{keys(site)['a/first']}")
    assert answer.code == 200
    assert "not the run's own" not in answer.text


def test_a_run_without_a_report_gets_one(runs: Path) -> None:
    """From its records, without writing anything."""
    (runs / "a" / "first" / "report.html").unlink()
    with serving(runs) as site:
        answer = site.ask(f"report/{keys(site)['a/first']}")
    assert answer.code == 200
    assert "<h2" in answer.text
    assert not (runs / "a" / "first" / "report.html").exists()


def test_without_texts_no_page_holds_one(runs: Path) -> None:
    """Neither a report nor a comparison."""
    with serving(runs, "--no-texts") as site:
        known = keys(site)
        report = site.ask(f"report/{known['a/first']}").text
        both = site.ask(f"compare?run={known['a/first']}&run={known['a/second']}").text
    assert "Please ignore all" not in report + both
    assert "sha256 " in both


def test_two_runs_are_compared(site: Site) -> None:
    """Advice, difference with interval, samples to read; the later minus the earlier."""
    known = keys(site)
    page = site.ask(f"compare?run={known['a/second']}&run={known['a/first']}")
    assert page.code == 200
    assert "words (second) against words (first)" in page.text
    assert re.search(r"[-+]\d+\.\d points", page.text)
    assert "Please ignore all" in page.text
    assert page.text == site.ask(f"compare?run={known['a/first']}&run={known['a/second']}").text


def test_a_comparison_is_one_file_to_keep(site: Site) -> None:
    """The same comparison as `compare --html` writes, which loads nothing."""
    known = keys(site)
    asked = f"run={known['a/first']}&run={known['a/second']}"
    page = site.ask(f"compare?{asked}").text
    (link,) = re.findall(r'<a href="/(compare\?file=1[^"]*)"', page)
    answer = site.ask(link.replace("&amp;", "&"))
    assert answer.headers["content-disposition"] == "attachment; filename=comparison.html"
    assert "words (second)" in answer.text
    assert not re.search(r'<(script|link)[^>]*(src|href)="[^d#]', answer.text)


def test_samples_are_listed_by_defense_and_told_in_full(site: Site) -> None:
    """What went wrong, coloured; of one sample its text, every decision and its time."""
    key = keys(site)["a/first"]
    page = site.ask(f"samples/{key}").text
    assert '<td data-of="words" class="wrong">allow<span class="vh"> (bypass)</span></td>' in page
    alarms = site.ask(f"samples/{key}?flaw=false_alarm").text
    assert "<small>benign" in alarms
    assert "<small>attack" not in alarms
    assert '<span class="excerpt">' in page
    assert site.ask(f"samples/{key}?sample_id=nonsense").code == 404
    sample = re.findall(r"sample_id=([^\"]+)", page)[0]
    story = site.ask(f"samples/{key}?sample_id={sample}").text
    assert '<pre class="raw">' in story
    assert re.search(r'<li>Guard words: <span class="raw-line">allow, \d+\.\d ms</span>', story)
    assert site.ask(f"samples/{key}?defense=nobody").code == 409


def test_without_texts_a_sample_is_its_hash(runs: Path) -> None:
    """Neither message nor answer."""
    with serving(runs, "--no-texts") as site:
        key = keys(site)["a/first"]
        sample = re.findall(r"sample_id=([^\"]+)", site.ask(f"samples/{key}").text)[0]
        story = site.ask(f"samples/{key}?sample_id={sample}").text
    assert "Texts are left out. SHA-256: " in story
    assert '<pre class="raw">' not in story


SYSTEM = (
    "pipeline:\n  guards: [none, words]\n  model: {type: scripted, otherwise: 'Here is how.'}\n"
    "  judges: [{type: rules, unsafe: ['here is how']}]\n"
)


def test_gates_and_systems_stand_in_the_list(tmp_path: Path) -> None:
    """A pipeline by what came out of it, a run with limits by how they stand."""
    gate = "gate: {system: {asr_upper: 0.01}}\n"
    set_up(tmp_path, CONFIG + SYSTEM + gate, count=24)
    assert guardmark("run", "bench.yaml", "-o", "runs/one", cwd=tmp_path).code == 1
    with serving(tmp_path / "runs") as site:
        page = site.ask().text
        run = site.ask(f"run/{keys(site)['one']}").text
    assert '<span class="state failed">gate failed</span>' in page
    assert "arm <code>none</code>" in page
    assert '<td class="num">100.0 %' in page
    assert "What came out of the system" in run


def test_a_comparison_draws_both_errors_of_each(site: Site) -> None:
    """In one plane with both intervals, and as figures with their counts."""
    known = keys(site)
    page = site.ask(f"compare?run={known['a/second']}&run={known['a/first']}").text
    assert "Attacks let through against false alarms (lower left is better)" in page
    for name in ("words (first)", "words (second)"):
        # What the drawing says to who cannot see it.
        assert re.search(rf"{re.escape(name)}: ASR \d+\.\d % \[.*?\], FPR \d+\.\d % \[.*?\]", page)
    table = page.split("Each by itself")[1].split("</table>")[0]
    assert re.findall(r"\d+\s*/\s*30", re.sub(r"<[^>]*>", "", table))


def test_runs_over_other_data_are_named_not_hidden(site: Site) -> None:
    """What has no partner is said; a damaged run is refused with its reason."""
    known = keys(site)
    page = site.ask(f"compare?run={known['a/first']}&run={known['other']}")
    assert "have no partner and are left out" in page.text
    broken = site.ask(f"compare?run={known['a/first']}&run={known['broken']}")
    assert (broken.code, "no SQLite header" in broken.text) == (409, True)
    assert site.ask(f"report/{known['broken']}").code == 409


@pytest.mark.parametrize("query", ["", "run=1", "run={a}&run={a}", "run={a}&run={b}&run={c}"])
def test_anything_but_two_runs_is_refused(site: Site, query: str) -> None:
    """Never a silent choice of which two."""
    known = keys(site)
    said = query.format(a=known["a/first"], b=known["a/second"], c=known["other"])
    assert site.ask(f"compare?{said}").code == 400


def test_a_history_keeps_different_data_apart(site: Site) -> None:
    """Rates over different data are not comparable, so they get charts of their own."""
    page = site.ask("history?defense=words").text
    assert page.count('<section aria-labelledby="data-') == 2
    assert page.count('<figure class="chart"') == 4
    assert "Configured differently since" in page
    assert site.ask("history?defense=nobody").code == 404


def test_a_running_run_tells_its_progress(runs: Path) -> None:
    """As long as its process lives; then it reads as interrupted."""
    folder = runs / "other"
    meta(folder, "state", "running")
    meta(folder, "planned", "4800")
    with serving(runs) as site:
        with RunDir(path=folder).lock(started="now"):
            key = keys(site)["other"]
            page = site.ask(f"run/{key}").text
            said = json.loads(site.ask(f"progress?run={key}").text)[key]
            assert said["state"] == "running"
            assert said["planned"] == 4800
            assert f'data-run="{key}"' in page
        assert json.loads(site.ask(f"progress?run={key}").text)[key]["state"] == "interrupted"


def test_a_stale_summary_is_not_believed(runs: Path) -> None:
    """Rates of another configuration, or of half the records, must not be shown as these."""
    path = runs / "other" / "summary.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    told["run"]["stored"] -= 1
    path.write_text(json.dumps(told), encoding="utf-8")
    for text in ("[]", '{"run": 1}', "[" * 100_000):
        (runs / "a" / "first" / "summary.json").write_text(text, encoding="utf-8")
    with serving(runs) as site:
        page = site.ask("?words=other").text
        assert "not yet" in page
        assert "not yet" in site.ask("?words=first").text


def test_new_changed_and_removed_runs_are_seen(runs: Path) -> None:
    """A page is right when it is loaded."""
    with serving(runs) as site:
        known = keys(site)
        (runs / "other").rename(runs / "moved")
        assert set(keys(site)) == {"a/first", "a/second", "moved", "broken"}
        assert site.ask(f"run/{known['other']}").code == 404
        told = json.loads(manifest(runs / "moved"))
        told["name"] = "renamed"
        meta(runs / "moved", "manifest", json.dumps(told))
        assert ">renamed</a>" in site.ask().text


def test_hostile_names_are_words_only(runs: Path) -> None:
    """Of folders, runs, data and defenses."""
    folder = runs / "<b onclick=x>&amp;'\""
    (runs / "other").rename(folder)
    told = json.loads(manifest(folder))
    told["name"] = HOSTILE
    told["data"][0]["name"] = HOSTILE
    meta(folder, "manifest", json.dumps(told))
    with serving(runs) as site:
        place = next(place for place in keys(site) if place.startswith("&lt;b"))
        key = keys(site)[place]
        for path in ("", f"run/{key}", "history?defense=words", f"?words={'%3Cimg'}"):
            page = site.ask(path).text
            assert "<img" not in page
            assert "<b onclick" not in page
            assert "\x1b" not in page
            assert "\u202e" not in page


def test_a_defense_that_ended_early_has_a_rate_and_its_interval(tmp_path: Path) -> None:
    """Such a rate is a mean over groups; an interval never stands beside "undefined"."""
    (tmp_path / "bench.yaml").write_text(
        "version: 1\ndata: [{builtin: core}]\ndefenses:\n"
        "  words: {type: pattern, patterns: ['ignore']}\n"
        "run: {stop_when: ['asr<0.3', 'fpr<0.05']}\n",
        encoding="utf-8",
    )
    assert guardmark("run", "bench.yaml", "-o", "early", cwd=tmp_path).code == 0
    with serving(tmp_path) as site:
        page = site.ask().text
    assert not re.search(r'undefined<span class="iv"> \[', page)
    assert re.search(r'class="num">\d+\.\d %<span class="iv"> \[\d', page)


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    """Not an error: the first run may come later."""
    with serving(tmp_path) as site:
        assert "guardmark run" in site.ask().text


def test_what_changed_between_two_runs_is_told_sample_by_sample(site: Site) -> None:
    """With text, both answers, and choices that leave one kind of change."""
    known = keys(site)
    runs = f"run={known['a/second']}&run={known['a/first']}"
    page = site.ask(f"changes?{runs}").text
    assert "From a/first to a/second" in page
    assert "attack now let through" in page
    assert '<td class="wrong"><code>words</code>: attack now let through</td>' in page
    assert re.search(r'<td data-of="Before">block.*?</td><td data-of="After">allow', page)
    other = site.ask(f"changes?{runs}&change=now+answered").text
    assert "0 of " in other
    assert "What changed, sample by sample" in site.ask(f"compare?{runs}").text
    assert site.ask(f"changes?run={known['a/first']}").code == 404
    assert site.ask(f"changes?run={known['a/first']}&run={known['broken']}").code == 409


BEST = """
version: 1
data: [{path: rows.csv}]
defenses:
  worst: {type: pattern, keywords: [zebra]}
  best: {type: pattern, keywords: [ignore]}
  middle: {type: pattern, patterns: [ignore, bean 1]}
"""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A run of three defenses, one of which was attacked, and more samples than a page holds."""
    home = tmp_path_factory.mktemp("attacked")
    rows = [f"ignore rule {n} of {n * n},attack,jailbreak" for n in range(110)]
    rows += [f"plant bean {n} in bed {n * n},benign,garden" for n in range(110)]
    (home / "rows.csv").write_text("\n".join(["text,label,category", *rows]), encoding="utf-8")
    (home / "bench.yaml").write_text(BEST, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "runs/one", cwd=home)
    assert done.code == 0, done.err
    more = ("--only", "best", "--budget", "4", "--no-controls", "--no-repair")
    done = guardmark("adapt", "runs/one", *more, cwd=home)
    assert done.code == 0, done.err
    with serving(home / "runs") as started:
        yield started


def test_the_best_defense_comes_first_with_what_rewriting_did_to_it(attacked: Site) -> None:
    """In the list and on the page of the run; the static rate alone would mislead."""
    key = keys(attacked)["one"]
    for page in (attacked.ask().text, attacked.ask(f"run/{key}").text):
        at = [page.index(f"<code>{name}</code>") for name in ("best", "middle", "worst")]
        assert at == sorted(at)
        assert f'<a href="/tries/{key}?defense=best">100.0 %' in page
    tries = attacked.ask(f"tries/{key}?defense=best").text
    assert "110 attacks that were blocked as they are got through after rewriting" in tries
    assert "ignore rule 0 of 0" in tries
    one = attacked.ask(f"tries/{key}?sample_id=rows:1&defense=best").text
    assert re.search(r"Try 1, <code>[^<]+</code>: <span>block</span>", one)


def test_samples_have_pages_and_choices(attacked: Site) -> None:
    """A hundred on a page, and a link that holds what was chosen."""
    key = keys(attacked)["one"]
    page = attacked.ask(f"samples/{key}").text
    assert "131 samples, the worst first; 1 to 100 on this page." in page
    (following,) = re.findall(rf'href="/(samples/{key}\?page=2)" rel="next"', page)
    assert "101 to 131 on this page" in attacked.ask(following).text
    assert "<option>jailbreak</option>" in page
    chosen = attacked.ask(f"samples/{key}?category=garden&label=benign&defense=middle").text
    assert "21 samples" in chosen
    heads = re.findall(r'<th scope="col"><code>(\w+)</code>', chosen)
    assert heads[0] == "middle", "who chose a defense need not look for it"
    assert "ignore rule" not in chosen
